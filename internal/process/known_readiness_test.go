package process

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestKnownReadinessDoesNotWait reads the readiness while a dependency does not respond.
func TestKnownReadinessDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New("test", slog.New(slog.DiscardHandler))
		var hangs atomic.Bool
		p.Ready("cosmos-db", func(ctx context.Context) error {
			if hangs.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		})
		known := NewKnownReadiness(p)
		if known.Ready() {
			t.Error("the process is ready before the first check")
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go known.Watch(ctx)
		pass := func(want bool) {
			t.Helper()
			synctest.Wait()
			if known.Ready() != want {
				t.Errorf("ready is %v, want %v", !want, want)
			}
		}
		pass(true)
		hangs.Store(true)
		pass(true) // the next check has not begun
		time.Sleep(readinessInterval)
		pass(true) // the check runs
		time.Sleep(checkTimeout)
		pass(false)
		hangs.Store(false)
		time.Sleep(readinessInterval)
		pass(true)
	})
}
