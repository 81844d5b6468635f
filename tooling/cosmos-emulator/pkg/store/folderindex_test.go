package store

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// TestMayHaveFolder checks the folders of written items, before and after the store is reopened.
func TestMayHaveFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	var c *Container
	check := func(s *Store) {
		t.Helper()
		for folder, want := range map[string]bool{
			"/": true, "/a/": true, "/a/b/": true, "/a/b/c/": false, "/a/bb/": true, "/b/": false, "/x/": false, "/in/": false,
		} {
			if got := s.MayHaveFolder(c, folder); got != want {
				t.Errorf("MayHaveFolder(%s) = %v, want %v", folder, got, want)
			}
		}
	}
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateDatabase(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	properties, err := document.Parse([]byte(`{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	if c, err = s.CreateContainer(t.Context(), "d", properties); err != nil {
		t.Fatal(err)
	}
	for i, at := range []string{"/a/b/c", "/a/bb/c", "no/folder"} {
		body, err := document.Parse(fmt.Appendf(nil, `{"id":"%d","pk":"p","path":%q,"n":{"path":"/in/n"},"l":["/x/y"]}`, i, at))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Transact(t.Context(), c, "p", []Operation{{Verb: Create, Body: body}}); err != nil {
			t.Fatal(err)
		}
	}
	check(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Options{Path: path}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if c, err = s.Container("d", "c"); err != nil {
		t.Fatal(err)
	}
	check(s)
}
