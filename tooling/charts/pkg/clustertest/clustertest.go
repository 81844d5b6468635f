// Package clustertest starts clusters for tests: a real API server with Kubernetes' controllers, and a stand-in for nodes that sets the states
// of pods. No container runs. It also installs the CustomResourceDefinitions of the charts in an API server of a test.
package clustertest

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// Cluster is a running cluster.
type Cluster struct {
	Config *rest.Config
	Client kubernetes.Interface
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
}

// Start starts a cluster, which ends with the test. Its controllers are not among the programs of a region, so only `make nightly` builds
// them and runs the test.
func Start(t *testing.T) *Cluster {
	t.Helper()
	nightly.Only(t)
	started := kubeapitest.Start(t)
	controllers := []string{"deployment-controller", "replicaset-controller", "statefulset-controller", "job-controller", "serviceaccount-controller", "garbage-collector-controller"}
	if err := started.RunControllerManager(t.Context(), controllers...); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", started.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{config, client, started.Kubeconfig()}
	c.runNodes(t)
	return c
}

// runNodes sets the states of pods as kubelets do. The program of a pod is its image: "…:fails" exits with 1, "…:missing" cannot be
// pulled, and all others become ready, or complete if they belong to a job.
func (c *Cluster) runNodes(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(c.Client, 0)
	informer := factory.Core().V1().Pods().Informer()
	handle := func(object any) {
		if pod, isPod := object.(*corev1.Pod); isPod && ctx.Err() == nil {
			c.runPod(ctx, pod)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) }}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	t.Cleanup(func() { cancel(); factory.Shutdown() })
}

func (c *Cluster) runPod(ctx context.Context, pod *corev1.Pod) {
	pods := c.Client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil { // a pod that is bound to no node is deleted at once
		return
	}
	if pod.Status.Phase != corev1.PodPending || len(pod.Status.ContainerStatuses) > 0 {
		return
	}
	pod = pod.DeepCopy()
	image := pod.Spec.Containers[0].Image
	state := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: image, ImageID: image}
	job := metav1.GetControllerOf(pod) != nil && metav1.GetControllerOf(pod).Kind == "Job"
	switch {
	case strings.HasSuffix(image, ":missing"):
		state.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}
	case strings.HasSuffix(image, ":crashes"):
		state.RestartCount = 3
		state.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		state.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 2}
	case strings.HasSuffix(image, ":fails"):
		pod.Status.Phase = corev1.PodFailed
		state.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	case job:
		pod.Status.Phase = corev1.PodSucceeded
		state.State.Terminated = &corev1.ContainerStateTerminated{}
	default:
		pod.Status.Phase = corev1.PodRunning
		state.Ready, state.State.Running = true, &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()})
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{state}
	_, _ = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{}) // a conflict is followed by another event
}
