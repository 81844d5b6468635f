package registry_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
)

// running is a running registry.
type running struct {
	t   *testing.T
	url string
	// options are those of requests of go-containerregistry.
	options []remote.Option
}

func start(t *testing.T, dir string, policy registry.Policy) *running {
	t.Helper()
	content := must.Get(registry.Open(dir))(t)
	s := httptest.NewServer(registry.New(content, policy, slog.New(slog.DiscardHandler), prometheus.NewRegistry()))
	t.Cleanup(s.Close)
	return &running{t, s.URL, []remote.Option{remote.WithContext(t.Context())}}
}

func everybody() registry.Policy { return registry.Policy{Open: true} }

// reference parses the name of an image in the registry.
func (r *running) reference(text string) name.Reference {
	r.t.Helper()
	return must.Get(name.ParseReference(strings.TrimPrefix(r.url, "http://")+"/"+text, name.Insecure))(r.t)
}

// do sends a request and returns the response with its body.
func (r *running) do(method, path, body string, header map[string]string) (*http.Response, string) {
	r.t.Helper()
	location := path
	if !strings.HasPrefix(path, "http") {
		location = r.url + path
	}
	request := must.Get(http.NewRequestWithContext(r.t.Context(), method, location, strings.NewReader(body)))(r.t)
	for key, value := range header {
		request.Header.Set(key, value)
	}
	response := must.Get(http.DefaultClient.Do(request))(r.t)
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(r.t)
	return response, string(text)
}

func TestPublishedClientPushesAndPulls(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, everybody())
	index, err := random.Index(100_000, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	ref := r.reference("a/b:v1")
	must.Do(t, remote.WriteIndex(ref, index, r.options...))
	digest := must.Get(index.Digest())(t)
	r = start(t, dir, registry.Policy{}) // another process, which nobody may write
	for _, text := range []string{"a/b:v1", "a/b@" + digest.String()} {
		pulled := must.Get(remote.Index(r.reference(text), r.options...))(t)
		if err := validate.Index(pulled); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if tags, err := remote.List(r.reference("a/b").Context(), r.options...); err != nil || !slices.Equal(tags, []string{"v1"}) {
		t.Errorf("%v, %v", tags, err)
	}
	err = remote.WriteIndex(r.reference("a/b:v2"), index, r.options...)
	if failure := new(transport.Error); !errors.As(err, &failure) || failure.StatusCode != http.StatusForbidden {
		t.Errorf("a write to a registry that nobody may write: %v", err)
	}
}

func TestReferrers(t *testing.T) {
	r := start(t, t.TempDir(), everybody())
	image := must.Get(random.Image(1000, 1))(t)
	digest := must.Get(image.Digest())(t)
	subject := r.reference("aa@" + digest.String()).(name.Digest)
	must.Do(t, remote.Write(subject, image, r.options...))
	size := must.Get(image.Size())(t)
	for _, artifactType := range []types.MediaType{"application/a", "application/b"} {
		document := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), artifactType)
		referrer := mutate.Subject(document, v1.Descriptor{MediaType: types.DockerManifestSchema2, Digest: digest, Size: size}).(v1.Image)
		at := must.Get(referrer.Digest())(t)
		must.Do(t, remote.Write(r.reference("aa@"+at.String()), referrer, r.options...))
	}
	found := must.Get(remote.Referrers(subject, append(r.options, remote.WithFilter("artifactType", "application/b"))...))(t)
	list := must.Get(found.IndexManifest())(t)
	if len(list.Manifests) != 1 || list.Manifests[0].ArtifactType != "application/b" {
		t.Errorf("%+v", list)
	}
	if response, text := r.do(http.MethodGet, "/v2/aa/referrers/sha256:"+strings.Repeat("0", 64), "", nil); response.StatusCode != http.StatusOK || !strings.Contains(text, `"manifests":[]`) {
		t.Errorf("no referrers: %d %s", response.StatusCode, text)
	}
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	credentials := func(file, text string) *registry.Credentials {
		t.Helper()
		path := filepath.Join(dir, file)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return must.Get(registry.LoadCredentials(path))(t)
	}
	read, write := credentials("read", "node:0123456789abcdef\n"), credentials("write", "pipeline:fedcba9876543210")
	image := must.Get(random.Image(1000, 1))(t)
	as := func(user, password string) remote.Option {
		return remote.WithAuth(&authn.Basic{Username: user, Password: password})
	}
	node, pipeline, wrong := as("node", "0123456789abcdef"), as("pipeline", "fedcba9876543210"), as("pipeline", "fedcba9876543211")
	for reason, c := range map[string]struct {
		policy      registry.Policy
		as          remote.Option
		write, read int
	}{
		"nobody, public":          {registry.Policy{Write: write}, remote.WithAuth(authn.Anonymous), 401, 0},
		"pipeline, public":        {registry.Policy{Write: write}, pipeline, 0, 0},
		"wrong password, public":  {registry.Policy{Write: write}, wrong, 401, 401},
		"nobody, private":         {registry.Policy{Read: read, Write: write}, remote.WithAuth(authn.Anonymous), 401, 401},
		"node, private":           {registry.Policy{Read: read, Write: write}, node, 403, 0},
		"pipeline, private":       {registry.Policy{Read: read, Write: write}, pipeline, 0, 0},
		"wrong password, private": {registry.Policy{Read: read, Write: write}, wrong, 401, 401},
		"node, read-only":         {registry.Policy{Read: read}, node, 403, 0},
	} {
		t.Run(reason, func(t *testing.T) {
			data := t.TempDir()
			must.Do(t, remote.Write(start(t, data, everybody()).reference("aa:v1"), image))
			r := start(t, data, c.policy)
			other, err := random.Image(1000, 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := status(remote.Write(r.reference("aa:v2"), other, append(r.options, c.as)...)); got != c.write {
				t.Errorf("write: %d, want %d", got, c.write)
			}
			_, err = remote.Get(r.reference("aa:v1"), append(r.options, c.as)...)
			if got := status(err); got != c.read {
				t.Errorf("read: %d, want %d", got, c.read)
			}
		})
	}
	for text, want := range map[string]string{"secret": "USER:PASSWORD", "user:short": "shorter than", "a:0123456789abcdef\nb:0123456789abcdef": "USER:PASSWORD"} {
		path := filepath.Join(dir, "wrong")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := registry.LoadCredentials(path); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// status returns the HTTP status of an error, 0 without an error and -1 for another error.
func status(err error) int {
	failure := new(transport.Error)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failure):
		return failure.StatusCode
	}
	return -1
}

func TestUploads(t *testing.T) {
	r := start(t, t.TempDir(), everybody())
	digest := registry.DigestOf([]byte("onetwo"))
	begun, _ := r.do(http.MethodPost, "/v2/a/blobs/uploads/", "", nil)
	at := begun.Header.Get("Location")
	if begun.StatusCode != http.StatusAccepted || at == "" {
		t.Fatalf("%d %v", begun.StatusCode, begun.Header)
	}
	for _, c := range []struct {
		reason, method, path, body string
		header                     map[string]string
		status                     int
		code                       string
	}{
		{"the first part", http.MethodPatch, at, "one", map[string]string{"Content-Range": "0-2"}, 202, ""},
		{"the first part again", http.MethodPatch, at, "one", map[string]string{"Content-Range": "0-2"}, 416, "BLOB_UPLOAD_INVALID"},
		{"a range of another length", http.MethodPatch, at, "one", map[string]string{"Content-Range": "3-9"}, 400, "BLOB_UPLOAD_INVALID"},
		{"no range", http.MethodPatch, at, "one", map[string]string{"Content-Range": "bytes 3-5"}, 400, "BLOB_UPLOAD_INVALID"},
		{"its state", http.MethodGet, at, "", nil, 204, ""},
		{"an upload of another repository", http.MethodPatch, strings.Replace(at, "/a/", "/b/", 1), "one", nil, 404, "BLOB_UPLOAD_UNKNOWN"},
		{"the last part", http.MethodPut, at + "?digest=" + url.QueryEscape(digest), "two", map[string]string{"Content-Range": "3-5"}, 201, ""},
		{"a part after the end", http.MethodPatch, at, "x", nil, 404, "BLOB_UPLOAD_UNKNOWN"},
		{"a range of the blob", http.MethodGet, "/v2/a/blobs/" + digest, "", map[string]string{"Range": "bytes=3-"}, 206, ""},
		{"a blob at once", http.MethodPost, "/v2/a/blobs/uploads/?digest=" + registry.DigestOf([]byte("x")), "x", nil, 201, ""},
		{"a wrong blob at once", http.MethodPost, "/v2/a/blobs/uploads/?digest=" + digest, "x", nil, 400, "DIGEST_INVALID"},
		{"a mounted blob", http.MethodPost, "/v2/b/blobs/uploads/?from=a&mount=" + digest, "", nil, 201, ""},
		{"an unknown mounted blob", http.MethodPost, "/v2/b/blobs/uploads/?from=a&mount=sha256:" + strings.Repeat("0", 64), "", nil, 202, ""},
		{"an unknown blob", http.MethodGet, "/v2/a/blobs/sha256:" + strings.Repeat("0", 64), "", nil, 404, "UNKNOWN"},
		{"a file of the store", http.MethodGet, "/v2/a/blobs/sha256:..%2F..%2Fx", "", nil, 400, "NAME_INVALID"},
		{"a repository above", http.MethodGet, "/v2/../a/manifests/v1", "", nil, 400, "NAME_INVALID"},
		{"a manifest that is no JSON", http.MethodPut, "/v2/a/manifests/v1", "{", map[string]string{"Content-Type": string(types.OCIManifestSchema1)}, 400, "MANIFEST_INVALID"},
		{"a manifest that is too large", http.MethodPut, "/v2/a/manifests/v1", strings.Repeat(" ", registry.MaxManifest+1), map[string]string{"Content-Type": string(types.OCIManifestSchema1)}, 413, "SIZE_INVALID"},
		{"an unknown path", http.MethodGet, "/v2/a/other/v1", "", nil, 405, "UNSUPPORTED"},
		{"a deletion", http.MethodDelete, "/v2/a/manifests/v1", "", nil, 405, "UNSUPPORTED"},
		{"another API", http.MethodGet, "/v1/", "", nil, 404, "UNSUPPORTED"},
	} {
		response, text := r.do(c.method, c.path, c.body, c.header)
		if response.StatusCode != c.status || !strings.Contains(text, c.code) {
			t.Errorf("%s: %d %s, want %d %s", c.reason, response.StatusCode, text, c.status, c.code)
		}
	}
}

func TestTagsInPages(t *testing.T) {
	r := start(t, t.TempDir(), everybody())
	image := must.Get(random.Image(100, 1))(t)
	for _, tag := range []string{"a", "b", "c"} {
		must.Do(t, remote.Write(r.reference("xx:"+tag), image, r.options...))
	}
	response, text := r.do(http.MethodGet, "/v2/xx/tags/list?n=2", "", nil)
	if strings.TrimSpace(text) != `{"name":"xx","tags":["a","b"]}` || response.Header.Get("Link") != `</v2/xx/tags/list?last=b&n=2>; rel="next"` {
		t.Errorf("%s %v", text, response.Header)
	}
	if response, text = r.do(http.MethodGet, "/v2/xx/tags/list?last=b&n=2", "", nil); strings.TrimSpace(text) != `{"name":"xx","tags":["c"]}` || response.Header.Get("Link") != "" {
		t.Errorf("%s %v", text, response.Header)
	}
	if response, _ = r.do(http.MethodGet, "/v2/unknown/tags/list", "", nil); response.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown repository: %d", response.StatusCode)
	}
}

// TestCutUploadLeavesNothing ends the connection in the middle of a blob.
func TestCutUploadLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	r := start(t, dir, everybody())
	text := bytes.Repeat([]byte("x"), 1<<20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body := io.MultiReader(bytes.NewReader(text[:len(text)/2]), cancelling{cancel})
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("%s/v2/a/blobs/uploads/?digest=%s", r.url, registry.DigestOf(text)), body))(t)
	request.ContentLength = int64(len(text))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{}}}
	defer client.CloseIdleConnections()
	if response, err := client.Do(request); err == nil {
		response.Body.Close()
		t.Fatalf("the request succeeded: %s", response.Status)
	}
	if response, _ := r.do(http.MethodGet, "/v2/a/blobs/"+registry.DigestOf(text), "", nil); response.StatusCode != http.StatusNotFound {
		t.Errorf("a part of the blob is visible: %d", response.StatusCode)
	}
	// A new upload is complete.
	if response, answer := r.do(http.MethodPost, "/v2/a/blobs/uploads/?digest="+registry.DigestOf(text), string(text), nil); response.StatusCode != http.StatusCreated {
		t.Errorf("%d %s", response.StatusCode, answer)
	}
}

type cancelling struct{ cancel context.CancelFunc }

func (c cancelling) Read([]byte) (int, error) {
	c.cancel()
	return 0, errors.New("cut")
}
