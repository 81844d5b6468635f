package stubkubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	remotecommandconsts "k8s.io/apimachinery/pkg/util/remotecommand"
	clientremotecommand "k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
	"k8s.io/kubelet/pkg/cri/streaming/remotecommand"
	"k8s.io/utils/clock"
	utilexec "k8s.io/utils/exec"
)

// refusal is why a request is not served.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

func writeError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var refused *refusal
	if errors.As(err, &refused) {
		status = refused.status
	}
	http.Error(w, err.Error(), status)
}

// routes returns the paths that API servers use.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.withStream(serveLogs))
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		mux.HandleFunc(method+" /exec/{namespace}/{pod}/{container}", s.withStream(serveExec))
		mux.HandleFunc(method+" /attach/{namespace}/{pod}/{container}", s.withStream(serveAttach))
		mux.HandleFunc(method+" /portForward/{namespace}/{pod}", s.withStream(servePortForward))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.authenticate(r.TLS); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Error(w, "the simulated kubelet serves only logs, exec, attach and port-forward", http.StatusNotFound)
	})
	return mux
}

// stream is a request in progress.
type stream struct {
	cluster   *cluster
	pod       *pod
	object    *corev1.Pod
	container *corev1.Container // nil for port-forward
	idle      *idleTimer

	mu     sync.Mutex
	ended  bool
	ports  int // forwarded connections in progress
	served sync.WaitGroup
}

// maxForwarded bounds the connections in progress of one port-forward.
const maxForwarded = 32

// start calls a function in a goroutine for which the request waits. It returns false if the request has ended.
func (st *stream) start(function func()) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended {
		return false
	}
	st.served.Go(function)
	return true
}

// wait ends the stream and waits for its goroutines and connections.
func (st *stream) wait() {
	st.mu.Lock()
	st.ended = true
	st.mu.Unlock()
	st.served.Wait()
}

// beginPort registers a forwarded connection.
func (st *stream) beginPort() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.ended:
		return errClientGone
	case st.ports >= maxForwarded:
		return fmt.Errorf("a port-forward has at most %d connections", maxForwarded)
	}
	st.ports++
	st.served.Add(1)
	return nil
}

func (st *stream) endPort() {
	st.mu.Lock()
	st.ports--
	st.mu.Unlock()
	st.served.Done()
}

// withStream returns a handler that finds the pod of a request and calls serve. The context of serve ends with the pod, its node, its cluster,
// the connection, and after the idle timeout; then serve has endGrace to return before the connection is closed.
func (s *Server) withStream(serve func(ctx context.Context, st *stream, w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := s.begin(); err != nil {
			writeError(w, err)
			return
		}
		defer s.end()
		c, err := s.authenticate(r.TLS)
		if err != nil { // the cluster was removed, or the certificate has expired since the handshake
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		st, err := c.open(r)
		if err != nil {
			writeError(w, err)
			return
		}
		node := st.object.Spec.NodeName
		if err := c.acquire(node); err != nil {
			writeError(w, err)
			return
		}
		defer c.release(node)
		defer st.wait()

		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(st.pod.ctx, func() { cancel(errPodEnded) })()
		st.idle = newIdleTimer(s.options.Clock, s.options.IdleTimeout, func() { cancel(fmt.Errorf("no data for %s", s.options.IdleTimeout)) })
		defer st.idle.stop()
		if conn, ok := r.Context().Value(connectionKey{}).(*connection); ok {
			defer context.AfterFunc(conn.ended, func() { cancel(errClientGone) })()
			closing, served := sync.WaitGroup{}, make(chan struct{})
			defer closing.Wait()
			defer close(served)
			closing.Go(func() {
				select {
				case <-served:
					return
				case <-ctx.Done():
				}
				select {
				case <-served:
				case <-s.options.Clock.After(endGrace):
					_ = conn.Close()
				}
			})
		}
		serve(ctx, st, w, r)
	}
}

var (
	errPodEnded   = errors.New("the pod or its node is gone")
	errClientGone = errors.New("the client is gone")
)

// open finds the running pod and the container of a request.
func (c *cluster) open(r *http.Request) (*stream, error) {
	name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	p, object, err := c.await(r.Context(), name)
	if err != nil {
		return nil, err
	}
	st := &stream{cluster: c, pod: p, object: object}
	wanted := r.PathValue("container")
	if wanted == "" {
		return st, nil
	}
	for _, containers := range [][]corev1.Container{object.Spec.Containers, object.Spec.InitContainers} {
		if i := slices.IndexFunc(containers, func(container corev1.Container) bool { return container.Name == wanted }); i >= 0 {
			st.container = &containers[i]
			return st, nil
		}
	}
	return nil, &refusal{http.StatusNotFound, fmt.Sprintf("container %s is not simulated in pod %s", wanted, name)}
}

// runs reports whether the container of the stream runs: init containers have completed.
func (st *stream) runs() bool {
	return restartable(st.container) || !slices.ContainsFunc(st.object.Spec.InitContainers, func(container corev1.Container) bool { return container.Name == st.container.Name })
}

func (st *stream) notRunning() error {
	return &refusal{http.StatusBadRequest, fmt.Sprintf("container %s of pod %s/%s has completed", st.container.Name, st.object.Namespace, st.object.Name)}
}

// options returns the streams that a request for exec or attach asks for, or a refusal.
func (st *stream) options(r *http.Request) (*remotecommand.Options, error) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		return nil, &refusal{http.StatusBadRequest, err.Error()}
	}
	if !st.runs() {
		return nil, st.notRunning()
	}
	return options, nil
}

func serveExec(ctx context.Context, st *stream, w http.ResponseWriter, r *http.Request) {
	options, err := st.options(r)
	if err != nil {
		writeError(w, err)
		return
	}
	remotecommand.ServeExec(lingeringWriter{w}, r, executor{ctx, st}, st.object.Name, st.object.UID, st.container.Name, r.URL.Query()[corev1.ExecCommandParam], options,
		st.connectionTimeout(), streamCreationTimeout, remotecommandconsts.SupportedStreamingProtocols)
}

func serveAttach(ctx context.Context, st *stream, w http.ResponseWriter, r *http.Request) {
	options, err := st.options(r)
	if err != nil {
		writeError(w, err)
		return
	}
	remotecommand.ServeAttach(lingeringWriter{w}, r, executor{ctx, st}, st.object.Name, st.object.UID, st.container.Name, options,
		st.connectionTimeout(), streamCreationTimeout, remotecommandconsts.SupportedStreamingProtocols)
}

func servePortForward(ctx context.Context, st *stream, w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		writeError(w, &refusal{http.StatusBadRequest, err.Error()})
		return
	}
	portforward.ServePortForward(lingeringWriter{w}, r, executor{ctx, st}, st.object.Name, st.object.UID, options,
		st.connectionTimeout(), streamCreationTimeout, portforward.SupportedProtocols)
}

// executor serves the upgraded connection of a stream. Its context is that of the stream; those that the handlers of Kubernetes pass do not end
// with the connection.
type executor struct {
	ctx    context.Context
	stream *stream
}

// ExecInContainer runs a built-in command.
func (e executor) ExecInContainer(_ context.Context, _ string, _ types.UID, _ string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan clientremotecommand.TerminalSize, _ time.Duration) error {
	return e.run(in, out, errOut, tty, resize, func(ctx context.Context, p *process) int { return p.execute(ctx, command) })
}

// AttachContainer writes the log and waits for the end of the pod, or of the client's input.
func (e executor) AttachContainer(_ context.Context, _ string, _ types.UID, _ string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan clientremotecommand.TerminalSize) error {
	return e.run(in, out, errOut, tty, resize, func(ctx context.Context, p *process) int {
		for _, line := range logLines(e.stream.object, e.stream.container) {
			if _, err := io.WriteString(p.out, line.text+"\n"); err != nil {
				return 1
			}
		}
		if in != nil {
			_, _ = io.Copy(io.Discard, p.in)
			return 0
		}
		<-ctx.Done()
		return 0
	})
}

// run runs a function as the process of a container until it ends or the stream does. Then it does not wait for the function, which may
// read from the client: the connection is closed next, and withStream waits.
func (e executor) run(in io.Reader, out, errOut io.Writer, tty bool, resize <-chan clientremotecommand.TerminalSize, function func(context.Context, *process) int) error {
	terminal := newTerminalSize()
	if resize != nil {
		e.stream.start(func() {
			for size := range resize {
				terminal.set(size)
			}
		})
	}
	p := e.stream.process(in, out, errOut, tty, terminal)
	exited := make(chan int, 1)
	e.stream.start(func() { exited <- function(e.ctx, p) })
	select {
	case code := <-exited:
		if code == 0 {
			return nil
		}
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
	case <-e.ctx.Done():
		return utilexec.CodeExitError{Err: fmt.Errorf("terminated: %w", context.Cause(e.ctx)), Code: killed}
	}
}

// killed is the exit status of a process that was killed: 128 and the number of SIGKILL.
const killed = 137

// PortForward serves one connection to a port of the pod.
func (e executor) PortForward(_ context.Context, _ string, _ types.UID, port int32, data io.ReadWriteCloser) error {
	if err := e.stream.beginPort(); err != nil {
		return err
	}
	defer e.stream.endPort()
	return servePort(e.stream.object, port, e.stream.bounded(data), e.stream.boundedWriter(data))
}

// connectionTimeout is the time after which an upgraded connection without frames is closed. It is longer than the idle timeout of the stream, so
// that the client gets the status of the stream first.
func (st *stream) connectionTimeout() time.Duration {
	return st.cluster.server.options.IdleTimeout + 2*endGrace
}

// idleTimer calls a function after a time without data.
type idleTimer struct {
	timeout time.Duration
	timer   clock.Timer
}

func newIdleTimer(clock clock.WithDelayedExecution, timeout time.Duration, expired func()) *idleTimer {
	return &idleTimer{timeout: timeout, timer: clock.AfterFunc(timeout, expired)}
}

// active begins the timeout again, unless it has expired or was stopped.
func (t *idleTimer) active() {
	if t.timer.Stop() {
		t.timer.Reset(t.timeout)
	}
}

func (t *idleTimer) stop() { t.timer.Stop() }

var errTooManyBytes = fmt.Errorf("a simulated stream has at most %d bytes in each direction", MaxStreamBytes)

// bounded returns a reader that ends with an error after MaxStreamBytes, and reports activity.
func (st *stream) bounded(reader io.Reader) io.Reader {
	if reader == nil {
		return nil
	}
	return &boundedReader{reader: reader, left: MaxStreamBytes, idle: st.idle}
}

// boundedWriter is like bounded for a writer.
func (st *stream) boundedWriter(writer io.Writer) io.Writer {
	if writer == nil {
		return io.Discard
	}
	return &boundedWriter{writer: writer, left: MaxStreamBytes, idle: st.idle}
}

type boundedReader struct {
	reader io.Reader
	left   int64
	idle   *idleTimer
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooManyBytes
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.reader.Read(p)
	b.left -= int64(n)
	if n > 0 {
		b.idle.active()
	}
	return n, err
}

type boundedWriter struct {
	writer io.Writer
	left   int64
	idle   *idleTimer
}

func (b *boundedWriter) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, errTooManyBytes
	}
	n, err := b.writer.Write(p)
	b.left -= int64(n)
	if n > 0 {
		b.idle.active()
	}
	return n, err
}
