package elevation

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/documentfields"
)

// TestSealerFollowsItsKeyset rotates the key while the process runs. A sealer that kept the keyset of its start would sign with a removed
// key, and no process that starts later would accept that.
func TestSealerFollowsItsKeyset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset.json")
	if err := intent.CreateKeys(path); err != nil {
		t.Fatal(err)
	}
	sealer, err := LoadSealer(path)
	if err != nil {
		t.Fatal(err)
	}
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
	started, err := LoadSealer(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Sealer{"running": sealer, "started later": started} {
		if err := s.Verify(after); err != nil {
			t.Errorf("the %s process refuses what the new key sealed: %v", name, err)
		}
		if err := s.Verify(before); err == nil {
			t.Errorf("the %s process accepts what the removed key sealed", name)
		}
	}
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
	sealer, err := NewSealer()
	if err != nil {
		t.Fatal(err)
	}
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
