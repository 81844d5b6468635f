package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
	kubeletcommand "k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// kubelet answers an API server's requests for commands, attachments and ports with the implementation of kubelets. It runs the commands as
// processes of this machine, in an empty folder.
type kubelet struct {
	dir string
	// started gets a value when a command or an attachment has started, and stopped when one has ended.
	started, stopped chan struct{}
	calls            sync.WaitGroup
}

// runKubelet adds a node with a kubelet, and a running pod on it.
func (r *hostedRegion) runKubelet(pod string) *kubelet {
	t := r.t
	t.Helper()
	k := &kubelet{dir: t.TempDir(), started: make(chan struct{}, 100), stopped: make(chan struct{}, 100)}
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, r.signer, &key.PublicKey, r.key))(t)
	routes := http.NewServeMux()
	routes.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	routes.HandleFunc("/attach/{namespace}/{pod}/{container}", k.attach)
	routes.HandleFunc("/portForward/{namespace}/{pod}", k.forward)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		k.calls.Add(1)
		defer k.calls.Done()
		routes.ServeHTTP(w, request)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(func() { server.Close(); k.calls.Wait() })
	_, text, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port := must.Get(strconv.Atoi(text))(t)
	ctx := context.WithoutCancel(t.Context())
	nodes := r.admin.CoreV1().Nodes()
	node := must.Get(nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + pod}}, metav1.CreateOptions{}))(t)
	t.Cleanup(func() { _ = nodes.Delete(ctx, node.Name, metav1.DeleteOptions{}) })
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}, {Type: corev1.NodeExternalIP, Address: "127.0.0.1"}}
	must.Get(nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}))(t)
	r.createPodOn(pod, node.Name)
	return k
}

// streamTimeout is the limit of idle streams and of their creation. The tests end all streams.
const streamTimeout = time.Hour

// protocols are those between API servers and kubelets.
var protocols = []string{"v4.channel.k8s.io"}

func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	options, err := kubeletcommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kubeletcommand.ServeExec(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), r.URL.Query()["command"], options, streamTimeout, streamTimeout, protocols)
}

func (k *kubelet) attach(w http.ResponseWriter, r *http.Request) {
	options, err := kubeletcommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kubeletcommand.ServeAttach(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), options, streamTimeout, streamTimeout, protocols)
}

func (k *kubelet) forward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, k, r.PathValue("pod"), "", options, streamTimeout, streamTimeout, portforward.SupportedProtocols)
}

// ExecInContainer implements the interface of kubelets. It ends the command when its connection ends.
func (k *kubelet) ExecInContainer(ctx context.Context, _ string, _ types.UID, _ string, arguments []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	command := exec.CommandContext(ctx, arguments[0], arguments[1:]...)
	command.Dir, command.Stdout = k.dir, out
	if command.Stderr = io.Writer(out); errOut != nil {
		command.Stderr = errOut
	}
	var resizing sync.WaitGroup
	defer resizing.Wait()
	if in != nil {
		pipe, err := command.StdinPipe()
		if err != nil {
			return err
		}
		k.calls.Go(func() { // a WebSocket of v4.channel.k8s.io has no end of the input: it ends with the connection, after the command
			_, err := io.Copy(pipe, in)
			_ = pipe.Close()
			if err != nil {
				cancel() // the connection is lost
			}
		})
	}
	if resize != nil {
		ended := make(chan struct{}) // the stream of sizes ends after the command
		defer close(ended)
		resizing.Go(func() {
			for {
				select {
				case <-ended:
					return
				case size, ok := <-resize:
					if !ok {
						return
					}
					_, _ = out.Write([]byte(strconv.Itoa(int(size.Width)) + " columns\n"))
				}
			}
		})
	}
	if err := command.Start(); err != nil {
		return err
	}
	k.started <- struct{}{}
	err := command.Wait()
	k.stopped <- struct{}{}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
	}
	return err
}

// AttachContainer implements the interface of kubelets: the container repeats its input.
func (k *kubelet) AttachContainer(ctx context.Context, pod string, uid types.UID, container string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return k.ExecInContainer(ctx, pod, uid, container, []string{"cat"}, in, out, errOut, tty, resize, 0)
}

// PortForward implements the interface of kubelets: the ports of pods are those of this machine.
func (k *kubelet) PortForward(_ context.Context, _ string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	connection, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	k.started <- struct{}{}
	defer func() { k.stopped <- struct{}{} }()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(stream, connection); _ = stream.Close() })
	_, _ = io.Copy(connection, stream)
	_ = connection.Close()
	back.Wait()
	return nil
}

var (
	_ kubeletcommand.Executor   = (*kubelet)(nil)
	_ kubeletcommand.Attacher   = (*kubelet)(nil)
	_ portforward.PortForwarder = (*kubelet)(nil)
)
