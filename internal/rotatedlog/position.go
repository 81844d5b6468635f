package rotatedlog

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Position is a place in a log: the next byte to read of a file. A file is identified by its inode and by its first bytes, because another
// file can get the inode of a removed one. The zero Position is the beginning of the oldest file.
type Position struct {
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
	// Head is the hash of the first bytes, at most headSize and at most Offset.
	Head string `json:"head,omitempty"`
}

// headSize is the number of bytes that identify a file.
const headSize = 256

// headOf returns the hash of the first bytes of a file.
func headOf(file io.ReaderAt, offset int64) (string, error) {
	head := make([]byte, min(offset, headSize))
	if _, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(head)), nil
}

// Load returns the position that Save stored in a file, and the zero Position if there is no file.
func Load(path string) (Position, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Position{}, nil
	}
	var p Position
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return Position{}, fmt.Errorf("reading the position in a log: %w", err)
	}
	return p, nil
}

// Save stores the position durably, in one step.
func (p Position) Save(path string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return disk.Replace(path, text, 0o600)
}

func inodeOf(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}
