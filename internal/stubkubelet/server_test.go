package stubkubelet_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/stubkubelet"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

var shared kubeapitest.Shared

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Close()
	os.Exit(leaktest.Check(code))
}

// world is a real API server whose nodes a Server simulates.
type world struct {
	*cluster
	kube *kubeapitest.Cluster
	node string
}

func newWorld(t *testing.T, change func(*stubkubelet.Options)) *world {
	t.Helper()
	nightly.Only(t)
	if _, err := kubeapitest.Programs(); err != nil {
		kubeapitest.SkipUnlessCI(t, err.Error())
	}
	w := &world{kube: shared.Cluster(t), node: "node-of-" + strings.ToLower(t.Name())}
	w.cluster = serve(t, w.kube, change)
	w.Node(t, w.node)
	return w
}

// pod creates a pod with the name of the test and another part.
func (w *world) pod(t *testing.T, part string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	return w.Pod(t, "default", strings.ToLower(t.Name())+part, w.node, change)
}

// result is what a program printed.
type result struct {
	out, err string
	code     int
}

// kubectl runs kubectl as the administrator.
func (w *world) kubectl(t *testing.T, input io.Reader, arguments ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	command := w.command(t, arguments...)
	command.Stdin, command.Stdout, command.Stderr = input, &out, &errOut
	err := command.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatalf("kubectl %v: %v", arguments, err)
	}
	return result{out.String(), errOut.String(), command.ProcessState.ExitCode()}
}

// command returns a kubectl of the administrator that ends with the test.
func (w *world) command(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(w.kube.Programs, "kubectl"), append([]string{"--kubeconfig", w.kube.Kubeconfig()}, arguments...)...)
	command.Env = append(os.Environ(), "HOME="+t.TempDir())
	return command
}

// expect runs kubectl and compares its output.
func (w *world) expect(t *testing.T, want result, input string, arguments ...string) {
	t.Helper()
	got := w.kubectl(t, strings.NewReader(input), arguments...)
	if got.out != want.out || got.code != want.code || !strings.Contains(got.err, want.err) {
		t.Errorf("kubectl %q:\n got %+v\nwant %+v", arguments, got, want)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	all := w.kubectl(t, nil, "logs", pod.Name)
	lines := strings.SplitAfter(strings.TrimSuffix(all.out, "\n"), "\n")
	if all.code != 0 || len(lines) < 3 || !strings.Contains(lines[0], "pod default/"+pod.Name+" is simulated") {
		t.Fatalf("the log: %+v", all)
	}
	w.expect(t, all, "", "logs", pod.Name) // deterministic
	last := lines[len(lines)-1] + "\n"
	w.expect(t, result{out: last}, "", "logs", pod.Name, "--tail=1")
	w.expect(t, result{out: all.out[:7]}, "", "logs", pod.Name, "--limit-bytes=7")
	created := pod.CreationTimestamp.UTC()
	w.expect(t, result{out: strings.Join(lines[2:], "") + "\n"}, "", "logs", pod.Name, "--since-time="+created.Add(2*time.Second).Format(time.RFC3339))
	timed := created.Format(metav1.RFC3339Micro) + " " + lines[0]
	w.expect(t, result{out: timed}, "", "logs", pod.Name, "--timestamps", "--limit-bytes="+fmt.Sprint(len(timed)))
	w.expect(t, result{err: "previous terminated container", code: 1}, "", "logs", pod.Name, "--previous")
	w.expect(t, result{err: "is not valid for pod", code: 1}, "", "logs", pod.Name, "-c", "other")
}

func TestFollowedLogEndsWithPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	stream := must.Get(w.Client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true, TailLines: new(int64(1))}).Stream(t.Context()))(t)
	defer func() { _ = stream.Close() }()
	first := make([]byte, 8)
	if _, err := io.ReadFull(stream, first); err != nil || string(first) != "hcpmesh:" {
		t.Fatalf("the log begins with %q, %v", first, err)
	}
	// Without a kubelet, a pod would stay until it is deleted by force.
	must.Do(t, w.Client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	if _, err := io.ReadAll(stream); err != nil {
		t.Errorf("the end of the log: %v", err)
	}
	eventually.Soon(t, "the pod is gone", func() error {
		_, err := w.Client.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists: %w", err)
	})

}

func TestExec(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	in := func(arguments ...string) []string {
		return append([]string{"exec", "-i", pod.Name, "--"}, arguments...)
	}
	w.expect(t, result{out: pod.Name + "\n"}, "", in("hostname")...)
	w.expect(t, result{out: "a  b\n"}, "", in("echo", "a ", "b")...)
	w.expect(t, result{out: "typed\n"}, "typed\n", in("cat")...)
	w.expect(t, result{out: "green etc\nroot\ntmp\n"}, "", in("sh", "-c", `echo -n "$COLOUR "; ls /`)...)
	w.expect(t, result{out: "one\ntwo\n"}, "echo one\necho two\n", in("sh")...)
	w.expect(t, result{code: 1, err: "exit code 1"}, "", in("false")...)
	w.expect(t, result{code: 42}, "", in("sh", "-c", "true && exit 42")...)
	w.expect(t, result{code: 43}, strings.Repeat("input that is not read\n", 1<<18), in("sh", "-c", "exit 43")...)
	w.expect(t, result{code: 127, err: "not found"}, "", in("bash")...)
	w.expect(t, result{code: 127, err: "the container is simulated"}, "", in("/usr/bin/id")...)
	w.expect(t, result{code: 2, err: "is not simulated"}, "", in("sh", "-c", "cat $(id)")...)
	w.expect(t, result{out: "", err: "no such file", code: 1}, "", in("cat", "/etc/passwd")...)
	if environment := w.kubectl(t, nil, in("env")...); !strings.Contains(environment.out, "COLOUR=green\n") {
		t.Errorf("the environment: %+v", environment)
	}
}

// typist types a text when a prompt has appeared. It is the output and the input of a terminal.
type typist struct {
	prompt string
	text   io.Reader

	mu       sync.Mutex
	out      bytes.Buffer
	prompted chan struct{} // closed when the prompt has appeared
}

func newTypist(prompt, text string) *typist {
	return &typist{prompt: prompt, text: strings.NewReader(text), prompted: make(chan struct{})}
}

func (p *typist) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := strings.Contains(p.out.String(), p.prompt)
	n, err := p.out.Write(text)
	if !before && strings.Contains(p.out.String(), p.prompt) {
		close(p.prompted)
	}
	return n, err
}

func (p *typist) Read(into []byte) (int, error) {
	<-p.prompted
	return p.text.Read(into)
}

func (p *typist) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// TestTerminal executes with a TTY over each of the protocols between clients and API servers. It types at the prompt: the library for SPDY loses what
// arrives before it has noticed its own reply to the creation of a stream.
func TestTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	request := w.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"sh"}, Stdin: true, Stdout: true, TTY: true}, scheme.ParameterCodec)
	spdy := must.Get(remotecommand.NewSPDYExecutor(w.Config, http.MethodPost, request.URL()))(t)
	socket := must.Get(remotecommand.NewWebSocketExecutor(w.Config, http.MethodGet, request.URL().String()))(t)
	for protocol, executor := range map[string]remotecommand.Executor{"SPDY": spdy, "WebSocket": socket} {
		out := newTypist("$ ", "stty size\rexit 3\r")
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: out, Stdout: out, Tty: true, TerminalSizeQueue: &sizes{{Width: 91, Height: 17}}})
		if err == nil || !strings.Contains(err.Error(), "exit code 3") || !strings.Contains(out.String(), "17 91\r\n") {
			t.Errorf("%s: %v, output %q", protocol, err, out.String())
		}
	}
}

// sizes is a queue of terminal sizes.
type sizes []remotecommand.TerminalSize

func (s *sizes) Next() *remotecommand.TerminalSize {
	if len(*s) == 0 {
		return nil
	}
	size := (*s)[0]
	*s = (*s)[1:]
	return &size
}

func TestCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	local := filepath.Join(t.TempDir(), "folder")
	want := map[string]string{"a.txt": "first\n", "below/b.bin": strings.Repeat("\x00\xff", 300_000), "empty": ""}
	for name, text := range want {
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(local, name)), 0o700), os.WriteFile(filepath.Join(local, name), []byte(text), 0o600)))
	}
	w.expect(t, result{}, "", "cp", local, pod.Name+":/tmp")
	w.expect(t, result{out: "first\n"}, "", "exec", pod.Name, "--", "cat", "/tmp/folder/a.txt")
	back := filepath.Join(t.TempDir(), "back")
	if copied := w.kubectl(t, nil, "cp", pod.Name+":/tmp/folder", back); copied.code != 0 {
		t.Fatalf("copying from the pod: %+v", copied)
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(back, name))
		if err != nil || string(got) != text {
			t.Errorf("%s came back with %d bytes: %v", name, len(got), err)
		}
	}
	large := filepath.Join(t.TempDir(), "large")
	must.Do(t, os.WriteFile(large, make([]byte, stubkubelet.MaxFileBytes+1), 0o600))
	w.expect(t, result{code: 2, err: "no space left on device"}, "", "cp", large, pod.Name+":/tmp/large")
	// Another pod, and another container, have their own files.
	other := w.pod(t, "-other", nil)
	w.expect(t, result{code: 1, err: "no such file"}, "", "exec", other.Name, "--", "cat", "/tmp/folder/a.txt")
}

func TestAttachShowsLogUntilPodEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	log := w.kubectl(t, nil, "logs", pod.Name).out
	// The end of the input ends the attachment, and so does the end of the pod.
	if attached := w.kubectl(t, strings.NewReader(""), "attach", "-i", pod.Name); attached.out != log || attached.code != 0 {
		t.Errorf("attached with input: %+v, want %q", attached, log)
	}
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	request := w.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod.Name).SubResource("attach").
		VersionedParams(&corev1.PodAttachOptions{Stdout: true}, scheme.ParameterCodec)
	executor := must.Get(remotecommand.NewWebSocketExecutor(w.Config, http.MethodGet, request.URL().String()))(t)
	go func() {
		err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: writer})
		_ = writer.Close()
		ended <- err
	}()
	shown := make([]byte, len(log))
	if _, err := io.ReadFull(reader, shown); err != nil || string(shown) != log {
		t.Fatalf("attached: %q, %v", shown, err)
	}
	must.Do(t, w.Client.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	if err := <-ended; err == nil {
		t.Error("the attachment ended without an error although the pod was deleted")
	}
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(w.kube.Programs, "kubectl"), "--kubeconfig", w.kube.Kubeconfig(), "port-forward", pod.Name, ":8080", ":9999")
	output := must.Get(command.StdoutPipe())(t)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	must.Do(t, command.Start())
	ports := map[int]string{}
	for len(ports) < 2 {
		var local string
		var remote int
		if _, err := fmt.Fscanf(output, "Forwarding from %s -> %d\n", &local, &remote); err != nil {
			cancel()
			_ = command.Wait()
			t.Fatalf("kubectl port-forward: %v: %s", err, &complaints)
		}
		if strings.HasPrefix(local, "127.0.0.1:") {
			ports[remote] = local
		}
	}
	go func() { _, _ = io.Copy(io.Discard, output) }()

	response := must.Get(http.Get("http://" + ports[8080] + "/path"))(t)
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if want := "hcpmesh: port 8080 of the simulated pod default/" + pod.Name + "\nGET /path\n"; err != nil || string(body) != want {
		t.Errorf("HTTP: %q, %v", body, err)
	}
	http.DefaultClient.CloseIdleConnections()

	echo := must.Get(net.Dial("tcp", ports[8080]))(t)
	back := make([]byte, 6)
	must.Get(echo.Write([]byte("hello\n")))(t)
	if _, err := io.ReadFull(echo, back); err != nil || string(back) != "hello\n" {
		t.Errorf("echo: %q, %v", back, err)
	}
	_ = echo.Close()

	refused := must.Get(net.Dial("tcp", ports[9999]))(t)
	must.Get(refused.Write([]byte("hello\n")))(t)
	if n, err := refused.Read(back); err == nil {
		t.Errorf("a port that is not declared responds with %q", back[:n])
	}
	_ = refused.Close()
	cancel()
	_ = command.Wait()
	if !strings.Contains(complaints.String(), "connection refused") {
		t.Errorf("kubectl printed %q", &complaints)
	}
}

// TestOnlyTheAPIServerConnects connects with certificates other than that of the API server.
func TestOnlyTheAPIServerConnects(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	own := must.Get(authority.Open(filepath.Dir(w.kube.Kubeconfig()), "test"))(t)
	other := must.Get(authority.Open(t.TempDir(), "test"))(t)
	issue := func(signer *authority.Authority, name string, usage x509.ExtKeyUsage) []tls.Certificate {
		dir := t.TempDir()
		certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		must.Do(t, signer.Issue(certificate, key, x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{usage}}))
		pair := must.Get(tls.LoadX509KeyPair(certificate, key))(t)
		return []tls.Certificate{pair}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(own.CertificatePEM())
	get := func(certificates []tls.Certificate) (int, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates, MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d/containerLogs/default/%s/app", stubkubelet.Address, w.Server.Port(), pod.Name), nil))(t)
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, err
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode, nil
	}
	if status, err := get(issue(own, stubkubelet.ClientName, x509.ExtKeyUsageClientAuth)); status != http.StatusOK {
		t.Errorf("the API server's identity gets %d, %v", status, err)
	}
	for reason, certificates := range map[string][]tls.Certificate{
		"no certificate":             nil,
		"an administrator":           issue(own, "system:admin", x509.ExtKeyUsageClientAuth),
		"a serving certificate":      issue(own, stubkubelet.ClientName, x509.ExtKeyUsageServerAuth),
		"another cluster's identity": issue(other, stubkubelet.ClientName, x509.ExtKeyUsageClientAuth),
	} {
		if status, err := get(certificates); err == nil {
			t.Errorf("%s: the kubelet responds with %d", reason, status)
		}
	}
	w.Server.Forget("test")
	if status, err := get(issue(own, stubkubelet.ClientName, x509.ExtKeyUsageClientAuth)); err == nil {
		t.Errorf("a cluster that was removed gets %d", status)
	}
}

// TestClustersAreSeparate serves two clusters that have pods of the same name.
func TestClustersAreSeparate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	if err := w.Server.Serve("same-authority", w.Config, w.Config.CAData); err == nil {
		t.Error("two clusters have the same authority of kubelet clients")
	}
	// The second cluster has its own authority, so its API server cannot connect to the first one's kubelets, and the reverse. Its Server is
	// that of the first cluster, but its serving certificate is of the first one's authority.
	second := kubeapitest.Start(t)
	other := serve(t, second, nil)
	must.Do(t, w.Server.Serve("second", other.Config, other.Config.CAData))
	pod := w.pod(t, "", nil)
	other.Node(t, w.node)
	node, err := other.Client.CoreV1().Nodes().Get(t.Context(), w.node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.Server.Announce(&node.Status)
	must.Get(other.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}))(t)
	// Same namespace, name and node: the certificate alone selects the cluster.
	image := func(p *corev1.Pod) { p.Spec.Containers[0].Image = "example.com/second:1" }
	other.Pod(t, "default", pod.Name, w.node, image)
	direct := func(kube *kubeapitest.Cluster) string {
		own := must.Get(authority.Open(filepath.Dir(kube.Kubeconfig()), "test"))(t)
		dir := t.TempDir()
		certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
		must.Do(t, own.Issue(certificate, key, x509.Certificate{Subject: pkix.Name{CommonName: stubkubelet.ClientName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}))
		pair := must.Get(tls.LoadX509KeyPair(certificate, key))(t)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(w.Config.CAData)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d/containerLogs/default/%s/app", stubkubelet.Address, w.Server.Port(), pod.Name), nil))(t)
		response := must.Get(transport.RoundTrip(request))(t)
		defer func() { _ = response.Body.Close() }()
		text := must.Get(io.ReadAll(response.Body))(t)
		return string(text)
	}
	if first := direct(w.kube); !strings.Contains(first, "image example.com/app:1\n") {
		t.Errorf("the first cluster reads %q", first)
	}
	if text := direct(second); !strings.Contains(text, "image example.com/second:1\n") {
		t.Errorf("the second cluster reads %q", text)
	}
	if through := w.kubectl(t, nil, "logs", pod.Name); through.code != 0 {
		t.Errorf("the first API server: %+v", through)
	}
	(&world{kube: second}).expect(t, result{err: "failed to verify certificate", code: 1}, "", "logs", pod.Name)
}

// TestStreamsEnd holds streams open and lets their node, their cluster and the Server end.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	follow := func(pod *corev1.Pod) <-chan error {
		t.Helper()
		stream := must.Get(w.Client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context()))(t)
		must.Get(io.ReadFull(stream, make([]byte, 8)))(t)
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, stream)
			_ = stream.Close()
			ended <- err
		}()
		return ended
	}
	pod := w.pod(t, "", nil)
	w.expect(t, result{}, "", "exec", pod.Name, "--", "sh", "-c", "echo kept > /tmp/file")
	open := follow(pod)
	node, err := w.Client.CoreV1().Nodes().Get(t.Context(), w.node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions[0].Status = corev1.ConditionUnknown
	node = must.Get(w.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}))(t)
	<-open
	w.expect(t, result{code: 1, err: "does not respond (simulated)"}, "", "exec", pod.Name, "--", "true")
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	must.Get(w.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}))(t)
	w.expect(t, result{code: 1, err: "no such file"}, "", "exec", pod.Name, "--", "cat", "/tmp/file")
	open = follow(pod)
	w.Server.Forget("test")
	<-open
	must.Do(t, w.Server.Serve("test", w.Config, w.Config.CAData))
	open = follow(pod)
	w.Server.Close()
	<-open
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	pod := w.pod(t, "", nil)
	logs := w.Client.CoreV1().Pods("default").GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true})
	var open []io.Closer
	for range stubkubelet.MaxStreamsOfNode {
		stream := must.Get(logs.Stream(t.Context()))(t)
		open = append(open, stream)
	}
	if _, err := logs.Stream(t.Context()); !apierrors.IsTooManyRequests(err) {
		t.Errorf("one stream too many: %v", err)
	}
	for _, stream := range open {
		_ = stream.Close()
	}
	eventually.Soon(t, "closed streams are not counted", func() error {
		stream, err := logs.Stream(t.Context())
		if err == nil {
			_ = stream.Close()
		}
		return err
	})

}

// TestIdleStreamEnds executes a command that writes a line and then nothing.
func TestIdleStreamEnds(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t, func(o *stubkubelet.Options) { o.Clock = clock })
	pod := w.pod(t, "", nil)
	command := w.command(t, "exec", pod.Name, "--", "sh", "-c", "echo started; sleep 1000")
	out := must.Get(command.StdoutPipe())(t)
	must.Do(t, command.Start())
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("the command wrote %q, %v", line, err)
	}
	clock.Step(stubkubelet.DefaultIdleTimeout)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("the command also wrote %q, %v", rest, err)
	}
	_ = command.Wait()
	if code := command.ProcessState.ExitCode(); code != 137 {
		t.Errorf("exit code %d", code)
	}
}
