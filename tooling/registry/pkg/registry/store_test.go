package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func open(t *testing.T, dir string) *registry.Store {
	t.Helper()
	return must.Get(registry.Open(dir))(t)
}

// putBlob stores a blob.
func putBlob(s *registry.Store, repository string, text []byte) error {
	u, err := s.Begin(repository, now)
	if err != nil {
		return err
	}
	if _, err := u.Append(bytes.NewReader(text), -1, now); err != nil {
		s.Cancel(u)
		return err
	}
	return s.Commit(u, registry.DigestOf(text))
}

const (
	imageType = "application/vnd.oci.image.manifest.v1+json"
	indexType = "application/vnd.oci.image.index.v1+json"
)

// image returns a manifest with a configuration and one layer.
func image(config, layer, more string) []byte {
	return fmt.Appendf(nil, `{"schemaVersion": 2, "mediaType": %q, "config": {"mediaType": "application/x", "digest": %q, "size": %d}, "layers": [{"mediaType": "application/y", "digest": %q, "size": %d}]%s}`,
		imageType, registry.DigestOf([]byte(config)), len(config), registry.DigestOf([]byte(layer)), len(layer), more)
}

func TestContentSurvivesARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, text := range []string{"config", "layer"} {
		must.Do(t, putBlob(s, "a/b", []byte(text)))
	}
	unfinished := must.Get(s.Begin("a/b", now))(t)
	must.Get(unfinished.Append(strings.NewReader("part"), -1, now))(t)
	manifest := image("config", "layer", "")
	must.Get(s.PutManifest("a/b", "v1", imageType, manifest))(t)
	referrer := image("config", "layer", `, "artifactType": "application/z", "subject": {"mediaType": "x", "digest": "`+registry.DigestOf(manifest)+`", "size": 1}`)
	must.Get(s.PutManifest("a/b", registry.DigestOf(referrer), imageType, referrer))(t)

	s = open(t, dir)
	for _, reference := range []string{"v1", registry.DigestOf(manifest)} {
		if m, err := s.Manifest("a/b", reference); err != nil || !bytes.Equal(m.Text, manifest) || m.MediaType != imageType || m.Digest != registry.DigestOf(manifest) {
			t.Errorf("%s: %+v, %v", reference, m, err)
		}
	}
	if tags, more, err := s.Tags("a/b", "", -1); err != nil || more || len(tags) != 1 || tags[0] != "v1" {
		t.Errorf("%v, %v, %v", tags, more, err)
	}
	if found, err := s.Referrers("a/b", registry.DigestOf(manifest), ""); err != nil || len(found) != 1 || found[0].Digest != registry.DigestOf(referrer) || found[0].ArtifactType != "application/z" {
		t.Errorf("%+v, %v", found, err)
	}
	if found, err := s.Referrers("a/b", registry.DigestOf(manifest), "application/other"); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	file := must.Get(s.Blob(registry.DigestOf([]byte("layer"))))(t)
	defer file.Close()
	if text, err := io.ReadAll(file); err != nil || string(text) != "layer" {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := s.Upload("a/b", unfinished.ID); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the upload of the earlier process: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "uploads")); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

func TestWrongContentIsRefused(t *testing.T) {
	s := open(t, t.TempDir())
	for _, text := range []string{"config", "layer"} {
		must.Do(t, putBlob(s, "a", []byte(text)))
	}
	u := must.Get(s.Begin("a", now))(t)
	must.Get(u.Append(strings.NewReader("corrupted"), 0, now))(t)
	if err := s.Commit(u, registry.DigestOf([]byte("other"))); !errors.Is(err, registry.ErrDigest) {
		t.Errorf("a blob with another digest: %v", err)
	}
	if _, err := s.Blob(registry.DigestOf([]byte("other"))); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the blob is stored: %v", err)
	}
	good := image("config", "layer", "")
	for reason, c := range map[string]struct {
		reference, mediaType string
		text                 []byte
		want                 error
	}{
		"another digest":          {registry.DigestOf([]byte("x")), imageType, good, registry.ErrDigest},
		"a bad reference":         {"a/b", imageType, good, registry.ErrName},
		"no JSON":                 {"v1", imageType, []byte("{"), registry.ErrManifest},
		"another media type":      {"v1", indexType, good, registry.ErrManifest},
		"an unknown media type":   {"v1", "text/plain", good, registry.ErrManifest},
		"no configuration":        {"v1", imageType, []byte(`{"schemaVersion": 2}`), registry.ErrManifest},
		"schema version 1":        {"v1", imageType, []byte(`{"schemaVersion": 1}`), registry.ErrManifest},
		"a missing layer":         {"v1", imageType, image("config", "missing", ""), registry.ErrReference},
		"a missing configuration": {"v1", imageType, image("missing", "layer", ""), registry.ErrReference},
		"a layer of another size": {"v1", imageType, bytes.Replace(good, []byte(`"size": 5`), []byte(`"size": 6`), 1), registry.ErrReference},
		"a path for a digest":     {"v1", imageType, bytes.Replace(good, []byte(registry.DigestOf([]byte("layer"))), []byte("sha256:../../x"), 1), registry.ErrManifest},
		"a missing manifest": {"v1", indexType, fmt.Appendf(nil, `{"schemaVersion": 2, "manifests": [{"mediaType": %q, "digest": %q, "size": %d}]}`, imageType, registry.DigestOf(good), len(good)),
			registry.ErrReference},
		"too large": {"v1", imageType, make([]byte, registry.MaxManifest+1), registry.ErrManifest},
	} {
		if _, err := s.PutManifest("a", c.reference, c.mediaType, c.text); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", reason, err, c.want)
		}
	}
	if _, err := s.Manifest("a", "v1"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("a refused manifest is stored: %v", err)
	}
	for _, name := range []string{"", "A", "../a", "a/../b", "a//b", "_tags", "a/_tags", "/a", strings.Repeat("a/", 200) + "a"} {
		if err := putBlob(s, name, []byte("x")); !errors.Is(err, registry.ErrName) {
			t.Errorf("the repository %q: %v", name, err)
		}
	}
}

func TestUploadInParts(t *testing.T) {
	s := open(t, t.TempDir())
	u := must.Get(s.Begin("a", now))(t)
	if size, err := u.Append(strings.NewReader("one"), 0, now); err != nil || size != 3 {
		t.Fatal(size, err)
	}
	if _, err := u.Append(strings.NewReader("x"), 4, now); !errors.Is(err, registry.ErrRange) {
		t.Errorf("a part after a gap: %v", err)
	}
	// The connection is cut: what arrived remains, and the client continues after it.
	cut := errors.New("cut")
	if size, err := u.Append(io.MultiReader(strings.NewReader("tw"), failing{cut}), 3, now); !errors.Is(err, cut) || size != 5 {
		t.Errorf("%d, %v", size, err)
	}
	if size, err := u.Append(strings.NewReader("o"), 5, now); err != nil || size != 6 {
		t.Errorf("%d, %v", size, err)
	}
	if _, err := s.Upload("b", u.ID); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("an upload of another repository: %v", err)
	}
	must.Do(t, s.Commit(u, registry.DigestOf([]byte("onetwo"))))
	if err := s.Commit(u, registry.DigestOf([]byte("onetwo"))); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the second commit: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestUploadsAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	begin := func(at time.Time) (n int) {
		for {
			if _, err := s.Begin("a", at); errors.Is(err, registry.ErrUploads) {
				return n
			} else if err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
	if n := begin(now); n != 1000 {
		t.Errorf("%d uploads", n)
	}
	if n := begin(now.Add(2 * time.Hour)); n != 1000 {
		t.Errorf("%d uploads after the idle ones ended", n)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "uploads")); err != nil || len(entries) != 1000 {
		t.Errorf("%d files, %v", len(entries), err)
	}
}

func TestFullDisk(t *testing.T) {
	smalldisk.Run(t, 4<<20, func(t *testing.T, dir string) {
		s := open(t, filepath.Join(dir, "registry"))
		must.Do(t, putBlob(s, "a", []byte("config")))
		must.Do(t, putBlob(s, "a", []byte("layer")))
		filler := smalldisk.Fill(t, dir)
		large := bytes.Repeat([]byte("x"), 1<<20)
		if err := putBlob(s, "a", large); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a blob on a full disk: %v", err)
		}
		if _, err := s.PutManifest("a", "v1", imageType, image("config", "layer", "")); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a manifest on a full disk: %v", err)
		}
		if _, err := s.Manifest("a", "v1"); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("the manifest is stored: %v", err)
		}
		must.Do(t, os.Remove(filler))
		if err := putBlob(s, "a", large); err != nil {
			t.Errorf("a blob when there is space: %v", err)
		}
		if _, err := s.PutManifest("a", "v1", imageType, image("config", "layer", "")); err != nil {
			t.Errorf("a manifest when there is space: %v", err)
		}
	})
}
