package mqttlink_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// identityFiles writes the certificate of a client, with its key in the same file as Key Vaults have it, and the authority as ca.crt.
func identityFiles(t *testing.T, signer *authority.Authority) string {
	t.Helper()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	template := x509.Certificate{Subject: pkix.Name{CommonName: "agent"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	if err := signer.Issue(certificate, key, template, "127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	var both []byte
	for _, file := range []string{key, certificate} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, text...)
	}
	for _, file := range []string{key, certificate} {
		if err := os.WriteFile(file, both, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), signer.CertificatePEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// handshake connects to a server with the certificate of dir.
func handshake(t *testing.T, dir string) error {
	t.Helper()
	identity, err := mqttlink.LoadIdentity(dir)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := identity.ClientTLS("127.0.0.1:8883")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		_ = connection.(*tls.Conn).HandshakeContext(t.Context())
	})
	defer served.Wait()
	defer listener.Close()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	return tls.Client(connection, config).HandshakeContext(t.Context())
}

// TestIdentityWithoutAuthoritiesTrustsThoseOfTheSystem removes ca.crt: a server of another authority is not trusted any more.
func TestIdentityWithoutAuthoritiesTrustsThoseOfTheSystem(t *testing.T) {
	signer, err := authority.Open(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	dir := identityFiles(t, signer)
	if err := handshake(t, dir); err != nil {
		t.Fatalf("with the authority in ca.crt: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	var unknown x509.UnknownAuthorityError
	if err := handshake(t, dir); !errors.As(err, &unknown) {
		t.Errorf("without ca.crt, a server of an authority that the system does not trust: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mqttlink.LoadIdentity(dir); err == nil {
		t.Error("an invalid ca.crt is accepted")
	}
}
