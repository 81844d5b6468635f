// Package smalldisk runs a test on a disk that is small enough to be filled: a tmpfs in a mount namespace of its own, which the
// kernel removes with the process. The test needs no privileges where unprivileged user namespaces are allowed.
package smalldisk

import (
	"os"
	"path/filepath"
	"testing"
)

// Fill writes to the disk of a folder until nothing is left, and returns the path of the file that occupies the space.
func Fill(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := file.Write(block); err == nil {
			continue
		}
		block = block[:len(block)/2]
	}
	return path
}

// UseUpFiles creates empty files in a folder until its disk cannot have more.
func UseUpFiles(t *testing.T, dir string) {
	t.Helper()
	for {
		file, err := os.CreateTemp(dir, "filler-*")
		if err != nil {
			return
		}
		_ = file.Close()
	}
}
