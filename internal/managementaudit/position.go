package managementaudit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// position is a place in an audit log: the next byte to read of a file. A file is identified by its inode and by its first bytes,
// because another file can get the inode of a removed one.
type position struct {
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
	// Head is the hash of the first bytes, at most headSize and at most Offset.
	Head string `json:"head,omitempty"`
}

// headSize is the number of bytes that identify a file. The first event of each file has another audit ID.
const headSize = 256

// headOf returns the hash of the first bytes of a file.
func headOf(file io.ReaderAt, offset int64) (string, error) {
	head := make([]byte, min(offset, headSize))
	if _, err := file.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(head)), nil
}

// loadPosition returns the stored position, and the zero position if there is none.
func loadPosition(path string) (position, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return position{}, nil
	}
	var p position
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return position{}, fmt.Errorf("reading the position in the audit log: %w", err)
	}
	return p, nil
}

// save stores a position durably, in one step.
func (p position) save(path string) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(path), ".position-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.Write(text)
	if err := errors.Join(err, part.Sync(), part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}

func inodeOf(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}
