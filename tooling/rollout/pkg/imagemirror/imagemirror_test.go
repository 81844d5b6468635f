package imagemirror

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registrytest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// user has the credentials of the writers of all registries.
const user = "pipeline:0123456789abcdef"

// testRegistry is a running registry with TLS.
type testRegistry struct{ *registrytest.Registry }

func startRegistry(t *testing.T, dir string) *testRegistry {
	t.Helper()
	writers := must.Get(registry.LoadCredentials(file(t, user)))(t)
	return &testRegistry{registrytest.Start(t, registrytest.Options{Dir: dir, Policy: registry.Policy{Write: writers}, TLS: true})}
}

func (r *testRegistry) digest(t *testing.T, repository, digest string) name.Digest {
	t.Helper()
	return must.Get(name.NewDigest(r.Host + "/" + repository + "@" + digest))(t)
}

// push stores a random image and returns it.
func (r *testRegistry) push(t *testing.T, repository string) v1.Image {
	t.Helper()
	image := must.Get(random.Image(20_000, 2))(t)
	auth := &authn.Basic{Username: "pipeline", Password: "0123456789abcdef"}
	must.Do(t, remote.Write(r.digest(t, repository, digestOf(t, image)), image, remote.WithTransport(r.Client().Transport), remote.WithAuth(auth)))
	return image
}

// complete reports whether the registry has an image with all of its content.
func (r *testRegistry) complete(t *testing.T, repository string, image v1.Image) bool {
	t.Helper()
	found, err := remote.Image(r.digest(t, repository, digestOf(t, image)), remote.WithTransport(r.Client().Transport))
	return err == nil && validate.Image(found) == nil
}

func digestOf(t *testing.T, image v1.Image) string {
	t.Helper()
	digest := must.Get(image.Digest())(t)
	return digest.String()
}

// file writes a file and returns its path.
func file(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(f, []byte(text), 0o600))
	return f
}

// world is a source with the images of two components and a single image, a target, and a configuration that names them.
type world struct {
	source, target *testRegistry
	frontend       v1.Image
	agent          v1.Image
	operator       v1.Image
	action         ImageMirror
	request        action.Request
	log            *bytes.Buffer
}

const schemaText = `{"type": "object", "additionalProperties": false, "properties": {
	"cloud": {"type": "string", "x-computed": true}, "environment": {"type": "string", "x-computed": true},
	"region": {"type": "string", "x-computed": true}, "stamp": {"type": "string", "x-computed": true},
	"frontend": {"type": "object", "additionalProperties": false, "properties": {"image": {"$ref": "#/$defs/image"}}},
	"optional": {"type": "object", "additionalProperties": false, "properties": {"image": {"$ref": "#/$defs/image"}}},
	"managementCluster": {"type": "object", "additionalProperties": false, "x-layer": "stamp", "properties": {"agent": {"type": "object", "additionalProperties": false, "properties": {"image": {"$ref": "#/$defs/image"}}}}},
	"managementClusters": {"type": "array", "items": {"type": "object"}, "x-computed": true}},
	"$defs": {"image": {"type": "object", "additionalProperties": false, "required": ["registry", "repository"], "properties": {
		"registry": {"type": "string"}, "repository": {"type": "string"}, "digest": {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "x-deploy": true}}}}}`

func newWorld(t *testing.T, targetDir string) *world {
	t.Helper()
	w := &world{source: startRegistry(t, t.TempDir()), target: startRegistry(t, targetDir), log: &bytes.Buffer{}}
	w.frontend, w.agent, w.operator = w.source.push(t, "hcpmesh/frontend"), w.source.push(t, "hcpmesh/agent"), w.source.push(t, "other/operator")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"config.schema.json": schemaText, "rules.yaml": "rules: []\n",
		"defaults.yaml": fmt.Sprintf("frontend: {image: {registry: %[1]q, repository: hcpmesh/frontend}}\nmanagementCluster: {agent: {image: {registry: %[1]q, repository: hcpmesh/agent}}}\n", w.target.Host),
		"images/public/dev.yaml": fmt.Sprintf("frontend: {image: {digest: %q}}\nmanagementCluster: {agent: {image: {digest: %q}}}\n",
			digestOf(t, w.frontend), digestOf(t, w.agent)),
		"clouds/public.yaml": "", "clouds/public/dev.yaml": "", "clouds/public/dev/west.yaml": "", "clouds/public/dev/west/1.yaml": "", "clouds/public/dev/west/2.yaml": "",
		"clouds/public/prod.yaml": "", "clouds/public/prod/west.yaml": "",
	} {
		f := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(f), 0o755), os.WriteFile(f, []byte(text), 0o644)))
	}
	configuration := must.Get(deployment.Open(dir))(t)
	authorities := ""
	for _, r := range []*testRegistry{w.source, w.target} {
		authorities += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))
	}
	credentials := file(t, fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, w.target.Host, base64.StdEncoding.EncodeToString([]byte(user))))
	w.action = ImageMirror{Configuration: configuration, Authorities: file(t, authorities),
		Requests: []remote.Option{remote.WithRetryBackoff(remote.Backoff{Duration: time.Millisecond, Steps: 2})}}
	w.request = action.Request{Step: "global/images", Target: layer.Target{"public", "dev"}, Root: t.TempDir(), Log: w.log, With: map[string]any{
		"source": w.source.Host, "target": w.target.Host, "components": []any{"frontend", "managementCluster.agent"},
		"images":            []any{map[string]any{"image": w.source.Host + "/other/operator@" + digestOf(t, w.operator), "target": "mirror/operator"}},
		"targetCredentials": credentials,
	}}
	return w
}

func (w *world) run(t *testing.T) error {
	t.Helper()
	w.log.Reset()
	outputs, err := w.action.Run(t.Context(), w.request)
	if err == nil && len(outputs) > 0 {
		t.Errorf("the outputs are %v", outputs)
	}
	return err
}

// everything reports whether the target has all images.
func (w *world) everything(t *testing.T) bool {
	return w.target.complete(t, "hcpmesh/frontend", w.frontend) && w.target.complete(t, "hcpmesh/agent", w.agent) && w.target.complete(t, "mirror/operator", w.operator)
}

func TestImagesAreMirroredOnce(t *testing.T) {
	w := newWorld(t, t.TempDir())
	var preview bytes.Buffer
	must.Do(t, w.action.Preview(t.Context(), w.request, &preview))
	if want := "copy " + w.source.Host + "/hcpmesh/agent@" + digestOf(t, w.agent) + " to " + w.target.Host + "/hcpmesh/agent@" + digestOf(t, w.agent) + "\n"; !strings.Contains(preview.String(), want) || strings.Count(preview.String(), "copy ") != 3 {
		t.Errorf("the preview is\n%s", preview.String())
	}
	if w.target.Writes() > 0 || w.everything(t) {
		t.Error("the preview copied something")
	}
	must.Do(t, w.run(t))
	if !w.everything(t) {
		t.Error("the target lacks content")
	}
	if log := w.log.String(); !strings.Contains(log, "3 of 3: the content of ") || !strings.Contains(log, "3 copied, 0 present") || strings.Contains(log, "0123456789abcdef") {
		t.Errorf("the log is\n%s", log)
	}
	before := w.target.Writes()
	if err := w.run(t); err != nil || !strings.Contains(w.log.String(), "0 copied, 3 present") {
		t.Errorf("the second run: %v\n%s", err, w.log.String())
	}
	preview.Reset()
	if err := w.action.Preview(t.Context(), w.request, &preview); err != nil || preview.String() != "the target has 3 other images of the step\n" {
		t.Errorf("the preview of nothing: %v, %q", err, preview.String())
	}
	if after := w.target.Writes(); after != before {
		t.Errorf("%d writes for images that the target had", after-before)
	}
}

func TestContentFollowsTheConfiguration(t *testing.T) {
	w := newWorld(t, t.TempDir())
	content := func() string {
		t.Helper()
		found, err := w.action.Content(w.request)
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		return found["the images of the components"]
	}
	first := content()
	if content() != first {
		t.Error("the content of the same configuration differs")
	}
	must.Do(t, w.action.Configuration.SetImages(layer.Target{"public", "dev"}, fmt.Appendf(nil, "frontend: {image: {digest: %q}}\nmanagementCluster: {agent: {image: {digest: %q}}}\n",
		digestOf(t, w.operator), digestOf(t, w.agent))))
	if content() == first {
		t.Error("another digest has the same content")
	}
	delete(w.request.With, "components")
	if found, err := w.action.Content(w.request); err != nil || len(found) > 0 {
		t.Errorf("without components: %v, %v", found, err)
	}
}

func TestFaultsOfTheSource(t *testing.T) {
	for reason, c := range map[string]struct {
		fault func(w http.ResponseWriter)
		class action.Class
		cause string
	}{
		"a missing blob": {func(w http.ResponseWriter) {
			http.Error(w, `{"errors": [{"code": "BLOB_UNKNOWN", "message": "gone"}]}`, http.StatusNotFound)
		}, action.ClassFailed, "BLOB_UNKNOWN"},
		"a corrupted blob": {func(w http.ResponseWriter) { _, _ = w.Write(bytes.Repeat([]byte("x"), 30_000)) }, action.ClassFailed, "blob sha256:"},
		"a cut connection": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "30000")
			_, _ = w.Write([]byte("the beginning"))
			panic(http.ErrAbortHandler)
		}, action.Unavailable, "blob sha256:"},
		"too many requests": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusTooManyRequests) }, action.Throttled, "429"},
		"an outage":         {func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, action.Unavailable, "503"},
		"no permission":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) }, action.ClassFailed, "403"},
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, t.TempDir())
			last, err := w.agent.ConfigName() // the last blob that is copied
			if err != nil {
				t.Fatal(err)
			}
			w.source.SetFault(func(response http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, last.String()) {
					return false
				}
				c.fault(response)
				return true
			})
			err = w.run(t)
			if err == nil || action.ClassOf(err) != c.class || !strings.Contains(err.Error(), c.cause) || !strings.Contains(err.Error(), "1 of 3 images were not mirrored:\n  "+w.source.Host+"/hcpmesh/agent@sha256:") {
				t.Errorf("class %s, %v", action.ClassOf(err), err)
			}
			if w.target.complete(t, "hcpmesh/agent", w.agent) || !w.target.complete(t, "hcpmesh/frontend", w.frontend) {
				t.Error("the target shows the incomplete image, or lacks a complete one")
			}
			w.source.SetFault(nil)
			if err := w.run(t); err != nil || !w.everything(t) {
				t.Errorf("the second run: %v", err)
			}
			if log := w.log.String(); !strings.Contains(log, "1 copied, 2 present") || !strings.Contains(log, "blobs: 1 copied") {
				t.Errorf("the second run copied more than the missing blob:\n%s", log)
			}
		})
	}
}

// TestASourceThatIsTheTarget checks that the step then succeeds if the registry has the images, and writes nothing.
func TestASourceThatIsTheTarget(t *testing.T) {
	w := newWorld(t, t.TempDir())
	must.Do(t, w.run(t))
	before := w.target.Writes()
	w.request.With["source"] = w.target.Host
	if err := w.run(t); err != nil || !strings.Contains(w.log.String(), "0 copied, 3 present") || w.target.Writes() != before {
		t.Errorf("%v\n%s", err, w.log.String())
	}
}

// TestCredentialsOfTheAction checks that a step without credentials uses those of the action.
func TestCredentialsOfTheAction(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.action.Credentials, _ = w.request.With["targetCredentials"].(string)
	delete(w.request.With, "targetCredentials")
	if err := w.run(t); err != nil || !w.everything(t) {
		t.Errorf("%v", err)
	}
}

func TestARegistryThatIsAway(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.target.Close()
	if err := w.run(t); action.ClassOf(err) != action.Unavailable || !strings.Contains(err.Error(), "3 of 3 images were not mirrored") {
		t.Errorf("class %s, %v", action.ClassOf(err), err)
	}
}

func TestACancelledStepEnds(t *testing.T) {
	w := newWorld(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	w.source.SetFault(func(http.ResponseWriter, *http.Request) bool {
		cancel()
		panic(http.ErrAbortHandler)
	})
	if _, err := w.action.Run(ctx, w.request); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestComponentsThatAnEnvironmentLacks mirrors a component that no layer of the environment sets.
func TestComponentsThatAnEnvironmentLacks(t *testing.T) {
	w := newWorld(t, t.TempDir())
	w.request.With["components"] = []any{"frontend", "optional", "managementCluster.agent"}
	if err := w.run(t); err != nil || !w.everything(t) {
		t.Errorf("the other images: %v", err)
	}
}

func TestAFullTarget(t *testing.T) {
	smalldisk.Run(t, 8<<20, func(t *testing.T, dir string) {
		w := newWorld(t, filepath.Join(dir, "registry"))
		filler := smalldisk.Fill(t, dir)
		if err := w.run(t); err == nil || action.ClassOf(err) != action.ClassFailed || !strings.Contains(err.Error(), "the disk of the registry is full") {
			t.Errorf("class %s, %v", action.ClassOf(err), err)
		}
		must.Do(t, os.Remove(filler))
		if err := w.run(t); err != nil || !w.everything(t) {
			t.Errorf("with space: %v", err)
		}
	})
}

func TestWrongRequestsAreRefused(t *testing.T) {
	for reason, c := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"no digest": {func(w *world) {
			w.request.Target, w.request.With["components"] = layer.Target{"public", "prod"}, []any{"frontend"}
		}, "frontend.image.digest: is required for a deployment, and no layer sets it"},
		"no stamp": {func(w *world) {
			w.request.Target, w.request.With["components"] = layer.Target{"public", "prod"}, []any{"managementCluster.agent"}
		}, "components: public/prod has no region or stamp with the key managementCluster.agent"},
		"an unknown component": {func(w *world) { w.request.With["components"] = []any{"fronted"} }, "components: the configuration has no image fronted.image"},
		"another registry":     {func(w *world) { w.request.With["target"] = "other.example" }, "image.registry is "},
		"a missing image":      {func(w *world) { w.request.With["source"] = w.target.Host }, "2 of 3 images were not mirrored"},
		"no registry":          {func(w *world) { w.request.With["target"] = "" }, "target: "},
		"a tag": {func(w *world) {
			w.request.With["images"] = []any{map[string]any{"image": w.source.Host + "/other/operator:latest", "target": "x"}}
		}, "tags are refused"},
		"no credentials":    {func(w *world) { w.request.With["targetCredentials"] = "/nowhere" }, "target-credentials"},
		"a root outside":    {func(w *world) { w.release("../keys") }, "signatures.trustRoot: ../keys is not in the checkout"},
		"a missing root":    {func(w *world) { w.release("keys") }, "signatures.trustRoot: "},
		"wrong credentials": {func(w *world) { delete(w.request.With, "targetCredentials") }, "UNAUTHORIZED"},
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t, t.TempDir())
			c.change(w)
			if err := w.run(t); err == nil || action.ClassOf(err) != action.ClassFailed || !strings.Contains(err.Error(), c.want) {
				t.Errorf("class %s, %v; want %s", action.ClassOf(err), err, c.want)
			}
		})
	}
}

// release adds a release to the request, with the keys in a file.
func (w *world) release(trustRoot string) {
	w.request.With["mirrors"] = []any{map[string]any{"source": w.source.Host + "/other/operator", "target": "ocp"}}
	w.request.With["releases"] = []any{map[string]any{"image": w.source.Host + "/other/operator@sha256:" + strings.Repeat("a", 64)}}
	w.request.With["signatures"] = map[string]any{"store": "file:///nowhere", "trustRoot": trustRoot}
}
