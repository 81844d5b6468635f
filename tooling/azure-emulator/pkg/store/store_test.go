package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

func TestStoreOnAFullDiskIsNotHealthy(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		s := must.Get(Open(filepath.Join(dir, "azure.db")))(t)
		defer s.Close()
		must.Do(t, s.Healthy(t.Context()))
		filler := smalldisk.Fill(t, dir)
		if err := s.Healthy(t.Context()); !errors.Is(err, disk.ErrFull) {
			t.Errorf("on a full disk: %v", err)
		}
		must.Do(t, os.Remove(filler))
		if err := s.Healthy(t.Context()); err != nil {
			t.Errorf("after space was freed: %v", err)
		}
	})
}
