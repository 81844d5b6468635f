package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
)

// TestSessionsAskForTheirClient looks at what sessions ask of their server.
func TestSessionsAskForTheirClient(t *testing.T) {
	s := open(t, store.Options{})
	for name, want := range postgres.Parameters() {
		if name != "idle_in_transaction_session_timeout" {
			continue // the others may be shown as 0 over a socket that is no network's
		}
		if got, err := s.Setting(t.Context(), name); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestAStoppedProcessLosesItsLocks has a process stop in a transaction, as when its machine is paused: others do not wait for
// it, and when it goes on it finds out that it has to begin anew.
func TestAStoppedProcessLosesItsLocks(t *testing.T) {
	s := open(t, store.Options{URL: databases.Database(t) + "&idle_in_transaction_session_timeout=200"})
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
	if _, err := put(t.Context(), s, uid); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if err := <-ended; !store.IsUnavailable(err) {
		t.Errorf("the stopped transaction ended with %v, want one that says to begin anew", err)
	}
}

// TestAReadOnlyServerIsUnavailable has the server take no writes, as when it has no more room.
func TestAReadOnlyServerIsUnavailable(t *testing.T) {
	url := databases.Database(t)
	first := open(t, store.Options{URL: url})
	if _, err := first.Clock(t.Context()); err != nil { // the first look at the clock writes to it
		t.Fatal(err)
	}
	direct, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer direct.Close(t.Context())
	if _, err := direct.Exec(t.Context(), fmt.Sprintf("ALTER DATABASE %s SET default_transaction_read_only = on", pgx.Identifier{direct.Config().Database}.Sanitize())); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Clock(t.Context()); err != nil {
		t.Errorf("reading: %v", err)
	}
	if _, err := put(t.Context(), s, uuid.NewString()); !store.IsUnavailable(err) {
		t.Errorf("writing: %v, want that the database is not available", err)
	}
}

// TestPurgingStopsNobody has the removal of tombstones wait for a row that somebody else is at. It held the clock meanwhile, and
// nothing else could be committed.
func TestPurgingStopsNobody(t *testing.T) {
	s := open(t, store.Options{})
	ctx := t.Context()
	var uids []string
	for range 3 {
		uid := uuid.NewString()
		uids = append(uids, uid)
		if _, err := put(ctx, s, uid); err != nil {
			t.Fatal(err)
		}
		if err := s.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
			c := tx.Aggregates[uid].Cluster
			c.DeleteTime, c.GoneTime = s.Now().Add(-1), s.Now().Add(-1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	release, err := s.LockRow(ctx, "clusters", uids[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(ctx, s.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := put(ctx, s, uuid.NewString()); err != nil {
		t.Fatal(err)
	}
	for i, uid := range uids {
		if _, err := s.Cluster(ctx, uid); (err == nil) != (i == 1) {
			t.Errorf("tombstone %d: %v", i, err)
		}
	}
	release()
	if err := s.Purge(ctx, s.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cluster(ctx, uids[1]); err == nil {
		t.Error("a tombstone is left")
	}
	if clock, err := s.Clock(ctx); err != nil || clock.Compacted == 0 {
		t.Errorf("%+v, %v: a watcher could miss what was removed", clock, err)
	}
}
