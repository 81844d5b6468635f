package server_test

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func skipTokens(t testing.TB) *server.SkipTokens {
	t.Helper()
	keys := must.Get(seal.New())(t)
	return server.NewSkipTokens(keys)
}

func TestSkipTokenSealAndOpen(t *testing.T) {
	s := skipTokens(t)
	token := s.Seal("list", "position")
	if got, err := s.Open("list", token); err != nil || got != "position" {
		t.Errorf("opened %q, %v", got, err)
	}
	if strings.Contains(token, "position") {
		t.Error("the token contains the position in clear text")
	}
	for name, bad := range map[string]func() (string, error){
		"another list": func() (string, error) { return s.Open("other", token) },
		"another key":  func() (string, error) { return skipTokens(t).Open("list", token) },
		"line break":   func() (string, error) { return s.Open("list", token+"\n") },
		"empty":        func() (string, error) { return s.Open("list", "") },
		"too long":     func() (string, error) { return s.Open("list", strings.Repeat("A", 10000)) },
	} {
		if got, err := bad(); err == nil {
			t.Errorf("%s: opened %q", name, got)
		}
	}
}

// TestOpenRejectsModifiedTokens replaces each character of a token by every other character of the encoding. The list of positions
// with lengths of one to three bytes covers tokens whose last character has two, four and no unused bits.
func TestOpenRejectsModifiedTokens(t *testing.T) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	s := skipTokens(t)
	for _, position := range []string{"1", "12", "123"} {
		token := s.Seal("list", position)
		for i := range token {
			for _, replacement := range alphabet {
				modified := token[:i] + string(replacement) + token[i+1:]
				if modified == token {
					continue
				}
				if got, err := s.Open("list", modified); err == nil {
					t.Fatalf("opened %q of %s, whose character %d was modified", got, modified, i)
				}
			}
		}
	}
}

// FuzzOpen: only sealed tokens can be opened.
func FuzzOpen(f *testing.F) {
	s := skipTokens(f)
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
