package intent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tink-crypto/tink-go/v2/hybrid"

	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestVerifierFollowsItsFile replaces the file of public keys by that of another signer, and then by a damaged one.
func TestVerifierFollowsItsFile(t *testing.T) {
	dir := t.TempDir()
	public := filepath.Join(dir, "public.json")
	signers := map[string]*Signer{}
	for _, name := range []string{"first", "second"} {
		private := filepath.Join(dir, name+".key")
		must.Do(t, CreateKeys(private))
		signers[name] = must.Get(LoadSigner(private, issuer, audience))(t)
	}
	use := func(name string) {
		t.Helper()
		must.Do(t, keyfile.WritePublic(filepath.Join(dir, name+".key"), public))
	}
	use("first")
	verifier, ring, err := LoadVerifier(public, "test")
	if err != nil {
		t.Fatal(err)
	}
	accepts := func(when, want string) {
		t.Helper()
		for name, signer := range signers {
			switch _, err := verifier.Verify(t.Context(), sign(t, signer, asked(t))); {
			case name == want && err != nil:
				t.Errorf("%s: %v", when, err)
			case name != want && (err == nil || !strings.Contains(err.Error(), "not one of admin's public keys")):
				t.Errorf("%s, an intent of the other signer: %v", when, err)
			}
		}
		if got := ring().Primary; got != signers[want].Ring().Primary {
			t.Errorf("%s, the primary key is %d", when, got)
		}
	}
	accepts("at first", "first")
	use("second")
	accepts("after the replacement", "second")
	must.Do(t, os.WriteFile(public, []byte("{"), 0o600))
	accepts("with a damaged file", "second")
}

func TestVerifierRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	private, sealing, opening := filepath.Join(dir, "intent.key"), filepath.Join(dir, "sealing.json"), filepath.Join(dir, "opening.key")
	must.Do(t, CreateKeys(private))
	must.Do(t, keyfile.Create(opening, hybrid.DHKEM_X25519_HKDF_SHA256_HKDF_SHA256_AES_256_GCM_Key_Template()))
	must.Do(t, keyfile.WritePublic(opening, sealing))
	for reason, path := range map[string]string{"a private keyset": private, "keys that seal": sealing, "no file": filepath.Join(dir, "none")} {
		if _, _, err := LoadVerifier(path, "test"); err == nil || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "keyData") {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
