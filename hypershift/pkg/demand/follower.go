package demand

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/follow"
)

// Follower follows the pods of hosted clusters, named by their control-plane namespaces. It owns one watch per hosted cluster
// that was asked for.
type Follower struct {
	*follow.Follower[map[string]Pod]
}

// NewFollower returns a follower of nothing. changed is called with a control plane whose pods ask for something else now.
// Close must be called.
func NewFollower(connect follow.Connect, changed func(controlPlane string), log *slog.Logger) *Follower {
	return &Follower{follow.New(follow.Kind[map[string]Pod]{
		Plural: "pods", UserAgent: "cluster-autoscaler/hcpmesh", New: func() map[string]Pod { return map[string]Pod{} },
		Informer: informer, Learn: learn, Unlearn: unlearn,
	}, connect, changed, log)}
}

// Pods are those of a hosted cluster, which is followed from now on. Until they have been listed nothing is known; changed is
// called when that is over.
func (f *Follower) Pods(ctx context.Context, controlPlane string) (pods []Pod, known bool) {
	known = f.Look(ctx, controlPlane, func(kept map[string]Pod) {
		for _, pod := range kept {
			pods = append(pods, pod)
		}
	})
	return pods, known
}

func informer(_ context.Context, client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(essence)).Core().V1().Pods().Informer(), nil
}

// essence drops what does not decide on a pod's place before it is kept.
func essence(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp}}
	bare.Spec.NodeName, bare.Spec.NodeSelector, bare.Spec.Tolerations, bare.Spec.Priority = pod.Spec.NodeName, pod.Spec.NodeSelector, pod.Spec.Tolerations, pod.Spec.Priority
	bare.Status.Phase = pod.Status.Phase
	for i := range pod.Spec.Containers {
		bare.Spec.Containers = append(bare.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: pod.Spec.Containers[i].Resources.Requests}})
	}
	return bare, nil
}

// read makes a pod of ours; ok is false for one that needs no place any more.
func read(pod *corev1.Pod) (p Pod, ok bool) {
	if !pod.DeletionTimestamp.IsZero() || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	p = Pod{Name: nameOf(pod), Node: pod.Spec.NodeName, Selector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	for i := range pod.Spec.Containers {
		requests := pod.Spec.Containers[i].Resources.Requests
		p.MilliCPU += requests.Cpu().MilliValue()
		p.Bytes += requests.Memory().Value()
	}
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	for _, owner := range pod.OwnerReferences {
		p.Daemon = p.Daemon || owner.Kind == "DaemonSet"
	}
	return p, true
}

func nameOf(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func learn(kept map[string]Pod, object any) (changed bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	p, wanted := read(pod)
	if !wanted {
		return unlearn(kept, object)
	}
	before, had := kept[p.Name]
	kept[p.Name] = p
	// Of a pod that exists only its place changes.
	return !had || before.Node != p.Node
}

func unlearn(kept map[string]Pod, object any) (changed bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	_, had := kept[nameOf(pod)]
	delete(kept, nameOf(pod))
	return had
}
