package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"helm.sh/helm/v3/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// Unready is an object that is not ready, or a job or a pod that has not completed.
type Unready struct {
	// Object is KIND NAMESPACE/NAME.
	Object string
	// Message describes its state.
	Message string
}

// NotReadyError lists the objects that did not become ready in time, the jobs that failed, and the workloads with a hopeless pod.
type NotReadyError struct {
	// Within is the time that has passed, or zero if an object failed before.
	Within  time.Duration
	Objects []Unready
}

// Error lists the objects.
func (e *NotReadyError) Error() string {
	var objects []string
	for _, o := range e.Objects {
		objects = append(objects, o.Object+": "+o.Message)
	}
	list := strings.Join(objects, "; ")
	if e.Within == 0 {
		return "failed: " + list
	}
	return fmt.Sprintf("not ready within %s: %s", e.Within, list)
}

// client is Helm's client, except that it waits for objects with watches and until ctx ends. Helm's own polls and has no context.
type client struct {
	*kube.Client
	ctx context.Context
	log io.Writer
	// undefined are kinds that the cluster lacks until the chart is installed.
	undefined map[schema.GroupKind]bool

	mu sync.Mutex
	// failure is the error of the last wait, of which Helm keeps only the text.
	failure *NotReadyError
}

// Wait waits until objects are ready.
func (c *client) Wait(resources kube.ResourceList, timeout time.Duration) error {
	return c.wait(resources, timeout)
}

// WaitWithJobs waits until objects are ready and jobs have completed.
func (c *client) WaitWithJobs(resources kube.ResourceList, timeout time.Duration) error {
	return c.wait(resources, timeout)
}

// WatchUntilReady waits until the objects of a hook are ready, and its jobs and pods have completed.
func (c *client) WatchUntilReady(resources kube.ResourceList, timeout time.Duration) error {
	return c.wait(resources, timeout)
}

// cause returns the error of the last wait instead of an error that Helm made from its text.
func (c *client) cause(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil || c.failure == nil {
		return err
	}
	failure := c.failure
	c.failure = nil
	return failure
}

// verdict is the state of one object.
type verdict struct {
	ready, failed bool
	message       string
}

// judge returns the state of an object. A job is ready when it has completed. A Deployment that exceeded its deadline is not failed, because
// it can still become ready; the limit of the wait decides.
func judge(object *unstructured.Unstructured) (verdict, error) {
	result, err := status.Compute(object)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{ready: result.Status == status.CurrentStatus, message: result.Message}
	if object.GetKind() != "Job" {
		return v, nil
	}
	v.ready, v.failed = false, result.Status == status.FailedStatus
	conditions, err := status.GetObjectWithConditions(object.Object)
	if err != nil {
		return verdict{}, err
	}
	for _, condition := range conditions.Status.Conditions {
		v.ready = v.ready || condition.Type == "Complete" && condition.Status == corev1.ConditionTrue
	}
	return v, nil
}

// wait waits for all objects. It ends early if a job fails, or if a pod of a workload is hopeless.
func (c *client) wait(resources kube.ResourceList, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(c.ctx, timeout)
	defer cancel()
	verdicts, errs, hopeless := make([]verdict, len(resources)), make([]error, len(resources)), make([]string, len(resources))
	var watches sync.WaitGroup
	for n, info := range resources {
		if object, isObject := info.Object.(*unstructured.Unstructured); isObject {
			// The response to a write has the state of objects that nothing changes afterwards.
			if verdicts[n], errs[n] = judge(object); errs[n] == nil && verdicts[n].ready {
				continue
			}
		}
		watches.Go(func() {
			watching, ready := context.WithCancel(ctx)
			var pods sync.WaitGroup
			defer pods.Wait()
			defer ready()
			pods.Go(func() {
				var err error
				// A wait without the reasons of pods ends at its limit.
				if hopeless[n], err = c.watchPods(watching, info); err == nil && hopeless[n] != "" {
					cancel()
				}
			})
			if errs[n] = watchObject(ctx, info, &verdicts[n]); errs[n] != nil || verdicts[n].failed {
				cancel()
			}
		})
	}
	watches.Wait()
	for n, reason := range hopeless {
		if reason != "" && !verdicts[n].ready {
			verdicts[n].failed, verdicts[n].message = true, reason
		}
	}
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	failure := &NotReadyError{Within: timeout}
	for _, failed := range []bool{true, false} {
		for n, v := range verdicts {
			if !v.ready && v.failed == failed {
				failure.Objects = append(failure.Objects, c.describe(resources[n], v))
			}
		}
		if failed && len(failure.Objects) > 0 {
			failure.Within = 0
			break // the others were not awaited
		}
	}
	if len(failure.Objects) == 0 {
		return nil
	}
	c.mu.Lock()
	c.failure = failure
	c.mu.Unlock()
	return failure
}

// watchObject watches an object until it is ready or failed, or until ctx ends. The result is the last state that it has seen.
func watchObject(ctx context.Context, info *resource.Info, last *verdict) error {
	err := untilObject(ctx, info, func(object *unstructured.Unstructured) (bool, error) {
		var err error
		*last, err = judge(object)
		return last.ready || last.failed, err
	})
	if ctx.Err() != nil {
		return nil // the state is not final
	}
	return err
}

// untilObject watches an object until met returns true or an error, or until ctx ends. It returns an error if the object is deleted. met does not get states
// from before the write that info has the response of.
func untilObject(ctx context.Context, info *resource.Info, met func(object *unstructured.Unstructured) (bool, error)) error {
	byName := fields.OneTermEqualSelector("metadata.name", info.Name)
	source := cache.NewListWatchFromClient(info.Client, info.Mapping.Resource.Resource, info.Namespace, byName)
	_, err := watchtools.UntilWithSync(ctx, source, &unstructured.Unstructured{}, nil, func(event watch.Event) (bool, error) {
		object, isObject := event.Object.(*unstructured.Unstructured)
		switch {
		case !isObject:
			return false, fmt.Errorf("watching %s: unexpected %T", idOf(info), event.Object)
		case precedes(object, info):
			return false, nil
		case event.Type == watch.Deleted:
			return false, fmt.Errorf("%s was deleted while it was awaited", idOf(info))
		}
		return met(object)
	})
	return err
}

// precedes reports whether a state of an object is from before the write that info has the response of: it is of a deleted object with the same name, or of an
// earlier generation. A watch begins with the state in the cache of the API server, which may not have the last writes yet. An info without a response has no UID,
// and nothing precedes it.
func precedes(object *unstructured.Unstructured, info *resource.Info) bool {
	written, isObject := info.Object.(*unstructured.Unstructured)
	return isObject && written.GetUID() != "" && (object.GetUID() != written.GetUID() || object.GetGeneration() < written.GetGeneration())
}

func idOf(info *resource.Info) string {
	return info.Mapping.GroupVersionKind.Kind + " " + strings.TrimPrefix(info.Namespace+"/"+info.Name, "/")
}

// maxPods is the number of pods that a message names.
const maxPods = 3

// describe returns the state of an object with the reasons of its pods.
func (c *client) describe(info *resource.Info, v verdict) Unready {
	u := Unready{idOf(info), cmp.Or(v.message, "its state was not read")}
	if pods := c.podReasons(info); len(pods) > 0 {
		u.Message += " (" + strings.Join(pods[:min(len(pods), maxPods)], ", ") + ")"
	}
	return u
}

// podReasons returns why the pods of a workload are not ready, as far as they can be read.
func (c *client) podReasons(info *resource.Info) []string {
	object, isObject := info.Object.(*unstructured.Unstructured)
	if !isObject {
		return nil
	}
	labels, found, err := unstructured.NestedStringMap(object.Object, "spec", "selector", "matchLabels")
	if err != nil || !found {
		return nil
	}
	clients, err := c.Factory.KubernetesClientSet()
	if err != nil {
		return nil
	}
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})
	pods, err := clients.CoreV1().Pods(info.Namespace).List(c.ctx, metav1.ListOptions{LabelSelector: selector, Limit: 100})
	if err != nil {
		return nil
	}
	var reasons []string
	for _, pod := range pods.Items {
		for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			switch state := container.State; {
			case state.Waiting != nil && state.Waiting.Reason != "":
				reasons = append(reasons, fmt.Sprintf("pod %s: %s: %s", pod.Name, container.Name, state.Waiting.Reason))
			case state.Terminated != nil && state.Terminated.ExitCode != 0:
				reasons = append(reasons, fmt.Sprintf("pod %s: %s: exit code %d", pod.Name, container.Name, state.Terminated.ExitCode))
			}
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				reasons = append(reasons, fmt.Sprintf("pod %s: %s", pod.Name, condition.Message))
			}
		}
	}
	slices.Sort(reasons)
	return reasons
}
