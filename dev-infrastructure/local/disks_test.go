package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

// TestDiskOfAProcessThatReportsAFullDisk checks the moment in which etcd, which starts again, has removed a file of a full disk.
func TestDiskOfAProcessThatReportsAFullDisk(t *testing.T) {
	const message = "the disk is full: 0 of 4 MiB are free"
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		region := filepath.Join(dir, "region")
		etcd := filepath.Join(region, "etcd")
		must.Do(t, os.MkdirAll(etcd, 0o700))
		for name, test := range map[string]struct {
			process ProcessStatus
			full    bool
		}{
			"a full disk":                {ProcessStatus{DataDir: etcd, Message: message}, true},
			"another cause":              {ProcessStatus{DataDir: etcd, Message: "does not accept connections"}, false},
			"data in another folder":     {ProcessStatus{DataDir: region + "-2/etcd", Message: message}, false},
			"a process that has no data": {ProcessStatus{Message: message}, false},
		} {
			spaces := disks([]string{region}, []ProcessStatus{test.process})
			if len(spaces) != 1 || spaces[0].Full != test.full {
				t.Errorf("%s: %+v, want full = %t", name, spaces, test.full)
			}
		}
	})
}
