package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

// respondForever serves HTTP and writes its port to file.
func respondForever(file string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	writeNumber(file, listener.Addr().(*net.TCPAddr).Port)
	panic(http.Serve(listener, http.NotFoundHandler()))
}

// responder is a process that serves HTTP.
func responder(t *testing.T) Spec {
	t.Helper()
	program := must.Get(os.Executable())(t)
	file := filepath.Join(t.TempDir(), "port")
	responds := func(ctx context.Context) error {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+strings.TrimSpace(string(data)), nil)
		if err != nil {
			return err
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	return Spec{Name: "responder", Program: program, Args: []string{"-test.run=^$"}, Env: []string{responderFileVariable + "=" + file},
		Prepare: func(context.Context) error { return os.RemoveAll(file) }, Ready: responds, Live: responds}
}

// eventTypes returns the types of the events of a process, with the exit code or signal.
func eventTypes(s *Supervisor, name string) []string {
	var types []string
	for _, e := range s.Events() {
		if e.Process != name {
			continue
		}
		text := string(e.Type)
		if e.ExitCode != nil {
			text += fmt.Sprintf(" %d", *e.ExitCode)
		}
		types = append(types, strings.TrimSpace(text+" "+e.Signal))
	}
	return types
}

// TestHungProcessIsRestarted stops a process with SIGSTOP: it exists, its kernel accepts connections, and it responds to nothing.
func TestHungProcessIsRestarted(t *testing.T) {
	ctx := testContext(t)
	// A probe of the process ends a second after it was stopped. Other probes may take long on a busy machine.
	hung, hang := context.WithCancel(ctx)
	defer hang()
	spec, starts := responder(t), new(atomic.Int32)
	shortly := func(probe func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			if starts.Load() == 1 {
				defer context.AfterFunc(hung, func() { time.AfterFunc(time.Second, cancel) })()
			}
			return probe(ctx)
		}
	}
	spec.Ready, spec.Live = shortly(spec.Ready), shortly(spec.Live)
	prepare := spec.Prepare
	spec.Prepare = func(ctx context.Context) error { starts.Add(1); return prepare(ctx) }
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(ctx))
	before := s.Status()[0]
	must.Do(t, s.Signal("responder", syscall.SIGSTOP))
	hang()
	until(t, "the hung process to be restarted and ready", func() bool {
		status := s.Status()[0]
		return status.Restarts == 1 && status.State == Ready
	})
	after := s.Status()[0]
	if after.Pid == before.Pid || !gone(before.Pid) || !after.Since.After(before.Since) {
		t.Errorf("after it hung: %+v, before: %+v", after, before)
	}
	want := []string{"Started", "Ready", "NotReady", "Hung", "Exited SIGKILL", "Started", "Ready"}
	if diff := cmp.Diff(want, eventTypes(s, "responder")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestProcessThatNeverRespondsIsRestarted checks that the number of failed probes during a start is bounded too.
func TestProcessThatNeverRespondsIsRestarted(t *testing.T) {
	spec := shell("silent", "exec sleep 1000")
	spec.Ready = func(context.Context) error { return errors.New("does not respond") }
	spec.Live = spec.Ready
	probes := quickProbes
	probes.StartTimeout = 50 * time.Millisecond
	s := must.Get(New([]Spec{spec}, Options{LogDir: t.TempDir(), Probes: probes}))(t)
	defer s.Stop()
	if err := s.Start(testContext(t)); err == nil || !strings.Contains(err.Error(), "hung: no response in the 50ms after its start") {
		t.Errorf("Start() = %v", err)
	}
}

// TestSlowStartIsNotHung checks that a process that fails many liveness probes before it listens is not restarted.
func TestSlowStartIsNotHung(t *testing.T) {
	spec := shell("slow", "exec sleep 1000")
	var probes atomic.Int32
	spec.Live = func(context.Context) error {
		if probes.Add(1) < 50 {
			return errors.New("does not accept connections")
		}
		return nil
	}
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(testContext(t)))
	if status := s.Status()[0]; status.Restarts != 0 || probes.Load() < 50 {
		t.Errorf("after %d probes: %+v", probes.Load(), status)
	}
}

// TestUnavailableDependencyDoesNotRestart checks that a process that responds is not restarted, however long it is not ready.
func TestUnavailableDependencyDoesNotRestart(t *testing.T) {
	spec := responder(t)
	var away atomic.Bool
	var probes atomic.Int32
	responds := spec.Ready
	spec.Ready = func(ctx context.Context) error {
		if away.Load() {
			probes.Add(1)
			return errors.New("postgresql: does not respond within 2s")
		}
		return responds(ctx)
	}
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(testContext(t)))
	ready := s.Status()[0]
	away.Store(true)
	until(t, "many failed probes", func() bool { return int(probes.Load()) > 5*quickProbes.LiveFailures })
	status := s.Status()[0]
	if status.State != NotReady || status.Message != "postgresql: does not respond within 2s" || status.Pid != ready.Pid || status.Restarts != 0 {
		t.Errorf("without the dependency: %+v", status)
	}
	away.Store(false)
	until(t, "the process to be ready", func() bool { return s.Status()[0].State == Ready })
	if again := s.Status()[0]; !again.Since.After(status.Since) || again.Pid != ready.Pid {
		t.Errorf("with the dependency again: %+v, before: %+v", again, status)
	}
	if diff := cmp.Diff([]string{"Started", "Ready", "NotReady", "Ready"}, eventTypes(s, "responder")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestDescendantsOfHungProcessAreKilled checks descendants with a process group of their own that are stopped as well: they cannot
// notice that their parent terminates, and would keep its locks.
func TestDescendantsOfHungProcessAreKilled(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	spec := shell("parent", fmt.Sprintf(`setsid sh -c 'echo $$ >%[1]s.part; mv %[1]s.part %[1]s; exec sleep 1000' & wait`, file))
	var hung atomic.Bool
	spec.Live = func(context.Context) error {
		if hung.Load() {
			return errors.New("does not respond")
		}
		return nil
	}
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(testContext(t)))
	child := awaitNumber(t, file)
	for _, pid := range []int{child, s.Status()[0].Pid} {
		must.Do(t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	hung.Store(true)
	until(t, "the descendant to terminate", func() bool { return gone(child) })
}

func TestEventsSurviveTheSupervisor(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "fails-once")
	logs := filepath.Join(dir, "logs")
	first := must.Get(New([]Spec{shell("a", fmt.Sprintf("test -e %[1]s || { touch %[1]s; echo out of luck; exit 3; }; exec sleep 1000", file))}, Options{LogDir: logs, Probes: quickProbes}))(t)
	defer first.Stop()
	must.Do(t, first.Start(ctx))
	until(t, "the second start", func() bool { s := first.Status()[0]; return s.Restarts == 1 && s.State == Ready })
	must.Do(t, first.Kill(ctx, "a"))
	must.Do(t, first.AwaitReady(ctx, "a"))
	must.Do(t, first.Restart(ctx, "a"))
	first.Stop()
	read := must.Get(ReadEvents(logs))(t)
	if diff := cmp.Diff(first.Events(), read); diff != "" {
		t.Errorf("events of the file (-memory +file):\n%s", diff)
	}
	second := must.Get(New([]Spec{shell("a", "")}, Options{LogDir: logs}))(t)
	defer second.Stop()
	got := strings.Join(eventTypes(second, "a"), ", ")
	// The first process can terminate before or after its probe.
	want := []string{"Exited 3, Started, Ready, Exited SIGKILL, Started, Ready, Restarting, Exited SIGTERM, Started, Ready, Exited SIGTERM"}
	if !strings.HasSuffix(got, want[0]) {
		t.Errorf("events are %s, want %s", got, want)
	}
	for _, e := range read {
		if e.ExitCode != nil && *e.ExitCode == 3 && !strings.Contains(e.Message, "out of luck") {
			t.Errorf("the event lacks the last line of the log: %+v", e)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	dir := t.TempDir()
	log := must.Get(openEvents(dir))(t)
	message := strings.Repeat("x", 1000)
	for i := range 3 * maxEventsSize / len(message) {
		log.record(Event{Process: "a", Type: EventNotReady, Pid: i + 1, Message: message})
	}
	log.close()
	var size int64
	for _, name := range []string{eventsName, eventsName + ".1"} {
		info := must.Get(os.Stat(filepath.Join(dir, name)))(t)
		size += info.Size()
	}
	if most := int64(2*maxEventsSize + 4096); size > most {
		t.Errorf("the files have %d bytes, at most %d are allowed", size, most)
	}
	read := must.Get(ReadEvents(dir))(t)
	if len(read) != maxEvents || len(log.events()) != maxEvents {
		t.Errorf("%d events of the files and %d in memory, want %d", len(read), len(log.events()), maxEvents)
	}
	if last := 3 * maxEventsSize / len(message); read[len(read)-1].Pid != last {
		t.Errorf("the last event is number %d, want %d", read[len(read)-1].Pid, last)
	}
}

// TestFullDiskIsNamed fills the disk with the data of two processes: one terminates, the other one is no longer ready. The log of
// events is on the same disk. The processes write only when the disk is full: a file that one removes after that would leave space
// for both.
func TestFullDiskIsNamed(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		ctx := testContext(t)
		full := filepath.Join(t.TempDir(), "full") // on another disk
		writes := shell("writes", fmt.Sprintf("until test -e %[1]s; do sleep 0.02; done; head -c 65536 /dev/zero >%[2]s/data || exit 1; exec sleep 1000", full, dir))
		writes.DataDir = dir
		reads := shell("reads", "exec sleep 1000")
		reads.DataDir = dir
		reads.Ready = func(context.Context) error {
			if _, err := os.Stat(full); err != nil {
				return nil
			}
			if err := os.WriteFile(filepath.Join(dir, "probe"), make([]byte, 64<<10), 0o600); err != nil {
				return errors.New("cannot write")
			}
			return nil
		}
		s := must.Get(New([]Spec{writes, reads}, Options{LogDir: filepath.Join(dir, "logs"), Probes: quickProbes}))(t)
		defer s.Stop()
		must.Do(t, s.Start(ctx))
		filler := smalldisk.Fill(t, dir)
		must.Do(t, os.WriteFile(full, nil, 0o600))
		named := func(state State, index int) func() bool {
			return func() bool {
				status := s.Status()[index]
				return status.State == state && strings.HasPrefix(status.Message, "the disk is full") && strings.Contains(status.Message, dir)
			}
		}
		until(t, "the terminated process to name the disk", named(BackingOff, 0))
		until(t, "the process that is not ready to name the disk", named(NotReady, 1))
		for _, e := range s.Events() {
			if (e.Type == EventNotReady && e.Process == "reads" || e.Type == EventExited) && !strings.Contains(e.Message, "the disk is full") {
				t.Errorf("the event does not name the disk: %+v", e)
			}
		}
		must.Do(t, os.Remove(filler))
		for _, name := range s.Names() {
			if err := s.AwaitReady(ctx, name); err != nil {
				t.Error(err)
			}
		}
	})
}
