// Package durable makes changes of files survive a crash of the machine.
package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Data makes the content and the size of a file durable, and not its times.
func Data(file *os.File) error {
	for {
		if err := unix.Fdatasync(int(file.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Path makes a file durable. Of a folder, it makes the creation, renaming and removal of its files durable.
func Path(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
