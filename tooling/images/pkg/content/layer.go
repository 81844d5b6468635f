package content

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// File is a file of a layer.
type File struct {
	// Path is the path in the image, without a leading slash.
	Path string
	// Mode has the permissions. All files belong to root, so that programs cannot change them.
	Mode int64
	// Text is the content. If Source is set, it is the content of that file instead.
	Text   []byte
	Source string
}

// Layer is a compressed layer of the store.
type Layer struct {
	Digest v1.Hash `json:"digest"`
	Size   int64   `json:"size"`
	// DiffID is the digest of the layer before its compression.
	DiffID v1.Hash `json:"diffID"`
}

// Descriptor returns the descriptor of the layer in a manifest.
func (l Layer) Descriptor() v1.Descriptor {
	return v1.Descriptor{MediaType: types.OCILayer, Size: l.Size, Digest: l.Digest}
}

// Layer stores files as a layer, unless the store has the layer.
func (s *Store) Layer(files []File) (Layer, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	key, err := layerKey(files)
	if err != nil {
		return Layer{}, err
	}
	if layer, ok := s.cached(key); ok {
		return layer, nil
	}
	layer, err := s.compress(files)
	if err != nil {
		return Layer{}, err
	}
	text, err := json.Marshal(layer)
	if err != nil {
		return Layer{}, err
	}
	return layer, disk.Replace(s.cacheFile(key), text, 0o644)
}

func (s *Store) cacheFile(key string) string { return filepath.Join(s.layers, key+".json") }

// cached returns the layer for a key if the store has it.
func (s *Store) cached(key string) (Layer, bool) {
	text, err := os.ReadFile(s.cacheFile(key))
	if err != nil {
		return Layer{}, false
	}
	var layer Layer
	if err := json.Unmarshal(text, &layer); err != nil {
		return Layer{}, false
	}
	return layer, s.has(layer.Digest, layer.Size)
}

// layerKey returns a hash of everything on which a compressed layer depends.
func layerKey(files []File) (string, error) {
	all := sha256.New()
	fmt.Fprintln(all, "tar, gzip", runtime.Version())
	for i, file := range files {
		if i > 0 && files[i-1].Path == file.Path {
			return "", fmt.Errorf("the layer has two files %s", file.Path)
		}
		one := sha256.New()
		if err := file.copy(one); err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%q %o %x\n", file.Path, file.Mode, one.Sum(nil))
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

// copy writes the content of the file.
func (f File) copy(out io.Writer) error {
	in, _, err := f.open()
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, in)
	return err
}

func (f File) open() (io.ReadCloser, int64, error) {
	if f.Source == "" {
		return io.NopCloser(bytes.NewReader(f.Text)), int64(len(f.Text)), nil
	}
	in, err := os.Open(f.Source)
	if err != nil {
		return nil, 0, err
	}
	info, err := in.Stat()
	if err != nil {
		in.Close()
		return nil, 0, err
	}
	return in, info.Size(), nil
}

// compress writes a layer to the store.
func (s *Store) compress(files []File) (Layer, error) {
	file, err := os.CreateTemp(s.blobs(), ".new-*")
	if err != nil {
		return Layer{}, err
	}
	defer os.Remove(file.Name())
	compressed, plain := sha256.New(), sha256.New()
	count := &counter{}
	zip := gzip.NewWriter(io.MultiWriter(file, compressed, count))
	err = writeTar(io.MultiWriter(zip, plain), files)
	if err = errors.Join(err, zip.Close(), file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		return Layer{}, err
	}
	layer := Layer{Digest: sum(compressed), Size: count.n, DiffID: sum(plain)}
	return layer, os.Rename(file.Name(), s.Path(layer.Digest))
}

func sum(h hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// writeTar writes files with their folders. Owners and times are always the same.
func writeTar(out io.Writer, files []File) error {
	archive := tar.NewWriter(out)
	written := map[string]bool{".": true}
	for _, file := range files {
		if err := writeFolders(archive, path.Dir(file.Path), written); err != nil {
			return err
		}
		in, size, err := file.open()
		if err != nil {
			return err
		}
		err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file.Path, Mode: file.Mode, Size: size, Format: tar.FormatPAX})
		if err == nil {
			_, err = io.Copy(archive, in)
		}
		if err = errors.Join(err, in.Close()); err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	return archive.Close()
}

func writeFolders(archive *tar.Writer, folder string, written map[string]bool) error {
	if written[folder] {
		return nil
	}
	if err := writeFolders(archive, path.Dir(folder), written); err != nil {
		return err
	}
	written[folder] = true
	return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, Format: tar.FormatPAX})
}
