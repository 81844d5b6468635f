package seal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tink-crypto/tink-go/v2/hybrid"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestPairSealsForItsOwnerOnly(t *testing.T) {
	folder := t.TempDir()
	private, public := filepath.Join(folder, "private.json"), filepath.Join(folder, "public.json")
	for range 2 { // the second time keeps the keys
		must.Do(t, CreatePair(private, public))
	}
	sealer := must.Get(ReadPublic(public))(t)
	opener := must.Get(LoadPrivate(private))(t)
	sealed := must.Get(sealer.Seal("purpose", []byte("content")))(t)
	if got, err := opener.Open("purpose", sealed); err != nil || string(got) != "content" {
		t.Errorf("opened %q, %v", got, err)
	}
	for i := range sealed {
		changed := append([]byte{}, sealed...)
		changed[i] ^= 1
		if got, err := opener.Open("purpose", changed); err != ErrInvalid {
			t.Errorf("byte %d changed: opened %q, %v", i, got, err)
		}
	}
	if got, err := opener.Open("other", sealed); err != ErrInvalid {
		t.Errorf("another purpose: opened %q, %v", got, err)
	}
	if info, err := os.Stat(private); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; only the owner may read the private keys", info.Mode(), err)
	}
}

// TestPairRotation adds a key, makes it the primary key of the public keyset, and removes the former key.
func TestPairRotation(t *testing.T) {
	manager := keyset.NewManager()
	template := hybrid.DHKEM_X25519_HKDF_SHA256_HKDF_SHA256_AES_256_GCM_Key_Template()
	first := add(t, manager, template)
	promote(t, manager, first)
	load := func() (*PublicKeys, *PrivateKeys) {
		private := write(t, manager)
		public := filepath.Join(t.TempDir(), "public.json")
		must.Do(t, CreatePair(private, public))
		sealer := must.Get(ReadPublic(public))(t)
		opener := must.Get(LoadPrivate(private))(t)
		return sealer, opener
	}
	before, _ := load()
	sealed := must.Get(before.Seal("purpose", []byte("content")))(t)
	promote(t, manager, add(t, manager, template))
	after, both := load()
	if before.ID() == after.ID() {
		t.Error("the ID did not change with the primary key")
	}
	if got, err := both.Open("purpose", sealed); err != nil || string(got) != "content" {
		t.Errorf("opened %q, %v with both keys", got, err)
	}
	must.Do(t, manager.Delete(first))
	if _, second := load(); second != nil {
		if got, err := second.Open("purpose", sealed); err != ErrInvalid {
			t.Errorf("opened %q, %v with a key that was removed", got, err)
		}
	}
}

func TestReadPublicRefusesOtherFiles(t *testing.T) {
	folder := t.TempDir()
	private, public := filepath.Join(folder, "private.json"), filepath.Join(folder, "public.json")
	must.Do(t, CreatePair(private, public))
	symmetric := filepath.Join(folder, "symmetric.json")
	must.Do(t, Create(symmetric))
	for _, path := range []string{private, symmetric} {
		if _, err := ReadPublic(path); err == nil || !strings.Contains(err.Error(), path+" is not a public Tink keyset") {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
	for _, path := range []string{public, symmetric} {
		if _, err := LoadPrivate(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
}
