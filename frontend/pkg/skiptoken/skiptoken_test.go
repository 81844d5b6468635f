package skiptoken_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/skiptoken"
)

func sealer(t testing.TB, keys ...byte) *skiptoken.Sealer {
	t.Helper()
	var all [][]byte
	for _, key := range keys {
		all = append(all, []byte(strings.Repeat(string(key), 32)))
	}
	s, err := skiptoken.New(all...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSealAndOpen(t *testing.T) {
	s := sealer(t, 'a')
	token := s.Seal("list", "position")
	if got, err := s.Open("list", token); err != nil || got != "position" {
		t.Errorf("opened %q, %v", got, err)
	}
	if strings.Contains(token, "position") {
		t.Error("the token shows the position")
	}
	for name, bad := range map[string]func() (string, error){
		"another list": func() (string, error) { return s.Open("other", token) },
		"another key":  func() (string, error) { return sealer(t, 'b').Open("list", token) },
		"changed":      func() (string, error) { return s.Open("list", "A"+token[1:len(token)-1]+"A") },
		"empty":        func() (string, error) { return s.Open("list", "") },
		"too long":     func() (string, error) { return s.Open("list", strings.Repeat("A", 10000)) },
	} {
		if got, err := bad(); err == nil {
			t.Errorf("%s: opened %q", name, got)
		}
	}
}

// TestRotation: a token of the key before opens as long as that key is there.
func TestRotation(t *testing.T) {
	token := sealer(t, 'a').Seal("list", "position")
	if got, err := sealer(t, 'b', 'a').Open("list", token); err != nil || got != "position" {
		t.Errorf("opened %q, %v", got, err)
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	good := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	for content, valid := range map[string]bool{good + "\n": true, good + "\n\n" + good: true, "": false, "short\n": false, "c2hvcnQ=\n": false} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := skiptoken.Load(path); (err == nil) != valid {
			t.Errorf("%q: %v, want valid %v", content, err, valid)
		}
	}
}

// FuzzOpen: only what was sealed opens.
func FuzzOpen(f *testing.F) {
	s := sealer(f, 'a')
	token := s.Seal("list", "position")
	f.Add("list", token)
	f.Add("list", token[:10])
	f.Add("", "")
	f.Fuzz(func(t *testing.T, list, candidate string) {
		if got, err := s.Open(list, candidate); err == nil && (list != "list" || got != "position") {
			t.Errorf("opened %q of the list %q", got, list)
		}
	})
}
