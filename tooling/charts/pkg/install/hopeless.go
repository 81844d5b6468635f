package install

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// maxStarts is the number of times that a container may end, or that its image may not be pulled, until its pod is hopeless. Kubernetes repeats
// both after growing pauses: three take about half a minute.
const maxStarts = 3

// starts counts the failed starts of the containers of pods.
type starts struct {
	// pulls counts the failed pulls of a container's image, and waiting has the last reason for which it waited.
	pulls   map[string]int
	waiting map[string]string
}

// hopeless returns why a pod cannot become ready, or nothing. It is called with each change of the pod. A pod that waits for a Secret or a volume
// is not hopeless, because something else can create them.
func (s *starts) hopeless(pod *corev1.Pod) string {
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		reason, key := "", string(pod.UID)+"/"+container.Name
		if container.State.Waiting != nil {
			reason = container.State.Waiting.Reason
		}
		// The kubelet alternates between both reasons.
		if reason == "ErrImagePull" && s.waiting[key] != reason {
			s.pulls[key]++
		}
		s.waiting[key] = reason
		switch {
		case reason == "InvalidImageName":
			return fmt.Sprintf("pod %s: the image %q of the container %s has an invalid name", pod.Name, container.Image, container.Name)
		case s.pulls[key] >= maxStarts:
			return fmt.Sprintf("pod %s: the image %s of the container %s could not be pulled: %s", pod.Name, container.Image, container.Name, container.State.Waiting.Message)
		case reason == "CrashLoopBackOff" && container.RestartCount >= maxStarts:
			return fmt.Sprintf("pod %s: the container %s has ended %d times%s", pod.Name, container.Name, container.RestartCount+1, lastExit(container))
		}
	}
	return ""
}

// lastExit describes the last end of a container.
func lastExit(container corev1.ContainerStatus) string {
	if last := container.LastTerminationState.Terminated; last != nil {
		return fmt.Sprintf(", at last with exit code %d", last.ExitCode)
	}
	return ""
}

// watchPods watches the pods of a workload's current revision, until one of them is hopeless or ctx ends. It returns why the pod is hopeless. Pods
// of another revision are those that an upgrade replaces.
func (c *client) watchPods(ctx context.Context, info *resource.Info) (reason string, err error) {
	object, isObject := info.Object.(*unstructured.Unstructured)
	if !isObject {
		return "", nil
	}
	labels, found, err := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
	if err != nil || !found {
		return "", err
	}
	clients, err := c.Factory.KubernetesClientSet()
	if err != nil {
		return "", err
	}
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})
	source := cache.NewFilteredListWatchFromClient(clients.CoreV1().RESTClient(), "pods", info.Namespace, func(o *metav1.ListOptions) { o.LabelSelector = selector })
	counted := &starts{pulls: map[string]int{}, waiting: map[string]string{}}
	_, err = watchtools.UntilWithSync(ctx, source, &corev1.Pod{}, nil, func(event watch.Event) (bool, error) {
		pod, isPod := event.Object.(*corev1.Pod)
		if !isPod || event.Type == watch.Deleted || pod.DeletionTimestamp != nil {
			return false, nil
		}
		if reason = counted.hopeless(pod); reason == "" {
			return false, nil
		}
		current, err := isCurrent(ctx, clients, info, pod)
		if !current {
			reason = ""
		}
		return current, err
	})
	if ctx.Err() != nil {
		return reason, nil // the workload is ready, or the wait has ended
	}
	return reason, err
}

// revisionAnnotation has the number of a ReplicaSet, and of the current one in the Deployment.
const revisionAnnotation = "deployment.kubernetes.io/revision"

// isCurrent reports whether a pod belongs to the current revision of a workload. It waits until the controller has seen the newest configuration,
// because a hopeless pod may not change any more.
func isCurrent(ctx context.Context, clients kubernetes.Interface, info *resource.Info, pod *corev1.Pod) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return false, nil
	}
	switch kind := info.Mapping.GroupVersionKind.Kind; {
	case kind == "Deployment" && owner.Kind == "ReplicaSet":
		if err := awaitObserved(ctx, info); err != nil {
			return false, err
		}
		deployment, err := clients.AppsV1().Deployments(info.Namespace).Get(ctx, info.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		set, err := clients.AppsV1().ReplicaSets(info.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return isOwned(set.ObjectMeta, deployment.UID) && set.Annotations[revisionAnnotation] == deployment.Annotations[revisionAnnotation], nil
	case kind == "StatefulSet" && owner.Kind == kind:
		if err := awaitObserved(ctx, info); err != nil {
			return false, err
		}
		set, err := clients.AppsV1().StatefulSets(info.Namespace).Get(ctx, info.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return pod.Labels[appsv1.ControllerRevisionHashLabelKey] == set.Status.UpdateRevision, nil
	case kind == "Job" && owner.Kind == kind:
		return owner.Name == info.Name, nil
	}
	return false, nil
}

// awaitObserved waits until the controller of a workload has seen its newest configuration.
func awaitObserved(ctx context.Context, info *resource.Info) error {
	return untilObject(ctx, info, func(object *unstructured.Unstructured) (bool, error) {
		observed, _, err := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
		return observed >= object.GetGeneration(), err
	})
}

// isOwned reports whether an object has a controller.
func isOwned(object metav1.ObjectMeta, by types.UID) bool {
	owner := metav1.GetControllerOfNoCopy(&object)
	return owner != nil && owner.UID == by
}
