package machine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// ready is what an init process prints when its programs are started.
	ready = "ready"
	// socketTimeout bounds the wait for the socket of a program, and socketInterval is the interval of the attempts.
	socketTimeout  = 2 * time.Minute
	socketInterval = 20 * time.Millisecond
	// dialTimeout bounds connections on request.
	dialTimeout = 30 * time.Second
)

// initial is the init process of a machine.
type initial struct {
	reaper *reaper
	// failed receives why the machine has to terminate.
	failed chan error

	mu sync.Mutex
	// machines are those inside, by name.
	machines map[string]*nested
}

// runInit sets up the machine that the calling process is PID 1 of, starts its programs and serves requests. It returns when a program
// or the launcher terminates; then the process has to terminate, too.
func runInit(outer bool) error {
	// As PID 1 it ignores signals without a handler, except SIGKILL of its parent.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGTERM, unix.SIGINT)
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("reading the machine's spec: %w", err)
	}
	var spec Spec
	if err := json.Unmarshal(line, &spec); err != nil {
		return fmt.Errorf("reading the machine's spec: %w", err)
	}
	if err := unix.Sethostname([]byte(spec.Name)); err != nil {
		return fmt.Errorf("setting the host name: %w", err)
	}
	if err := mountSystem(spec.Root); err != nil {
		return err
	}
	if err := configureNetwork(spec); err != nil {
		return err
	}
	i := &initial{reaper: newReaper(), failed: make(chan error, 1), machines: map[string]*nested{}}
	go func() {
		_, _ = io.Copy(io.Discard, input)
		i.fail(nil)
	}()
	if outer {
		connection, err := unixConnection(os.NewFile(requestsFile, "requests"))
		if err != nil {
			return err
		}
		go i.serve(connection)
	}
	for _, program := range spec.Programs {
		if err := i.run(program); err != nil {
			return err
		}
	}
	fmt.Println(ready)
	select {
	case err := <-i.failed:
		return err
	case <-ended:
		return nil
	}
}

// fail terminates the machine. Only the first reason is kept.
func (i *initial) fail(reason error) {
	select {
	case i.failed <- reason:
	default:
	}
}

// run starts a program of the machine and waits for its socket.
func (i *initial) run(program Program) error {
	log, err := os.OpenFile(program.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	input, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	exited := make(chan struct{})
	err = i.reaper.start(program.Path, program.Args, program.Env, []*os.File{input, log, log}, func(status syscall.WaitStatus) {
		i.fail(fmt.Errorf("%s terminated: %s; its log is %s", program.Name, describe(status), program.Log))
		close(exited)
	})
	if err != nil || program.Socket == "" {
		return err
	}
	return awaitSocket(program, exited)
}

// awaitSocket waits until the socket of a program accepts connections.
func awaitSocket(program Program, exited <-chan struct{}) error {
	deadline := time.After(socketTimeout)
	for {
		connection, err := net.Dial("unix", program.Socket)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-exited:
			return fmt.Errorf("%s terminated before its socket accepted connections; its log is %s", program.Name, program.Log)
		case <-deadline:
			return fmt.Errorf("%s: its socket does not accept connections: %w", program.Name, err)
		case <-time.After(socketInterval):
		}
	}
}

// serve receives the connections of requests until the process that started the machine terminates, and with it the machine.
func (i *initial) serve(requests *net.UnixConn) {
	for {
		file, err := receiveFile(requests)
		if err != nil || file == nil {
			i.fail(nil)
			return
		}
		go func() {
			connection, err := unixConnection(file)
			if err != nil {
				return
			}
			defer func() { _ = connection.Close() }()
			i.answer(connection)
		}()
	}
}

// answer answers the request on a connection. A reply that cannot be sent has no receiver any more.
func (i *initial) answer(connection *net.UnixConn) {
	var r request
	if err := json.NewDecoder(connection).Decode(&r); err != nil {
		_ = sendReply(connection, fmt.Errorf("reading a request: %w", err), nil)
		return
	}
	switch {
	case r.Type == dialRequest:
		file, err := fileOf(net.DialTimeout("tcp", r.Address, dialTimeout))
		_ = sendReply(connection, err, file)
		closeFile(file)
	case r.Type == listenRequest:
		file, err := fileOf(net.Listen("tcp", r.Address))
		_ = sendReply(connection, err, file)
		closeFile(file)
	case r.Type == runRequest && r.Program != nil:
		_ = sendReply(connection, i.run(*r.Program), nil)
	case r.Type == startRequest && r.Machine != nil:
		i.startMachine(connection, *r.Machine)
	case r.Type == killRequest:
		_ = sendReply(connection, i.killMachine(r.Name), nil)
	default:
		_ = sendReply(connection, fmt.Errorf("unknown request %q", r.Type), nil)
	}
}

// fileOf returns the file of a connection or listener, which it closes.
func fileOf[T interface{ Close() error }](socket T, err error) (*os.File, error) {
	if err != nil {
		return nil, err
	}
	filer, ok := any(socket).(interface{ File() (*os.File, error) })
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T has no file", socket), socket.Close())
	}
	file, err := filer.File()
	return file, errors.Join(err, socket.Close())
}

func closeFile(file *os.File) {
	if file != nil {
		_ = file.Close()
	}
}

// nested is a machine inside this one.
type nested struct {
	// lifeline is the standard input of the launcher, which terminates the machine when it is closed.
	lifeline *os.File
	// exited is closed when the launcher has terminated, and nothing of the machine is left.
	exited chan struct{}
	status syscall.WaitStatus
}

// startMachine starts a machine inside, and replies when its programs are started and when it has terminated.
func (i *initial) startMachine(connection *net.UnixConn, spec Spec) {
	m, output, failure, err := i.launchMachine(spec)
	if err != nil {
		_ = sendReply(connection, err, nil)
		return
	}
	lines := bufio.NewReader(output)
	if line, err := lines.ReadString('\n'); err == nil && strings.TrimSpace(line) == ready {
		_ = sendReply(connection, nil, nil)
	}
	<-m.exited
	closeFile(output)
	message, _ := io.ReadAll(io.LimitReader(failure, 64<<10))
	closeFile(failure)
	_ = sendReply(connection, fmt.Errorf("%s terminated: %s: %s", spec.Name, describe(m.status), strings.TrimSpace(string(message))), nil)
}

// launchMachine starts the launcher of a machine and returns its standard output and standard error.
func (i *initial) launchMachine(spec Spec) (_ *nested, output, failure *os.File, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.machines[spec.Name] != nil {
		return nil, nil, nil, fmt.Errorf("machine %s is running", spec.Name)
	}
	input, lifeline, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	output, outputWriter, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	failure, failureWriter, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	m := &nested{lifeline: lifeline, exited: make(chan struct{})}
	err = i.reaper.start("/proc/self/exe", []string{launchCommand}, os.Environ(), []*os.File{input, outputWriter, failureWriter}, func(status syscall.WaitStatus) {
		i.mu.Lock()
		delete(i.machines, spec.Name)
		i.mu.Unlock()
		_ = lifeline.Close()
		m.status = status
		close(m.exited)
	})
	err = errors.Join(err, input.Close(), outputWriter.Close(), failureWriter.Close())
	if err != nil {
		return nil, nil, nil, errors.Join(err, lifeline.Close(), output.Close(), failure.Close())
	}
	i.machines[spec.Name] = m
	if err := json.NewEncoder(lifeline).Encode(spec); err != nil {
		return nil, nil, nil, err
	}
	return m, output, failure, nil
}

// killMachine kills a machine inside and waits until nothing of it is left.
func (i *initial) killMachine(name string) error {
	i.mu.Lock()
	m := i.machines[name]
	i.mu.Unlock()
	if m == nil {
		return fmt.Errorf("machine %s is not running", name)
	}
	_ = m.lifeline.Close() // the launcher kills the machine
	<-m.exited
	return nil
}
