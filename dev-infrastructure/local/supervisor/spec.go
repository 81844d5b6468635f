// Package supervisor runs a set of processes: it starts them in the order of their dependencies, as many at the same
// time as the dependencies allow, reports when each is ready, restarts processes that terminate, and stops them in the
// opposite order.
//
// Every process is started by its own operating-system thread, which exists until the process has terminated, because
// the kernel sends the parent-death signal when the starting *thread* terminates. With this signal and a process group
// each, no process outlives the supervisor, not even one that was killed with SIGKILL. The package knows nothing about
// the programs.
package supervisor

import (
	"context"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Spec describes how to run one process.
type Spec struct {
	// Name is unique and also names the log file.
	Name string
	// Program is an absolute path. Args follow it, without the program's name.
	Program string
	Args    []string
	// Env is added to the supervisor's environment, as KEY=value.
	Env []string
	// Needs are the names of processes that must have been ready once before this one starts. A restart does not wait
	// for them: every process must tolerate that its dependencies are unavailable for a while.
	Needs []string
	// Ports are the loopback ports on which it listens, by purpose. They are only displayed.
	Ports map[string]int
	// Background makes Start return before the process is ready, also if it never becomes so. It may take minutes to prepare.
	Background bool
	// Prepare, when not nil, runs before every start.
	Prepare func(ctx context.Context) error
	// Ready, when not nil, returns why the process is not ready, and nil if it is. It may depend on other processes.
	Ready func(ctx context.Context) error
	// Live, when not nil, returns an error if the process does not respond. It must not depend on other processes: a process
	// that fails it repeatedly is killed and restarted.
	Live func(ctx context.Context) error
	// DataDir, when not empty, is the folder of the process's data. If its disk is full, the status of a process that is not
	// ready names the disk.
	DataDir string
	// Settle, when not nil, runs each time the process has become ready, and before the processes that need it start.
	// It must be idempotent.
	Settle func(ctx context.Context) error
	// Launch, when not nil, is used instead of Program. It starts a process as a child of the calling thread, in its
	// own process group and with a parent-death signal. The process writes its output to log.
	Launch func(ctx context.Context, log *os.File) (Running, error)
	// StopSignal requests a graceful shutdown; SIGTERM when 0.
	StopSignal syscall.Signal
	// Grace is the time from StopSignal until the process group is killed; 10 s when 0.
	Grace time.Duration
}

// Running is a started process.
type Running interface {
	// Pid returns the ID of the process, which is also the ID of its process group.
	Pid() int
	// Exited is closed when the process has terminated.
	Exited() <-chan struct{}
	// Err returns the error of the process after Exited is closed; nil for exit code 0.
	Err() error
}

// State is the state of a process.
type State string

// The states of a process.
const (
	// Waiting: it waits for the processes that it needs.
	Waiting State = "Waiting"
	// Starting: it runs and is not ready yet.
	Starting State = "Starting"
	// Ready: it runs and is ready.
	Ready State = "Ready"
	// NotReady: it runs and was ready, but is not ready now.
	NotReady State = "NotReady"
	// BackingOff: it terminated and is restarted after a pause.
	BackingOff State = "BackingOff"
	// Stopping: it was asked to terminate.
	Stopping State = "Stopping"
	// Stopped: it does not run and is not restarted.
	Stopped State = "Stopped"
)

// Status is the status of a process.
type Status struct {
	Name  string    `json:"name"`
	State State     `json:"state"`
	Since time.Time `json:"since"`
	// Pid is 0 if it does not run. Started is when the current process was started from the file Program.
	Pid     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Program string    `json:"program,omitempty"`
	// Restarts is the number of starts after the first.
	Restarts int `json:"restarts"`
	// Message is what it waits for, or the last error.
	Message string         `json:"message,omitempty"`
	Ports   map[string]int `json:"ports,omitempty"`
	Log     string         `json:"log"`
	// DataDir is the folder of its data; it is empty for processes that keep none.
	DataDir string `json:"dataDir,omitempty"`
	// Background is that of its Spec: the state of the process is no matter for the others.
	Background bool `json:"background,omitempty"`
}

// DiskFull reports whether the message of a process states that the disk of its data is full.
func (s Status) DiskFull() bool {
	return s.DataDir != "" && strings.HasPrefix(s.Message, disk.ErrFull.Error())
}

// Bounds of the supervisor.
const (
	// firstDelay and lastDelay bound the pause before a process that terminated is restarted.
	firstDelay = 100 * time.Millisecond
	lastDelay  = 10 * time.Second
	// stableAfter is the running time after which the pause is reset.
	stableAfter = 30 * time.Second
	// maxFirstStarts is the number of starts after which a process that was never ready makes the start of the whole
	// set fail.
	maxFirstStarts = 5
	// defaultGrace is the default of Spec.Grace.
	defaultGrace = 10 * time.Second
)
