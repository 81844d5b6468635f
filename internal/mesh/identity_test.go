package mesh

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRotatedCertificateIsReloaded checks that the next handshake uses a new certificate, regardless of its modification times, and that
// an incomplete rotation keeps the old one in use.
func TestRotatedCertificateIsReloaded(t *testing.T) {
	dir := t.TempDir()
	authority := must.Get(OpenAuthority(t.TempDir(), "local"))(t)
	// ca.crt has the latest modification time, which does not change.
	bundled := time.Now().Add(time.Hour)
	issue := func() {
		t.Helper()
		must.Do(t, authority.Issue(dir, Frontend))
		must.Do(t, os.Chtimes(filepath.Join(dir, CAFile), bundled, bundled))
	}
	issue()
	identity := must.Get(LoadIdentity(dir))(t)
	serial := func() string {
		t.Helper()
		certificate := must.Get(identity.ClientTLS(ClusterService).GetClientCertificate(nil))(t)
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
	must.Do(t, os.WriteFile(filepath.Join(dir, KeyFile), []byte("half a key"), 0o600))
	if serial() != second {
		t.Error("an incomplete rotation replaced the identity")
	}
	issue()
	if third := serial(); third == second {
		t.Error("the rotation was not detected after it was complete")
	}
}
