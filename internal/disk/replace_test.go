package disk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

// check checks the content of a file, and that its folder has no other file.
func check(t *testing.T, path, want string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil || string(content) != want {
		t.Errorf("the file has %d bytes, want %d: %v", len(content), len(want), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v: %v", entries, err)
	}
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for content, mode := range map[string]os.FileMode{"first": 0o600, "second": 0o644} {
		must.Do(t, disk.Replace(path, []byte(content), mode))
		check(t, path, content)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("the mode is %v, want %v: %v", info.Mode().Perm(), mode, err)
		}
	}
}

func TestCreateKeepsExistingFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	must.Do(t, disk.Create(path, []byte("first"), 0o600))
	if err := disk.Create(path, []byte("second"), 0o600); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second creation: %v", err)
	}
	check(t, path, "first")
}

// A disk that becomes full while the new content is written leaves the previous content.
func TestFullDiskKeepsPreviousContent(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		path := filepath.Join(dir, "folder", "file")
		must.Do(t, os.Mkdir(filepath.Dir(path), 0o700))
		must.Do(t, disk.Replace(path, []byte("previous"), 0o600))
		filler := smalldisk.Fill(t, dir)
		if err := disk.Replace(path, []byte(strings.Repeat("new", 1<<20)), 0o600); !disk.IsFull(err) {
			t.Errorf("a replacement on a full disk: %v", err)
		}
		check(t, path, "previous")
		must.Do(t, os.Remove(filler))
		must.Do(t, disk.Replace(path, []byte("new"), 0o600))
		check(t, path, "new")
	})
}
