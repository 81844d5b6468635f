package hostedapi

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
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

// TestLargeLogIsRenamed: a start keeps the log of the earlier runs, and one older file.
func TestLargeLogIsRenamed(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	path := filepath.Join(dir, logName)
	if err := rotateLog(dir, now); err != nil {
		t.Fatal(err)
	}
	for n, size := range []int64{logLimit, logLimit + 1, logLimit + 1} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		if err := rotateLog(dir, now.Add(time.Duration(n)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, "kube-apiserver-2026-03-01T10-00-00.000.log")}; err != nil || !slices.Equal(files, want) {
		t.Errorf("%v, %v, want %v", files, err, want)
	}
}
