package machine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
)

// maxFailure bounds the bytes that are kept of the standard error of a launcher.
const maxFailure = 64 << 10

// Machine is a running outermost machine. It is safe for concurrent use.
type Machine struct {
	launcher *spawn.Process
	// lifeline is the standard input of the launcher, which terminates the machine when it is closed.
	lifeline interface{ Close() error }
	failure  *boundedBuffer

	mu       sync.Mutex
	requests *net.UnixConn
}

// Start starts an outermost machine and returns when its programs are started. program is the path of the program that runs Main. The
// machine terminates with the calling process, also if that is killed.
func Start(ctx context.Context, program string, spec Spec) (*Machine, error) {
	requests, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	m := &Machine{requests: requests, failure: &boundedBuffer{}}
	command := exec.Command(program, launchCommand, outermost)
	command.ExtraFiles = []*os.File{theirs}
	command.Stderr = m.failure
	output, outputWriter, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, requests.Close())
	}
	defer func() { _ = output.Close() }()
	command.Stdout = outputWriter
	input, err := command.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, requests.Close(), outputWriter.Close())
	}
	m.lifeline = input
	// SIGTERM, so that the launcher removes the cgroups.
	m.launcher, err = spawn.Start(command, syscall.SIGTERM)
	if err := errors.Join(err, outputWriter.Close()); err != nil {
		return nil, errors.Join(err, requests.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = output.Close() })
	defer stop()
	err = json.NewEncoder(input).Encode(spec)
	if err == nil {
		_, err = bufio.NewReader(output).ReadString('\n')
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting machine %s: %w", spec.Name, errors.Join(ctx.Err(), m.Close())), nil)
	}
	return m, nil
}

// Close kills the machine and returns when nothing of it is left. It returns an error if the machine had terminated before. It may be
// called once.
func (m *Machine) Close() error {
	_ = m.lifeline.Close()
	failed := m.Err()
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(failed, m.requests.Close())
}

// Exited returns a channel that is closed when nothing of the machine is left.
func (m *Machine) Exited() <-chan struct{} { return m.launcher.Exited() }

// Err waits until nothing of the machine is left. It returns why the machine terminated, and nil if Close was called before.
func (m *Machine) Err() error {
	if err := m.launcher.Err(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(m.failure.String()))
	}
	return nil
}

// Dial connects to a TCP address in the machine's network.
func (m *Machine) Dial(ctx context.Context, address string) (net.Conn, error) {
	file, err := m.call(ctx, request{Type: dialRequest, Address: address})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	connection, err := net.FileConn(file)
	return connection, errors.Join(err, file.Close())
}

// Listen listens on a TCP address in the machine's network.
func (m *Machine) Listen(ctx context.Context, address string) (net.Listener, error) {
	file, err := m.call(ctx, request{Type: listenRequest, Address: address})
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	listener, err := net.FileListener(file)
	return listener, errors.Join(err, file.Close())
}

// Run starts a program in the machine. If it terminates, the machine terminates.
func (m *Machine) Run(ctx context.Context, program Program) error {
	_, err := m.call(ctx, request{Type: runRequest, Program: &program})
	if err != nil {
		return fmt.Errorf("starting %s: %w", program.Name, err)
	}
	return nil
}

// StartMachine starts a machine inside this one, and returns when its programs are started. The channel receives why it terminated.
func (m *Machine) StartMachine(ctx context.Context, spec Spec) (<-chan error, error) {
	connection, err := m.send(request{Type: startRequest, Machine: &spec})
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	_, err = receiveReply(connection)
	if !stop() || err != nil {
		return nil, errors.Join(fmt.Errorf("starting machine %s: %w", spec.Name, errors.Join(ctx.Err(), err)), connection.Close())
	}
	terminated := make(chan error, 1)
	go func() {
		_, err := receiveReply(connection)
		terminated <- errors.Join(err, connection.Close())
	}()
	return terminated, nil
}

// KillMachine kills a machine inside this one with SIGKILL, as if its power failed, and returns when nothing of it is left but its files.
func (m *Machine) KillMachine(ctx context.Context, name string) error {
	_, err := m.call(ctx, request{Type: killRequest, Name: name})
	if err != nil {
		return fmt.Errorf("killing machine %s: %w", name, err)
	}
	return nil
}

// call sends a request and returns the file of its reply.
func (m *Machine) call(ctx context.Context, r request) (*os.File, error) {
	connection, err := m.send(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	file, err := receiveReply(connection)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return file, err
}

// send sends a request on a connection of its own.
func (m *Machine) send(r request) (*net.UnixConn, error) {
	connection, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }()
	rights := syscall.UnixRights(int(theirs.Fd()))
	m.mu.Lock()
	_, _, err = m.requests.WriteMsgUnix([]byte{withFile}, rights, nil)
	m.mu.Unlock()
	if err == nil {
		err = json.NewEncoder(connection).Encode(r)
	}
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

// boundedBuffer keeps the first bytes that are written to it. It is safe for concurrent use.
type boundedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffer.Write(p[:min(len(p), maxFailure-b.buffer.Len())])
	return len(p), nil
}

func (b *boundedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
