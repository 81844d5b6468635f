package durable

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
	part, err := os.CreateTemp(filepath.Dir(path), ".part-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	_, err = part.Write(content)
	if err := errors.Join(err, part.Chmod(mode), part.Sync(), part.Close()); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return err
	}
	return Path(filepath.Dir(path))
}
