// Package local runs all services of a region on one machine: PostgreSQL, etcd, the API servers of the management
// clusters, the emulators of Azure's services, our services and the ARM front door. A certificate authority of the
// region issues their identities. The package defines the processes, their arguments and their dependencies; package
// supervisor runs them.
//
// The state folder contains all data of a region, so that a region survives restarts and can be removed. hcpctl runs a
// Region from the command line; tests start one with Start and use its Endpoints.
package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/authorities"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"golang.org/x/sys/unix"
)

// portTimeout bounds the wait for ports of a region that has just stopped.
const portTimeout = 3 * time.Second

// ProcessStatus is the status of one process.
type ProcessStatus = supervisor.Status

// Phase is the state of the region as a whole.
type Phase string

// The phases of a region.
const (
	PhaseBuilding Phase = "Building"
	PhaseStarting Phase = "Starting"
	PhaseReady    Phase = "Ready"
	// PhaseDegraded: the region was ready, and a process is not ready now.
	PhaseDegraded Phase = "Degraded"
	PhaseStopping Phase = "Stopping"
)

// Running reports whether the start of the region is complete and it has not been stopped.
func (p Phase) Running() bool { return p == PhaseReady || p == PhaseDegraded }

// Status is the status of a region.
type Status struct {
	Phase Phase `json:"phase"`
	// Since is when the region entered the phase. A region is ready since the last of its processes became ready.
	Since     time.Time       `json:"since"`
	Pid       int             `json:"pid"`
	StateDir  string          `json:"stateDir"`
	Endpoints Endpoints       `json:"endpoints"`
	Processes []ProcessStatus `json:"processes"`
	// Disks are the disks with the region's data.
	Disks []disk.Space `json:"disks,omitempty"`
	// Certificates are those with which the processes identify themselves.
	Certificates CertificateStatus `json:"certificates"`
}

// Region is a region that this process runs. It is safe for concurrent use.
type Region struct {
	config   Config
	state    *state
	clusters []*managementCluster
	// etcdAuthority issues the certificates of etcd's users.
	etcdAuthority *kubeapi.EtcdAuthority

	// kubernetes is held while the authority of etcd or of a management cluster is replaced.
	kubernetes sync.Mutex
	// files is held while files with certificates are replaced, and while PostgreSQL, which copies them, starts.
	files sync.Mutex
	// database is the PostgreSQL server that was started last.
	database atomic.Pointer[postgresProcess]
	// keepers are the goroutines of the region.
	keepers sync.WaitGroup

	supervisor *supervisor.Supervisor
	control    *control.Server
	started    time.Time
	// racing is true if our programs run with the race detector.
	racing bool
	// interrupt cancels a start, and ends the keepers.
	interrupt context.CancelFunc
	closeOnce sync.Once
	down      chan struct{}
	downOnce  sync.Once

	mu         sync.Mutex
	phase      Phase
	phaseSince time.Time
	// certificates is the state of the processes' certificates.
	certificates CertificateStatus
	// rotations are the steps of the replacements of authorities.
	rotations map[string]authorities.Step
	// programs are the folders of other builds, as in Config.Programs, that the processes use now.
	programs map[string]string
}

// Start builds the programs if the configuration requests it, starts the region and returns when all processes are
// ready. If it returns an error, no process is left running. The caller must Close the region. ctx limits the start only.
func Start(ctx context.Context, config Config) (*Region, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	if _, err := postgresserver.BinDir(); err != nil && !config.without("postgres") {
		return nil, err
	}
	held, err := openState(config.StateDir)
	if err != nil {
		return nil, err
	}
	ctx, interrupt := context.WithCancel(ctx)
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	r := &Region{config: config, state: held, started: time.Now(), racing: racing(), interrupt: func() { interrupt(); stopKeeping() }, down: make(chan struct{}), rotations: map[string]authorities.Step{}, programs: maps.Clone(config.Programs)}
	r.enter(PhaseBuilding)
	if err := r.start(ctx, keeping); err != nil {
		r.Close()
		if errors.Is(err, context.Canceled) {
			return nil, errors.New("stopped before the region was ready")
		}
		return nil, err
	}
	r.enter(PhaseReady)
	r.noteHealth()
	return r, nil
}

// start starts the processes, and the keepers, which run until keeping ends.
func (r *Region) start(ctx, keeping context.Context) error {
	served, err := control.Serve(r.state.dir, control.Actions{
		Status:  func() any { return r.Status() },
		Events:  func() any { return r.Events() },
		Restart: r.Restart,
		Kill:    r.signal,
		Down:    r.requestDown,
		RotateAuthority: func(ctx context.Context, name string, note func(step string)) error {
			return r.RotateAuthority(ctx, name, func(step authorities.Step) { note(string(step)) })
		},
	})
	if err != nil {
		return err
	}
	r.control = served
	if r.config.Build {
		if err := r.build(ctx); err != nil {
			return err
		}
	}
	if err := r.allocatePorts(ctx); err != nil {
		return err
	}
	if err := r.createFolders(); err != nil {
		return err
	}
	if err := r.issueIdentities(); err != nil {
		return err
	}
	r.keepers.Go(func() { r.keepCertificates(keeping) })
	specs, err := r.startSpecs(ctx)
	if err != nil {
		return err
	}
	running, err := supervisor.New(specs, supervisor.Options{LogDir: r.LogDir(), OnChange: r.processChanged})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.supervisor = running
	r.mu.Unlock()
	r.enter(PhaseStarting)
	return running.Start(ctx)
}

// allocatePorts chooses the base port and checks that the region's ports are free.
func (r *Region) allocatePorts(ctx context.Context) error {
	base := r.state.record.BasePort
	picked := r.config.BasePort != nil && *r.config.BasePort == 0
	switch {
	case r.config.BasePort != nil && *r.config.BasePort > 0:
		base = *r.config.BasePort
	case picked && base != 0 && AwaitFreePorts(ctx, r.wantedPorts(base), portTimeout) == nil:
		// The previous ports are free.
	case picked:
		var err error
		if base, err = FreePorts(portsPerRegion); err != nil {
			return err
		}
	case base == 0:
		base = DefaultBasePort
	}
	if err := AwaitFreePorts(ctx, r.wantedPorts(base), portTimeout); err != nil {
		return fmt.Errorf("%w; stop that process, or choose other ports with --base-port (for example --base-port %d, or 0 for free ones)", err, base+portsPerRegion)
	}
	return r.state.reconcile(&r.config, base)
}

func (r *Region) createFolders() error {
	for _, dir := range []string{"secrets", "identities", "management", "cosmos", "azure", "etcd", "hosted", "front-door", "profiling"} {
		if err := os.MkdirAll(r.state.path(dir), 0o700); err != nil {
			return fmt.Errorf("creating the region's folders: %w", err)
		}
	}
	return nil
}

func (r *Region) enter(phase Phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase, r.phaseSince = phase, time.Now()
}

// processChanged is called when the state of a process changed.
func (r *Region) processChanged(status ProcessStatus) {
	r.noteHealth()
	if r.config.OnChange != nil {
		r.config.OnChange(status)
	}
}

// noteHealth changes the phase of a started region between PhaseReady and PhaseDegraded.
func (r *Region) noteHealth() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readHealth()
}

// readHealth returns the statuses of the processes, and changes the phase of a started region as they require. The caller holds the lock,
// so that concurrent calls store the latest phase last. Before the processes exist it returns nil.
func (r *Region) readHealth() []ProcessStatus {
	if r.supervisor == nil {
		return nil
	}
	processes := r.supervisor.Status()
	if !r.phase.Running() {
		return processes
	}
	phase := PhaseReady
	for _, p := range processes {
		if p.State != supervisor.Ready && !p.Background {
			phase = PhaseDegraded
		}
	}
	if r.phase != phase {
		r.phase, r.phaseSince = phase, time.Now()
	}
	return processes
}

// Events returns the latest events of the region's processes, the oldest first.
func (r *Region) Events() []Event {
	r.mu.Lock()
	running := r.supervisor
	r.mu.Unlock()
	if running == nil {
		events, _ := Events(r.state.dir) // of the previous run; there are none yet of this one
		return events
	}
	return running.Events()
}

// Event is an event of a process.
type Event = supervisor.Event

// Events returns the latest events of the region in stateDir from its files, whether it runs or not.
func Events(stateDir string) ([]Event, error) { return supervisor.ReadEvents(LogDir(stateDir)) }

// Status returns the status of the region and of every process. The phase is that of these processes.
func (r *Region) Status() Status {
	r.mu.Lock()
	processes := r.readHealth()
	status := Status{Phase: r.phase, Since: r.phaseSince, Pid: os.Getpid(), StateDir: r.state.dir, Processes: processes}
	running := r.supervisor
	r.mu.Unlock()
	if running != nil {
		status.Endpoints, status.Certificates = r.Endpoints(), r.certificateStatus()
		status.Disks = disks(r.dataDirs(), status.Processes)
	}
	return status
}

// LogDir returns the folder with NAME.log for every process.
func (r *Region) LogDir() string { return LogDir(r.state.dir) }

// Processes returns the names of the region's processes.
func (r *Region) Processes() []string { return r.supervisor.Names() }

// Restart stops a process gracefully, starts it again and waits until it is ready.
func (r *Region) Restart(ctx context.Context, name string) error {
	r.mu.Lock()
	running := r.supervisor
	r.mu.Unlock()
	if running == nil {
		return errors.New("the programs of the region are still being built")
	}
	return running.Restart(ctx, name)
}

// Kill kills a process with SIGKILL, as in a crash, and returns when it has terminated. The supervisor restarts it; see
// AwaitReady.
func (r *Region) Kill(ctx context.Context, name string) error { return r.supervisor.Kill(ctx, name) }

// Hold kills a process with SIGKILL and does not start it again until release is called. It returns when the process has terminated.
func (r *Region) Hold(ctx context.Context, name string) (release func(), err error) {
	return r.supervisor.Hold(ctx, name)
}

// Signal sends a signal to a process.
func (r *Region) Signal(name string, signal syscall.Signal) error {
	return r.supervisor.Signal(name, signal)
}

// AwaitReady waits until a process runs and is ready.
func (r *Region) AwaitReady(ctx context.Context, name string) error {
	return r.supervisor.AwaitReady(ctx, name)
}

// signal is Signal for the control socket: it accepts the name or number of a signal.
func (r *Region) signal(name, text string) error {
	r.mu.Lock()
	running := r.supervisor
	r.mu.Unlock()
	if running == nil {
		return errors.New("the programs of the region are still being built")
	}
	number, err := strconv.Atoi(text)
	parsed := syscall.Signal(number)
	if err != nil {
		parsed = unix.SignalNum("SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG"))
	}
	if parsed <= 0 {
		return fmt.Errorf("unknown signal %q: use a name such as KILL or TERM, or a number", text)
	}
	return running.Signal(name, parsed)
}

func (r *Region) requestDown() {
	r.downOnce.Do(func() { close(r.down) })
	r.interrupt()
}

// Down is closed when a client of the control socket requests that the region stops. The caller of Start must then
// Close it.
func (r *Region) Down() <-chan struct{} { return r.down }

// Close stops all processes and releases the state folder. It is idempotent.
func (r *Region) Close() {
	r.closeOnce.Do(func() {
		r.enter(PhaseStopping)
		r.interrupt()
		r.keepers.Wait()
		if r.supervisor != nil {
			r.supervisor.Stop()
		}
		if r.control != nil {
			r.control.Close()
		}
		r.state.close()
	})
}
