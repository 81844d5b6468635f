package registry

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"
	"time"
)

// maxUploads is the maximum number of uploads in progress. Each has a file and some hundred bytes of memory.
const maxUploads = 1000

// maxIdle is the time after which an upload without requests is removed when another one begins.
const maxIdle = time.Hour

// Upload is a blob whose content arrives in parts. It is safe for concurrent use; parts are written one after the other.
type Upload struct {
	ID         string
	repository string

	mu   sync.Mutex
	file *os.File
	hash hash.Hash
	size int64
	used time.Time
}

// Begin begins an upload.
func (s *Store) Begin(repository string, now time.Time) (*Upload, error) {
	if err := CheckRepository(repository); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, u := range s.uploads {
		if u.mu.TryLock() { // an upload that is being written is in use
			if now.Sub(u.used) > maxIdle {
				u.discard()
				delete(s.uploads, id)
			}
			u.mu.Unlock()
		}
	}
	if len(s.uploads) >= maxUploads {
		return nil, ErrUploads
	}
	id := rand.Text()
	file, err := os.OpenFile(s.path("uploads", id), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	u := &Upload{ID: id, repository: repository, file: file, hash: sha256.New(), used: now}
	s.uploads[id] = u
	return u, nil
}

// Upload returns an upload in progress.
func (s *Store) Upload(repository, id string) (*Upload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.uploads[id]
	if u == nil || u.repository != repository {
		return nil, fmt.Errorf("upload %.50q: %w", id, ErrNotFound)
	}
	return u, nil
}

// Size returns the number of bytes that have arrived.
func (u *Upload) Size() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.size
}

// Append writes a part. start is the position of its first byte, or -1 for the end of the upload. If the content ends with an error, the
// upload has what arrived before.
func (u *Upload) Append(in io.Reader, start int64, now time.Time) (int64, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used = now
	if u.file == nil {
		return 0, fmt.Errorf("upload %s: %w", u.ID, ErrNotFound)
	}
	if start >= 0 && start != u.size {
		return u.size, fmt.Errorf("%w: %d and %d", ErrRange, start, u.size)
	}
	n, err := io.Copy(io.MultiWriter(u.file, u.hash), in)
	u.size += n
	if err == nil {
		return u.size, nil
	}
	// A write that failed may have written more than was counted, for example on a full disk.
	if _, seekErr := u.file.Seek(u.size, io.SeekStart); seekErr != nil {
		return u.size, errors.Join(err, seekErr)
	}
	return u.size, errors.Join(err, u.file.Truncate(u.size))
}

// discard removes the content. The caller holds the lock.
func (u *Upload) discard() {
	if u.file != nil {
		_ = u.file.Close()
		_ = os.Remove(u.file.Name())
		u.file = nil
	}
}

// Cancel ends an upload and removes its content.
func (s *Store) Cancel(u *Upload) {
	s.mu.Lock()
	delete(s.uploads, u.ID)
	s.mu.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.discard()
}

// Commit stores the content of an upload as a blob and ends the upload, in any case. It returns ErrDigest if the content has another
// digest.
func (s *Store) Commit(u *Upload, digest string) error {
	defer s.Cancel(u)
	if err := checkDigest(digest); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.file == nil {
		return fmt.Errorf("upload %s: %w", u.ID, ErrNotFound)
	}
	if got := "sha256:" + hex.EncodeToString(u.hash.Sum(nil)); got != digest {
		return fmt.Errorf("%w: %s and not %s", ErrDigest, got, digest)
	}
	if err := u.file.Sync(); err != nil {
		return err
	}
	return moveInto(u.file.Name(), s.blob(digest))
}
