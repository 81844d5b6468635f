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

	"github.com/hcpmesh/hcpmesh/internal/credentialuse"
)

// Options configure a Supervisor.
type Options struct {
	// APIServer is the path of the kube-apiserver program.
	APIServer string
	// EtcdServers are the client URLs of the shared etcd, separated by commas, plain HTTP on loopback.
	EtcdServers string
	// Dir holds one folder per control plane: certificates, port, pid and log.
	Dir string
	// Ports is where ports are picked from.
	Ports PortRange
	// ConcurrentStarts bounds how many servers may be starting at once: a start takes a second of processor time.
	ConcurrentStarts int
	// Changed is called with a control plane's name whenever its State changed. It must not block.
	Changed func(name string)
	// Used is told of the use of a break-glass credential in a control plane; nil has nobody look. It may be told of the same
	// again, and must not block for long.
	Used func(name string, use credentialuse.Use)
	Log  *slog.Logger
}

// Supervisor owns the hosted API servers of one management cluster.
type Supervisor struct {
	options Options
	etcd    *etcdKeys
	starts  chan struct{}

	mu      sync.Mutex
	planes  map[string]*plane
	closing bool
}

// NewSupervisor ends what an earlier supervisor on the same folder left running, and returns a supervisor that runs
// nothing yet. Close must be called.
func NewSupervisor(options Options) (*Supervisor, error) {
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of hosted API servers: %w", err)
	}
	if options.ConcurrentStarts <= 0 {
		options.ConcurrentStarts = 2
	}
	if options.Ports == (PortRange{}) {
		options.Ports = DefaultPortRange
	}
	if err := endLeftovers(options.Dir); err != nil {
		return nil, err
	}
	return &Supervisor{
		options: options,
		etcd:    newEtcdKeys(options.EtcdServers),
		starts:  make(chan struct{}, options.ConcurrentStarts),
		planes:  map[string]*plane{},
	}, nil
}

// endLeftovers kills servers whose pid files are in dir. The kernel does so already where it knows a parent-death
// signal; a pid that now belongs to another program is recognised by its command line and left alone.
func endLeftovers(dir string) error {
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
		if err == nil && isServer(pid, name) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			for deadline := time.Now().Add(5 * time.Second); isServer(pid, name) && time.Now().Before(deadline); {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func isServer(pid int, name string) bool {
	commandLine, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && strings.Contains(string(commandLine), "--etcd-prefix="+Prefix(name)+"\x00")
}

// Ensure has the control plane run as spec says and returns how it stands now, without waiting for it.
func (s *Supervisor) Ensure(spec Spec) (State, error) {
	if err := spec.validate(); err != nil {
		return State{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return State{}, errors.New("the supervisor of hosted API servers is closing")
	}
	p := s.planes[spec.Name]
	if p == nil {
		dir := filepath.Join(s.options.Dir, spec.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return State{}, fmt.Errorf("making the folder of hosted API server %s: %w", spec.Name, err)
		}
		port, err := s.port(dir, &spec)
		if err != nil {
			return State{}, err
		}
		p = newPlane(s, dir, spec, port)
		s.planes[spec.Name] = p
		p.begin()
		return p.current(), nil
	}
	if err := p.update(spec); err != nil {
		return State{}, err
	}
	return p.current(), nil
}

// port returns the port that the control plane had, or picks one. The caller holds the lock.
func (s *Supervisor) port(dir string, spec *Spec) (int32, error) {
	if text, err := os.ReadFile(filepath.Join(dir, "port")); err == nil {
		if port, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32); err == nil && !s.taken(int32(port)) {
			return int32(port), nil
		}
	}
	if spec.Port != 0 && !s.taken(spec.Port) && portFree(spec.Port) {
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

// taken reports whether another control plane of this supervisor has the port. The caller holds the lock.
func (s *Supervisor) taken(port int32) bool {
	for _, p := range s.planes {
		if p.port.Load() == port {
			return true
		}
	}
	return false
}

// State returns how a control plane stands; ok is false if Ensure was never called for it.
func (s *Supervisor) State(name string) (state State, ok bool) {
	s.mu.Lock()
	p := s.planes[name]
	s.mu.Unlock()
	if p == nil {
		return State{}, false
	}
	return p.current(), true
}

// Remove ends a control plane's server and deletes its keys from etcd and its folder. It may be called again, and for
// a name that never ran here.
func (s *Supervisor) Remove(ctx context.Context, name string) error {
	s.mu.Lock()
	p := s.planes[name]
	s.mu.Unlock()
	if p != nil {
		p.end(syscall.SIGKILL) // nothing that a graceful end would save is kept
	}
	if _, err := s.etcd.deletePrefix(ctx, Prefix(name)); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(s.options.Dir, name)); err != nil {
		return fmt.Errorf("removing the folder of hosted API server %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.planes[name] == p {
		delete(s.planes, name)
	}
	return nil
}

// Close ends every server and waits for it. Their data and ports stay for the next supervisor.
func (s *Supervisor) Close() {
	s.mu.Lock()
	s.closing = true
	planes := make([]*plane, 0, len(s.planes))
	for _, p := range s.planes {
		planes = append(planes, p)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range planes {
		wg.Go(func() { p.end(syscall.SIGTERM) })
	}
	wg.Wait()
}

// Running counts the servers that are ready, and all there are.
func (s *Supervisor) Running() (ready, all int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.planes {
		if p.current().Ready {
			ready++
		}
	}
	return ready, len(s.planes)
}

// writeFile replaces a file as a whole, so that a reader never sees half of it.
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
