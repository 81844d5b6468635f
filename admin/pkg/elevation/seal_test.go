package elevation

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/documentfields"
)

// TestSealerFollowsItsKeyset rotates the key while the process runs. A sealer that kept the keyset of its start would sign with a removed
// key, and no process that starts later would accept that.
func TestSealerFollowsItsKeyset(t *testing.T) {
	path := newKeyset(t)
	sealer := load(t, path)
	seal := func() *database.ElevationDocument {
		e := &database.ElevationDocument{ElevationID: "elevation"}
		if err := sealer.Seal(e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	former, before := keyOf(t, path), seal()
	next, err := keyfile.Add(path)
	if err == nil {
		err = keyfile.Promote(path, next)
	}
	if err != nil {
		t.Fatal(err)
	}
	after := seal()
	for name, e := range map[string]*database.ElevationDocument{"before": before, "after": after} {
		if err := sealer.Verify(e); err != nil {
			t.Errorf("sealed %s the promotion: %v", name, err)
		}
	}
	if err := keyfile.Remove(path, former); err != nil {
		t.Fatal(err)
	}
	started := load(t, path)
	for name, s := range map[string]*Sealer{"running": sealer, "started later": started} {
		if err := s.Verify(after); err != nil {
			t.Errorf("the %s process refuses what the new key sealed: %v", name, err)
		}
		if err := s.Verify(before); err == nil {
			t.Errorf("the %s process accepts what the removed key sealed", name)
		}
	}
}

// newKeyset returns the path of a new keyset.
func newKeyset(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keyset.json")
	if err := intent.CreateKeys(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// load returns the sealer of a process that has verified nothing.
func load(t *testing.T, keyset string) *Sealer {
	t.Helper()
	sealer, err := LoadSealer(keyset)
	if err != nil {
		t.Fatal(err)
	}
	return sealer
}

func keyOf(t *testing.T, path string) uint32 {
	t.Helper()
	keys, err := keyfile.List(path)
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	return keys[0].ID
}

// TestRewrittenElevationIsNotVerified rewrites each field of a sealed elevation, in the version of its activation and in a later one. A reader keeps no version
// before: it verifies each that it reads, so that a field that is changed back is that of admin.
func TestRewrittenElevationIsNotVerified(t *testing.T) {
	sealer := load(t, newKeyset(t))
	now := time.Date(2026, time.November, 29, 12, 0, 0, 0, time.UTC)
	original := database.ElevationDocument{ElevationID: "elevation", SortKey: database.AdminSortKey(now, "elevation"), State: database.ElevationActive, Class: "operate",
		Actor:  database.AdminActor{Name: "alice@example.com", ObjectID: "alice", TenantID: "tenant", Role: "operator", ElevationID: "elevation", Reason: "it is slow", Ticket: "INC-1"},
		Target: database.AdminTarget{Kind: "cluster", ID: "a", ClusterUID: "a", ResourceID: "/a"}, RequestTime: now, RequestExpirationTime: now.Add(time.Hour), DurationSeconds: 3600,
		Decision: &database.ElevationDecision{Approved: true, ObjectID: "bob", Time: now}, StartTime: now, ExpirationTime: now.Add(time.Hour)}
	if err := sealer.Seal(&original); err != nil {
		t.Fatal(err)
	}
	documentfields.Each(t, nil, func(name string, rewrite func(*database.ElevationDocument)) {
		rewritten := original
		rewrite(&rewritten)
		if err := sealer.Verify(&rewritten); err == nil {
			t.Errorf("%s is rewritten, and the elevation is accepted: %+v", name, rewritten)
		}
		if err := sealer.Verify(&original); err != nil {
			t.Errorf("%s is changed back: %v", name, err)
		}
		later := original
		if later.Decision, later.State = nil, database.ElevationEnded; sealer.Seal(&later) != nil {
			t.Fatal("the elevation cannot be sealed again")
		}
		if rewrite(&later); later.Seal == original.Seal {
			t.Fatal("the seals of two versions are the same")
		}
		if err := sealer.Verify(&later); err == nil {
			t.Errorf("%s is rewritten after a change of admin, and the elevation is accepted: %+v", name, later)
		}
	})
}

// TestEarlierStateIsRefused seals four states of an elevation and verifies each pair of them in each order. A process refuses each state before the
// latest one that it has verified, and a process that has verified none accepts each.
func TestEarlierStateIsRefused(t *testing.T) {
	keyset := newKeyset(t)
	writer, e := load(t, keyset), database.ElevationDocument{ElevationID: "elevation"}
	var states []database.ElevationDocument
	for _, state := range []database.ElevationState{database.ElevationRequested, database.ElevationApproved, database.ElevationActive, database.ElevationEnded} {
		e.State = state
		if err := writer.Seal(&e); err != nil {
			t.Fatal(err)
		}
		writer.Stored(&e)
		states = append(states, e)
	}
	other := database.ElevationDocument{ElevationID: "other", State: database.ElevationActive}
	if err := writer.Seal(&other); err != nil {
		t.Fatal(err)
	}
	for i := range states {
		for j := range states {
			reader := load(t, keyset)
			if err := reader.Verify(&states[i]); err != nil {
				t.Errorf("the first state, %s: %v", states[i].State, err)
			}
			switch err := reader.Verify(&states[j]); {
			case j < i && (!errors.Is(err, errSetBack) || apierror.KindOf(err) != apierror.Conflict):
				t.Errorf("%s is accepted after %s: %v", states[j].State, states[i].State, err)
			case j >= i && err != nil:
				t.Errorf("%s is refused after %s: %v", states[j].State, states[i].State, err)
			}
			if err := reader.Verify(&other); err != nil {
				t.Errorf("another elevation is refused after %s: %v", states[i].State, err)
			}
		}
		if err := writer.Verify(&states[i]); (err == nil) != (i == len(states)-1) {
			t.Errorf("the process that wrote the elevation verifies %s: %v", states[i].State, err)
		}
	}
}

// TestOvertakenReadIsRepeated reads an elevation that another request of the process changes before it is verified: the read is repeated. An
// elevation that was set back is refused in the end.
func TestOvertakenReadIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sealer := load(t, newKeyset(t))
		read := database.ElevationDocument{ElevationID: "elevation", State: database.ElevationActive}
		if err := sealer.Seal(&read); err != nil {
			t.Fatal(err)
		}
		stored := read
		stored.State = database.ElevationEnded
		if err := sealer.Seal(&stored); err != nil {
			t.Fatal(err)
		}
		sealer.Stored(&stored)
		for name, tc := range map[string]struct {
			second *database.ElevationDocument
			want   error
		}{"overtaken": {&stored, nil}, "set back": {&read, errSetBack}} {
			next := &read
			err := Retry(t.Context(), func(context.Context) error {
				verified := next
				next = tc.second
				return sealer.Verify(verified)
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestRevisionsAreForgotten checks that a Sealer forgets an elevation when no state can open it again.
func TestRevisionsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sealer := load(t, newKeyset(t))
		for _, id := range []string{"a", "b", "c"} {
			e := database.ElevationDocument{ElevationID: id}
			if err := sealer.Seal(&e); err != nil {
				t.Fatal(err)
			}
			sealer.Stored(&e)
			time.Sleep(maxRequestLifetime)
		}
		if _, found := sealer.latest["a"]; found || len(sealer.latest) != 2 {
			t.Errorf("it remembers %v", sealer.latest)
		}
	})
}
