package elevation

import (
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
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
