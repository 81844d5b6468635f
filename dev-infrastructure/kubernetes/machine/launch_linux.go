package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

// namespaces are those that every machine has of its own.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// Subcommands of the program that runs machines, which is the same for all of its processes.
const (
	launchCommand = "launch"
	initCommand   = "init"
	// outermost is the argument of launchCommand for a machine that is in no other.
	outermost = "outermost"
)

// requestsFile is the descriptor on which an outermost machine's processes inherit the connection for requests.
const requestsFile = 3

// Main is the program that runs machines: the launcher and the init process, depending on the arguments. The launcher reads the Spec
// from its standard input, terminates the machine when the input ends, and reports readiness with a line on its standard output.
func Main(arguments []string) error {
	switch {
	case len(arguments) >= 1 && arguments[0] == launchCommand:
		return launch(len(arguments) == 2 && arguments[1] == outermost)
	case len(arguments) >= 1 && arguments[0] == initCommand:
		return runInit(len(arguments) == 2 && arguments[1] == outermost)
	}
	return errors.New("it is started by package machine, not by people")
}

// launch creates the cgroups of a machine, starts its init process and removes the cgroups when that has terminated.
func launch(outer bool) (failed error) {
	ctx := context.Background()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGTERM, unix.SIGINT)
	input := json.NewDecoder(os.Stdin)
	var spec Spec
	if err := input.Decode(&spec); err != nil {
		return fmt.Errorf("reading the machine's spec: %w", err)
	}
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	name := spec.Name
	if outer {
		if err := removeAbandoned(ctx); err != nil {
			return err
		}
		var err error
		if name, err = ownGroupName(); err != nil {
			return err
		}
	}
	cgroups, err := createGroup(ctx, name)
	if err != nil {
		return err
	}
	defer func() { failed = errors.Join(failed, cgroups.remove(ctx)) }()
	initial, begin, err := startInit(spec, cgroups, outer)
	if err != nil {
		return err
	}
	defer func() { initial.Kill() }()
	if spec.Link != nil {
		if err := plug(spec.Name, *spec.Link, initial.PID()); err != nil {
			return err
		}
		defer func() { failed = errors.Join(failed, unplug(spec.Name)) }()
	}
	if err := json.NewEncoder(begin).Encode(spec); err != nil {
		return fmt.Errorf("sending the spec to the init process: %w", err)
	}
	select {
	case <-closed:
	case <-ended:
	case <-initial.Exited():
		return fmt.Errorf("%s: %w", spec.Name, initial.Err())
	}
	return nil
}

// startInit starts the init process in the cgroups and in new namespaces. It returns the process and its standard input, over which
// the process receives the spec and notices the end of the launcher.
func startInit(spec Spec, cgroups *group, outer bool) (*spawn.Process, io.WriteCloser, error) {
	command := exec.Command("/proc/self/exe", initCommand)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if outer {
		requests := os.NewFile(requestsFile, "requests")
		defer func() { _ = requests.Close() }()
		command.Args = append(command.Args, outermost)
		command.ExtraFiles = []*os.File{requests}
	}
	begin, err := command.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	// The new cgroup namespace has the cgroups of the process that creates it as roots. The launcher must be in other ones, because a
	// cgroup with a process cannot be removed.
	if err := cgroups.join(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("joining the cgroups of %s: %w", spec.Name, err), cgroups.leave())
	}
	initial, err := spawn.Start(command, unix.SIGKILL)
	if err := errors.Join(err, cgroups.leave()); err != nil {
		if initial != nil {
			initial.Kill()
		}
		return nil, nil, fmt.Errorf("starting the init process of %s: %w", spec.Name, err)
	}
	return initial, begin, nil
}

// Check returns an error that names what this host lacks to run machines.
func Check() error {
	if os.Geteuid() != 0 {
		return errors.New("they need root")
	}
	if err := checkCgroups(); err != nil {
		return err
	}
	command := exec.Command("/bin/true")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	var output bytes.Buffer
	command.Stderr = &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("the host does not permit new namespaces: %w", err)
	}
	return nil
}
