package runbook

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// TestRotation replaces the authorities, and then prevents their renewal.
func TestRotation(t *testing.T) {
	nightly.Only(t)
	region := startRegion(t, local.Config{CertificateLifetime: "30s"})
	identity := region.Endpoints().Identities["backend"]
	r := rehearse(t, "rotation.md", region.Dir, "PROCESS", "postgres", "<identity-dir>", identity)

	former := trusted(t, identity)
	r.expect("hcpctl region ca rotate", "Trusting", "Issuing", "Removing", "the authority services was replaced")
	if now := trusted(t, identity); bytes.Equal(now, former) || bytes.Count(now, []byte("BEGIN CERTIFICATE")) != 1 {
		t.Errorf("the backend trusts other authorities than the new one:\n%s", now)
	}
	r.follow("hcpctl region restart postgres")
	r.expect("hcpctl region ca rotate etcd", "the authority etcd was replaced")
	r.expect("hcpctl region ca rotate mgmt-1", "the authority mgmt-1 was replaced")
	await(t, region, local.PhaseReady)

	// A folder in place of the temporary file makes the write fail.
	obstacle := filepath.Join(identity, mesh.CertificateFile+".part")
	must.Do(t, os.Mkdir(obstacle, 0o700))
	eventually.Soon(t, "a renewal fails", func() error {
		if region.Status().Certificates.Error == "" {
			return errors.New("no error")
		}
		return nil
	})

	before := end(t, r.follow("openssl x509"))
	r.expect("hcpctl region status", "CERTIFICATES NOT RENEWED", identity)
	must.Do(t, os.Remove(obstacle))
	eventually.Soon(t, "a renewal succeeds", func() error {
		if status := region.Status().Certificates; status.Error != "" {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})

	if after := end(t, r.follow("openssl x509")); !after.After(before) {
		t.Errorf("the certificate ends at %s, before the repair at %s", after, before)
	}
	if output := r.follow("hcpctl region status"); strings.Contains(output, "NOT RENEWED") {
		t.Error("the status has the former error")
	}
	r.complete()
}

func trusted(t *testing.T, identity string) []byte {
	t.Helper()
	return must.Get(os.ReadFile(filepath.Join(identity, mesh.CAFile)))(t)
}

// end returns the end of a certificate in the output of openssl.
func end(t *testing.T, output string) time.Time {
	t.Helper()
	return must.Get(time.Parse("notAfter=Jan _2 15:04:05 2006 GMT", strings.TrimSpace(output)))(t)
}
