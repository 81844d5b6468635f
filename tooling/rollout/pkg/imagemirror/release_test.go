package imagemirror

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// pushRelease stores a release that consists of one image.
func (w *world) pushRelease(t *testing.T, component string) v1.Image {
	t.Helper()
	text := fmt.Sprintf(`{"kind": "ImageStream", "spec": {"tags": [{"name": "etcd", "from": {"kind": "DockerImage", "name": %q}}]}}`, component)
	var archive bytes.Buffer
	files := tar.NewWriter(&archive)
	must.Do(t, files.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "release-manifests/image-references", Mode: 0o644, Size: int64(len(text))}))
	must.Get(io.WriteString(files, text))(t)
	must.Do(t, files.Close())
	content := must.Get(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }))(t)
	release := must.Get(mutate.AppendLayers(empty.Image, content))(t)
	auth := &authn.Basic{Username: "pipeline", Password: "0123456789abcdef"}
	must.Do(t, remote.Write(w.source.digest(t, "ocp/release", digestOf(t, release)), release, remote.WithTransport(w.source.Client().Transport), remote.WithAuth(auth)))
	return release
}

// signed is a release in the source, with the key that may sign it and the folder for its signatures.
type signed struct {
	release, etcd v1.Image
	key           *signature.Key
	signatures    string
}

// withRelease stores a release in the source and lets the request mirror only that.
func (w *world) withRelease(t *testing.T) signed {
	t.Helper()
	etcd := w.source.push(t, "ocp/art")
	s := signed{release: w.pushRelease(t, w.source.Host+"/ocp/art@"+digestOf(t, etcd)), etcd: etcd, signatures: t.TempDir()}
	key := must.Get(signature.NewKey(signature.KeyOptions{Name: "publisher"}))(t)
	public := must.Get(key.PublicKey())(t)
	must.Do(t, os.WriteFile(filepath.Join(w.request.Root, "keys.asc"), public, 0o644))
	s.key = key
	for _, name := range []string{"source", "components", "images"} {
		delete(w.request.With, name)
	}
	w.request.With["mirrors"] = []any{map[string]any{"source": w.source.Host + "/ocp/release", "target": "mirror/release"}, map[string]any{"source": w.source.Host + "/ocp/art", "target": "mirror/art"}}
	w.request.With["releases"] = []any{map[string]any{"image": w.source.Host + "/ocp/release@" + digestOf(t, s.release)}}
	w.request.With["signatures"] = map[string]any{"store": "file://" + s.signatures, "trustRoot": "keys.asc"}
	return s
}

func TestReleasesNeedASignature(t *testing.T) {
	w := newWorld(t, t.TempDir())
	s := w.withRelease(t)
	if err := w.run(t); action.ClassOf(err) != action.ClassFailed || !strings.Contains(err.Error(), "has no valid signature") {
		t.Errorf("without a signature: %v", err)
	}
	if w.target.Writes() > 0 {
		t.Error("the target got content of a release without a signature")
	}
	must.Do(t, s.key.SignInto(s.signatures, digestOf(t, s.release), "ocp/release"))
	if err := w.run(t); err != nil || !w.target.complete(t, "mirror/release", s.release) || !w.target.complete(t, "mirror/art", s.etcd) {
		t.Errorf("with a signature: %v", err)
	}
	content, err := w.action.Content(w.request)
	if err != nil || content["the keys that verify releases"] == "" {
		t.Errorf("%v, %v", content, err)
	}
}

// TestReleasesOfAList mirrors a release that the configuration lists, and nothing if it lists none.
func TestReleasesOfAList(t *testing.T) {
	w := newWorld(t, t.TempDir())
	s := w.withRelease(t)
	delete(w.request.With, "releases")
	w.request.With["releaseList"] = "[]"
	w.request.With["signatures"] = map[string]any{"trustRoot": "missing.asc"} // nothing reads it
	var preview bytes.Buffer
	if err := w.action.Preview(t.Context(), w.request, &preview); err != nil || !strings.Contains(preview.String(), "lists no release") {
		t.Errorf("the preview without a release: %v\n%s", err, preview.String())
	}
	if err := w.run(t); err != nil || w.target.Writes() > 0 || !strings.Contains(w.log.String(), "lists no release") {
		t.Errorf("without a release: %v\n%s", err, w.log.String())
	}
	if content, err := w.action.Content(w.request); err != nil || len(content) > 0 {
		t.Errorf("the content without a release is %v, %v", content, err)
	}

	w.request.With["signatures"] = map[string]any{"store": "file://" + s.signatures, "trustRoot": "keys.asc"}
	image := w.source.Host + "/ocp/release@" + digestOf(t, s.release)
	w.request.With["releaseList"] = fmt.Sprintf("[%q]", image)
	if err := w.run(t); action.ClassOf(err) != action.ClassFailed || !strings.Contains(err.Error(), "has no valid signature") {
		t.Errorf("without a signature: %v", err)
	}
	must.Do(t, s.key.SignInto(s.signatures, digestOf(t, s.release), "ocp/release"))
	if err := w.run(t); err != nil || !w.target.complete(t, "mirror/release", s.release) || !w.target.complete(t, "mirror/art", s.etcd) {
		t.Errorf("with a signature: %v", err)
	}
	if content, err := w.action.Content(w.request); err != nil || content["the keys that verify releases"] == "" {
		t.Errorf("the content is %v, %v", content, err)
	}
	for text, want := range map[string]string{
		`{"image": "x"}`: "releaseList: is not a JSON array of strings",
		"[\"" + w.source.Host + "/ocp/release:4.20.8\"]":                             "tags are refused",
		"[\"" + w.source.Host + "/other" + image[strings.Index(image, "@"):] + "\"]": "mirrors has no source",
	} {
		w.request.With["releaseList"] = text
		if err := w.run(t); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
