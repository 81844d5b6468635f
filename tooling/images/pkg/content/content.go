// Package content stores the content of images: an OCI image layout with layers, documents and an index. A file of the store is complete or
// does not exist, so a build that was interrupted continues. Layers are compressed once for their files; two builds of the same files with
// the same Go toolchain have the same layer.
package content

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// Store is a folder with the image layout and the list of compressed layers. One process writes it at a time.
type Store struct {
	layout, layers string
}

// Open opens a store and creates its folders. The image layout is the folder layout in dir.
func Open(dir string) (*Store, error) {
	s := &Store{layout: filepath.Join(dir, "layout"), layers: filepath.Join(dir, "layers")}
	for _, folder := range []string{s.blobs(), s.layers} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	return s, disk.Replace(filepath.Join(s.layout, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`+"\n"), 0o644)
}

// Layout returns the folder of the image layout.
func (s *Store) Layout() string { return s.layout }

func (s *Store) blobs() string { return filepath.Join(s.layout, "blobs", "sha256") }

// Path returns the file of a blob.
func (s *Store) Path(digest v1.Hash) string { return filepath.Join(s.blobs(), digest.Hex) }

// Read returns a small blob, such as a manifest.
func (s *Store) Read(digest v1.Hash) ([]byte, error) { return os.ReadFile(s.Path(digest)) }

// has reports whether the store has a blob with a size.
func (s *Store) has(digest v1.Hash, size int64) bool {
	info, err := os.Stat(s.Path(digest))
	return err == nil && info.Size() == size
}

// Put stores a document and returns its descriptor.
func (s *Store) Put(mediaType types.MediaType, text []byte) (v1.Descriptor, error) {
	sum := sha256.Sum256(text)
	d := v1.Descriptor{MediaType: mediaType, Size: int64(len(text)), Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}}
	if s.has(d.Digest, d.Size) {
		return d, nil
	}
	return d, disk.Replace(s.Path(d.Digest), text, 0o644)
}

// PutJSON stores a document as JSON and returns its descriptor.
func (s *Store) PutJSON(mediaType types.MediaType, value any) (v1.Descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return s.Put(mediaType, text)
}

// WriteIndex replaces the index of the layout, and removes the blobs and layers that neither it nor its manifests need.
func (s *Store) WriteIndex(manifests []v1.Descriptor) error {
	text, err := json.MarshalIndent(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: manifests}, "", "  ")
	if err != nil {
		return err
	}
	if err := disk.Replace(filepath.Join(s.layout, "index.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return s.collect(manifests)
}

// Index returns the manifests of the layout's index.
func (s *Store) Index() ([]v1.Descriptor, error) {
	text, err := os.ReadFile(filepath.Join(s.layout, "index.json"))
	if err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(s.layout, "index.json"), err)
	}
	return index.Manifests, nil
}

func (s *Store) collect(manifests []v1.Descriptor) error {
	keep := map[string]bool{}
	for _, d := range manifests {
		text, err := s.Read(d.Digest)
		if err != nil {
			return err
		}
		manifest, err := v1.ParseManifest(bytes.NewReader(text))
		if err != nil {
			return fmt.Errorf("%s: %w", s.Path(d.Digest), err)
		}
		keep[d.Digest.Hex], keep[manifest.Config.Digest.Hex] = true, true
		for _, layer := range manifest.Layers {
			keep[layer.Digest.Hex] = true
		}
	}
	if err := removeOthers(s.blobs(), func(name string) bool { return keep[name] }); err != nil {
		return err
	}
	return removeOthers(s.layers, func(name string) bool {
		layer, ok := s.cached(strings.TrimSuffix(name, ".json"))
		return ok && keep[layer.Digest.Hex]
	})
}

// removeOthers removes the files of a folder that are not to be kept. Unfinished files of an interrupted build are among them.
func removeOthers(folder string, keep func(name string) bool) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if keep(entry.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(folder, entry.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
