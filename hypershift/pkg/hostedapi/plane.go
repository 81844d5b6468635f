package hostedapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/auditlog"
	"github.com/hcpmesh/hcpmesh/internal/credentialuse"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

const (
	// readyWithin is how long a server may take to become ready before it is started again.
	readyWithin = 60 * time.Second
	// probeEvery is how often a starting server is asked; a ready one is not asked any more, its end is noticed.
	probeEvery = 40 * time.Millisecond
	// stopWithin is how long a server may take to end before it is killed.
	stopWithin = 3 * time.Second
	// backOffFirst and backOffLast bound the pause before a server that died is started again.
	backOffFirst = 200 * time.Millisecond
	backOffLast  = 15 * time.Second
	// steadyAfter is how long a server must have run for its next restart to count as the first.
	steadyAfter = time.Minute
	// logLimit is the size at which a server's log is begun anew when it starts.
	logLimit = 8 << 20
)

// plane is one hosted API server and the goroutine that keeps it running.
type plane struct {
	supervisor *Supervisor
	name       string
	dir        string
	port       atomic.Int32
	stop       chan struct{} // closed when the process shall end, after ending was set
	restart    chan struct{}
	done       chan struct{}

	// asked sets ending, which is how the process shall end: the first who ends it decides.
	asked  sync.Once
	ending syscall.Signal

	mu    sync.Mutex
	spec  Spec
	state State
}

func newPlane(s *Supervisor, dir string, spec Spec, port int32) *plane {
	p := &plane{
		supervisor: s, name: spec.Name, dir: dir, spec: spec,
		stop: make(chan struct{}), restart: make(chan struct{}, 1), done: make(chan struct{}),
		state: State{Port: port, Message: "The API server has not been started yet"},
	}
	p.port.Store(port)
	return p
}

func (p *plane) begin() { go p.run() }

// end stops the server and waits until it and its goroutine are gone.
func (p *plane) end(signal syscall.Signal) {
	p.asked.Do(func() {
		p.ending = signal
		close(p.stop)
	})
	<-p.done
}

func (p *plane) current() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

func (p *plane) set(change func(*State)) {
	p.mu.Lock()
	before := p.state
	change(&p.state)
	changed := before != p.state
	p.mu.Unlock()
	if changed {
		p.supervisor.options.Changed(p.name)
	}
}

// update takes over a new spec: files are replaced under the running server, which follows them; anything else starts
// it again. The spec is the plane's when all of its files are: what could not be written is written by the next update.
func (p *plane) update(next Spec) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if next.Authentication == nil {
		next.Authentication = p.spec.Authentication
	}
	before, after := p.spec.files(), next.files()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if bytes.Equal(before[name], after[name]) {
			continue
		}
		if err := writeFile(filepath.Join(p.dir, name), after[name]); err != nil {
			return err
		}
	}
	again := p.spec.needsRestart(&next)
	p.spec = next
	if again {
		select {
		case p.restart <- struct{}{}:
		default:
		}
	}
	return nil
}

// writeFiles writes all files of the spec, which no update does meanwhile, and returns the spec.
func (p *plane) writeFiles() (Spec, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, content := range p.spec.files() {
		if err := writeFile(filepath.Join(p.dir, name), content); err != nil {
			return Spec{}, err
		}
	}
	return p.spec, nil
}

func (p *plane) run() {
	defer close(p.done)
	log := p.supervisor.options.Log.With("controlPlane", p.name)
	if used := p.supervisor.options.Used; used != nil {
		ctx, cancel := context.WithCancel(context.Background())
		var follower sync.WaitGroup
		follower.Go(func() {
			auditlog.Follow(ctx, p.dir, func(use credentialuse.Use) { used(p.name, use) }, log)
		})
		// When the server has ended, so that its last words are heard.
		defer follower.Wait()
		defer cancel()
	}
	for backOff := backOffFirst; ; {
		began := time.Now()
		err := p.once()
		if err == nil {
			p.set(func(s *State) { s.Ready, s.PID, s.Message = false, 0, "The API server is stopped" })
			return
		}
		if errors.Is(err, errRestart) {
			continue
		}
		if time.Since(began) > steadyAfter {
			backOff = backOffFirst
		}
		log.Warn("hosted API server ended and is started again", "error", err, "after", backOff.String())
		p.set(func(s *State) { s.Ready, s.Settled, s.PID, s.Message = false, true, 0, err.Error(); s.Restarts++ })
		select {
		case <-p.stop:
		case <-time.After(backOff):
		}
		backOff = min(2*backOff, backOffLast)
	}
}

// errRestart is returned by once when the server was ended to be started with another spec.
var errRestart = errors.New("restart")

// once runs the server until it ends: nil means that it was asked to.
func (p *plane) once() error {
	select {
	case <-p.stop:
		return nil
	case p.supervisor.starts <- struct{}{}:
	}
	var once sync.Once
	release := func() { once.Do(func() { <-p.supervisor.starts }) }
	defer release()

	select {
	case <-p.stop: // both were so, and the other was chosen
		return nil
	default:
	}
	command, logFile, err := p.command()
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	server, err := spawn.Start(command, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	pid := server.PID()
	kill := func(signal syscall.Signal) {
		_ = server.Signal(signal)
		select {
		case <-server.Exited():
		case <-time.After(stopWithin):
			server.Kill()
		}
		_ = os.Remove(filepath.Join(p.dir, "pid"))
	}
	if err := writeFile(filepath.Join(p.dir, "pid"), []byte(strconv.Itoa(pid))); err != nil {
		kill(syscall.SIGKILL)
		return err
	}
	p.set(func(s *State) { s.PID, s.Port, s.Message = pid, p.port.Load(), "The API server is starting" })

	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	ready := make(chan error, 1)
	var probe sync.WaitGroup
	defer probe.Wait()
	defer cancel()
	probe.Go(func() { ready <- p.awaitReady(ctx) })
	for {
		select {
		case err := <-ready:
			release()
			ready = nil
			if err != nil {
				kill(syscall.SIGKILL)
				return err
			}
			p.set(func(s *State) { s.Ready, s.Settled, s.Message = true, true, "" })
		case <-server.Exited():
			cancel()
			kill(syscall.SIGKILL)
			return fmt.Errorf("the API server ended (%v): %s", server.Err(), p.lastWords(logFile.Name()))
		case <-p.stop:
			cancel()
			kill(p.ending)
			return nil
		case <-p.restart:
			cancel()
			kill(syscall.SIGTERM)
			p.set(func(s *State) {
				s.Ready, s.PID, s.Message = false, 0, "The API server is restarted with a new configuration"
			})
			return errRestart
		}
	}
}

// command writes the files and returns the process to start, and its log.
func (p *plane) command() (*exec.Cmd, *os.File, error) {
	spec, err := p.writeFiles()
	if err != nil {
		return nil, nil, err
	}
	if port := p.port.Load(); !portFree(port) {
		p.supervisor.mu.Lock()
		next, err := p.supervisor.options.Ports.pick(spec.Name, p.supervisor.taken)
		if err == nil {
			p.port.Store(next)
			err = writePort(p.dir, next)
		}
		p.supervisor.mu.Unlock()
		if err != nil {
			return nil, nil, err
		}
	}
	logPath := filepath.Join(p.dir, "kube-apiserver.log")
	mode := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(logPath); err == nil && info.Size() > logLimit {
		mode |= os.O_TRUNC
	}
	logFile, err := os.OpenFile(logPath, mode, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the API server's log: %w", err)
	}
	command := exec.Command(p.supervisor.options.APIServer, p.arguments(&spec)...)
	command.Dir = p.dir
	command.Stdout, command.Stderr = logFile, logFile
	// A start makes much garbage in a small heap, and collecting it is a quarter of the start's CPU. Collecting only at the
	// limit makes 260 MiB resident instead of 230; with a limit near what stays alive (130 MiB) a start takes three times as long.
	command.Env = []string{"GOGC=off", "GOMEMLIMIT=200MiB", "HOME=" + p.dir, "PATH=" + os.Getenv("PATH")}
	return command, logFile, nil
}

func (p *plane) arguments(spec *Spec) []string {
	file := func(name string) string { return filepath.Join(p.dir, name) }
	arguments := []string{
		"--etcd-servers=" + p.supervisor.options.EtcdServers,
		"--etcd-prefix=" + Prefix(spec.Name),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(int(p.port.Load())),
		"--cert-dir=" + p.dir,
		"--tls-cert-file=" + file("serving.crt"),
		"--tls-private-key-file=" + file("serving.key"),
		"--client-ca-file=" + file("client-ca.crt"),
		"--authentication-config=" + file(authenticationName),
		"--service-account-issuer=" + spec.Issuer,
		"--service-account-key-file=" + file("sa.pub"),
		"--service-account-signing-key-file=" + file("sa.key"),
		"--service-cluster-ip-range=" + strings.Join(spec.ServiceCIDRs, ","),
		"--authorization-mode=RBAC",
		"--audit-policy-file=" + file(auditPolicyName),
		"--audit-log-path=" + file(auditlog.LogName),
		"--audit-log-maxsize=" + strconv.Itoa(auditlog.MaxMegabytes),
		"--audit-log-maxbackup=" + strconv.Itoa(auditlog.MaxBackups),
		// Without a controller manager nothing makes service accounts, and their admission would refuse every pod.
		"--disable-admission-plugins=ServiceAccount",
		// One server per control plane: what lets several find each other would only keep an idle one busy.
		"--endpoint-reconciler-type=none",
		"--feature-gates=APIServerIdentity=false",
		"--profiling=false",
	}
	if spec.MaxRequests > 0 {
		arguments = append(arguments, "--max-requests-inflight="+strconv.Itoa(spec.MaxRequests),
			"--max-mutating-requests-inflight="+strconv.Itoa(spec.MaxMutatingRequests))
	}
	for i, name := range slices.Sorted(maps.Keys(spec.Named)) {
		prefix := file("named-" + strconv.Itoa(i))
		arguments = append(arguments, "--tls-sni-cert-key="+prefix+".crt,"+prefix+".key:"+name)
	}
	return arguments
}

// awaitReady asks /readyz until it answers 200. Nothing announces that a server listens, so this is one of the few
// places that ask again and again; it ends with the start.
func (p *plane) awaitReady(ctx context.Context) error {
	p.mu.Lock()
	config, err := p.spec.probeTLS()
	p.mu.Unlock()
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	url := "https://127.0.0.1:" + strconv.Itoa(int(p.port.Load())) + "/readyz"
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	last := errors.New("no answer")
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			last = errors.New(response.Status)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server was not ready within %s: %w", readyWithin, last)
		case <-ticker.C:
		}
	}
}

// lastWords returns the last line of the server's log, where it says why it ended.
func (p *plane) lastWords(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "its log cannot be read"
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "its log cannot be read"
	}
	text, err := io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-2048), 2048))
	if err != nil {
		return "its log cannot be read"
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	words := string(lines[len(lines)-1])
	if len(words) > 300 {
		words = words[:300]
	}
	return words
}
