// Package supervisor runs a set of processes for as long as it lives: it starts them in the order of their dependencies,
// as many at once as those allow, tells when each is ready, starts again what dies, and stops them in the opposite order.
//
// Every process is started by an operating-system thread of its own that stays until the process is gone, because the
// kernel sends the parent-death signal when the starting *thread* ends. With that signal and a process group each, no
// process outlives the supervisor, not even one that was killed with SIGKILL. Nothing here knows what the processes are.
package supervisor

import (
	"context"
	"os"
	"syscall"
	"time"
)

// Spec says how one process is run.
type Spec struct {
	// Name is unique; it names the log file, too.
	Name string
	// Program is an absolute path. Args follow it, without the program's name.
	Program string
	Args    []string
	// Env is added to the supervisor's environment, as KEY=value.
	Env []string
	// Needs are the names of processes that must have been ready once before this one is started. A process that is
	// started again does not wait: everything must bear that what it needs is away for a while.
	Needs []string
	// Ports are the loopback ports it listens on, by what they serve. For display.
	Ports map[string]int
	// Prepare, when not nil, runs before every start.
	Prepare func(ctx context.Context) error
	// Ready, when not nil, says what keeps the process from being used; nil once nothing does.
	Ready func(ctx context.Context) error
	// Settle, when not nil, runs when the process became ready and before those that need it start, every time. It must
	// be idempotent.
	Settle func(ctx context.Context) error
	// Launch, when not nil, takes the place of Program: it starts a process as a child of the calling thread, in a
	// process group of its own that a parent-death signal ends. The log takes its output.
	Launch func(ctx context.Context, log *os.File) (Running, error)
	// StopSignal asks the process to end; SIGTERM when 0.
	StopSignal syscall.Signal
	// Grace is how long it may take after StopSignal before its group is killed; 10 s when 0.
	Grace time.Duration
}

// Running is a started process.
type Running interface {
	// Pid is the process and its process group.
	Pid() int
	// Exited is closed when the process has ended.
	Exited() <-chan struct{}
	// Err is how it ended, once Exited is closed; nil for an exit code of 0.
	Err() error
}

// State is where a process stands.
type State string

// The states of a process.
const (
	// Waiting for what it needs.
	Waiting State = "Waiting"
	// Starting runs, and is not ready yet.
	Starting State = "Starting"
	// Ready runs and can be used.
	Ready State = "Ready"
	// NotReady was ready, runs, and says it cannot be used now.
	NotReady State = "NotReady"
	// BackingOff died and will be started again after a while.
	BackingOff State = "BackingOff"
	// Stopping was asked to end.
	Stopping State = "Stopping"
	// Stopped does not run and will not be started.
	Stopped State = "Stopped"
)

// Status is what is known about a process.
type Status struct {
	Name  string    `json:"name"`
	State State     `json:"state"`
	Since time.Time `json:"since"`
	// Pid is 0 when it does not run. Started is when its present life began, from the file Program.
	Pid     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Program string    `json:"program,omitempty"`
	// Restarts counts the starts after the first.
	Restarts int `json:"restarts"`
	// Message says what is awaited or what went wrong last.
	Message string         `json:"message,omitempty"`
	Ports   map[string]int `json:"ports,omitempty"`
	Log     string         `json:"log"`
}

// Bounds of the supervisor.
const (
	// firstDelay and lastDelay bound the back-off of a process that dies.
	firstDelay = 100 * time.Millisecond
	lastDelay  = 10 * time.Second
	// stableAfter is how long a process must have run for its deaths to be forgotten.
	stableAfter = 30 * time.Second
	// maxFirstStarts is how often a process may die before it was ever ready; then starting the whole set has failed.
	maxFirstStarts = 5
	// probeTimeout bounds one readiness probe; probes come fast until the process is ready and slowly afterwards.
	probeTimeout    = 3 * time.Second
	firstProbeEvery = 50 * time.Millisecond
	laterProbeEvery = 5 * time.Second
	// defaultGrace is Spec.Grace when that is 0.
	defaultGrace = 10 * time.Second
)
