package diskspace_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/diskspace"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

func TestFullDiskIsReported(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		if err := diskspace.Check(dir); err != nil {
			t.Fatalf("an empty disk: %v", err)
		}
		filler := smalldisk.Fill(t, dir)
		err := diskspace.Check(dir)
		if !errors.Is(err, diskspace.ErrFull) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "0 of 4 MiB") {
			t.Errorf("a full disk: %v", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "one-more"), make([]byte, 64<<10), 0o600); !diskspace.IsFull(err) {
			t.Errorf("a write to a full disk: %v", err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := diskspace.Check(dir); err != nil {
			t.Errorf("after space was freed: %v", err)
		}
	})
}

func TestDiskWithoutFreeFilesIsFull(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		smalldisk.UseUpFiles(t, dir)
		if err := diskspace.Check(dir); !errors.Is(err, diskspace.ErrFull) {
			t.Errorf("a disk without free inodes: %v", err)
		}
	})
}

func TestSpaceOfMissingFolderIsAnError(t *testing.T) {
	if err := diskspace.Check(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestLineFindsTheReportOfAFullDisk(t *testing.T) {
	log := "LOG:  starting\nPANIC:  could not write to file \"pg_wal/xlogtemp.1\": No space left on device\nLOG:  terminating\n"
	if got := diskspace.Line(log); !strings.HasPrefix(got, "PANIC:") {
		t.Errorf("got %q", got)
	}
	if got := diskspace.Line("LOG:  starting\n"); got != "" {
		t.Errorf("got %q for a log without such a report", got)
	}
}
