package kubernetes_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
)

const (
	// timeout bounds a test.
	timeout = 8 * time.Minute
	// probeImage is the reference of the workload. Its registry does not exist.
	probeImage = "registry.example/hcpmesh/probe:v1"
	space      = "probes"
)

// options returns the options of a cluster whose programs are built, or skips the test where no cluster can run.
func options(t *testing.T, nodes ...kubernetes.Node) kubernetes.Options {
	t.Helper()
	nightly.Only(t)
	programs := must.Get(filepath.Abs("../../.build/third-party/bin"))(t)
	built := t.TempDir()
	o := kubernetes.Options{
		Dir: t.TempDir(), ThirdParty: programs, Nodes: nodes,
		NodeProgram: filepath.Join(built, "kubernetes-node"), PauseProgram: filepath.Join(built, "pause"),
	}
	if err := o.Check(); err != nil {
		kubeapitest.SkipUnlessCI(t, err.Error())
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", built+"/", "./cmd/kubernetes-node", "./cmd/pause", "./testdata/probe")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // images have no libraries
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return o
}

// cluster is a cluster with the namespace and the image of the workload.
type cluster struct {
	*kubernetes.Cluster
	t   *testing.T
	ctx context.Context
}

// start starts a cluster. If the test fails, it prints the ends of the logs.
func start(t *testing.T, o kubernetes.Options) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	t.Cleanup(func() {
		if t.Failed() {
			printLogs(t, o.Dir)
		}
	})
	began := time.Now()
	started := must.Get(kubernetes.Start(ctx, o))(t)
	t.Cleanup(func() {
		if err := started.Close(); err != nil {
			t.Error(err)
		}
	})
	transcript.Log(t, transcript.Nodes, "a cluster of %d nodes was ready after %v", len(o.Nodes), time.Since(began).Round(time.Millisecond))
	c := &cluster{Cluster: started, t: t, ctx: ctx}
	image := must.Get(kubernetes.ProgramImage(filepath.Join(filepath.Dir(o.NodeProgram), "probe")))(t)
	must.Do(t, c.Push(ctx, probeImage, image))
	c.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: probes, labels: {pod-security.kubernetes.io/enforce: restricted}}}`)
	return c
}

// printLogs prints the ends of the logs of a cluster.
func printLogs(t *testing.T, dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "logs", "*.log"))
	of, _ := filepath.Glob(filepath.Join(dir, "nodes", "*", "var", "log", "*.log"))
	for _, name := range append(logs, of...) {
		content, _ := os.ReadFile(name)
		t.Logf("%s:\n%s", strings.TrimPrefix(name, dir), content[max(0, len(content)-3000):])
	}
}

// apply applies YAML documents.
func (c *cluster) apply(manifests string) {
	c.t.Helper()
	must.Do(c.t, c.Apply(c.ctx, strings.NewReader(manifests)))
}

// workload is a Deployment of the probe with a Service of the same name.
func workload(name string, replicas int) string {
	return strings.NewReplacer("NAME", name, "REPLICAS", fmt.Sprint(replicas), "IMAGE", probeImage).Replace(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: probes}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 2
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: NAME}}}
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: probe
        image: IMAGE
        args: [serve]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
        resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: probes}
spec: {selector: {app: NAME}, ports: [{port: 80, targetPort: 8080}]}
`)
}

// readyPods waits for ready pods of a workload and returns them.
func (c *cluster) readyPods(name string, count int) []corev1.Pod {
	c.t.Helper()
	var ready []corev1.Pod
	eventually.Before(c.ctx, c.t, fmt.Sprintf("%d ready pods of %s", count, name), func() error {
		pods, err := c.Client().CoreV1().Pods(space).List(c.ctx, metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			return err
		}
		ready = nil
		var states []string
		for _, pod := range pods.Items {
			states = append(states, pod.Name+" "+string(pod.Status.Phase))
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil {
					ready = append(ready, pod)
				}
			}
		}
		if len(ready) != count {
			return fmt.Errorf("%d are ready: %v", len(ready), states)
		}
		return nil
	})
	return ready
}

// run runs the probe in a pod and returns its output.
func (c *cluster) run(pod string, arguments ...string) (string, error) {
	request := c.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace(space).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: append([]string{"/program"}, arguments...), Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Config(), "GET", request.URL().String())
	if err != nil {
		return "", err
	}
	var output, failure bytes.Buffer
	if err := executor.StreamWithContext(c.ctx, remotecommand.StreamOptions{Stdout: &output, Stderr: &failure}); err != nil {
		return "", fmt.Errorf("%w: %s", err, failure.String())
	}
	return strings.TrimSpace(output.String()), nil
}

// TestPodsRunOnOneNode checks images, exec, logs, pod security, Services, DNS, services outside of the cluster and volumes.
func TestPodsRunOnOneNode(t *testing.T) {
	transcript.Outcome(t, transcript.Nodes)
	o := options(t, kubernetes.Node{Name: "node-1", Labels: map[string]string{"topology.kubernetes.io/zone": "zone-1"}})
	o.Hosts, o.StorageClass = []string{outsideHost, "*." + outsideZone}, storageClass
	c := start(t, o)
	c.apply(workload("web", 2))
	pods := c.readyPods("web", 2)

	served := map[string]bool{}
	eventually.Before(c.ctx, t, "responses of both pods through the Service", func() error {
		name, err := c.run(pods[0].Name, "get", "http://web."+space+".svc.cluster.local")
		if err != nil {
			return err
		}
		served[name] = true
		if len(served) < 2 {
			return fmt.Errorf("only %v", served)
		}
		return nil
	})
	for _, pod := range pods {
		if !served[pod.Name] {
			t.Errorf("%s has not served a request: %v", pod.Name, served)
		}
		log, err := c.Client().CoreV1().Pods(space).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(c.ctx)
		if want := "serving as " + pod.Name; err != nil || strings.TrimSpace(string(log)) != want {
			t.Errorf("log of %s is %q, %v; want %q", pod.Name, log, err, want)
		}
	}
	service := must.Get(c.Client().CoreV1().Services(space).Get(c.ctx, "web", metav1.GetOptions{}))(t)
	if address, err := c.run(pods[0].Name, "resolve", "web"); err != nil || address != service.Spec.ClusterIP {
		t.Errorf("web resolves to %q, %v; want %s", address, err, service.Spec.ClusterIP)
	}
	if output, err := c.run(pods[0].Name, "get", "http://192.0.2.1"); err == nil {
		t.Errorf("an address outside the cluster responded with %q", output)
	}
	// The test process reaches pods through the network of the cluster.
	connection, err := c.Dial(c.ctx, pods[0].Status.PodIP+":8080")
	if err != nil {
		t.Error(err)
	} else if err := connection.Close(); err != nil {
		t.Error(err)
	}

	checkOutside(t, c, pods[0].Name)
	checkVolume(t, c, o.Dir)

	privileged := true
	_, err = c.Client().CoreV1().Pods(space).Create(c.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "privileged"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: probeImage, SecurityContext: &corev1.SecurityContext{Privileged: &privileged}}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("creating a privileged pod in a restricted namespace: %v, want 403", err)
	}
	node := must.Get(c.Client().CoreV1().Nodes().Get(c.ctx, "node-1", metav1.GetOptions{}))(t)
	version, err := c.Client().Discovery().ServerVersion()
	if err != nil || node.Status.NodeInfo.KubeletVersion != version.GitVersion {
		t.Errorf("kubelet has version %s and the API server %v, %v", node.Status.NodeInfo.KubeletVersion, version, err)
	}
}
