package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// Environment variables that make the test binary run as a supervisor that is killed, as a server of it, and as an HTTP server.
const (
	supervisorDirVariable = "HCPMESH_TEST_SUPERVISOR_DIR"
	serverFileVariable    = "HCPMESH_TEST_SERVER_FILE"
	responderFileVariable = "HCPMESH_TEST_RESPONDER_FILE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(supervisorDirVariable); dir != "" {
		superviseForever(dir)
	}
	if file := os.Getenv(serverFileVariable); file != "" {
		serveForever(file)
	}
	if file := os.Getenv(responderFileVariable); file != "" {
		respondForever(file)
	}
	os.Exit(leaktest.Check(m.Run()))
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := eventually.Context(t)
	t.Cleanup(cancel)
	return ctx
}

// until waits for a condition.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	eventually.Soon(t, what, func() error {
		if !condition() {
			return errors.New("not yet")
		}
		return nil
	})
}

func shell(name, script string, needs ...string) Spec {
	return Spec{Name: name, Program: "/bin/sh", Args: []string{"-c", script}, Needs: needs}
}

func exists(path string) func(context.Context) error {
	return func(context.Context) error { _, err := os.Stat(path); return err }
}

func newSupervisor(t *testing.T, specs ...Spec) *Supervisor {
	t.Helper()
	s := must.Get(New(specs, Options{LogDir: t.TempDir(), Probes: quickProbes}))(t)
	t.Cleanup(s.Stop)
	return s
}

// quickProbes notice changes soon. The timeouts are longer than a responding process needs on a busy machine.
var quickProbes = Probes{
	ReadyTimeout: time.Minute, LiveTimeout: time.Minute,
	StartInterval: 10 * time.Millisecond, Interval: 10 * time.Millisecond, FailedInterval: 10 * time.Millisecond,
	LiveFailures: 2, StartTimeout: time.Minute,
	HungGrace: 10 * time.Millisecond,
}

// TestStartAfterStopStartsNothing checks that a late start leaves no process running.
func TestStartAfterStopStartsNothing(t *testing.T) {
	s := newSupervisor(t, shell("late", "sleep 60"))
	s.Stop()
	if err := s.Start(testContext(t)); err == nil {
		t.Error("Start succeeded after Stop")
	}
	if s.processes[0].stop != nil {
		t.Error("the process was started")
	}
}

func TestDependenciesStartFirstAndStopLast(t *testing.T) {
	dir := t.TempDir()
	// Each process reports its start and its signal; `base` is ready only when its file exists.
	script := func(name, before string) string {
		return fmt.Sprintf(`cd %s; trap 'echo -%s >>order; exit 0' TERM; echo +%s >>order; %s while :; do sleep 0.02; done`, dir, name, name, before)
	}
	base := shell("base", script("base", "touch base-is-ready;"))
	base.Ready = exists(filepath.Join(dir, "base-is-ready"))
	middle := shell("middle", script("middle", "touch middle-is-ready;"), "base")
	middle.Ready = exists(filepath.Join(dir, "middle-is-ready"))
	s := newSupervisor(t, shell("top", script("top", ""), "middle"), middle, base)
	must.Do(t, s.Start(testContext(t)))
	until(t, "all processes to report their start", func() bool {
		data, _ := os.ReadFile(filepath.Join(dir, "order"))
		return bytes.Count(data, []byte("\n")) == 3
	})
	s.Stop()
	data := must.Get(os.ReadFile(filepath.Join(dir, "order")))(t)
	want := []string{"+base", "+middle", "+top", "-top", "-middle", "-base"}
	if diff := cmp.Diff(want, strings.Fields(string(data))); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestTerminatedProcessIsRestarted(t *testing.T) {
	ctx := testContext(t)
	settled := 0
	spec := shell("a", "exec sleep 1000")
	spec.Settle = func(context.Context) error { settled++; return nil }
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(ctx))
	first := s.Status()[0]
	must.Do(t, s.Kill(ctx, "a"))
	must.Do(t, s.AwaitReady(ctx, "a"))
	second := s.Status()[0]
	if second.Pid == first.Pid || second.Restarts != 1 {
		t.Errorf("after a kill: %+v, before: %+v", second, first)
	}
	must.Do(t, s.Restart(ctx, "a"))
	if third := s.Status()[0]; third.Pid == second.Pid || third.Restarts != 2 {
		t.Errorf("after a restart: %+v, before: %+v", third, second)
	}
	s.Stop()
	if settled != 3 {
		t.Errorf("Settle ran %d times, want once for each start", settled)
	}
}

func TestProcessGroupTerminatesWithProcess(t *testing.T) {
	ctx := testContext(t)
	file := filepath.Join(t.TempDir(), "pid")
	s := newSupervisor(t, shell("parent", fmt.Sprintf("sleep 1000 & echo $! >%s.part; mv %s.part %s; wait", file, file, file)))
	must.Do(t, s.Start(ctx))
	child := awaitNumber(t, file)
	must.Do(t, s.Kill(ctx, "parent"))
	until(t, "the child to end", func() bool { return gone(child) })
}

func TestFailedStartReportsReason(t *testing.T) {
	broken := shell("broken", "echo the disk is full; exit 3", "working")
	broken.Ready = exists("/does/not/exist")
	s := newSupervisor(t,
		shell("working", "exec sleep 1000"),
		broken,
		shell("waiting", "exec sleep 1000", "broken"))
	err := s.Start(testContext(t))
	if err == nil {
		t.Fatal("started")
	}
	for _, want := range []string{"broken", "exit status 3", "the disk is full"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	for _, status := range s.Status() {
		if status.State != Stopped || status.Pid != 0 {
			t.Errorf("not stopped: %+v", status)
		}
	}
}

func TestPanicIsTheReasonOfAnExit(t *testing.T) {
	log := must.Get(openLog(t.TempDir(), "panics"))(t)
	defer log.file.Close()
	must.Get(log.file.WriteString("serving\npanic: failed to open database\n\ngoroutine 1 [running]:\nmain.main()\n\tmain.go:75 +0x1a5\n"))(t)
	if line := log.tail(0); line != "panic: failed to open database" {
		t.Errorf("the reason is %q", line)
	}
}

func TestProcessThatIgnoresSignalIsKilled(t *testing.T) {
	dir := t.TempDir()
	spec := shell("stubborn", fmt.Sprintf("trap '' TERM; touch %s/stubborn; while :; do sleep 0.02; done", dir))
	spec.Grace = 50 * time.Millisecond
	spec.Ready = exists(filepath.Join(dir, "stubborn"))
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(testContext(t)))
	pid := s.Status()[0].Pid
	s.Stop()
	if !gone(pid) {
		t.Errorf("process %d still runs", pid)
	}
}

func TestInvalidSpecsAreRejected(t *testing.T) {
	tests := map[string]struct {
		reason string
		specs  []Spec
		want   string
	}{
		"cycle":   {"no process could start first", []Spec{shell("a", "", "b"), shell("b", "", "a")}, "a needs b needs a"},
		"unknown": {"dependencies must exist", []Spec{shell("a", "", "b")}, "a needs unknown process b"},
		"twice":   {"names identify processes", []Spec{shell("a", ""), shell("a", "")}, "duplicate process name a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := New(test.specs, Options{LogDir: t.TempDir()})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New() = %v, want %q: %s", err, test.want, test.reason)
			}
		})
	}
}

func TestKilledSupervisorLeavesNoProcesses(t *testing.T) {
	dir := t.TempDir()
	supervising := exec.Command(os.Args[0], "-test.run=^$")
	supervising.Env = append(os.Environ(), supervisorDirVariable+"="+dir)
	must.Do(t, supervising.Start())
	port := awaitNumber(t, filepath.Join(dir, "port"))
	server := awaitNumber(t, filepath.Join(dir, "server-pid"))
	must.Do(t, supervising.Process.Kill())
	_ = supervising.Wait()
	until(t, "the server to end", func() bool { return gone(server) })
	// Its threads may release the port a moment later.
	until(t, "the port to be free", func() bool {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return false
		}
		return listener.Close() == nil
	})
}

// superviseForever is the supervisor that TestKilledSupervisorLeavesNoProcesses kills.
func superviseForever(dir string) {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	s, err := New([]Spec{{
		Name: "server", Program: program, Args: []string{"-test.run=^$"},
		Env: []string{supervisorDirVariable + "=", serverFileVariable + "=" + filepath.Join(dir, "port")},
	}}, Options{LogDir: dir})
	if err != nil {
		panic(err)
	}
	if err := s.Start(context.Background()); err != nil {
		panic(err)
	}
	writeNumber(filepath.Join(dir, "server-pid"), s.Status()[0].Pid)
	select {}
}

func serveForever(file string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	writeNumber(file, listener.Addr().(*net.TCPAddr).Port)
	select {}
}

func writeNumber(path string, n int) {
	if err := os.WriteFile(path+".part", []byte(strconv.Itoa(n)), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		panic(err)
	}
}

func awaitNumber(t *testing.T, path string) int {
	t.Helper()
	number := 0
	until(t, path, func() bool {
		data, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		number, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	})
	return number
}

// gone reports whether a process has terminated, even if it was not reaped yet.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestLogIsBounded(t *testing.T) {
	dir := t.TempDir()
	log := must.Get(openLog(dir, "chatty"))(t)
	defer log.file.Close()
	must.Get(log.file.Write(bytes.Repeat([]byte("0123456789abcde\n"), maxLogSize/16+1)))(t)
	must.Do(t, log.bound())
	// A writer with the open file continues at its beginning, because it appends.
	must.Get(log.file.WriteString("after\n"))(t)
	data := must.Get(os.ReadFile(log.path))(t)
	if string(data) != "after\n" {
		t.Errorf("the log has %d bytes, want only the line that was written after the rotation", len(data))
	}
	if info, err := os.Stat(log.path + ".1"); err != nil || info.Size() <= maxLogSize {
		t.Errorf("the older file does not have the previous content: %v", err)
	}
	if line := log.tail(0); line != "after" {
		t.Errorf("the last line is %q", line)
	}
}
