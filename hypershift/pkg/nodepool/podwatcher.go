package nodepool

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedclient"
)

// PodWatcher watches the pods of hosted clusters, which are identified by their control-plane namespaces. It runs one
// watch per hosted cluster whose pods were read.
type PodWatcher struct {
	*hostedclient.Watcher[map[string]Pod]
}

// NewPodWatcher returns a PodWatcher without hosted clusters. changed is called with a control-plane namespace when the
// demand of its pods changed. The caller must call Close.
func NewPodWatcher(connect hostedclient.Connect, changed func(controlPlane string), log *slog.Logger) *PodWatcher {
	return &PodWatcher{hostedclient.NewWatcher(hostedclient.Resource[map[string]Pod]{
		Plural: "pods", UserAgent: "cluster-autoscaler/hcpmesh", NewState: func() map[string]Pod { return map[string]Pod{} },
		NewInformer: newPodInformer, Add: addPod, Remove: removePod,
	}, connect, changed, log)}
}

// Pods returns the pods of a hosted cluster, and starts to watch it if necessary. known is false until the pods have
// been listed; changed is called afterwards.
func (w *PodWatcher) Pods(ctx context.Context, controlPlane string) (pods []Pod, known bool) {
	known = w.Read(ctx, controlPlane, func(byName map[string]Pod) {
		for _, pod := range byName {
			pods = append(pods, pod)
		}
	})
	return pods, known
}

func newPodInformer(_ context.Context, client kubernetes.Interface) (cache.SharedIndexInformer, error) {
	return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trimPod)).Core().V1().Pods().Informer(), nil
}

// trimPod removes the fields that do not decide on a pod's placement before the informer stores it.
func trimPod(object any) (any, error) {
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

// fromPod converts a pod. ok is false for one that needs no capacity any more.
func fromPod(pod *corev1.Pod) (p Pod, ok bool) {
	if !pod.DeletionTimestamp.IsZero() || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	p = Pod{Name: podName(pod), Node: pod.Spec.NodeName, Selector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	for i := range pod.Spec.Containers {
		requests := pod.Spec.Containers[i].Resources.Requests
		p.MilliCPU += requests.Cpu().MilliValue()
		p.Bytes += requests.Memory().Value()
	}
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	for _, owner := range pod.OwnerReferences {
		p.DaemonSet = p.DaemonSet || owner.Kind == "DaemonSet"
	}
	return p, true
}

func podName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func addPod(byName map[string]Pod, object any) (changed bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	p, wanted := fromPod(pod)
	if !wanted {
		return removePod(byName, object)
	}
	before, had := byName[p.Name]
	byName[p.Name] = p
	// Of an existing pod only the node changes.
	return !had || before.Node != p.Node
}

func removePod(byName map[string]Pod, object any) (changed bool) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return false
	}
	_, had := byName[podName(pod)]
	delete(byName, podName(pod))
	return had
}
