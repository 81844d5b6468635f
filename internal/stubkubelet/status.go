package stubkubelet

import (
	"context"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// step is the next write of a kubelet for a pod.
type step int

const (
	stepNone step = iota
	// stepStart reports the pod as Running.
	stepStart
	// stepComplete completes the deletion of a pod.
	stepComplete
)

// nextStep decides what the kubelet of a node writes for a pod.
func nextStep(object *corev1.Pod, node nodeState) step {
	switch {
	case node < nodeStarting:
		return stepNone
	case !object.DeletionTimestamp.IsZero():
		// A grace period of 0 was this kubelet's own deletion, and the pod has finalizers.
		if grace := object.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
			return stepNone
		}
		return stepComplete
	case node == nodeReady && (object.Status.Phase == corev1.PodPending || object.Status.Phase == ""):
		return stepStart
	}
	return stepNone
}

// writeStatuses writes until the queue is shut down. A write that failed is repeated after a growing pause.
func (c *cluster) writeStatuses() {
	for {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if err := c.write(name); err != nil && c.ctx.Err() == nil {
			c.server.options.Log.Debug("writing the status of a simulated pod failed; retrying", logkey.ControlPlane, c.name, logkey.Name, name.String(), logkey.Error, err)
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// write makes the next write for a pod. A pod that has changed since is considered again because of its event.
func (c *cluster) write(name types.NamespacedName) error {
	c.mu.Lock()
	p := c.pods[name]
	if p == nil {
		c.mu.Unlock()
		return nil
	}
	object := p.object
	next := nextStep(object, c.state(c.nodes[object.Spec.NodeName]))
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	var err error
	switch next {
	case stepStart:
		_, err = c.client.CoreV1().Pods(name.Namespace).UpdateStatus(ctx, started(object, metav1.Now()), metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return nil
		}
	case stepComplete:
		options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(object.UID))}
		err = c.client.CoreV1().Pods(name.Namespace).Delete(ctx, name.Name, options)
		if apierrors.IsConflict(err) {
			return nil
		}
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// started returns a pod whose containers run since now.
func started(object *corev1.Pod, now metav1.Time) *corev1.Pod {
	object = object.DeepCopy()
	status := &object.Status
	status.Phase, status.StartTime = corev1.PodRunning, &now
	status.HostIP, status.PodIP = Address, podAddress(object.UID)
	status.HostIPs, status.PodIPs = []corev1.HostIP{{IP: status.HostIP}}, []corev1.PodIP{{IP: status.PodIP}}
	status.Conditions = nil
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	status.ContainerStatuses, status.InitContainerStatuses = nil, nil
	for i := range object.Spec.InitContainers {
		container := &object.Spec.InitContainers[i]
		if restartable(container) {
			status.InitContainerStatuses = append(status.InitContainerStatuses, runningStatus(object, container, now))
			continue
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, ImageID: imageID(container), ContainerID: containerID(object, container), Ready: true, Started: new(bool),
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: containerID(object, container)}},
		})
	}
	for i := range object.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, runningStatus(object, &object.Spec.Containers[i], now))
	}
	return object
}

func restartable(container *corev1.Container) bool {
	return container.RestartPolicy != nil && *container.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func runningStatus(object *corev1.Pod, container *corev1.Container, now metav1.Time) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: container.Name, Image: container.Image, ImageID: imageID(container), ContainerID: containerID(object, container), Ready: true, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}}
}

func imageID(container *corev1.Container) string { return "simulated://" + container.Image }

func containerID(object *corev1.Pod, container *corev1.Container) string {
	return "simulated://" + string(object.UID) + "/" + container.Name
}

// podAddress returns an address in 198.18.0.0/15, which RFC 2544 reserves for benchmarks, so that it reaches nothing.
func podAddress(uid types.UID) string {
	var sum uint32 = 2166136261
	for _, b := range []byte(uid) {
		sum = (sum ^ uint32(b)) * 16777619
	}
	return net.IPv4(198, 18+byte(sum>>16&1), byte(sum>>8), byte(sum)).String()
}

// declaredPorts returns the TCP ports of a pod, as text in the order of its containers.
func declaredPorts(object *corev1.Pod) []string {
	var ports []string
	for _, containers := range [][]corev1.Container{object.Spec.InitContainers, object.Spec.Containers} {
		for i := range containers {
			for _, port := range containers[i].Ports {
				if port.Protocol == corev1.ProtocolTCP || port.Protocol == "" {
					ports = append(ports, strconv.Itoa(int(port.ContainerPort)))
				}
			}
		}
	}
	return ports
}
