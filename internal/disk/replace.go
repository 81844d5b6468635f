package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace replaces a file, or creates it, in one step. A reader sees the previous content or the new one, also after a crash of the machine;
// after Replace has returned nil, it sees the new one. If Replace fails, the file has the previous content, or the new one if only the folder
// cannot be made durable.
func Replace(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, os.Rename)
}

// Create is Replace for a new file. If the file exists, Create returns an error that wraps fs.ErrExist. If several processes create the file at once,
// one of them succeeds.
func Create(path string, content []byte, mode fs.FileMode) error {
	return write(path, content, mode, os.Link)
}

// write writes another file in the folder, and gives it the path with place when it is complete.
func write(path string, content []byte, mode fs.FileMode, place func(part, path string) error) error {
	part, err := os.CreateTemp(filepath.Dir(path), ".part-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.Write(content)
	if err := errors.Join(err, part.Chmod(mode), part.Sync(), part.Close()); err != nil {
		return err
	}
	if err := place(part.Name(), path); err != nil {
		return err
	}
	return Sync(filepath.Dir(path))
}
