package app_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
)

// signReleases signs the releases of the built-in catalogue with a new key and returns the flags with which Cluster Service verifies
// them.
func signReleases(t *testing.T, dir string) []string {
	t.Helper()
	key, err := signature.NewKey(signature.KeyOptions{Name: "publisher"})
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	root, signatures := filepath.Join(dir, "trust-root.asc"), filepath.Join(dir, "signatures")
	if err := os.WriteFile(root, public, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(signatures, 0o700); err != nil {
		t.Fatal(err)
	}
	catalog, err := release.Load("")
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range catalog.Releases() {
		if err := key.SignInto(signatures, known.Digest, signature.NewReference(known.Image, known.Version.String())); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--release-trust-root-file=" + root, "--release-signatures=file://" + signatures}
}
