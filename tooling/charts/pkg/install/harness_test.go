package install

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// cluster is a real API server with Kubernetes' controllers, and a stand-in for its nodes.
type cluster struct {
	config *rest.Config
	client kubernetes.Interface
}

// startCluster starts a cluster for the test.
func startCluster(t *testing.T) *cluster {
	t.Helper()
	started := kubeapitest.Start(t)
	controllers := []string{"deployment-controller", "replicaset-controller", "statefulset-controller", "job-controller", "serviceaccount-controller"}
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
	c := &cluster{config, client}
	c.runNodes(t)
	return c
}

// runNodes sets the states of pods as kubelets do. The program of a pod is its image: "…:fails" exits with 1, "…:missing" cannot be
// pulled, and all others become ready, or complete if they belong to a job.
func (c *cluster) runNodes(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(c.client, 0)
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

func (c *cluster) runPod(ctx context.Context, pod *corev1.Pod) {
	pods := c.client.CoreV1().Pods(pod.Namespace)
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

// shop is a chart with one object of each kind that the tests need.
var shop = map[string]string{
	"Chart.yaml": "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	"templates/all.yaml": `
apiVersion: batch/v1
kind: Job
metadata:
  name: migration
  annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: before-hook-creation}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: migration, image: "example.com/migration:{{ .Values.migration }}"}]
---
apiVersion: v1
kind: Secret
metadata: {name: token}
stringData: {token: "{{ .Values.token }}"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: "{{ .Values.colour }}"}
{{- if .Values.extra }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Values.extra }}"}
{{- end }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "example.com/web:{{ .Values.web }}"}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  replicas: 2
  podManagementPolicy: Parallel
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      containers: [{name: store, image: "example.com/store:{{ .Values.store }}"}]
`,
}

// shopValues are the values of the chart shop.
type shopValues struct {
	Migration string `json:"migration"`
	Token     string `json:"token"`
	Colour    string `json:"colour"`
	Extra     string `json:"extra"`
	Web       string `json:"web"`
	Store     string `json:"store"`
}

// good are values with which everything becomes ready.
func good() shopValues {
	return shopValues{Migration: "1", Token: "first-secret", Colour: "red", Web: "1", Store: "1"}
}

// scenario is a release in a namespace of its own.
type scenario struct {
	*cluster
	folder, namespace string
	log               *lockedLog
	readyWithin       time.Duration
}

func (c *cluster) scenario(t *testing.T, namespace string) *scenario {
	t.Helper()
	folder := t.TempDir()
	for name, text := range shop {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return &scenario{c, folder, namespace, &lockedLog{}, 2 * time.Minute}
}

func (s *scenario) release(t *testing.T, v shopValues) Release {
	t.Helper()
	loaded, err := chart.Load(s.folder)
	if err != nil {
		t.Fatal(err)
	}
	return Release{Chart: loaded, Namespace: s.namespace, Values: v}
}

func (s *scenario) options() Options {
	return Options{Cluster: s.config, ReadyWithin: s.readyWithin, Log: s.log}
}

// installed installs the chart and fails the test if that fails.
func (s *scenario) installed(t *testing.T, v shopValues) Result {
	t.Helper()
	result, err := Install(t.Context(), s.release(t, v), s.options())
	if err != nil {
		t.Fatalf("%v\n%s", err, s.log)
	}
	return result
}

// revisions returns the states of all revisions, for example "superseded deployed".
func (s *scenario) revisions(t *testing.T) string {
	t.Helper()
	i, err := start(t.Context(), "shop", s.namespace, s.options())
	if err != nil {
		t.Fatal(err)
	}
	history, err := i.config.Releases.History("shop")
	if err != nil {
		t.Fatal(err)
	}
	states := make([]string, len(history))
	for _, revision := range history {
		states[revision.Version-1] = string(revision.Info.Status)
	}
	return strings.Join(states, " ")
}

// mustBeRunning checks that all pods of both workloads are ready and have an image.
func (s *scenario) mustBeRunning(t *testing.T, web, store string) {
	t.Helper()
	deployment, err := s.client.AppsV1().Deployments(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := s.client.AppsV1().StatefulSets(s.namespace).Get(t.Context(), "store", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if image := deployment.Spec.Template.Spec.Containers[0].Image; image != "example.com/web:"+web || deployment.Status.ReadyReplicas != 2 || deployment.Status.UpdatedReplicas != 2 {
		t.Errorf("the Deployment has %s and the status %+v", image, deployment.Status)
	}
	if image := set.Spec.Template.Spec.Containers[0].Image; image != "example.com/store:"+store || !setReady(set) {
		t.Errorf("the StatefulSet has %s and the status %+v", image, set.Status)
	}
}

func setReady(set *appsv1.StatefulSet) bool {
	return set.Status.ReadyReplicas == 2 && set.Status.UpdateRevision == set.Status.CurrentRevision
}

// configMaps returns the names of the ConfigMaps of the chart.
func (s *scenario) configMaps(t *testing.T) string {
	t.Helper()
	list, err := s.client.CoreV1().ConfigMaps(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=Helm"})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return strings.Join(names, " ")
}

// lockedLog is a log that can be read while it is written.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// pending reports whether a status is that of a call that has not ended.
func pending(status string) bool { return release.Status(status).IsPending() }
