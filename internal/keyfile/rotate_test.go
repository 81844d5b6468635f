package keyfile_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tink-crypto/tink-go/v2/aead"

	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestKeysAreRotated adds a key to each kind of keyset, promotes it and removes the former one.
func TestKeysAreRotated(t *testing.T) {
	dir := t.TempDir()
	for kind, create := range map[string]func(path string) error{
		"sealing": seal.Create,
		"opening": func(path string) error { return seal.CreatePair(path, path+".public") },
		"signing": intent.CreateKeys,
	} {
		t.Run(kind, func(t *testing.T) {
			path := filepath.Join(dir, kind)
			must.Do(t, create(path))
			expect := func(want ...keyfile.Key) {
				t.Helper()
				got := must.Get(keyfile.List(path))(t)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			keys, err := keyfile.List(path)
			if err != nil || len(keys) != 1 {
				t.Fatal(keys, err)
			}
			former := keys[0].ID
			added := must.Get(keyfile.Add(path))(t)
			expect(keyfile.Key{ID: former, Type: kind, Primary: true, Enabled: true}, keyfile.Key{ID: added, Type: kind, Enabled: true})
			if err := keyfile.Remove(path, former); err == nil {
				t.Error("the primary key was removed")
			}
			must.Do(t, keyfile.Promote(path, added))
			if err := keyfile.Promote(path, added+1); err == nil {
				t.Error("an unknown key was promoted")
			}
			must.Do(t, keyfile.Remove(path, former))
			expect(keyfile.Key{ID: added, Type: kind, Primary: true, Enabled: true})
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file: %v, %v", info, err)
			}
		})
	}
	foreign := filepath.Join(dir, "foreign")
	must.Do(t, keyfile.Create(foreign, aead.AES256CTRHMACSHA256KeyTemplate()))
	if _, err := keyfile.Add(foreign); err == nil {
		t.Error("a key of an unsupported type was added")
	}
}
