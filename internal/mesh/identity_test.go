package mesh

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRotatedCertificateIsReloaded checks that the next handshake uses a new certificate, regardless of its modification times, and that
// an incomplete rotation keeps the old one in use.
func TestRotatedCertificateIsReloaded(t *testing.T) {
	dir := t.TempDir()
	authority, err := OpenAuthority(t.TempDir(), "local")
	if err != nil {
		t.Fatal(err)
	}
	// ca.crt has the latest modification time, which does not change.
	bundled := time.Now().Add(time.Hour)
	issue := func() {
		t.Helper()
		if err := authority.Issue(dir, Frontend); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, CAFile), bundled, bundled); err != nil {
			t.Fatal(err)
		}
	}
	issue()
	identity, err := LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		t.Helper()
		certificate, err := identity.ClientTLS(ClusterService).GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return certificate.Leaf.SerialNumber.String()
	}
	first := serial()
	if serial() != first {
		t.Error("the certificate changed although its files did not")
	}
	issue()
	second := serial()
	if second == first {
		t.Error("the rotation was not detected")
	}
	if err := os.WriteFile(filepath.Join(dir, KeyFile), []byte("half a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if serial() != second {
		t.Error("an incomplete rotation replaced the identity")
	}
	issue()
	if third := serial(); third == second {
		t.Error("the rotation was not detected after it was complete")
	}
}
