package mesh

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// The files of an identity folder.
const (
	CertificateFile = "tls.crt"
	KeyFile         = "tls.key"
	CAFile          = "ca.crt"
)

// Identity is the certificate of a process and the authorities that it trusts. Each TLS handshake uses the current files. It is safe for
// concurrent use.
type Identity struct {
	dir   string
	id    ID
	own   *certfile.Pair
	roots *certfile.Roots
}

// LoadIdentity reads tls.crt, tls.key and ca.crt from dir. The certificate must contain exactly one SPIFFE ID.
func LoadIdentity(dir string) (*Identity, error) {
	identity, err := load(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the identity in %s: %w", dir, err)
	}
	return identity, nil
}

func load(dir string) (*Identity, error) {
	own, err := certfile.LoadPair(filepath.Join(dir, CertificateFile), filepath.Join(dir, KeyFile))
	if err != nil {
		return nil, err
	}
	roots, err := certfile.LoadRoots(filepath.Join(dir, CAFile))
	if err != nil {
		return nil, err
	}
	id, err := idOf(own.Certificate().Leaf)
	if err != nil {
		return nil, err
	}
	return &Identity{dir: dir, id: id, own: own, roots: roots}, nil
}

// ID returns the identity of the process itself.
func (i *Identity) ID() ID { return i.id }

// Certificate returns the current certificate, which must not be changed.
func (i *Identity) Certificate() *tls.Certificate { return i.own.Certificate() }

// Dir returns the folder of the identity's files.
func (i *Identity) Dir() string { return i.dir }

// ServerTLS returns a configuration for servers. It accepts clients with a certificate of the region's authority for one
// of the peers. Without peers it accepts no client.
func (i *Identity) ServerTLS(peers ...Peer) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2", "http/1.1"},
		// VerifyConnection verifies the chain, because the roots may be rotated after this configuration was created.
		ClientAuth:       tls.RequireAnyClientCert,
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.own.Certificate(), nil },
		VerifyConnection: func(state tls.ConnectionState) error { return i.verify(state, peers, x509.ExtKeyUsageClientAuth) },
	}
}

// ClientTLS returns a configuration for clients. It presents the identity's certificate and accepts only the given server,
// at any address.
func (i *Identity) ClientTLS(server Peer) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// A SPIFFE certificate names a workload and not a host, so the host name is not verified. VerifyConnection
		// verifies the chain and the workload.
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.own.Certificate(), nil },
		VerifyConnection: func(state tls.ConnectionState) error {
			return i.verify(state, []Peer{server}, x509.ExtKeyUsageServerAuth)
		},
	}
}

// PeerOf returns the verified identity of the other side of a connection that uses ServerTLS or ClientTLS.
func PeerOf(state tls.ConnectionState) (ID, error) {
	if len(state.PeerCertificates) == 0 {
		return ID{}, errors.New("the peer presented no certificate")
	}
	return idOf(state.PeerCertificates[0])
}

func (i *Identity) verify(state tls.ConnectionState, peers []Peer, usage x509.ExtKeyUsage) error {
	id, err := PeerOf(state)
	if err != nil {
		return err
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range state.PeerCertificates[1:] {
		intermediates.AddCert(certificate)
	}
	options := x509.VerifyOptions{Roots: i.roots.Pool(), Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{usage}}
	if _, err := state.PeerCertificates[0].Verify(options); err != nil {
		return fmt.Errorf("verifying the certificate of %s: %w", id.URL(), err)
	}
	if id.TrustDomain != i.id.TrustDomain || !slices.Contains(peers, id.Peer) {
		return &notAllowedError{from: id, to: i.id}
	}
	return nil
}

// notAllowedError is the error of a connection with a verified workload that is not one of the expected ones.
type notAllowedError struct{ from, to ID }

func (e *notAllowedError) Error() string {
	return fmt.Sprintf("connection between %s and %s is not allowed", e.from.URL(), e.to.URL())
}

// client returns the workload of the other side; with its SPIFFE ID if it belongs to another trust domain.
func (e *notAllowedError) client() Peer {
	if e.from.TrustDomain != e.to.TrustDomain {
		return Peer(e.from.URL().String())
	}
	return e.from.Peer
}

func idOf(certificate *x509.Certificate) (ID, error) {
	if len(certificate.URIs) != 1 {
		return ID{}, fmt.Errorf("the certificate of %q has %d URIs, want one SPIFFE ID", certificate.Subject.CommonName, len(certificate.URIs))
	}
	return ParseID(certificate.URIs[0])
}
