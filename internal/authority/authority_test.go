package authority_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestIssuedCertificatesAreTrusted(t *testing.T) {
	dir := t.TempDir()
	first := must.Get(authority.Open(filepath.Join(dir, "ca"), "test"))(t)
	again := must.Get(authority.Open(filepath.Join(dir, "ca"), "another name"))(t)
	if string(first.CertificatePEM()) != string(again.CertificatePEM()) {
		t.Error("opening the folder again created another authority")
	}

	certificateFile, keyFile := filepath.Join(dir, "server", "tls.crt"), filepath.Join(dir, "server", "tls.key")
	template := x509.Certificate{Subject: pkix.Name{CommonName: "server"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	must.Do(t, again.Issue(certificateFile, keyFile, template, "localhost", "127.0.0.1"))
	pair := must.Get(tls.LoadX509KeyPair(certificateFile, keyFile))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(first.CertificatePEM())
	for _, host := range []string{"localhost", "127.0.0.1"} {
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host}); err != nil {
			t.Errorf("as %s: %v", host, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "elsewhere"}); err == nil {
		t.Error("the certificate is valid for another host")
	}

	for _, file := range []string{keyFile, filepath.Join(dir, "ca", authority.KeyFile)} {
		info := must.Get(os.Stat(file))(t)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", file, info.Mode())
		}
	}
}

func TestIncompleteAuthorityIsCreatedAgain(t *testing.T) {
	dir := t.TempDir()
	must.Get(authority.Open(dir, "test"))(t)
	// A crash between the writes of the two files leaves this state.
	must.Do(t, os.Remove(filepath.Join(dir, authority.CertificateFile)))
	if _, err := authority.Open(dir, "test"); err != nil {
		t.Error(err)
	}
}

func TestInvalidAuthorityIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	must.Get(authority.Open(dir, "test"))(t)
	must.Do(t, os.WriteFile(filepath.Join(dir, authority.KeyFile), []byte("not a key"), 0o600))
	if _, err := authority.Open(dir, "test"); err == nil {
		t.Error("an invalid file was accepted")
	}
}

func TestKeyIsCreatedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sa.key")
	must.Do(t, authority.EnsureKey(path))
	before := must.Get(os.ReadFile(path))(t)
	must.Do(t, authority.EnsureKey(path))
	after := must.Get(os.ReadFile(path))(t)
	if string(before) != string(after) {
		t.Error("the key was replaced")
	}
}
