package hostedapi

import (
	"os"
	"path/filepath"
	"testing"
)

// TestFailedUpdateIsRetried is a regression test: if a file could not be replaced, for example because the disk was
// full, the change counted as applied, and the server continued to trust revoked authorities.
func TestFailedUpdateIsRetried(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newServer(&Supervisor{}, dir, Spec{Name: "c", ClientCA: []byte("old")}, 1)
	if _, err := p.writeFiles(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "client-ca.crt")
	// A folder of that name prevents the replacement of the file.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	next := Spec{Name: "c", ClientCA: []byte("new")}
	if err := p.update(next); err == nil {
		t.Fatal("the update succeeded")
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
