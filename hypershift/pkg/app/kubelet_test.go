package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubectl returns a function that runs kubectl in the hosted cluster with the kubeconfig of its owner, and returns the output and the exit status.
func (s *sample) kubectl(t testing.TB) func(arguments ...string) (out, errOut string, code int) {
	t.Helper()
	secret := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.namespace, Name: contract.AdminKubeconfig(s.name)})
	home := t.TempDir()
	kubeconfig := filepath.Join(home, "kubeconfig")
	must.Do(t, os.WriteFile(kubeconfig, secret.Data["kubeconfig"], 0o600))
	return func(arguments ...string) (string, string, int) {
		t.Helper()
		command := exec.CommandContext(t.Context(), filepath.Join(s.Programs, "kubectl"), append([]string{"--kubeconfig", kubeconfig}, arguments...)...)
		command.Env = append(os.Environ(), "HOME="+home)
		var out, errOut bytes.Buffer
		command.Stdout, command.Stderr = &out, &errOut
		err := command.Run()
		var exited *exec.ExitError
		if err != nil && !errors.As(err, &exited) {
			t.Fatalf("kubectl %v: %v: %s", arguments, err, &errOut)
		}
		return out.String(), errOut.String(), command.ProcessState.ExitCode()
	}
}

// runPod creates a pod on a node of the hosted cluster and waits until the node reports it as Running.
func runPod(t testing.TB, hosted kubernetes.Interface, name, node, image string) {
	t.Helper()
	pods := hosted.CoreV1().Pods(metav1.NamespaceDefault)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Containers:  []corev1.Container{{Name: "app", Image: image, Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}}}
	must.Get(pods.Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	eventually.Soon(t, "pod "+name+" is Running", func() error {
		found, err := pods.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && found.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s", found.Status.Phase)
		}
		return err
	})
}

// follow follows the log of a pod. The channel gets an element when the log ends.
func follow(t testing.TB, hosted kubernetes.Interface, pod string) <-chan error {
	t.Helper()
	log := must.Get(hosted.CoreV1().Pods(metav1.NamespaceDefault).GetLogs(pod, &corev1.PodLogOptions{Follow: true}).Stream(t.Context()))(t)
	must.Get(io.ReadFull(log, make([]byte, len("hcpmesh:"))))(t)
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, log)
		_ = log.Close()
		ended <- err
	}()
	return ended
}

// TestSimulatedNodesHaveKubelets uses the pods of two hosted clusters of one runtime with kubectl, across a restart of the runtime.
func TestSimulatedNodesHaveKubelets(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	options := m.options(t.TempDir(), withProcessFidelity)
	stop := m.startRuntime(t, options)
	samples := []*sample{m.sample(t, "kubelet-a"), m.sample(t, "kubelet-b")}
	for _, s := range samples {
		s.setPool(t, int64(1), "spec", "replicas")
		s.createWithPool(t)
	}
	// Both clusters have a pod of the same name; the certificate of the API server alone selects the cluster.
	const pod = "web"
	for _, s := range samples {
		s.waitCluster(t, available)
		s.waitPool(t, poolReady(1))
		var nodes []corev1.Node
		eventually.Soon(t, "the node is ready", func() (err error) { nodes, err = s.nodesReady(t, 1); return err })
		if port := nodes[0].Status.DaemonEndpoints.KubeletEndpoint.Port; port == 0 {
			t.Fatalf("node %s has no port of a kubelet", nodes[0].Name)
		}
		runPod(t, s.hosted(t), pod, nodes[0].Name, "example.com/"+s.name+":1")
		kubectl := s.kubectl(t)
		if out, errOut, code := kubectl("logs", pod); code != 0 || !strings.Contains(out, "image example.com/"+s.name+":1\n") {
			t.Errorf("%s: kubectl logs: %q, %q, %d", s.name, out, errOut, code)
		}
		if _, errOut, code := kubectl("exec", pod, "--", "sh", "-c", "exit 9"); code != 9 {
			t.Errorf("%s: kubectl exec: %q, %d", s.name, errOut, code)
		}
	}

	s := samples[0]
	kubectl, hosted := s.kubectl(t), s.hosted(t)
	local := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(local, []byte("content of "+s.name), 0o600))
	if _, errOut, code := kubectl("cp", local, pod+":/tmp/file"); code != 0 {
		t.Errorf("kubectl cp to the pod: %q", errOut)
	}
	if _, errOut, code := kubectl("cp", pod+":/tmp/file", local+"-back"); code != 0 {
		t.Errorf("kubectl cp from the pod: %q", errOut)
	}
	if back, err := os.ReadFile(local + "-back"); err != nil || string(back) != "content of "+s.name {
		t.Errorf("the file came back as %q, %v", back, err)
	}
	if _, _, code := samples[1].kubectl(t)("exec", pod, "--", "test", "-e", "/tmp/file"); code != 1 {
		t.Errorf("the pod of the other cluster has the file: %d", code)
	}
	// The API server reaches a port of a pod through the kubelet's port-forward only; the proxy of the node has nothing else.
	if err := hosted.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", mustNode(t, hosted), "proxy/pods").Do(t.Context()).Error(); err == nil {
		t.Error("the kubelet serves paths that are not simulated")
	}

	open := follow(t, hosted, pod)
	stop()
	<-open
	stop = m.startRuntime(t, options)
	for _, s := range samples {
		kubectl := s.kubectl(t)
		eventually.Soon(t, "the restarted runtime serves the kubelet API of "+s.name, func() error {
			if out, errOut, code := kubectl("logs", pod, "--tail=1"); code != 0 || out == "" {
				return errors.New(errOut)
			}
			return nil
		})
	}
	if _, _, code := kubectl("exec", pod, "--", "test", "-e", "/tmp/file"); code != 1 {
		t.Errorf("a file has survived the runtime: %d", code)
	}

	hosted = s.hosted(t)
	open = follow(t, hosted, pod)
	must.Do(t, hosted.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), pod, metav1.DeleteOptions{}))
	<-open
	other := follow(t, samples[1].hosted(t), pod)
	for _, s := range samples {
		s.delete(t)
	}
	<-other
	stop()
}

// mustNode returns the name of the only node.
func mustNode(t testing.TB, hosted kubernetes.Interface) string {
	t.Helper()
	nodes, err := hosted.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(nodes.Items) != 1 {
		t.Fatalf("%d nodes, %v", len(nodes.Items), err)
	}
	return nodes.Items[0].Name
}
