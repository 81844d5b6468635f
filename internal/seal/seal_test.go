package seal

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/mac"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// keys returns the keyset of a manager, as written to a file and loaded.
func keys(t testing.TB, manager *keyset.Manager) *Keys {
	t.Helper()
	return must.Get(Load(write(t, manager)))(t)
}

// write writes the keyset of a manager to a file.
func write(t testing.TB, manager *keyset.Manager) string {
	t.Helper()
	handle := must.Get(manager.Handle())(t)
	var text bytes.Buffer
	must.Do(t, insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)))
	path := filepath.Join(t.TempDir(), "keyset.json")
	must.Do(t, os.WriteFile(path, text.Bytes(), 0o600))
	return path
}

// add adds a key to a keyset, and returns its ID.
func add(t testing.TB, manager *keyset.Manager, template *tinkpb.KeyTemplate) uint32 {
	t.Helper()
	return must.Get(manager.Add(template))(t)
}

func promote(t testing.TB, manager *keyset.Manager, id uint32) {
	t.Helper()
	must.Do(t, manager.SetPrimary(id))
}

func TestSealAndOpen(t *testing.T) {
	k := must.Get(New())(t)
	other := must.Get(New())(t)
	sealed := k.Seal("purpose", []byte("content"))
	if got, err := k.Open("purpose", sealed); err != nil || string(got) != "content" {
		t.Errorf("opened %q, %v", got, err)
	}
	if bytes.Contains(sealed, []byte("content")) {
		t.Error("the sealed data shows its content")
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if got, err := k.Open("purpose", changed); err != ErrInvalid {
			t.Errorf("byte %d changed: opened %q, %v", i, got, err)
		}
	}
	for name, bad := range map[string]func() ([]byte, error){
		"another purpose": func() ([]byte, error) { return k.Open("other", sealed) },
		"another key":     func() ([]byte, error) { return other.Open("purpose", sealed) },
		"cut off":         func() ([]byte, error) { return k.Open("purpose", sealed[:8]) },
		"empty":           func() ([]byte, error) { return k.Open("purpose", nil) },
	} {
		if got, err := bad(); err != ErrInvalid {
			t.Errorf("%s: opened %q, %v", name, got, err)
		}
	}
}

// TestRotation performs the steps of a rotation: add a key, make it primary, remove the former key.
func TestRotation(t *testing.T) {
	manager := keyset.NewManager()
	first := add(t, manager, aead.AES256GCMKeyTemplate())
	promote(t, manager, first)
	before := keys(t, manager)
	sealedBefore := before.Seal("purpose", []byte("content"))

	second := add(t, manager, aead.AES256GCMKeyTemplate())
	added := keys(t, manager)
	if got, err := before.Open("purpose", added.Seal("purpose", []byte("content"))); err != nil || string(got) != "content" {
		t.Errorf("a replica without the added key opened %q, %v: the added key must not seal yet", got, err)
	}
	promote(t, manager, second)
	promoted := keys(t, manager)
	sealedAfter := promoted.Seal("purpose", []byte("content"))
	for name, k := range map[string]*Keys{"added": added, "promoted": promoted} {
		for _, sealed := range [][]byte{sealedBefore, sealedAfter} {
			if got, err := k.Open("purpose", sealed); err != nil || string(got) != "content" {
				t.Errorf("%s: opened %q, %v", name, got, err)
			}
		}
	}
	if got, err := before.Open("purpose", sealedAfter); err == nil {
		t.Errorf("opened %q without its key", got)
	}
	must.Do(t, manager.Delete(first))
	if got, err := keys(t, manager).Open("purpose", sealedBefore); err == nil {
		t.Errorf("opened %q with a key that was removed", got)
	}
}

func TestLoadRejectsOtherFiles(t *testing.T) {
	former := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	for name, content := range map[string]string{"empty": "", "lines of base64, as before keysets": former + "\n", "no key": `{"primaryKeyId":1,"key":[]}`, "other JSON": `["` + former + `"]`} {
		path := filepath.Join(t.TempDir(), "keys")
		must.Do(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), "is not a Tink keyset") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error with the file and what it must be", name, err)
		}
		if err != nil && strings.Contains(err.Error(), former) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("a missing file was loaded")
	}
	manager := keyset.NewManager()
	promote(t, manager, add(t, manager, mac.HMACSHA256Tag256KeyTemplate()))
	if _, err := Load(write(t, manager)); err == nil {
		t.Error("a keyset for authentication codes was loaded")
	}
}

// TestFileIsCreatedOnce starts several processes at once without a file.
func TestFileIsCreatedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset.json")
	if _, err := Load(path); err == nil {
		t.Error("Load created a missing file")
	}
	all := make([]*Keys, 8)
	var group sync.WaitGroup
	for i := range all {
		group.Go(func() {
			var err error
			if all[i], err = LoadOrCreate(path); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	sealed := all[0].Seal("a", []byte("x"))
	for _, k := range all {
		if _, err := k.Open("a", sealed); err != nil {
			t.Errorf("two processes have different keys: %v", err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; only the owner may read the file", info.Mode(), err)
	}
}

// FuzzOpen opens arbitrary data. Only what was sealed for the purpose may open.
func FuzzOpen(f *testing.F) {
	k := must.Get(New())(f)
	sealed := k.Seal("purpose", []byte("content"))
	f.Add("purpose", sealed)
	f.Add("other", sealed)
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, purpose string, data []byte) {
		content, err := k.Open(purpose, data)
		if genuine := purpose == "purpose" && bytes.Equal(data, sealed); genuine != (err == nil) {
			t.Errorf("opened %q for %q: %v", content, purpose, err)
		}
	})
}
