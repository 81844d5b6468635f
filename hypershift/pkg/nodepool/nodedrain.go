package nodepool

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

// Drain evicts the pods of nodes, as Cluster API does before it deletes a machine. It uses the eviction API, so
// disruption budgets apply. Pods of DaemonSets and mirror pods are ignored, because they would be created again. Drain
// also acts as the kubelets: pods that are being deleted terminate immediately. It returns the number of remaining pods
// by node.
func (m *NodeManager) Drain(ctx context.Context, controlPlane string, nodes []string) (remaining map[string]int, err error) {
	c, err := m.cluster(ctx, controlPlane)
	if err != nil {
		return nil, err
	}
	remaining = map[string]int{}
	for _, name := range nodes {
		pods, err := c.pods(ctx, name)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			if ignoredByDrain(&pods[i]) {
				continue
			}
			gone, err := c.evict(ctx, &pods[i])
			if err != nil {
				return nil, fmt.Errorf("draining node %s: %w", name, err)
			}
			if !gone {
				remaining[name]++
			}
		}
	}
	return remaining, nil
}

func (c *cluster) pods(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

func ignoredByDrain(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	return slices.ContainsFunc(pod.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "DaemonSet" && o.Controller != nil && *o.Controller
	})
}

// evict requests a pod's eviction. It returns false without an error if a disruption budget does not allow it now.
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
	if err := c.deletePod(ctx, pod); err != nil {
		return false, err
	}
	// A pod with finalizers still exists.
	return len(pod.Finalizers) == 0, nil
}

// deletePod deletes a pod with grace period 0, as a kubelet does when a pod that is being deleted has stopped.
func (c *cluster) deletePod(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
