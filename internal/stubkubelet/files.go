package stubkubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// fileSystem is the file system of a simulated container, in memory. It has folders and regular files only. It is safe for concurrent use.
type fileSystem struct {
	total *budget

	mu      sync.Mutex
	used    int64
	closed  bool
	entries map[string]*entry // by clean absolute path
}

// entry is a file or a folder. Its content is never changed, only replaced.
type entry struct {
	folder  bool
	content []byte
	mode    fs.FileMode
	time    time.Time
}

var (
	errNotFound  = errors.New("no such file or directory")
	errExists    = errors.New("file exists")
	errIsFolder  = errors.New("is a directory")
	errNotFolder = errors.New("not a directory")
	errNotEmpty  = errors.New("directory not empty")
	errNoSpace   = fmt.Errorf("no space left on device (a simulated container has at most %d bytes)", MaxFileBytes)
	errClosed    = errors.New("the pod is gone")
)

// newFileSystem returns the files of a new container. total is the budget of all containers.
func newFileSystem(total *budget, object *corev1.Pod) *fileSystem {
	f := &fileSystem{total: total, entries: map[string]*entry{"/": {folder: true, mode: 0o755, time: object.CreationTimestamp.Time}}}
	now := object.CreationTimestamp.Time
	for _, folder := range []string{"/etc", "/root", "/tmp"} {
		_ = f.mkdir(folder, 0o755, now) // too small for the limits, and if not, the folder is missing
	}
	for name, text := range map[string]string{
		"/etc/hostname":   object.Name + "\n",
		"/etc/os-release": "ID=hcpmesh-simulated\nNAME=\"Simulated container of hcpmesh\"\n",
	} {
		_ = f.write(name, []byte(text), 0o644, now)
	}
	return f
}

// close deletes all files.
func (f *fileSystem) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.total.take(-f.used)
	f.closed, f.used, f.entries = true, 0, map[string]*entry{}
}

// reserve changes the used bytes by n. The caller holds the lock.
func (f *fileSystem) reserve(n int64) error {
	if n > 0 && f.used+n > MaxFileBytes || !f.total.take(n) {
		return errNoSpace
	}
	f.used += n
	return nil
}

// write replaces or creates a file whose folder exists. It keeps content.
func (f *fileSystem) write(name string, content []byte, mode fs.FileMode, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.parent(name); err != nil {
		return err
	}
	size := int64(len(content))
	existing := f.entries[name]
	switch {
	case existing == nil:
		size += fileOverhead + int64(len(name))
	case existing.folder:
		return errIsFolder
	default:
		size -= int64(len(existing.content))
	}
	if err := f.reserve(size); err != nil {
		return err
	}
	f.entries[name] = &entry{content: content, mode: mode.Perm(), time: now}
	return nil
}

// parent checks that the folder of a name exists. The caller holds the lock.
func (f *fileSystem) parent(name string) error {
	if f.closed {
		return errClosed
	}
	switch parent := f.entries[path.Dir(name)]; {
	case parent == nil:
		return errNotFound
	case !parent.folder:
		return errNotFolder
	}
	return nil
}

// mkdir creates a folder whose parent exists.
func (f *fileSystem) mkdir(name string, mode fs.FileMode, now time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries[name] != nil {
		return errExists
	}
	if err := f.parent(name); err != nil {
		return err
	}
	if err := f.reserve(fileOverhead + int64(len(name))); err != nil {
		return err
	}
	f.entries[name] = &entry{folder: true, mode: mode.Perm(), time: now}
	return nil
}

// mkdirAll creates a folder and its missing parents.
func (f *fileSystem) mkdirAll(name string, mode fs.FileMode, now time.Time) error {
	if existing, err := f.stat(name); err == nil {
		if !existing.folder {
			return errExists
		}
		return nil
	}
	if err := f.mkdirAll(path.Dir(name), mode, now); err != nil {
		return err
	}
	if err := f.mkdir(name, mode, now); err != nil && !errors.Is(err, errExists) {
		return err
	}
	return nil
}

// stat returns a file or folder.
func (f *fileSystem) stat(name string) (entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch found := f.entries[name]; {
	case f.closed:
		return entry{}, errClosed
	case found != nil:
		return *found, nil
	}
	return entry{}, errNotFound
}

// read returns the content of a file, which the caller must not change.
func (f *fileSystem) read(name string) ([]byte, error) {
	found, err := f.stat(name)
	if err != nil {
		return nil, err
	}
	if found.folder {
		return nil, errIsFolder
	}
	return found.content, nil
}

// below returns the paths below a folder in lexical order: only the direct ones, or all.
func (f *fileSystem) below(folder string, all bool) []string {
	prefix := strings.TrimSuffix(folder, "/") + "/"
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f.entries)) {
		rest, ok := strings.CutPrefix(name, prefix)
		if ok && rest != "" && (all || !strings.Contains(rest, "/")) {
			names = append(names, name)
		}
	}
	return names
}

// remove removes a file, or with recursive a folder and everything below it.
func (f *fileSystem) remove(name string, recursive bool) error {
	found, err := f.stat(name)
	if err != nil {
		return err
	}
	below := f.below(name, true)
	switch {
	case name == "/":
		return errNotEmpty
	case found.folder && !recursive:
		return errIsFolder
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, victim := range append(below, name) {
		existing := f.entries[victim]
		if existing == nil {
			continue
		}
		delete(f.entries, victim)
		size := fileOverhead + int64(len(victim)) + int64(len(existing.content))
		f.used -= size
		f.total.take(-size)
	}
	return nil
}
