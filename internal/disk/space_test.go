package disk_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

func TestFullDiskIsReported(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		if err := disk.CheckSpace(dir); err != nil {
			t.Fatalf("an empty disk: %v", err)
		}
		filler := smalldisk.Fill(t, dir)
		err := disk.CheckSpace(dir)
		if !errors.Is(err, disk.ErrFull) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "0 of 4 MiB") {
			t.Errorf("a full disk: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "one-more"), make([]byte, 64<<10), 0o600); !disk.IsFull(err) {
			t.Errorf("a write to a full disk: %v", err)
		}
		must.Do(t, os.Remove(filler))
		if err := disk.CheckSpace(dir); err != nil {
			t.Errorf("after space was freed: %v", err)
		}
	})
}

func TestDiskWithoutFreeFilesIsFull(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		smalldisk.UseUpFiles(t, dir)
		if err := disk.CheckSpace(dir); !errors.Is(err, disk.ErrFull) {
			t.Errorf("a disk without free inodes: %v", err)
		}
	})
}

func TestSpaceOfMissingFolderIsAnError(t *testing.T) {
	if err := disk.CheckSpace(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLineFindsTheReportOfAFullDisk(t *testing.T) {
	log := "LOG:  starting\nPANIC:  could not write to file \"pg_wal/xlogtemp.1\": No space left on device\nLOG:  terminating\n"
	if got := disk.FullLine(log); !strings.HasPrefix(got, "PANIC:") {
		t.Errorf("got %q", got)
	}
	if got := disk.FullLine("LOG:  starting\n"); got != "" {
		t.Errorf("got %q for a log without such a report", got)
	}
}
