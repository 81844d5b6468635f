// Package disk makes changes of files and folders survive a crash of the machine, reads values from files that are replaced, and finds out
// whether the disk of a folder is full.
//
// Databases report a full disk late and in different ways: they terminate, reject writes or keep serving reads. Readiness checks and the
// supervisor of a local region ask the file system instead, and name the disk as the cause.
package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// SyncData makes the content and the size of a file durable, and not its times.
func SyncData(file *os.File) error {
	for {
		if err := unix.Fdatasync(int(file.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Sync makes a file durable. Of a folder, it makes the creation, renaming and removal of its files durable.
func Sync(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
