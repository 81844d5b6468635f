package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRestartedServerRestartsRevisions simulates a restarted or restored server, and revisions that decreased. All clusters then
// count as changed, at revisions that were never used before.
func TestRestartedServerRestartsRevisions(t *testing.T) {
	url := databases.Migrated(t, store.Migrations())
	s := open(t, store.Options{URL: url})
	ctx := t.Context()
	direct := must.Get(pgx.Connect(ctx, url))(t)
	defer func() { _ = direct.Close(context.Background()) }()
	for _, back := range map[string]string{
		"it was restarted": "UPDATE revision_clock SET server_started = server_started - interval '1 hour'",
		"it was restored":  "UPDATE revision_clock SET server_started = server_started - interval '1 hour', revision = revision - 1",
		"only lower":       "UPDATE revision_clock SET revision = revision - 1",
	} {
		before := must.Get(s.Clock(ctx))(t)
		uids := map[string]bool{}
		for range 3 {
			uid := uuid.NewString()
			must.Get(put(ctx, s, uid))(t)
			uids[uid] = true
		}
		lost := must.Get(s.Clock(ctx))(t)
		must.Get(direct.Exec(ctx, back))(t)
		must.Do(t, s.RestartRevisions(ctx, lost.Revision))
		changes, clock, err := s.Changes(ctx, lost.Revision, 1000)
		if err != nil || clock.RestartedAt <= lost.Revision || clock.RestartedAt <= before.RestartedAt || clock.Revision < clock.RestartedAt {
			t.Fatalf("after %q the clock is %+v, %v; it was %+v", back, clock, err, lost)
		}
		seen := int64(0)
		for _, c := range changes {
			if c.Revision <= max(seen, clock.RestartedAt) || c.Revision > clock.Revision {
				t.Errorf("%s has revision %d after %d; the clock is %+v", c.UID(), c.Revision, seen, clock)
			}
			seen = c.Revision
			delete(uids, c.UID())
		}
		if len(uids) != 0 {
			t.Errorf("%d clusters do not count as changed", len(uids))
		}
		again, err := s.Clock(ctx)
		if err != nil || again != clock {
			t.Errorf("the clock changed again: %+v, %v", again, err)
		}
	}
}

// TestCallTakesEffectOnce repeats a call whose response was lost, and a call that was refused.
func TestCallTakesEffectOnce(t *testing.T) {
	s := open(t, store.Options{})
	uid, refused := uuid.NewString(), errors.New("refused")
	calls := 0
	update := func(answer error) error {
		err := s.Update(store.WithCallID(t.Context(), "one"), []string{uid}, func(context.Context, *store.Tx) error {
			calls++
			return answer
		})
		return err
	}
	if err := update(refused); !errors.Is(err, refused) {
		t.Errorf("a refused call: %v", err)
	}
	if err := update(nil); err != nil {
		t.Errorf("the same call, now accepted: %v", err)
	}
	if err := update(nil); !errors.Is(err, store.ErrCallRepeated) || calls != 2 {
		t.Errorf("the repeated call: %v after %d calls", err, calls)
	}
	ctx := store.WithCallID(t.Context(), "two")
	for range 2 {
		if err := s.Update(ctx, []string{uid}, func(context.Context, *store.Tx) error { return nil }); err != nil {
			t.Errorf("the second transaction of one call: %v", err)
		}
	}
}
