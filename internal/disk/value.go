package disk

import (
	"os"
	"sync"
)

// Value is a value that is read from files that are replaced while a process runs, as Istio, the Secrets Store CSI driver and the supervisor
// of a local region do. The files are compared before each use, which costs some microseconds. So a use that begins after a replacement has
// its content, and a process needs neither a restart nor a watch. It is safe for concurrent use.
type Value[T any] struct {
	files []string
	read  func() (T, error)

	mu sync.Mutex
	// seen are the files before value was read from them, so that a replacement during the read is noticed by the next call.
	seen  []os.FileInfo
	value T
}

// NewValue reads a value. read reads it from the files. NewValue returns the error of read.
func NewValue[T any](read func() (T, error), files ...string) (*Value[T], error) {
	v := &Value[T]{files: files, read: read}
	v.seen = v.stat()
	var err error
	v.value, err = read()
	return v, err
}

// Current returns the value of the current files. While a replacement is incomplete or invalid, it returns the previous value.
func (v *Value[T]) Current() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.stat()
	if sameFiles(now, v.seen) {
		return v.value
	}
	if value, err := v.read(); err == nil {
		v.value, v.seen = value, now
	}
	return v.value
}

// stat returns an entry for each file, which is nil if the file cannot be read.
func (v *Value[T]) stat() []os.FileInfo {
	infos := make([]os.FileInfo, len(v.files))
	for i, file := range v.files {
		if info, err := os.Stat(file); err == nil {
			infos[i] = info
		}
	}
	return infos
}

// sameFiles reports whether the files are the same and were not written. A replacement can be older than its predecessor.
func sameFiles(a, b []os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			return false
		}
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}
