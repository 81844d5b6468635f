package installation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// podsTimeout bounds the list of pods for a status.
const podsTimeout = 5 * time.Second

func (r *Region) enter(phase local.Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.phaseSince = phase, time.Now()
}

// part runs a part of the start, whose state is in the status.
func (r *Region) part(name string, run func() error) error {
	set := func(state supervisor.State, message string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		status := local.ProcessStatus{Name: name, State: state, Since: time.Now(), Message: message, Log: r.logFile(name)}
		if index := slices.IndexFunc(r.parts, func(p local.ProcessStatus) bool { return p.Name == name }); index >= 0 {
			r.parts[index] = status
			return
		}
		r.parts = append(r.parts, status)
	}
	set(supervisor.Starting, "")
	began := time.Now()
	if err := run(); err != nil {
		set(supervisor.NotReady, err.Error())
		return fmt.Errorf("%s: %w", name, err)
	}
	set(supervisor.Ready, fmt.Sprintf("after %v", time.Since(began).Round(100*time.Millisecond)))
	return nil
}

// Status returns the status of the region: the parts of the start, and each pod of its programs.
func (r *Region) Status() local.Status {
	r.mu.Lock()
	status := local.Status{Phase: r.phase, Since: r.phaseSince, Pid: os.Getpid(), StateDir: r.options.StateDir, Endpoints: r.endpoints, Processes: slices.Clone(r.parts)}
	r.mu.Unlock()
	if !status.Phase.Running() {
		return status
	}
	ctx, cancel := context.WithTimeout(context.Background(), podsTimeout)
	defer cancel()
	for _, c := range []*cluster{r.service, r.management} {
		pods, err := c.pods(ctx)
		if err != nil {
			status.Phase = local.PhaseDegraded
			status.Processes = append(status.Processes, local.ProcessStatus{Name: c.target.Name, State: supervisor.NotReady, Since: time.Now(), Message: err.Error()})
			continue
		}
		for _, pod := range pods {
			if pod.State != supervisor.Ready {
				status.Phase = local.PhaseDegraded
			}
			status.Processes = append(status.Processes, pod)
		}
	}
	return status
}

// pods returns the states of the pods of a cluster's programs. Completed jobs are left out.
func (c *cluster) pods(ctx context.Context) ([]local.ProcessStatus, error) {
	var all []local.ProcessStatus
	for _, w := range workload.All() {
		if !values.Applies(w, c.target) {
			continue
		}
		list, err := c.Client().CoreV1().Pods(string(w.Peer)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, pod := range list.Items {
			if pod.Status.Phase != corev1.PodSucceeded {
				all = append(all, podStatus(&pod))
			}
		}
	}
	return all, nil
}

// podStatus returns the state of a pod. Its name has the namespace.
func podStatus(pod *corev1.Pod) local.ProcessStatus {
	status := local.ProcessStatus{Name: pod.Namespace + "/" + pod.Name, State: supervisor.NotReady, Since: pod.CreationTimestamp.Time, Message: string(pod.Status.Phase)}
	for _, container := range pod.Status.ContainerStatuses {
		status.Restarts += int(container.RestartCount)
		if waiting := container.State.Waiting; waiting != nil {
			status.Message = waiting.Reason + ": " + waiting.Message
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			status.State, status.Since, status.Message = supervisor.Ready, condition.LastTransitionTime.Time, "on "+pod.Spec.NodeName
		}
	}
	return status
}

// errPods is the response to commands for processes.
var errPods = errors.New("the programs of a region on Kubernetes are pods: use kubectl with the kubeconfigs in `hcpctl region status -o json`")

// serveControl serves the commands of hcpctl.
func (r *Region) serveControl() (*control.Server, error) {
	return control.Serve(r.options.StateDir, control.Actions{
		Status:          func() any { return r.Status() },
		Events:          func() any { return []local.Event{} },
		Restart:         func(context.Context, string) error { return errPods },
		Kill:            func(string, string) error { return errPods },
		RotateAuthority: func(context.Context, string, func(string)) error { return errPods },
		Down:            r.requestDown,
	})
}
