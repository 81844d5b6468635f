package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

func TestStoreOnAFullDiskIsNotHealthy(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		s, err := Open(filepath.Join(dir, "azure.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Healthy(t.Context()); err != nil {
			t.Fatal(err)
		}
		filler := smalldisk.Fill(t, dir)
		if err := s.Healthy(t.Context()); !errors.Is(err, disk.ErrFull) {
			t.Errorf("on a full disk: %v", err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if err := s.Healthy(t.Context()); err != nil {
			t.Errorf("after space was freed: %v", err)
		}
	})
}
