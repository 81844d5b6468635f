package audit_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestKeysOfServiceAreFollowed verifies signatures with a file of public keys that is replaced. A file without keys leaves the previous ones in use.
func TestKeysOfServiceAreFollowed(t *testing.T) {
	dir := t.TempDir()
	private, next, public := filepath.Join(dir, "key"), filepath.Join(dir, "next"), filepath.Join(dir, "public.pem")
	if _, err := audit.FollowKeys("gateway", public); err == nil {
		t.Error("a missing file was accepted")
	}
	for range 2 { // the second call changes nothing
		must.Do(t, audit.CreatePair(private, public))
	}
	keys := must.Get(audit.FollowKeys("gateway", public))(t)
	verify := func(path string) error {
		t.Helper()
		key := must.Get(audit.LoadKey(path))(t)
		signature := must.Get(key.Sign("a domain", []byte("a text")))(t)
		if err := keys().VerifySignature("gateway", "another domain", time.Now(), []byte("a text"), signature); err == nil {
			t.Error("a signature is valid in another domain")
		}
		return keys().VerifySignature("gateway", "a domain", time.Now(), []byte("a text"), signature)
	}
	if err := verify(private); err != nil {
		t.Error(err)
	}
	if len(keys()["gateway"]) != 1 {
		t.Errorf("the file has %d keys", len(keys()["gateway"]))
	}
	must.Do(t, audit.CreatePair(next, filepath.Join(dir, "other.pem")))
	if verify(next) == nil {
		t.Error("a key that is not published was accepted")
	}
	must.Do(t, audit.CreatePair(next, public))
	if err := verify(next); err != nil {
		t.Error(err)
	}
	must.Do(t, os.WriteFile(public, nil, 0o600))
	if err := verify(private); err != nil {
		t.Errorf("after the file became empty: %v", err)
	}
}
