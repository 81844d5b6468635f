package hostedapi

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAnUpdateThatCouldNotBeWrittenIsWrittenLater is named after what went wrong: where a file could not be replaced, as on a full
// disk, the change was taken for made, and a server went on with authorities that had been revoked.
func TestAnUpdateThatCouldNotBeWrittenIsWrittenLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newServer(&Supervisor{}, dir, Spec{Name: "c", ClientCA: []byte("old")}, 1)
	if _, err := p.writeFiles(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "client-ca.crt")
	// Nothing can be put in the place of a folder.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	next := Spec{Name: "c", ClientCA: []byte("new")}
	if err := p.update(next); err == nil {
		t.Fatal("it was written")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := p.update(next); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "new" {
		t.Errorf("the authorities are %q, %v", got, err)
	}
}
