package content_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/content"
)

func TestLayerDependsOnItsFilesOnly(t *testing.T) {
	s := must.Get(content.Open(t.TempDir()))(t)
	onDisk := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(onDisk, []byte("text"), 0o600))
	layer := func(files ...content.File) content.Layer {
		t.Helper()
		return must.Get(s.Layer(files))(t)
	}
	a, b := content.File{Path: "x/a", Mode: 0o644, Text: []byte("text")}, content.File{Path: "b", Mode: 0o755, Text: []byte("other")}
	want := layer(a, b)
	if got := layer(b, content.File{Path: "x/a", Mode: 0o644, Source: onDisk}); got != want {
		t.Errorf("the same files in another order, from a file: %+v, %+v", got, want)
	}
	for reason, file := range map[string]content.File{"path": {Path: "a", Mode: 0o644, Text: a.Text}, "mode": {Path: "x/a", Mode: 0o755, Text: a.Text}, "text": {Path: "x/a", Mode: 0o644, Text: []byte("texts")}} {
		if got := layer(file, b); got.Digest == want.Digest {
			t.Errorf("a file with another %s has the same layer", reason)
		}
	}
	if _, err := s.Layer([]content.File{a, a}); err == nil || !strings.Contains(err.Error(), "two files x/a") {
		t.Errorf("a file twice: %v", err)
	}
	// A layer that was removed is compressed again, to the same digest.
	must.Do(t, os.Remove(s.Path(want.Digest)))
	if got := layer(a, b); got != want {
		t.Errorf("%+v, %+v", got, want)
	}
	if _, err := os.Stat(s.Path(want.Digest)); err != nil {
		t.Error(err)
	}
}

func TestWriteIndexRemovesOtherBlobs(t *testing.T) {
	dir := t.TempDir()
	s := must.Get(content.Open(dir))(t)
	image := func(text string) v1.Descriptor {
		t.Helper()
		layer := must.Get(s.Layer([]content.File{{Path: "a", Mode: 0o644, Text: []byte(text)}}))(t)
		config := must.Get(s.Put(types.OCIConfigJSON, []byte("{}")))(t)
		return must.Get(s.PutJSON(types.OCIManifestSchema1, v1.Manifest{SchemaVersion: 2, Config: config, Layers: []v1.Descriptor{layer.Descriptor()}}))(t)
	}
	old, kept := image("old"), image("new")
	unfinished := filepath.Join(s.Layout(), "blobs/sha256/.new-1")
	must.Do(t, os.WriteFile(unfinished, nil, 0o600))
	must.Do(t, s.WriteIndex([]v1.Descriptor{kept}))
	for _, file := range []string{s.Path(old.Digest), unfinished} {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "layers")); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
	if index, err := s.Index(); err != nil || len(index) != 1 || index[0].Digest != kept.Digest {
		t.Errorf("%+v, %v", index, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(unfinished)); err != nil || len(entries) != 3 {
		t.Errorf("%v, %v", entries, err)
	}
}
