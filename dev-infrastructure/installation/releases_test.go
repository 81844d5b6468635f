package installation_test

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/update-graph/graph"
)

// releaseHosts are the names of OpenShift's update service and of its store of signatures.
func releaseHosts(t *testing.T, target values.Target) []string {
	t.Helper()
	return []string{hostIn(t, textOf(t, target, "clusterService", "updateGraphUrl")), hostIn(t, textOf(t, target, "clusterService", "releaseSignatures"))}
}

// releasesDir is the folder of the signatures of releases and of their trust root.
func (r *region) releasesDir() string { return filepath.Join(r.dir, "releases") }

// signReleases signs the releases of the built-in catalogue and returns the file of the trust root.
func (r *region) signReleases() string {
	r.t.Helper()
	signatures := filepath.Join(r.releasesDir(), "signatures")
	if err := os.MkdirAll(signatures, 0o700); err != nil {
		r.t.Fatal(err)
	}
	key, err := signature.LoadOrCreateKey(filepath.Join(r.releasesDir(), "signing.asc"), "test")
	if err != nil {
		r.t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, known := range r.catalogue().Releases() {
		if err := key.SignInto(signatures, known.Digest, signature.NewReference(known.Image, known.Version.String())); err != nil {
			r.t.Fatal(err)
		}
	}
	trustRoot := filepath.Join(r.releasesDir(), "trust-root.asc")
	if err := os.WriteFile(trustRoot, public, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return trustRoot
}

func (r *region) catalogue() *release.Catalog {
	r.t.Helper()
	catalogue, err := release.Load("")
	if err != nil {
		r.t.Fatal(err)
	}
	return catalogue
}

// startReleases serves the update graph and the signatures under the names of OpenShift's.
func (r *region) startReleases() {
	r.t.Helper()
	r.serveHTTPS(hostIn(r.t, r.text("clusterService", "updateGraphUrl")), mesh.UpdateGraph, graph.New(r.catalogue(), prometheus.NewRegistry()))
	store, err := url.Parse(r.text("clusterService", "releaseSignatures"))
	if err != nil {
		r.t.Fatal(err)
	}
	files := http.FileServer(http.Dir(filepath.Join(r.releasesDir(), "signatures")))
	r.serveHTTPS(store.Hostname(), mesh.UpdateGraph, http.StripPrefix(strings.TrimSuffix(store.Path, "/"), files))
}
