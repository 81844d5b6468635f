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
			if err := create(path); err != nil {
				t.Fatal(err)
			}
			expect := func(want ...keyfile.Key) {
				t.Helper()
				got, err := keyfile.List(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			keys, err := keyfile.List(path)
			if err != nil || len(keys) != 1 {
				t.Fatal(keys, err)
			}
			former := keys[0].ID
			added, err := keyfile.Add(path)
			if err != nil {
				t.Fatal(err)
			}
			expect(keyfile.Key{ID: former, Type: kind, Primary: true, Enabled: true}, keyfile.Key{ID: added, Type: kind, Enabled: true})
			if err := keyfile.Remove(path, former); err == nil {
				t.Error("the primary key was removed")
			}
			if err := keyfile.Promote(path, added); err != nil {
				t.Fatal(err)
			}
			if err := keyfile.Promote(path, added+1); err == nil {
				t.Error("an unknown key was promoted")
			}
			if err := keyfile.Remove(path, former); err != nil {
				t.Fatal(err)
			}
			expect(keyfile.Key{ID: added, Type: kind, Primary: true, Enabled: true})
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file: %v, %v", info, err)
			}
		})
	}
	foreign := filepath.Join(dir, "foreign")
	if err := keyfile.Create(foreign, aead.AES256CTRHMACSHA256KeyTemplate()); err != nil {
		t.Fatal(err)
	}
	if _, err := keyfile.Add(foreign); err == nil {
		t.Error("a key of an unsupported type was added")
	}
}
