package authority_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/authority"
)

func TestIssuedCertificatesAreTrusted(t *testing.T) {
	dir := t.TempDir()
	first, err := authority.Open(filepath.Join(dir, "ca"), "test")
	if err != nil {
		t.Fatal(err)
	}
	again, err := authority.Open(filepath.Join(dir, "ca"), "another name")
	if err != nil {
		t.Fatal(err)
	}
	if string(first.CertificatePEM()) != string(again.CertificatePEM()) {
		t.Error("opening the folder again created another authority")
	}

	certificateFile, keyFile := filepath.Join(dir, "server", "tls.crt"), filepath.Join(dir, "server", "tls.key")
	template := x509.Certificate{Subject: pkix.Name{CommonName: "server"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if err := again.Issue(certificateFile, keyFile, template, "localhost", "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(certificateFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
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
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v", file, info.Mode())
		}
	}
}

func TestIncompleteAuthorityIsCreatedAgain(t *testing.T) {
	dir := t.TempDir()
	if _, err := authority.Open(dir, "test"); err != nil {
		t.Fatal(err)
	}
	// A crash between the writes of the two files leaves this state.
	if err := os.Remove(filepath.Join(dir, authority.CertificateFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Open(dir, "test"); err != nil {
		t.Error(err)
	}
}

func TestInvalidAuthorityIsNotReplaced(t *testing.T) {
	dir := t.TempDir()
	if _, err := authority.Open(dir, "test"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, authority.KeyFile), []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := authority.Open(dir, "test"); err == nil {
		t.Error("an invalid file was accepted")
	}
}

func TestKeyIsCreatedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sa.key")
	if err := authority.EnsureKey(path); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := authority.EnsureKey(path); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Error("the key was replaced")
	}
}
