package disk

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// A disk counts as full when less than the smaller of reserve, in bytes, and a fraction of 1/reserveFraction of its size is
// available: the databases of a region allocate their files in steps of up to 64 MiB.
const (
	reserve         = 64 << 20
	reserveFraction = 20
)

// Space is the space of the file system that contains a folder.
type Space struct {
	// Dir is the folder.
	Dir string `json:"dir"`
	// FreeBytes are available to unprivileged users. TotalBytes is the size of the file system.
	FreeBytes  int64 `json:"freeBytes"`
	TotalBytes int64 `json:"totalBytes"`
	// Full reports whether the space, or the number of files, is exhausted.
	Full bool `json:"full"`
}

// String describes the space, for example "0 of 512 MiB are free on the disk of /data".
func (s Space) String() string {
	return fmt.Sprintf("%d of %d MiB are free on the disk of %s", s.FreeBytes>>20, s.TotalBytes>>20, s.Dir)
}

// SpaceOf returns the space of a folder.
func SpaceOf(dir string) (Space, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return Space{}, fmt.Errorf("reading the free space of %s: %w", dir, err)
	}
	block := int64(stat.Bsize)
	space := Space{Dir: dir, FreeBytes: int64(stat.Bavail) * block, TotalBytes: int64(stat.Blocks) * block}
	// Some file systems do not limit the number of files and report 0.
	noFiles := stat.Files > 0 && stat.Ffree == 0
	space.Full = noFiles || space.FreeBytes < min(reserve, space.TotalBytes/reserveFraction)
	return space, nil
}

// CheckSpace returns an error if the disk of a folder is full, or if its space cannot be read.
func CheckSpace(dir string) error {
	space, err := SpaceOf(dir)
	if err != nil {
		return err
	}
	if space.Full {
		return fmt.Errorf("%w: %s", ErrFull, space)
	}
	return nil
}

// ErrFull is the error for a full disk.
var ErrFull = errors.New("the disk is full")

// messages are the texts of the errors of a full disk in logs (strerror(3): ENOSPC, EDQUOT).
var messages = []string{"no space left on device", "disk quota exceeded"}

// IsFull reports whether an error is that of a full disk.
func IsFull(err error) bool {
	return errors.Is(err, ErrFull) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// FullLine returns the last line of a log that reports a full disk, or the empty string.
func FullLine(log string) string {
	found := ""
	for line := range strings.Lines(log) {
		lower := strings.ToLower(line)
		for _, message := range messages {
			if strings.Contains(lower, message) {
				found = strings.TrimSpace(line)
			}
		}
	}
	return found
}
