package registryclient_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/content"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
)

// build writes a layout with an image and a document that refers to it.
func build(t *testing.T) (layout string, image imagelist.Image, document v1.Hash) {
	t.Helper()
	s := must.Get(content.Open(t.TempDir()))(t)
	layer := must.Get(s.Layer([]content.File{{Path: "a", Mode: 0o644, Text: []byte("text")}}))(t)
	config := must.Get(s.PutJSON(types.OCIConfigJSON, v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{layer.DiffID}}}))(t)
	manifest := must.Get(s.PutJSON(types.OCIManifestSchema1, v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{layer.Descriptor()}}))(t)
	attached := must.Get(s.PutJSON(types.OCIManifestSchema1, v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: "application/x", Config: config,
		Layers: []v1.Descriptor{}, Subject: &manifest}))(t)
	must.Do(t, s.WriteIndex([]v1.Descriptor{manifest, attached}))
	return s.Layout(), imagelist.Image{Repository: "test/image", Digest: manifest.Digest.String()}, attached.Digest
}

// write writes a file and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestPush(t *testing.T) {
	layout, image, document := build(t)
	images := must.Get(registry.Open(t.TempDir()))(t)
	writers := must.Get(registry.LoadCredentials(write(t, "pipeline:0123456789abcdef")))(t)
	var writes atomic.Int32
	handler := registry.New(images, registry.Policy{Write: writers}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	registry := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			writes.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	defer registry.Close()
	host := strings.TrimPrefix(registry.URL, "https://")
	authority := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: registry.Certificate().Raw})))
	credentials := func(user string) string {
		return write(t, fmt.Sprintf(`{"auths": {%q: {"auth": %q}}}`, host, base64.StdEncoding.EncodeToString([]byte(user))))
	}
	pushWith := func(client registryclient.Options) error {
		p, err := registryclient.NewPusher(layout, host, client)
		if err != nil {
			return err
		}
		return p.Push(t.Context(), image)
	}
	for reason, c := range map[string]struct {
		client registryclient.Options
		want   string
	}{
		"no authority":           {registryclient.Options{Credentials: credentials("pipeline:0123456789abcdef")}, "certificate"},
		"no credentials":         {registryclient.Options{Authorities: authority}, "UNAUTHORIZED"},
		"wrong credentials":      {registryclient.Options{Authorities: authority, Credentials: credentials("pipeline:another-password")}, "401 Unauthorized"},
		"an authority of nobody": {registryclient.Options{Authorities: write(t, "text")}, "contains no certificate"},
		"no file of credentials": {registryclient.Options{Credentials: "missing"}, "credentials"},
		"wrong file":             {registryclient.Options{Credentials: write(t, "secret")}, "is not in the format"},
		"no credentials in it":   {registryclient.Options{Credentials: write(t, `{"credsStore": "x"}`)}, "auths: there is none"},
		"HTTP with credentials":  {registryclient.Options{PlainHTTP: true, Credentials: credentials("a:b")}, "plain-http: excludes"},
	} {
		err := pushWith(c.client)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", reason, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "another-password") || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: the error has a secret: %v", reason, err)
		}
	}
	if n := writes.Load(); n > 0 {
		t.Errorf("%d writes before the right credentials", n)
	}
	right := registryclient.Options{Authorities: authority, Credentials: credentials("pipeline:0123456789abcdef")}
	must.Do(t, pushWith(right))
	if _, err := images.Manifest(image.Repository, image.Digest); err != nil {
		t.Error(err)
	}
	if found, err := images.Referrers(image.Repository, image.Digest, "application/x"); err != nil || len(found) != 1 || found[0].Digest != document.String() {
		t.Errorf("%+v, %v", found, err)
	}
	writes.Store(0)
	if err := pushWith(right); err != nil || writes.Load() > 0 {
		t.Errorf("the second push: %v, %d writes", err, writes.Load())
	}
}

// TestPlainHTTPIsRefused pushes to a registry that serves HTTP only.
func TestPlainHTTPIsRefused(t *testing.T) {
	layout, image, _ := build(t)
	var requests atomic.Int32
	registry := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer registry.Close()
	host := strings.TrimPrefix(registry.URL, "http://")
	client := registryclient.Options{Credentials: write(t, fmt.Sprintf(`{"auths": {%q: {"auth": "YTpi"}}}`, host))}
	p := must.Get(registryclient.NewPusher(layout, host, client))(t)
	if err := p.Push(t.Context(), image); err == nil || requests.Load() > 0 {
		t.Errorf("%v, %d requests", err, requests.Load())
	}
}

// TestPushWithDial pushes to a registry whose name does not resolve, through connections that the caller opens.
func TestPushWithDial(t *testing.T) {
	layout, image, _ := build(t)
	images := must.Get(registry.Open(t.TempDir()))(t)
	registry := httptest.NewServer(registry.New(images, registry.Policy{Open: true}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()))
	defer registry.Close()
	client := registryclient.Options{PlainHTTP: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, registry.Listener.Addr().String())
	}}
	p := must.Get(registryclient.NewPusher(layout, "registry.invalid", client))(t)
	must.Do(t, p.Push(t.Context(), image))
	if _, err := images.Manifest(image.Repository, image.Digest); err != nil {
		t.Error(err)
	}
}
