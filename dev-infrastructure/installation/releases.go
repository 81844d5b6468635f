package installation

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/tooling/update-graph/pkg/graph"
)

// releasesDir is the folder of the signatures of releases and of their trust root.
func (s *Outside) releasesDir() string { return filepath.Join(s.Dir, "releases") }

// SignReleases signs the releases of the built-in catalogue and returns the file of the trust root.
func (s *Outside) SignReleases() (trustRoot string, err error) {
	signatures := filepath.Join(s.releasesDir(), "signatures")
	if err := os.MkdirAll(signatures, 0o700); err != nil {
		return "", err
	}
	key, err := signature.LoadOrCreateKey(filepath.Join(s.releasesDir(), "signing.asc"), "test")
	if err != nil {
		return "", err
	}
	public, err := key.PublicKey()
	if err != nil {
		return "", err
	}
	catalogue, err := release.Load("")
	if err != nil {
		return "", err
	}
	for _, known := range catalogue.Releases() {
		if err := key.SignInto(signatures, known.Digest, signature.NewReference(known.Image, known.Version.String())); err != nil {
			return "", err
		}
	}
	trustRoot = filepath.Join(s.releasesDir(), "trust-root.asc")
	return trustRoot, os.WriteFile(trustRoot, public, 0o600)
}

// StartReleases serves the update graph and the signatures of SignReleases under the names of OpenShift's.
func (s *Outside) StartReleases(ctx context.Context) error {
	r := s.settings()
	updates, store := r.host("clusterService", "updateGraphUrl"), r.text("clusterService", "releaseSignatures")
	if r.err != nil {
		return r.err
	}
	location, err := url.Parse(store)
	if err != nil {
		return err
	}
	catalogue, err := release.Load("")
	if err != nil {
		return err
	}
	if _, err := s.serveHTTPS(ctx, mesh.UpdateGraph, graph.New(catalogue, prometheus.NewRegistry()), updates); err != nil {
		return err
	}
	files := http.FileServer(http.Dir(filepath.Join(s.releasesDir(), "signatures")))
	_, err = s.serveHTTPS(ctx, mesh.UpdateGraph, http.StripPrefix(strings.TrimSuffix(location.Path, "/"), files), location.Hostname())
	return err
}
