package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
)

// TestSessionsSetTheirParameters reads the run-time parameters of a session.
func TestSessionsSetTheirParameters(t *testing.T) {
	s := open(t, store.Options{})
	for name, want := range postgres.Parameters() {
		if name != "idle_in_transaction_session_timeout" {
			continue // the others may be 0 over a socket that is not a network socket
		}
		if got, err := s.Setting(t.Context(), name); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestStoppedProcessLosesItsLocks stops a process in a transaction, as when its machine is paused. Others do not wait for it, and
// its transaction fails with an error that a caller can retry.
func TestStoppedProcessLosesItsLocks(t *testing.T) {
	// The time-out must not end the migration and the second write, which a busy machine can interrupt.
	url := databases.Migrated(t, store.Migrations())
	s := must.Get(store.Open(store.Options{URL: postgrestest.RuntimeURL(t, url) + "&idle_in_transaction_session_timeout=2000"}))(t)
	t.Cleanup(s.Close)
	uid := uuid.NewString()
	stopped, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		attempts := 0
		err := s.Update(context.WithoutCancel(t.Context()), []string{uid}, func(context.Context, *store.Tx) error {
			if attempts++; attempts == 1 {
				close(stopped)
				<-goOn
			}
			return nil
		})
		ended <- err
	}()
	<-stopped
	must.Get(put(t.Context(), s, uid))(t)
	close(goOn)
	if err := <-ended; !store.IsUnavailable(err) {
		t.Errorf("the stopped transaction ended with %v, want an error that can be retried", err)
	}
}

// TestReadOnlyServerIsUnavailable makes the server reject writes, as when its disk is full.
func TestReadOnlyServerIsUnavailable(t *testing.T) {
	url := databases.Migrated(t, store.Migrations())
	first := open(t, store.Options{URL: url})
	if _, err := first.Clock(t.Context()); err != nil { // the first read of the clock writes to it
		t.Fatal(err)
	}
	direct := must.Get(pgx.Connect(t.Context(), url))(t)
	defer direct.Close(t.Context())
	must.Get(direct.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = on", pgx.Identifier{direct.Config().Database}.Sanitize())))(t)
	s := must.Get(store.Open(store.Options{URL: url}))(t)
	defer s.Close()
	if _, err := s.Clock(t.Context()); err != nil {
		t.Errorf("reading: %v", err)
	}
	if _, err := put(t.Context(), s, uuid.NewString()); !store.IsUnavailable(err) {
		t.Errorf("writing: %v, want the error of an unavailable database", err)
	}
}

// TestPurgeDoesNotBlockCommits locks the row of a tombstone during a purge. A purge that waits for the row while it holds the clock
// would block all commits.
func TestPurgeDoesNotBlockCommits(t *testing.T) {
	s := open(t, store.Options{})
	ctx := t.Context()
	var uids []string
	for range 3 {
		uid := uuid.NewString()
		uids = append(uids, uid)
		must.Get(put(ctx, s, uid))(t)
		must.Do(t, update(ctx, s, uid, func(a *fleet.ClusterAggregate) {
			a.Cluster.DeleteTime, a.Cluster.GoneTime = s.Now().Add(-1), s.Now().Add(-1)
		}))
	}
	release := must.Get(s.LockRow(ctx, "clusters", uids[1]))(t)
	must.Do(t, s.Purge(ctx, s.Now()))
	must.Get(put(ctx, s, uuid.NewString()))(t)
	for i, uid := range uids {
		if _, err := s.Cluster(ctx, uid); (err == nil) != (i == 1) {
			t.Errorf("tombstone %d: %v", i, err)
		}
	}
	release()
	must.Do(t, s.Purge(ctx, s.Now()))
	if _, err := s.Cluster(ctx, uids[1]); err == nil {
		t.Error("the tombstone was not purged")
	}
	if clock, err := s.Clock(ctx); err != nil || clock.Compacted == 0 {
		t.Errorf("%+v, %v: a watcher could miss the purged deletions", clock, err)
	}
}
