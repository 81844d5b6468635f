package install

import (
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/clustertest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// startAPIServer starts an API server without controllers, and returns its configuration and a client.
func startAPIServer(t *testing.T) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeapitest.Start(t).Kubeconfig()))(t)
	clients := must.Get(kubernetes.NewForConfig(config))(t)
	return config, clients
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
{{- with .Values.disk }}
  volumeClaimTemplates:
  - metadata: {name: disk}
    spec:
      accessModes: [ReadWriteOnce]
      storageClassName: {{ . }}
      resources: {requests: {storage: 1Gi}}
{{- end }}
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
	Disk      string `json:"disk"`
}

// good are values with which everything becomes ready.
func good() shopValues {
	return shopValues{Migration: "1", Token: "first-secret", Colour: "red", Web: "1", Store: "1"}
}

// scenario is a release in a namespace of its own.
type scenario struct {
	*clustertest.Cluster
	folder, namespace string
	log               *lockedLog
	readyWithin       time.Duration
}

func newScenario(t *testing.T, c *clustertest.Cluster, namespace string) *scenario {
	t.Helper()
	folder := t.TempDir()
	for name, text := range shop {
		must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	must.Get(c.Client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{}))(t)
	return &scenario{c, folder, namespace, &lockedLog{}, 2 * time.Minute}
}

func (s *scenario) release(t *testing.T, v shopValues) Release {
	t.Helper()
	loaded := must.Get(chart.Load(s.folder))(t)
	return Release{Chart: loaded, Namespace: s.namespace, Values: v}
}

func (s *scenario) options() Options {
	return Options{Cluster: s.Config, ReadyWithin: s.readyWithin, Log: s.log}
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
	i := must.Get(start(t.Context(), "shop", s.namespace, s.options()))(t)
	history := must.Get(i.config.Releases.History("shop"))(t)
	states := make([]string, len(history))
	for _, revision := range history {
		states[revision.Version-1] = string(revision.Info.Status)
	}
	return strings.Join(states, " ")
}

// mustBeRunning checks that all pods of both workloads are ready and have an image.
func (s *scenario) mustBeRunning(t *testing.T, web, store string) {
	t.Helper()
	deployment := must.Get(s.Client.AppsV1().Deployments(s.namespace).Get(t.Context(), "web", metav1.GetOptions{}))(t)
	set := must.Get(s.Client.AppsV1().StatefulSets(s.namespace).Get(t.Context(), "store", metav1.GetOptions{}))(t)
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
	list := must.Get(s.Client.CoreV1().ConfigMaps(s.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=Helm"}))(t)
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
