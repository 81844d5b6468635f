package node

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Drain moves the pods of nodes away, as Cluster API does before it deletes a machine: through evictions, which disruption
// budgets may refuse. Pods of DaemonSets and of the node itself stay, for they would come back. It plays the kubelets, too:
// what is being deleted there ends at once. It returns how many pods are left of those that have to go, by node.
func (k *Keeper) Drain(ctx context.Context, controlPlane string, nodes []string) (left map[string]int, err error) {
	c, err := k.cluster(ctx, controlPlane)
	if err != nil {
		return nil, err
	}
	left = map[string]int{}
	for _, name := range nodes {
		pods, err := c.pods(ctx, name)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			if staysInDrain(&pods[i]) {
				continue
			}
			gone, err := c.evict(ctx, &pods[i])
			if err != nil {
				return nil, fmt.Errorf("draining node %s: %w", name, err)
			}
			if !gone {
				left[name]++
			}
		}
	}
	return left, nil
}

func (c *cluster) pods(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

func staysInDrain(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" && o.Controller != nil && *o.Controller
	})
}

// evict asks for a pod's eviction. A budget that allows none now is no error.
func (c *cluster) evict(ctx context.Context, pod *corev1.Pod) (gone bool, err error) {
	if pod.DeletionTimestamp.IsZero() {
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}}
		err := c.client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, eviction)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return true, nil
		case apierrors.IsTooManyRequests(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if err := c.end(ctx, pod); err != nil {
		return false, err
	}
	// One with finalizers is still there.
	return len(pod.Finalizers) == 0, nil
}

// end is what a kubelet does when a pod that is being deleted has stopped.
func (c *cluster) end(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("ending pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
