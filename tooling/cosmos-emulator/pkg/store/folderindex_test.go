package store

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
	s := must.Get(Open(Options{Path: path}))(t)
	must.Get(s.CreateDatabase(t.Context(), "d"))(t)
	properties := must.Get(document.Parse([]byte(`{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}`)))(t)
	c = must.Get(s.CreateContainer(t.Context(), "d", properties))(t)
	for i, at := range []string{"/a/b/c", "/a/bb/c", "no/folder"} {
		body := must.Get(document.Parse(fmt.Appendf(nil, `{"id":"%d","pk":"p","path":%q,"n":{"path":"/in/n"},"l":["/x/y"]}`, i, at)))(t)
		if _, _, err := s.Transact(t.Context(), c, "p", []Operation{{Verb: Create, Body: body}}); err != nil {
			t.Fatal(err)
		}
	}
	check(s)
	must.Do(t, s.Close())
	s = must.Get(Open(Options{Path: path}))(t)
	defer func() { _ = s.Close() }()
	c = must.Get(s.Container("d", "c"))(t)
	check(s)
}
