package seal_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/seal"
)

func keys(t testing.TB, letters ...string) *seal.Keys {
	t.Helper()
	var all [][]byte
	for _, letter := range letters {
		all = append(all, []byte(strings.Repeat(letter, 32)))
	}
	k, err := seal.New(all...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSealAndOpen(t *testing.T) {
	k := keys(t, "a")
	sealed := k.Seal("purpose", []byte("content"))
	if got, err := k.Open("purpose", sealed); err != nil || string(got) != "content" {
		t.Errorf("opened %q, %v", got, err)
	}
	if bytes.Contains(sealed, []byte("content")) {
		t.Error("what is sealed shows its content")
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, bad := range map[string]func() ([]byte, error){
		"another purpose": func() ([]byte, error) { return k.Open("other", sealed) },
		"another key":     func() ([]byte, error) { return keys(t, "b").Open("purpose", sealed) },
		"changed":         func() ([]byte, error) { return k.Open("purpose", changed) },
		"cut off":         func() ([]byte, error) { return k.Open("purpose", sealed[:8]) },
		"empty":           func() ([]byte, error) { return k.Open("purpose", nil) },
	} {
		if got, err := bad(); err == nil {
			t.Errorf("%s: opened %q", name, got)
		}
	}
}

// TestRotation: what the key before has sealed opens as long as that key is there.
func TestRotation(t *testing.T) {
	sealed := keys(t, "a").Seal("purpose", []byte("content"))
	if got, err := keys(t, "b", "a").Open("purpose", sealed); err != nil || string(got) != "content" {
		t.Errorf("opened %q, %v", got, err)
	}
	if got, err := keys(t, "b").Open("purpose", sealed); err == nil {
		t.Errorf("opened %q without its key", got)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	good := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	for content, valid := range map[string]bool{good + "\n": true, good + "\n\n" + good: true, "": false, "short\n": false, "c2hvcnQ=\n": false} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := seal.Load(path)
		if (err == nil) != valid {
			t.Errorf("%q: %v, want valid %v", content, err, valid)
		}
		if err != nil && content != "" && strings.Contains(err.Error(), strings.TrimSpace(content)) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}
