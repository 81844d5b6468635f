package local

import (
	"fmt"
	"os"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
)

// trustRootFile returns the file of the public key that signs the region's releases, and signaturesDir the folder of the signatures.
func (r *Region) trustRootFile() string { return r.state.path("releases", "trust-root.asc") }

func (r *Region) signaturesDir() string { return r.state.path("releases", "signatures") }

// signReleases signs the releases of the built-in catalogue and of the region's catalogue, in place of OpenShift's publisher. The
// built-in ones may be added to the region's catalogue while the region runs; a release with another digest needs a restart.
func (r *Region) signReleases() error {
	if err := os.MkdirAll(r.signaturesDir(), 0o755); err != nil {
		return fmt.Errorf("creating the folder of the releases' signatures: %w", err)
	}
	key, err := signature.LoadOrCreateKey(r.state.path("secrets", "release-signing.asc"), "hcpmesh local region")
	if err != nil {
		return fmt.Errorf("reading the key that signs releases: %w", err)
	}
	public, err := key.PublicKey()
	if err != nil {
		return err
	}
	if err := replaceFile(r.trustRootFile(), public, 0o644); err != nil {
		return err
	}
	catalogs, err := r.releaseCatalogs()
	if err != nil {
		return err
	}
	for _, catalog := range catalogs {
		for _, known := range catalog.Releases() {
			reference := signature.NewReference(known.Image, known.Version.String())
			if err := key.SignInto(r.signaturesDir(), known.Digest, reference); err != nil {
				return fmt.Errorf("signing release %s: %w", known.Version, err)
			}
		}
	}
	return nil
}

// releaseCatalogs returns the built-in catalogue and that of the region.
func (r *Region) releaseCatalogs() ([]*release.Catalog, error) {
	var catalogs []*release.Catalog
	for _, path := range []string{"", r.config.ReleaseCatalog} {
		catalog, err := release.Load(path)
		if err != nil {
			return nil, err
		}
		catalogs = append(catalogs, catalog)
	}
	return catalogs, nil
}

// releaseRepositories returns the repositories of the region's release images.
func (r *Region) releaseRepositories() ([]string, error) {
	catalogs, err := r.releaseCatalogs()
	if err != nil {
		return nil, err
	}
	var repositories []string
	for _, catalog := range catalogs {
		repositories = append(repositories, catalog.Repositories()...)
	}
	slices.Sort(repositories)
	return slices.Compact(repositories), nil
}

// signatureFlags returns the flags with which Cluster Service verifies releases.
func (r *Region) signatureFlags() []string {
	return []string{"--release-trust-root-file=" + r.trustRootFile(), "--release-signatures=file://" + r.signaturesDir()}
}
