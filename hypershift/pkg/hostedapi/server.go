package hostedapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

const (
	// readyTimeout bounds the time until a server is ready. Then it is restarted. It is that of kubeadm's startup probe: a start takes seconds of
	// processor time, and a restart on a busy machine would begin all of it again.
	readyTimeout = 4 * time.Minute
	// probeInterval is the interval of probes of a starting server. Probes has the settings for a server that was ready.
	probeInterval = 40 * time.Millisecond
	// stopTimeout bounds the time for a graceful shutdown. Then the server is killed.
	stopTimeout = 3 * time.Second
	// firstPause and lastPause bound the pause before a server that terminated is restarted.
	firstPause = 200 * time.Millisecond
	lastPause  = 15 * time.Second
	// stableAfter is the running time after which the pause is reset.
	stableAfter = time.Minute
	// host is the address of all servers.
	host = "127.0.0.1"
	// logName is the name of the server's log, and logLimit the size in bytes above which a start renames it. One older log is kept.
	logName  = "kube-apiserver.log"
	logLimit = 8 << 20
)

// server is one hosted API server and the goroutine that keeps it running.
type server struct {
	supervisor *Supervisor
	name       string
	dir        string
	port       atomic.Int32
	stop       chan struct{} // closed to stop the process, after stopSignal was set
	restart    chan struct{}
	done       chan struct{}

	// stopOnce sets stopSignal: the first caller of shutDown decides it.
	stopOnce   sync.Once
	stopSignal syscall.Signal

	mu    sync.Mutex
	spec  Spec
	state State
}

func newServer(supervisor *Supervisor, dir string, spec Spec, port int32) *server {
	srv := &server{
		supervisor: supervisor, name: spec.Name, dir: dir, spec: spec,
		stop: make(chan struct{}), restart: make(chan struct{}, 1), done: make(chan struct{}),
		state: State{Host: host, Port: port, Message: "The API server has not been started yet"},
	}
	srv.port.Store(port)
	return srv
}

func (s *server) start() { go s.run() }

// shutDown stops the server and waits for its process and its goroutine.
func (s *server) shutDown(signal syscall.Signal) {
	s.stopOnce.Do(func() {
		s.stopSignal = signal
		close(s.stop)
	})
	<-s.done
}

func (s *server) snapshot() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *server) updateState(change func(*State)) {
	s.mu.Lock()
	before := s.state
	change(&s.state)
	changed := before != s.state
	s.mu.Unlock()
	if changed {
		s.supervisor.options.OnChange(s.name)
	}
}

// update applies a new spec. It replaces files under the running server, which follows them; any other change restarts
// the server. The spec is stored only after all its files were written, so a later update writes what failed.
func (s *server) update(next Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if next.Authentication == nil {
		next.Authentication = s.spec.Authentication
	}
	before, after := s.spec.Files(), next.Files()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if bytes.Equal(before[name], after[name]) {
			continue
		}
		if err := writeFile(filepath.Join(s.dir, name), after[name]); err != nil {
			return err
		}
	}
	restart := s.spec.needsRestart(&next)
	s.spec = next
	if restart {
		select {
		case s.restart <- struct{}{}:
		default:
		}
	}
	return nil
}

// writeFiles writes all files of the spec and returns the spec. It excludes updates.
func (s *server) writeFiles() (Spec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, content := range s.spec.Files() {
		if err := writeFile(filepath.Join(s.dir, name), content); err != nil {
			return Spec{}, err
		}
	}
	return s.spec, nil
}

func (s *server) run() {
	defer close(s.done)
	log := s.supervisor.options.Log.With(logkey.ControlPlane, s.name)
	if used := s.supervisor.options.OnUse; used != nil {
		ctx, cancel := context.WithCancel(context.Background())
		var logReader sync.WaitGroup
		logReader.Go(func() {
			followAuditLog(ctx, s.dir, func(use hostedreport.CredentialUse) { used(s.name, use) }, log)
		})
		// After the server has terminated, so that the end of its log is read.
		defer logReader.Wait()
		defer cancel()
	}
	pauses := backoff.New(firstPause, lastPause)
	for {
		began := time.Now()
		err := s.runOnce()
		if err == nil {
			s.updateState(func(state *State) { state.Ready, state.PID, state.Message = false, 0, "The API server is stopped" })
			return
		}
		if errors.Is(err, errRestart) {
			continue
		}
		if time.Since(began) > stableAfter {
			pauses.Reset()
		}
		pause := pauses.Next()
		log.Warn("hosted API server terminated; restarting", logkey.Error, err, logkey.RetryIn, pause.String())
		s.updateState(func(state *State) {
			state.Ready, state.Settled, state.PID, state.Message = false, true, 0, err.Error()
			state.Restarts++
		})
		select {
		case <-s.stop:
		case <-time.After(pause):
		}
	}
}

// errRestart is returned by runOnce if the server was stopped to restart it with a new spec.
var errRestart = errors.New("restart")

// runOnce runs the server until it terminates. It returns nil if shutDown stopped it.
func (s *server) runOnce() error {
	select {
	case <-s.stop:
		return nil
	case s.supervisor.starts <- struct{}{}:
	}
	var once sync.Once
	release := func() { once.Do(func() { <-s.supervisor.starts }) }
	defer release()

	select {
	case <-s.stop: // select chooses randomly if both channels are ready
		return nil
	default:
	}
	etcd, err := s.grantEtcd()
	if errors.Is(err, errStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	command, logFile, err := s.command(etcd)
	if errors.Is(err, errStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	process, err := spawn.Start(command, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("starting the API server: %w", err)
	}
	pid := process.PID()
	kill := func(signal syscall.Signal) {
		_ = process.Signal(signal)
		select {
		case <-process.Exited():
		case <-time.After(stopTimeout):
			process.Kill()
		}
		_ = os.Remove(filepath.Join(s.dir, "pid"))
	}
	if err := writeFile(filepath.Join(s.dir, "pid"), []byte(strconv.Itoa(pid))); err != nil {
		kill(syscall.SIGKILL)
		return err
	}
	s.updateState(func(state *State) {
		state.PID, state.Port, state.Message = pid, s.port.Load(), "The API server is starting"
	})

	ctx, cancel := context.WithCancel(context.Background())
	ready, hung := make(chan error, 1), make(chan error, 1)
	var probe sync.WaitGroup
	defer probe.Wait()
	defer cancel()
	probe.Go(func() {
		starting, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		err := s.awaitReady(starting)
		if err == nil {
			err = s.ensureReaders(starting)
		}
		ready <- err
	})
	for {
		select {
		case err := <-ready:
			release()
			ready = nil
			if err != nil {
				kill(syscall.SIGKILL)
				return err
			}
			s.updateState(func(state *State) { state.Ready, state.Settled, state.Message = true, true, "" })
			probe.Go(func() {
				if err := s.watch(ctx); err != nil {
					hung <- err
				}
			})
		case err := <-hung:
			kill(syscall.SIGKILL) // a hung server does not shut down gracefully
			return fmt.Errorf("the API server %w", err)
		case <-process.Exited():
			cancel()
			kill(syscall.SIGKILL)
			return fmt.Errorf("the API server terminated (%v): %s", process.Err(), s.lastLogLine(logFile.Name()))
		case <-s.stop:
			cancel()
			kill(s.stopSignal)
			return nil
		case <-s.restart:
			cancel()
			kill(syscall.SIGTERM)
			probe.Wait() // a probe in progress must not store a state afterwards
			s.updateState(func(state *State) {
				state.Ready, state.Settled, state.PID, state.Message = false, false, 0, "The API server restarts with a new configuration"
			})
			return errRestart
		}
	}
}

// errStopped is returned by grantEtcd and awaitPort if shutDown stopped the server meanwhile.
var errStopped = errors.New("stopped")

// grantEtcd gives the server access to its keys in etcd.
func (s *server) grantEtcd() (kubeapi.EtcdTLS, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var files kubeapi.EtcdTLS
	granted := make(chan error, 1)
	go func() {
		var err error
		files, err = s.supervisor.etcd.grant(ctx, s.name, s.dir)
		granted <- err
	}()
	select {
	case err := <-granted:
		return files, err
	case <-s.stop:
		cancel()
		<-granted
		return kubeapi.EtcdTLS{}, errStopped
	}
}

// command writes the files and returns the command to start, and its log file.
func (s *server) command(etcd kubeapi.EtcdTLS) (*exec.Cmd, *os.File, error) {
	spec, err := s.writeFiles()
	if err != nil {
		return nil, nil, err
	}
	free, err := awaitPort(func() bool { return portFree(s.port.Load()) }, s.stop)
	if err != nil {
		return nil, nil, err
	}
	if !free {
		s.supervisor.mu.Lock()
		next, err := s.supervisor.options.Ports.pick(spec.Name, s.supervisor.taken)
		if err == nil {
			s.port.Store(next)
			err = writePort(s.dir, next)
		}
		s.supervisor.mu.Unlock()
		if err != nil {
			return nil, nil, err
		}
	}
	if err := rotateLog(s.dir, time.Now()); err != nil {
		return nil, nil, err
	}
	logFile, err := os.OpenFile(filepath.Join(s.dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the API server's log: %w", err)
	}
	egress, err := s.egressArguments()
	if err != nil {
		_ = logFile.Close()
		return nil, nil, err
	}
	command := exec.Command(s.supervisor.options.APIServer, append(s.arguments(&spec, etcd), egress...)...)
	command.Dir = s.dir
	command.Stdout, command.Stderr = logFile, logFile
	// A start creates much garbage in a small heap, and collecting it is a quarter of the CPU time of the start. With
	// collection only at the limit a server has 260 MiB resident instead of 230. With a limit near the live heap (130
	// MiB) a start takes three times as long.
	command.Env = []string{"GOGC=off", "GOMEMLIMIT=200MiB", "HOME=" + s.dir, "PATH=" + os.Getenv("PATH")}
	return command, logFile, nil
}

// rotateLog renames a server's log that is larger than logLimit, and removes the logs that were renamed before. The log forwarder may have one
// open and reads it to its end.
func rotateLog(dir string, now time.Time) error {
	path := filepath.Join(dir, logName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() <= logLimit {
		return nil
	}
	if err != nil {
		return fmt.Errorf("checking the API server's log: %w", err)
	}
	extension := filepath.Ext(logName)
	base := strings.TrimSuffix(path, extension)
	older, err := filepath.Glob(base + "-*" + extension)
	if err != nil {
		return err
	}
	for _, old := range older {
		if err := os.Remove(old); err != nil {
			return fmt.Errorf("removing an API server's older log: %w", err)
		}
	}
	if err := os.Rename(path, base+"-"+now.UTC().Format("2006-01-02T15-04-05.000")+extension); err != nil {
		return fmt.Errorf("rotating the API server's log: %w", err)
	}
	return nil
}

func (s *server) arguments(spec *Spec, etcd kubeapi.EtcdTLS) []string {
	arguments := []string{
		"--etcd-servers=" + s.supervisor.options.EtcdServers,
		"--etcd-compaction-interval=0", // the management cluster's API server compacts etcd
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(int(s.port.Load())),
	}
	return slices.Concat(arguments, spec.Arguments(s.dir, s.dir), etcd.Arguments())
}

// awaitReady probes /readyz until it returns 200. A server does not announce that it listens, so this has to poll; the
// polling ends with the start.
func (s *server) awaitReady(ctx context.Context) error {
	s.mu.Lock()
	config, err := s.spec.probeTLSConfig()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	url := "https://127.0.0.1:" + strconv.Itoa(int(s.port.Load())) + "/readyz"
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	last := errors.New("no response")
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
			return fmt.Errorf("the API server was not ready within %s: %w", readyTimeout, last)
		case <-ticker.C:
		}
	}
}

// lastLogLine returns the last line of the server's log, which usually contains the reason why it terminated.
func (s *server) lastLogLine(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "reading its log failed"
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "reading its log failed"
	}
	text, err := io.ReadAll(io.NewSectionReader(file, max(0, info.Size()-2048), 2048))
	if err != nil {
		return "reading its log failed"
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	words := string(lines[len(lines)-1])
	if len(words) > 300 {
		words = words[:300]
	}
	return words
}
