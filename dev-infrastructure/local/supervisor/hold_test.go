package supervisor

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestProcessIsKilledBeforeItsDescendants checks that a held process does not observe the end of a descendant, which it would handle,
// as a database does. The descendants have groups of their own.
func TestProcessIsKilledBeforeItsDescendants(t *testing.T) {
	ctx := testContext(t)
	for range 5 {
		file := filepath.Join(t.TempDir(), "pid")
		script := "set -m; sleep 1000 & first=$!; for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; echo $! >" + file + ".part; mv " + file + ".part " + file + "; wait $first; exit 3"
		s := newSupervisor(t, shell("parent", script))
		must.Do(t, s.Start(ctx))
		last := awaitNumber(t, file)
		must.Get(s.Hold(ctx, "parent"))(t)
		until(t, "the last child to end", func() bool { return gone(last) })
		if events := s.Events(); events[len(events)-1].Signal != "SIGKILL" {
			t.Errorf("the last event is %+v, want the exit by SIGKILL", events[len(events)-1])
		}
		s.Stop()
	}
}

// TestHeldProcessIsNotRestarted checks that a held process and its descendants are gone until the hold is released, that other
// processes keep running, and that the supervisor can be stopped during a hold.
func TestHeldProcessIsNotRestarted(t *testing.T) {
	ctx := testContext(t)
	file := filepath.Join(t.TempDir(), "pid")
	s := newSupervisor(t, shell("other", "exec sleep 1000"), shell("held", "sleep 1000 & echo $! >"+file+".part; mv "+file+".part "+file+"; wait"))
	must.Do(t, s.Start(ctx))
	child := awaitNumber(t, file)
	before := s.Status()
	release := must.Get(s.Hold(ctx, "held"))(t)
	until(t, "the child to end", func() bool { return gone(child) })
	if during := s.Status(); during[1].State != Stopped || during[1].Pid != 0 || during[0].Pid != before[0].Pid {
		t.Errorf("during the hold: %+v", during)
	}
	if events := s.Events(); events[len(events)-1].Signal != "SIGKILL" {
		t.Errorf("the last event is %+v, want the exit by SIGKILL", events[len(events)-1])
	}
	if err := s.Signal("held", syscall.SIGCONT); err == nil {
		t.Error("a held process received a signal")
	}
	release()
	release()
	must.Do(t, s.AwaitReady(ctx, "held"))
	if after := s.Status()[1]; after.Restarts != 1 {
		t.Errorf("after the release: %+v", after)
	}
	must.Get(s.Hold(ctx, "held"))(t)
	if err := s.Restart(ctx, "held"); err != nil {
		t.Errorf("Restart ends a hold: %v", err)
	}
	must.Get(s.Hold(ctx, "held"))(t)
	s.Stop()
}

// TestProcessIsHeldDuringItsPause checks that a process that waits for its next start is held as well, and starts at once afterwards.
func TestProcessIsHeldDuringItsPause(t *testing.T) {
	ctx := testContext(t)
	var broken atomic.Bool
	spec := shell("short", "exec sleep 1000")
	spec.Prepare = func(context.Context) error {
		if broken.Load() {
			return errors.New("broken")
		}
		return nil
	}
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(ctx))
	broken.Store(true)
	must.Do(t, s.Kill(ctx, "short"))
	until(t, "a pause", func() bool { return s.Status()[0].State == BackingOff })
	release := must.Get(s.Hold(ctx, "short"))(t)
	broken.Store(false)
	if status := s.Status()[0]; status.State != Stopped {
		t.Errorf("during the hold: %+v", status)
	}
	release()
	must.Do(t, s.AwaitReady(ctx, "short"))
}

// TestPortOfHeldProcessRefusesConnections checks what clients of a held process see.
func TestPortOfHeldProcessRefusesConnections(t *testing.T) {
	ctx := testContext(t)
	spec := responder(t)
	s := newSupervisor(t, spec)
	must.Do(t, s.Start(ctx))
	must.Get(s.Hold(ctx, "responder"))(t)
	if err := spec.Ready(ctx); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a connection to a held process: %v", err)
	}
}
