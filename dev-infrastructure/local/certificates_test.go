package local

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/authorities"
	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// onlyPostgres returns the configuration of a region with PostgreSQL alone.
func onlyPostgres(dir string) Config {
	config := thirdParties(dir)
	config.ManagementClusters = 1
	complete := Config{ManagementClusters: 1}
	config.Without = nil
	for _, name := range complete.ProcessNames() {
		if name != "postgres" {
			config.Without = append(config.Without, name)
		}
	}
	return config
}

// connects makes Cluster Service's identity connect to PostgreSQL.
func connects(t *testing.T, region *Region) error {
	t.Helper()
	identity := must.Get(mesh.LoadIdentity(region.Endpoints().Identities["cluster-service"]))(t)
	url := must.Get(os.ReadFile(region.databaseURLFile(ClusterServiceDatabase)))(t)
	pool := must.Get(postgres.Open(t.Context(), postgres.Options{URL: strings.TrimSpace(string(url)), Application: "test",
		Authentication: postgres.Authentication{TLS: identity.ClientTLS(mesh.PostgreSQL)}}))(t)
	defer pool.Close()
	return pool.Ping(t.Context())
}

// leaf returns the certificate in an identity's folder.
func leaf(t *testing.T, region *Region, name string) *x509.Certificate {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(region.identityDir(name), mesh.CertificateFile)))(t)
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("the certificate of %s is not PEM", name)
	}
	return must.Get(x509.ParseCertificate(block.Bytes))(t)
}

// shortLifetime is a lifetime of certificates whose end a test awaits. A renewal on a busy machine takes a small part of it.
const shortLifetime = time.Minute

// TestCertificatesAreRenewedWhileRunning runs a region for longer than the lifetime of its certificates. The context of the start has ended.
func TestCertificatesAreRenewedWhileRunning(t *testing.T) {
	nightly.Only(t)
	ctx := testContext(t)
	config := onlyPostgres(stateDir(t))
	config.CertificateLifetime = shortLifetime.String()
	starting, started := context.WithCancel(ctx)
	region, err := Start(starting, config)
	started()
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	first := leaf(t, region, "postgres")
	if lifetime := time.Until(first.NotAfter); lifetime > shortLifetime {
		t.Fatalf("the certificate is valid for %s", lifetime)
	}
	until(ctx, t, "the first certificate to end and be replaced", func() bool {
		return time.Now().After(first.NotAfter) && leaf(t, region, "postgres").SerialNumber.Cmp(first.SerialNumber) != 0
	})
	// Neither side would accept the certificates of the start.
	until(ctx, t, "a connection with renewed certificates", func() bool { return connects(t, region) == nil })
	for _, identity := range region.identities() {
		if certificate := leaf(t, region, identity.name); !certificate.NotAfter.After(first.NotAfter) {
			t.Errorf("the certificate of %s was not renewed", identity.name)
		}
	}
	for _, process := range region.Status().Processes {
		if process.Restarts != 0 {
			t.Errorf("%s was restarted", process.Name)
		}
	}
	if problem := region.Status().Certificates.Error; problem != "" {
		t.Error(problem)
	}
}

// TestFailedRenewalIsReported makes a folder of an identity unusable, and repairs it.
func TestFailedRenewalIsReported(t *testing.T) {
	nightly.Only(t)
	ctx := testContext(t)
	config := onlyPostgres(stateDir(t))
	config.CertificateLifetime = shortLifetime.String()
	region := must.Get(Start(ctx, config))(t)
	defer region.Close()
	// A folder in place of the temporary file makes the write fail.
	obstacle := filepath.Join(region.identityDir("backend"), mesh.CertificateFile+".part")
	must.Do(t, os.Mkdir(obstacle, 0o700))
	until(ctx, t, "the error", func() bool { return strings.Contains(region.Status().Certificates.Error, "backend") })
	must.Do(t, os.Remove(obstacle))
	until(ctx, t, "a renewal", func() bool {
		status := region.Status().Certificates
		return status.Error == "" && status.End.After(time.Now())
	})
}

// trusted returns how many authorities the processes of a region trust. All must trust the same.
func trusted(t *testing.T, region *Region) int {
	t.Helper()
	bundle := must.Get(os.ReadFile(filepath.Join(region.authorityDir(), authority.CertificateFile)))(t)
	for _, identity := range region.identities() {
		own, err := os.ReadFile(filepath.Join(region.identityDir(identity.name), mesh.CAFile))
		if err != nil || !bytes.Equal(own, bundle) {
			t.Errorf("%s trusts other authorities than the region: %v", identity.name, err)
		}
	}
	return bytes.Count(bundle, []byte("BEGIN CERTIFICATE"))
}

// TestAuthorityIsReplacedWhileRunning connects to PostgreSQL after each step.
func TestAuthorityIsReplacedWhileRunning(t *testing.T) {
	nightly.Only(t)
	ctx := testContext(t)
	region := must.Get(Start(ctx, onlyPostgres(stateDir(t))))(t)
	defer region.Close()
	before := must.Get(os.ReadFile(filepath.Join(region.authorityDir(), authority.CertificateFile)))(t)
	var steps []authorities.Step
	must.Do(t, region.RotateAuthority(ctx, ServicesAuthority, func(step authorities.Step) {
		steps = append(steps, step)
		if err := connects(t, region); err != nil {
			t.Errorf("at the begin of the step %q: %v", step, err)
		}
	}))
	if len(steps) != 4 || steps[3] != authorities.None {
		t.Errorf("the steps were %q", steps)
	}
	if err := connects(t, region); err != nil {
		t.Error(err)
	}
	if n := trusted(t, region); n != 1 {
		t.Errorf("%d authorities are trusted", n)
	}
	block, _ := pem.Decode(before)
	previous := must.Get(x509.ParseCertificate(block.Bytes))(t)
	for _, identity := range region.identities() {
		if leaf(t, region, identity.name).CheckSignatureFrom(previous) == nil {
			t.Errorf("%s has a certificate of the previous authority", identity.name)
		}
	}
}

// TestInterruptedReplacementContinues interrupts a replacement in each step. The next call continues, and so does the next start.
func TestInterruptedReplacementContinues(t *testing.T) {
	nightly.Only(t)
	ctx := testContext(t)
	config := onlyPostgres(stateDir(t))
	region := must.Get(Start(ctx, config))(t)
	defer func() { region.Close() }()
	for i, last := range []authorities.Step{authorities.Trusting, authorities.Issuing, authorities.Removing} {
		interrupted, interrupt := context.WithCancel(ctx)
		err := region.RotateAuthority(interrupted, ServicesAuthority, func(step authorities.Step) {
			if step == last {
				interrupt()
			}
		})
		interrupt()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted in the step %s: %v", last, err)
		}
		if err := connects(t, region); err != nil {
			t.Errorf("interrupted in the step %s: %v", last, err)
		}
		if i%2 == 0 {
			err = region.RotateAuthority(ctx, ServicesAuthority, func(authorities.Step) {})
		} else {
			region.Close()
			var restarted *Region
			if restarted, err = Start(ctx, config); err == nil {
				region = restarted
			}
		}
		if err != nil {
			t.Fatalf("continued after the step %s: %v", last, err)
		}
		if n := trusted(t, region); n != 1 {
			t.Errorf("continued after the step %s: %d authorities are trusted", last, n)
		}
		if err := connects(t, region); err != nil {
			t.Errorf("continued after the step %s: %v", last, err)
		}
	}
}
