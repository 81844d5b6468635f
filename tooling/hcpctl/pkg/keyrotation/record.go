package keyrotation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Step is a step of a rotation.
type Step string

// The steps of a rotation, in their order.
const (
	// Adding: the keyset has or gets the new key, and the replicas read it.
	Adding Step = "Adding"
	// Promoting: the new key is or becomes the primary key, and the replicas read that.
	Promoting Step = "Promoting"
	// Waiting: all replicas use the new key. Values of the former key are in use.
	Waiting Step = "Waiting"
	// Removing: nothing needs the former key. It is removed, and the replicas read that.
	Removing Step = "Removing"
)

// record is a rotation that has begun. It contains no keys.
type record struct {
	Kind string `json:"kind"`
	Step Step   `json:"step"`
	// Former is the key that is replaced.
	Former uint32 `json:"former"`
	// Next is the new key; 0 until it was added.
	Next uint32 `json:"next,omitempty"`
	// Since is when all replicas used the new key.
	Since time.Time `json:"since,omitzero"`
}

// recordFile returns the file of the record of a keyset.
func recordFile(keyset string) string { return keyset + ".rotation" }

// InProgress reports whether a rotation of a keyset has begun and not ended.
func InProgress(keyset string) (bool, error) {
	found, err := readRecord(keyset)
	return found != nil, err
}

// readRecord returns the record of a keyset, or nil if no rotation is in progress.
func readRecord(keyset string) (*record, error) {
	path := recordFile(keyset)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("%s is not the record of a rotation: %w", path, err)
	}
	switch r.Step {
	case Adding, Promoting, Waiting, Removing:
		return &r, nil
	}
	return nil, fmt.Errorf("%s: step: %q is unknown", path, r.Step)
}

// write replaces the record of a keyset.
func (r *record) write(keyset string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := disk.Replace(recordFile(keyset), content, 0o600); err != nil {
		return fmt.Errorf("recording the rotation: %w", err)
	}
	return nil
}
