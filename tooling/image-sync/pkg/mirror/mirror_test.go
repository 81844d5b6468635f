package mirror_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
	"github.com/hcpmesh/hcpmesh/tooling/image-sync/pkg/mirror"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registrytest"
)

// testRegistry is a running registry.
type testRegistry struct {
	*registrytest.Registry
	t *testing.T
}

func startRegistry(t *testing.T, dir string) *testRegistry {
	t.Helper()
	return &testRegistry{registrytest.Start(t, registrytest.Options{Dir: dir, Policy: registry.Policy{Open: true}}), t}
}

// push stores an image or an index and returns its name.
func (r *testRegistry) push(repository string, content remote.Taggable) string {
	r.t.Helper()
	described, ok := content.(interface{ Digest() (v1.Hash, error) })
	if !ok {
		r.t.Fatalf("%T has no digest", content)
	}
	digest, err := described.Digest()
	if err != nil {
		r.t.Fatal(err)
	}
	reference := r.digest(repository + "@" + digest.String())
	switch c := content.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(reference, c)
	case v1.Image:
		err = remote.Write(reference, c)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return reference.Name()
}

func (r *testRegistry) digest(text string) name.Digest {
	r.t.Helper()
	return must.Get(name.NewDigest(r.Host+"/"+text, name.Insecure))(r.t)
}

// has reports whether the registry shows an image.
func (r *testRegistry) has(repository, image string) bool {
	r.t.Helper()
	_, digest, _ := strings.Cut(image, "@")
	_, err := remote.Head(r.digest(repository + "@" + digest))
	return err == nil
}

// region is a source with a release of two architectures and a single image with an attached document, and a target.
type region struct {
	t                *testing.T
	source, target   *testRegistry
	release          string
	components       []string
	single, attached string
	key              *signature.Key
	signatures       string
}

func newRegion(t *testing.T, targetDir string) *region {
	t.Helper()
	r := &region{t: t, source: startRegistry(t, t.TempDir()), target: startRegistry(t, targetDir), signatures: t.TempDir()}
	for n := range 3 {
		r.components = append(r.components, r.source.push("ocp/art", randomImage(t, 20_000, 2+n)))
	}
	index := v1.ImageIndex(empty.Index)
	for n, architecture := range []string{"amd64", "arm64"} {
		// The architectures share one component, and each has one of its own.
		child := payload(t, architecture, map[string]string{"shared": r.components[0], "own": r.components[1+n]})
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: child, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
	}
	r.release = r.source.push("ocp/release", index)
	image := randomImage(t, 20_000, 2)
	r.single = r.source.push("tools/hypershift", image)
	r.attached = r.source.push("tools/hypershift", attachTo(t, image))
	r.key = must.Get(signature.NewKey(signature.KeyOptions{Name: "test"}))(t)
	must.Do(t, r.key.SignInto(r.signatures, digestOf(r.release), "ocp/release"))
	return r
}

func digestOf(image string) string {
	_, digest, _ := strings.Cut(image, "@")
	return digest
}

func randomImage(t *testing.T, size int64, layers int) v1.Image {
	t.Helper()
	return must.Get(random.Image(size, int64(layers)))(t)
}

// payload returns a release image that refers to components.
func payload(t *testing.T, architecture string, components map[string]string) v1.Image {
	t.Helper()
	var tags []string
	for what, image := range components {
		tags = append(tags, fmt.Sprintf(`{"name": %q, "from": {"kind": "DockerImage", "name": %q}}`, what, image))
	}
	return fileImage(t, architecture, "release-manifests/image-references", `{"kind": "ImageStream", "apiVersion": "image.openshift.io/v1", "spec": {"tags": [`+strings.Join(tags, ",")+`]}}`)
}

// fileImage returns an image with two layers, of which the last one has a file.
func fileImage(t *testing.T, architecture, file, text string) v1.Image {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	must.Do(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: int64(len(text))}))
	must.Get(io.WriteString(w, text))(t)
	must.Do(t, w.Close())
	layer := must.Get(tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }))(t)
	image := must.Get(mutate.AppendLayers(randomImage(t, 5000, 1), layer))(t)
	config := must.Get(image.ConfigFile())(t)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", architecture
	image = must.Get(mutate.ConfigFile(image, config))(t)
	return image
}

// attachTo returns a document that refers to an image.
func attachTo(t *testing.T, image v1.Image) v1.Image {
	t.Helper()
	digest := must.Get(image.Digest())(t)
	size := must.Get(image.Size())(t)
	document := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.cyclonedx+json")
	return mutate.Subject(document, v1.Descriptor{MediaType: types.DockerManifestSchema2, Digest: digest, Size: size}).(v1.Image)
}

// options returns the options to mirror everything.
func (r *region) options() mirror.Options {
	r.t.Helper()
	text := fmt.Sprintf("mirrors:\n- {source: %[1]q, target: mirror/release}\n- {source: %[2]q, target: mirror/art}\nreleases: [{image: %[3]q}]\nimages: [{image: %[4]q, target: mirror/hypershift}]\n",
		r.source.Host+"/ocp/release", r.source.Host+"/ocp/art", r.release, r.single)
	p := must.Get(mirror.ParsePlan([]byte(text), name.Insecure))(r.t)
	public := must.Get(r.key.PublicKey())(r.t)
	root := must.Get(signature.ParseTrustRoot(public))(r.t)
	signatures := must.Get(signature.OpenStore("file://"+r.signatures, nil))(r.t)
	target := must.Get(name.NewRegistry(r.target.Host, name.Insecure))(r.t)
	// Requests are repeated once, at once.
	fast := []remote.Option{remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Steps: 2})}
	return mirror.Options{Plan: p, Target: target, SourceName: []name.Option{name.Insecure}, Source: fast, Destination: fast,
		Verifier: signature.NewVerifier(root, signatures, nil), Parallel: 3}
}

// sync mirrors everything and compares the numbers of images in each state.
func (r *region) sync(want map[mirror.State]int) *mirror.Report {
	r.t.Helper()
	return r.syncWith(r.options(), want)
}

func (r *region) syncWith(o mirror.Options, want map[mirror.State]int) *mirror.Report {
	r.t.Helper()
	result := must.Get(mirror.Run(r.t.Context(), o))(r.t)
	for _, state := range []mirror.State{mirror.Copied, mirror.Present, mirror.Missing, mirror.Withheld, mirror.Failed} {
		if got := result.Count(state); got != want[state] {
			var table bytes.Buffer
			_ = result.Table(&table)
			r.t.Fatalf("%d images are %s, want %d\n%s", got, state, want[state], table.String())
		}
	}
	return result
}

// invisible fails the test if the target shows something of the release.
func (r *region) invisible() {
	r.t.Helper()
	if r.target.has("mirror/release", r.release) {
		r.t.Error("the target shows the release")
	}
	for _, component := range r.components {
		if r.target.has("mirror/art", component) {
			r.t.Errorf("the target shows the component %s", component)
		}
	}
}

// complete fails the test unless the target has everything, with the right content.
func (r *region) complete() {
	r.t.Helper()
	index := must.Get(remote.Index(r.target.digest("mirror/release@" + digestOf(r.release))))(r.t)
	if err := validate.Index(index); err != nil {
		r.t.Error(err)
	}
	for _, component := range append(r.components, r.single) {
		repository := "mirror/art@"
		if component == r.single {
			repository = "mirror/hypershift@"
		}
		image := must.Get(remote.Image(r.target.digest(repository + digestOf(component))))(r.t)
		if err := validate.Image(image); err != nil {
			r.t.Errorf("%s: %v", component, err)
		}
	}
	if !r.target.has("mirror/hypershift", r.attached) {
		r.t.Error("the target has no attached document")
	}
}

// everything is the number of images: the release, three components, the single image and its attached document.
const everything = 6

func TestMirror(t *testing.T) {
	r := newRegion(t, t.TempDir())
	o := r.options()
	o.DryRun = true
	r.syncWith(o, map[mirror.State]int{mirror.Missing: everything})
	r.invisible()
	result := r.sync(map[mirror.State]int{mirror.Copied: everything})
	r.complete()
	if result.Blobs.Copied == 0 || result.Blobs.Bytes < 5*20_000 {
		t.Errorf("%+v", result.Blobs)
	}
	before := r.target.Uploads()
	result = r.sync(map[mirror.State]int{mirror.Present: everything})
	if after := r.target.Uploads(); after != before || result.Blobs.Copied != 0 {
		t.Errorf("the second run uploaded %d blobs", after-before)
	}
	var text, table bytes.Buffer
	if err := result.JSON(&text); err != nil || !strings.Contains(text.String(), `"state": "present"`) {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := result.Table(&table); err != nil || !strings.Contains(table.String(), "0 copied, 6 present, 0 missing, 0 withheld, 0 failed") {
		t.Errorf("%v: %s", err, table.String())
	}
}

func TestReleaseNeedsASignature(t *testing.T) {
	r := newRegion(t, t.TempDir())
	other := must.Get(signature.NewKey(signature.KeyOptions{Name: "other"}))(t)
	file := filepath.Join(r.signatures, strings.Replace(digestOf(r.release), ":", "=", 1), "signature-1")
	must.Do(t, os.Remove(file))
	check := func(reason string) {
		t.Helper()
		result := r.sync(map[mirror.State]int{mirror.Failed: 1, mirror.Copied: 2})
		if cause := result.Images[0].Cause; !strings.Contains(cause, "has no valid signature") {
			t.Errorf("%s: %s", reason, cause)
		}
		r.invisible()
		if requests := r.target.Uploads(); requests > 4 { // those of the single image and its document
			t.Errorf("%s: %d blobs were uploaded", reason, requests)
		}
		r.target = startRegistry(t, t.TempDir())
	}
	check("no signature")
	must.Do(t, other.SignInto(r.signatures, digestOf(r.release), "ocp/release"))
	check("the signature of another key")
}

func TestFaultsOfTheSource(t *testing.T) {
	for reason, c := range map[string]struct {
		fault func(r *region, blob string) func(http.ResponseWriter, *http.Request) bool
		cause string
	}{
		"a missing blob": {func(_ *region, blob string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, request *http.Request) bool {
				if strings.HasSuffix(request.URL.Path, blob) {
					http.Error(w, `{"errors": [{"code": "BLOB_UNKNOWN", "message": "gone"}]}`, http.StatusNotFound)
					return true
				}
				return false
			}
		}, "BLOB_UNKNOWN"},
		"a corrupted blob": {func(_ *region, blob string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, request *http.Request) bool {
				if strings.HasSuffix(request.URL.Path, blob) && request.Method == http.MethodGet {
					_, _ = w.Write(bytes.Repeat([]byte("x"), 30_000))
					return true
				}
				return false
			}
		}, "blob sha256:"},
		"a cut connection": {func(_ *region, blob string) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, request *http.Request) bool {
				if strings.HasSuffix(request.URL.Path, blob) && request.Method == http.MethodGet {
					w.Header().Set("Content-Length", "30000")
					_, _ = w.Write([]byte("the beginning"))
					panic(http.ErrAbortHandler)
				}
				return false
			}
		}, "blob sha256:"},
		"a registry that stops": {func(*region, string) func(http.ResponseWriter, *http.Request) bool {
			var mu sync.Mutex
			served := 0
			return func(http.ResponseWriter, *http.Request) bool {
				mu.Lock()
				served++
				stopped := served > 12
				mu.Unlock()
				if stopped {
					panic(http.ErrAbortHandler)
				}
				return false
			}
		}, "EOF"},
	} {
		t.Run(reason, func(t *testing.T) {
			r := newRegion(t, t.TempDir())
			image := must.Get(remote.Image(r.source.digest("ocp/art@" + digestOf(r.components[2]))))(t)
			last, err := image.ConfigName() // the last blob that is copied
			if err != nil {
				t.Fatal(err)
			}
			r.source.SetFault(c.fault(r, last.String()))
			result := must.Get(mirror.Run(t.Context(), r.options()))(t)
			if result.Count(mirror.Failed) == 0 || !strings.Contains(causes(result), c.cause) {
				t.Errorf("%+v", result.Images)
			}
			r.invisible()
			r.source.SetFault(nil)
			before := r.target.Uploads()
			result = must.Get(mirror.Run(t.Context(), r.options()))(t)
			if result.Count(mirror.Failed)+result.Count(mirror.Withheld) > 0 {
				t.Errorf("%+v", result.Images)
			}
			r.complete()
			if sent := r.target.Uploads() - before; sent != result.Blobs.Copied {
				t.Errorf("%d blobs were sent and %d are reported", sent, result.Blobs.Copied)
			}
			if reason != "a registry that stops" && result.Blobs.Copied != 1 {
				t.Errorf("the second run copied %d blobs and not only the missing one", result.Blobs.Copied)
			}
		})
	}
}

// causes returns the causes of all failures.
func causes(result *mirror.Report) string {
	var all strings.Builder
	for _, image := range result.Images {
		all.WriteString(image.Cause + "\n")
	}
	return all.String()
}

func TestComponentOutsideOfTheMirrorsIsRefused(t *testing.T) {
	r := newRegion(t, t.TempDir())
	elsewhere := r.source.push("elsewhere/art", randomImage(t, 100, 1))
	r.release = r.source.push("ocp/release", payload(t, "amd64", map[string]string{"a": r.components[0], "b": elsewhere}))
	must.Do(t, r.key.SignInto(r.signatures, digestOf(r.release), "ocp/release"))
	result := r.sync(map[mirror.State]int{mirror.Failed: 1, mirror.Copied: 2})
	if cause := result.Images[0].Cause; !strings.Contains(cause, "component b: mirrors has no source "+r.source.Host+"/elsewhere/art") {
		t.Error(cause)
	}
	r.invisible()
}

func TestImageThatIsNoReleaseIsRefused(t *testing.T) {
	for reason, c := range map[string]struct {
		image func(t *testing.T) v1.Image
		cause string
	}{
		"no list": {func(t *testing.T) v1.Image { return randomImage(t, 100, 2) }, "it is not a release image"},
		"no JSON": {func(t *testing.T) v1.Image { return fileImage(t, "amd64", "release-manifests/image-references", "x") }, "image-references"},
		"another kind": {func(t *testing.T) v1.Image {
			return fileImage(t, "amd64", "release-manifests/image-references", `{"kind": "List"}`)
		}, "kind: is"},
		"no components": {func(t *testing.T) v1.Image { return payload(t, "amd64", nil) }, "spec.tags: there is none"},
		"a tag":         {func(t *testing.T) v1.Image { return payload(t, "amd64", map[string]string{"a": "quay.io/a:latest"}) }, "spec.tags[0].from"},
	} {
		t.Run(reason, func(t *testing.T) {
			r := newRegion(t, t.TempDir())
			r.release = r.source.push("ocp/release", c.image(t))
			must.Do(t, r.key.SignInto(r.signatures, digestOf(r.release), "ocp/release"))
			if cause := r.sync(map[mirror.State]int{mirror.Failed: 1, mirror.Copied: 2}).Images[0].Cause; !strings.Contains(cause, c.cause) {
				t.Errorf("%s, want %s", cause, c.cause)
			}
		})
	}
}

func TestFullDiskOfTheTarget(t *testing.T) {
	smalldisk.Run(t, 8<<20, func(t *testing.T, dir string) {
		r := newRegion(t, filepath.Join(dir, "registry"))
		filler := smalldisk.Fill(t, dir)
		result := must.Get(mirror.Run(t.Context(), r.options()))(t)
		if result.Count(mirror.Failed) == 0 || result.Count(mirror.Copied) > 0 || !strings.Contains(causes(result), "the disk of the registry is full") {
			t.Errorf("%+v", result.Images)
		}
		r.invisible()
		must.Do(t, os.Remove(filler))
		r.sync(map[mirror.State]int{mirror.Copied: everything})
		r.complete()
	})
}
