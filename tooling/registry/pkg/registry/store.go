package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// MaxManifest is the maximum size of a manifest in bytes, as the OCI specification recommends.
const MaxManifest = 4 << 20

// The forms of names. They exclude every path out of the folder of the store.
var (
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm        = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	digestForm     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// maxRepository is the maximum length of the name of a repository.
const maxRepository = 255

// Errors of the store. Callers compare them with errors.Is.
var (
	// ErrNotFound means that the store has no such object.
	ErrNotFound = errors.New("not found")
	// ErrName means that a name or a digest has another form.
	ErrName = errors.New("invalid name")
	// ErrDigest means that content has another digest.
	ErrDigest = errors.New("the content has another digest")
	// ErrManifest means that a manifest is invalid.
	ErrManifest = errors.New("invalid manifest")
	// ErrReference means that a manifest refers to content that the store does not have.
	ErrReference = errors.New("the manifest refers to unknown content")
	// ErrRange means that a part of an upload does not begin where the upload ends.
	ErrRange = errors.New("the part does not begin where the upload ends")
	// ErrUploads means that there are too many uploads in progress.
	ErrUploads = errors.New("too many uploads in progress")
)

// Store is the content of a registry. It is safe for concurrent use. One process uses a folder at a time.
type Store struct {
	dir string

	mu      sync.Mutex
	uploads map[string]*Upload
}

// Open opens a folder and creates it if necessary. Uploads of an earlier process are removed.
func Open(dir string) (*Store, error) {
	s := &Store{dir: dir, uploads: map[string]*Upload{}}
	if err := os.RemoveAll(s.path("uploads")); err != nil {
		return nil, err
	}
	for _, folder := range []string{"blobs/sha256", "uploads", "repositories"} {
		if err := os.MkdirAll(s.path(folder), 0o755); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Store) path(elements ...string) string {
	return filepath.Join(s.dir, filepath.FromSlash(strings.Join(elements, "/")))
}

func (s *Store) blob(digest string) string { return s.path("blobs/sha256", hexOf(digest)) }

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// DigestOf returns the digest of a text.
func DigestOf(text []byte) string {
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// CheckRepository returns an error unless the name is that of a repository.
func CheckRepository(name string) error {
	if len(name) > maxRepository || !repositoryForm.MatchString(name) {
		return fmt.Errorf("repository: %w: %.300q", ErrName, name)
	}
	return nil
}

func checkDigest(digest string) error {
	if !digestForm.MatchString(digest) {
		return fmt.Errorf("digest: %w: %.100q is not sha256 with 64 hexadecimal digits", ErrName, digest)
	}
	return nil
}

// Blob opens a blob. The caller closes the file.
func (s *Store) Blob(digest string) (*os.File, error) {
	if err := checkDigest(digest); err != nil {
		return nil, err
	}
	file, err := os.Open(s.blob(digest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s: %w", digest, ErrNotFound)
	}
	return file, err
}

// has reports whether the store has a blob of a size.
func (s *Store) has(d Descriptor) (bool, error) {
	info, err := os.Stat(s.blob(d.Digest))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() == d.Size, err
}

// write replaces a file as a whole and creates its folder.
func (s *Store) write(path string, text []byte) error {
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	file, err := os.CreateTemp(s.path("uploads"), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = io.Copy(file, bytes.NewReader(text))
	if err = errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		return err
	}
	return moveInto(file.Name(), path)
}

// moveInto gives a complete file its name. After a crash of the machine it has either the old or the new name.
func moveInto(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return disk.Sync(filepath.Dir(to))
}

// makeFolder creates a folder and its parents, and makes their names durable.
func makeFolder(folder string) error {
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	if err := makeFolder(filepath.Dir(folder)); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return disk.Sync(filepath.Dir(folder))
}

func writeJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // only the store's own types are written
	}
	return text
}
