package hostedapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// Options configures a Supervisor.
type Options struct {
	// APIServer is the path of the kube-apiserver program.
	APIServer string
	// EtcdServers are the client URLs of the shared etcd, separated by commas.
	EtcdServers string
	// EtcdAuthority is the folder of the authority that issues the certificates of etcd's users: one user for each control plane, and
	// etcdusers.Root for the Supervisor, which creates and deletes them.
	EtcdAuthority string
	// Egress is the proxy for connections to token issuers; nil connects directly.
	Egress *Egress
	// Dir contains one folder per control plane with its certificates, port, pid and log.
	Dir string
	// Ports is the range from which ports are picked.
	Ports PortRange
	// ConcurrentStarts bounds the number of servers that start at the same time. A start takes a second of processor
	// time.
	ConcurrentStarts int
	// Probes are the settings of the probes of running servers; DefaultProbes if it is zero.
	Probes Probes
	// OnChange is called with a control plane's name whenever its State changed. It must not block.
	OnChange func(name string)
	// OnUse is called for each use of a break-glass credential in a control plane; nil disables reading the audit logs.
	// It may be called repeatedly for the same use, and must not block for long.
	OnUse func(name string, use hostedreport.CredentialUse)
	Log   *slog.Logger
}

// Supervisor owns the hosted API servers of one management cluster. It is safe for concurrent use.
type Supervisor struct {
	options Options
	etcd    *etcdAccess
	starts  chan struct{}

	mu      sync.Mutex
	servers map[string]*server
	closing bool
}

// NewSupervisor kills servers that an earlier supervisor on the same folder left running, and returns a supervisor
// without servers. The caller must call Close.
func NewSupervisor(options Options) (*Supervisor, error) {
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of hosted API servers: %w", err)
	}
	if options.ConcurrentStarts <= 0 {
		options.ConcurrentStarts = 2
	}
	if options.Probes == (Probes{}) {
		options.Probes = DefaultProbes
	}
	if options.Probes.Clock == nil {
		options.Probes.Clock = clock.RealClock{}
	}
	if options.Ports == (PortRange{}) {
		options.Ports = DefaultPortRange
	}
	if err := killOrphans(options.Dir); err != nil {
		return nil, err
	}
	etcd, err := openEtcd(&options)
	if err != nil {
		return nil, err
	}
	return &Supervisor{
		options: options,
		etcd:    etcd,
		starts:  make(chan struct{}, options.ConcurrentStarts),
		servers: map[string]*server{},
	}, nil
}

// killOrphans kills servers whose pid files are in dir. On Linux the parent-death signal has already killed them. A pid
// that was reused by another program is recognized by its command line and left alone.
func killOrphans(dir string) error {
	pidFiles, err := filepath.Glob(filepath.Join(dir, "*", "pid"))
	if err != nil {
		return err
	}
	for _, file := range pidFiles {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a pid file: %w", err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		name := filepath.Base(filepath.Dir(file))
		if err == nil && isHostedAPIServer(pid, name) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			for deadline := time.Now().Add(5 * time.Second); isHostedAPIServer(pid, name) && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func isHostedAPIServer(pid int, name string) bool {
	commandLine, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && strings.Contains(string(commandLine), "--etcd-prefix="+Prefix(name)+"\x00")
}

// Ensure starts or updates the API server of a control plane according to spec, and returns its state without waiting.
func (s *Supervisor) Ensure(spec Spec) (State, error) {
	if err := spec.Validate(); err != nil {
		return State{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return State{}, errors.New("hosted API server: the supervisor is closing")
	}
	srv := s.servers[spec.Name]
	if srv == nil {
		dir := filepath.Join(s.options.Dir, spec.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return State{}, fmt.Errorf("creating the folder of hosted API server %s: %w", spec.Name, err)
		}
		port, err := s.port(dir, &spec)
		if err != nil {
			return State{}, err
		}
		srv = newServer(s, dir, spec, port)
		s.servers[spec.Name] = srv
		srv.start()
		return srv.snapshot(), nil
	}
	if err := srv.update(spec); err != nil {
		return State{}, err
	}
	return srv.snapshot(), nil
}

// port returns the previous port of the control plane, or picks one. The start of the server waits until it is free. The caller holds the lock.
func (s *Supervisor) port(dir string, spec *Spec) (int32, error) {
	if text, err := os.ReadFile(filepath.Join(dir, "port")); err == nil {
		if port, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32); err == nil && !s.taken(int32(port)) {
			return int32(port), nil
		}
	}
	if spec.Port != 0 && !s.taken(spec.Port) {
		return spec.Port, writePort(dir, spec.Port)
	}
	port, err := s.options.Ports.pick(spec.Name, s.taken)
	if err != nil {
		return 0, err
	}
	return port, writePort(dir, port)
}

func writePort(dir string, port int32) error {
	return writeFile(filepath.Join(dir, "port"), []byte(strconv.Itoa(int(port))))
}

// taken reports whether a control plane of this supervisor has the port. The caller holds the lock.
func (s *Supervisor) taken(port int32) bool {
	for _, srv := range s.servers {
		if srv.port.Load() == port {
			return true
		}
	}
	return false
}

// State returns the state of a control plane's server; ok is false if Ensure was never called for it.
func (s *Supervisor) State(name string) (state State, ok bool) {
	s.mu.Lock()
	srv := s.servers[name]
	s.mu.Unlock()
	if srv == nil {
		return State{}, false
	}
	return srv.snapshot(), true
}

// Encrypted reports whether etcd has encrypted values of a control plane.
func (s *Supervisor) Encrypted(ctx context.Context, name string) (bool, error) {
	return s.etcd.encrypted(ctx, name)
}

// Remove kills a control plane's server and deletes its user and keys from etcd, and its folder. It is idempotent, and also
// accepts names for which Ensure was never called.
func (s *Supervisor) Remove(ctx context.Context, name string) error {
	s.mu.Lock()
	srv := s.servers[name]
	s.mu.Unlock()
	if srv != nil {
		srv.shutDown(syscall.SIGKILL) // a graceful shutdown would only save data that is deleted next
	}
	if err := s.etcd.remove(ctx, name); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(s.options.Dir, name)); err != nil {
		return fmt.Errorf("removing the folder of hosted API server %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers[name] == srv {
		delete(s.servers, name)
	}
	return nil
}

// Close stops all servers and waits for them. Their data and ports remain for the next supervisor.
func (s *Supervisor) Close() {
	s.mu.Lock()
	s.closing = true
	servers := make([]*server, 0, len(s.servers))
	for _, srv := range s.servers {
		servers = append(servers, srv)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, srv := range servers {
		wg.Go(func() { srv.shutDown(syscall.SIGTERM) })
	}
	wg.Wait()
	s.etcd.close()
}

// Running returns the number of ready servers and of all servers.
func (s *Supervisor) Running() (ready, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, srv := range s.servers {
		if srv.snapshot().Ready {
			ready++
		}
	}
	return ready, len(s.servers)
}

// writeFile replaces a file atomically, so that a reader never sees partial content.
func writeFile(path string, content []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, content, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return nil
}
