package secret

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestSealedValuesAreBoundToTheirOwner(t *testing.T) {
	keeper, err := NewKeeper(bytes.Repeat([]byte{1}, keySize))
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := keeper.Seal("a", []byte("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("hunter2")) {
		t.Error("the sealed value shows what it holds")
	}
	if opened, err := keeper.Open("a", sealed); err != nil || string(opened) != "hunter2" {
		t.Errorf("opened %q, %v", opened, err)
	}
	other, err := NewKeeper(bytes.Repeat([]byte{2}, keySize))
	if err != nil {
		t.Fatal(err)
	}
	for reason, open := range map[string]func() ([]byte, error){
		"another owner": func() ([]byte, error) { return keeper.Open("b", sealed) },
		"another key":   func() ([]byte, error) { return other.Open("a", sealed) },
		"cut off":       func() ([]byte, error) { return keeper.Open("a", sealed[:5]) },
		"nothing":       func() ([]byte, error) { return keeper.Open("a", nil) },
	} {
		if opened, err := open(); err == nil {
			t.Errorf("%s: opened %q", reason, opened)
		}
	}
}

// TestKeyFileIsMadeOnce has processes start at once in a region without a key file.
func TestKeyFileIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, err := OpenKeyFile(path, false); err == nil {
		t.Error("a missing key file was made without being asked for")
	}
	keepers := make([]*Keeper, 8)
	var group sync.WaitGroup
	for i := range keepers {
		group.Go(func() {
			keeper, err := OpenKeyFile(path, true)
			if err != nil {
				t.Error(err)
			}
			keepers[i] = keeper
		})
	}
	group.Wait()
	sealed, err := keepers[0].Seal("a", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, keeper := range keepers {
		if _, err := keeper.Open("a", sealed); err != nil {
			t.Errorf("two processes have different keys: %v", err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v; want it closed to others", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("c2hvcnQ="), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKeyFile(path, true); err == nil || strings.Contains(err.Error(), "short") {
		t.Errorf("a short key gave %v", err)
	}
}

func TestSigningKeys(t *testing.T) {
	keys := NewSigningKeys(1, MakeSigningKey)
	if keys.Ready() != nil {
		t.Error("a key is ready before any was made")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := keys.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	seen := map[string]bool{}
	for range 4 {
		key, err := keys.Take()
		if err != nil {
			t.Fatal(err)
		}
		seen[string(key)] = true
		block, _ := pem.Decode(key)
		if block == nil {
			t.Fatal("not PEM")
		}
		if _, err := x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
			t.Error(err)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d different keys of 4", len(seen))
	}
	cancel()
	group.Wait()
}
