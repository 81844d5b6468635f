package writer_test

import (
	"os"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

// TestFirstStartOnFullDisk creates a queue while the disk is full, and again when it is not.
func TestFirstStartOnFullDisk(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		r := newRegion(t, dir)
		filler := smalldisk.Fill(t, dir)
		if _, err := r.open(); !disk.IsFull(err) {
			t.Errorf("on a full disk: %v", err)
		}
		must.Do(t, os.Remove(filler))
		_, stop := r.start(t)
		stop()
	})
}
