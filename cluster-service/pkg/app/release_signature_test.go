package app_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// signReleases signs the releases of the built-in catalogue with a new key and returns the flags with which Cluster Service verifies
// them.
func signReleases(t *testing.T, dir string) []string {
	t.Helper()
	key := must.Get(signature.NewKey(signature.KeyOptions{Name: "publisher"}))(t)
	public := must.Get(key.PublicKey())(t)
	root, signatures := filepath.Join(dir, "trust-root.asc"), filepath.Join(dir, "signatures")
	must.Do(t, os.WriteFile(root, public, 0o600))
	must.Do(t, os.Mkdir(signatures, 0o700))
	catalog := must.Get(release.Load(""))(t)
	for _, known := range catalog.Releases() {
		must.Do(t, key.SignInto(signatures, known.Digest, signature.NewReference(known.Image, known.Version.String())))
	}
	return []string{"--release-trust-root-file=" + root, "--release-signatures=file://" + signatures}
}
