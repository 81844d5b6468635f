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
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// identityFiles writes the certificate of a client, with its key in the same file as Key Vaults have it, and the authority as ca.crt.
func identityFiles(t *testing.T, signer *authority.Authority) string {
	t.Helper()
	dir := t.TempDir()
	certificate, key := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	template := x509.Certificate{Subject: pkix.Name{CommonName: "agent"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	must.Do(t, signer.Issue(certificate, key, template, "127.0.0.1"))
	var both []byte
	for _, file := range []string{key, certificate} {
		text := must.Get(os.ReadFile(file))(t)
		both = append(both, text...)
	}
	for _, file := range []string{key, certificate} {
		must.Do(t, os.WriteFile(file, both, 0o600))
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "ca.crt"), signer.CertificatePEM(), 0o600))
	return dir
}

// handshake connects to a server with the certificate of dir.
func handshake(t *testing.T, dir string) error {
	t.Helper()
	identity := must.Get(mqttlink.LoadIdentity(dir))(t)
	pair := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")))(t)
	config := must.Get(identity.ClientTLS("127.0.0.1:8883"))(t)
	listener := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}))(t)
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
	connection := must.Get(net.Dial("tcp", listener.Addr().String()))(t)
	defer connection.Close()
	return tls.Client(connection, config).HandshakeContext(t.Context())
}

// TestIdentityWithoutAuthoritiesTrustsThoseOfTheSystem removes ca.crt: a server of another authority is not trusted any more.
func TestIdentityWithoutAuthoritiesTrustsThoseOfTheSystem(t *testing.T) {
	signer := must.Get(authority.Open(t.TempDir(), "test"))(t)
	dir := identityFiles(t, signer)
	if err := handshake(t, dir); err != nil {
		t.Fatalf("with the authority in ca.crt: %v", err)
	}
	must.Do(t, os.Remove(filepath.Join(dir, "ca.crt")))
	var unknown x509.UnknownAuthorityError
	if err := handshake(t, dir); !errors.As(err, &unknown) {
		t.Errorf("without ca.crt, a server of an authority that the system does not trust: %v", err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("no certificate"), 0o600))
	if _, err := mqttlink.LoadIdentity(dir); err == nil {
		t.Error("an invalid ca.crt is accepted")
	}
}
