package mesh

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// The files of an identity folder.
const (
	CertificateFile = "tls.crt"
	KeyFile         = "tls.key"
	CAFile          = "ca.crt"
)

// checkInterval is the minimum time between two checks of the files' modification times.
const checkInterval = 10 * time.Second

// Identity is the certificate of a process and the authority that it trusts. It reloads both when their files change. It is
// safe for concurrent use.
type Identity struct {
	dir string
	id  ID

	mu      sync.Mutex
	checked time.Time
	// stamp was computed before the files were read, so that a rotation during the read is detected by the next check.
	stamp stamp
	own   *tls.Certificate
	roots *x509.CertPool
}

// LoadIdentity reads tls.crt, tls.key and ca.crt from dir. The certificate must contain exactly one SPIFFE ID.
func LoadIdentity(dir string) (*Identity, error) {
	identity := &Identity{dir: dir}
	identity.stamp = identity.stampOfFiles()
	own, roots, err := identity.read()
	if err != nil {
		return nil, fmt.Errorf("reading the identity in %s: %w", dir, err)
	}
	id, err := idOf(own.Leaf)
	if err != nil {
		return nil, fmt.Errorf("reading the identity in %s: %w", dir, err)
	}
	identity.id, identity.own, identity.roots, identity.checked = id, own, roots, time.Now()
	return identity, nil
}

// ID returns the identity of the process itself.
func (i *Identity) ID() ID { return i.id }

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
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.certificate(), nil },
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
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.certificate(), nil },
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
	options := x509.VerifyOptions{Roots: i.trusted(), Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{usage}}
	if _, err := state.PeerCertificates[0].Verify(options); err != nil {
		return fmt.Errorf("verifying the certificate of %s: %w", id.URL(), err)
	}
	if id.TrustDomain != i.id.TrustDomain || !slices.Contains(peers, id.Peer) {
		return fmt.Errorf("connection between %s and %s is not allowed", id.URL(), i.id.URL())
	}
	return nil
}

func (i *Identity) certificate() *tls.Certificate {
	i.refresh()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.own
}

func (i *Identity) trusted() *x509.CertPool {
	i.refresh()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.roots
}

// refresh reloads the files if they changed. While a rotation is incomplete, the previous identity stays in use.
func (i *Identity) refresh() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.checked) < checkInterval {
		return
	}
	i.checked = time.Now()
	now := i.stampOfFiles()
	if now == i.stamp {
		return
	}
	own, roots, err := i.read()
	if err != nil {
		return
	}
	i.own, i.roots, i.stamp = own, roots, now
}

// stamp identifies the content of an identity's files by their modification times and sizes. It is compared for equality,
// because a rotation can install files that are older than the previous ones.
type stamp [3]struct{ written, size int64 }

func (i *Identity) stampOfFiles() (s stamp) {
	for n, name := range [...]string{CertificateFile, KeyFile, CAFile} {
		if info, err := os.Stat(filepath.Join(i.dir, name)); err == nil {
			s[n].written, s[n].size = info.ModTime().UnixNano(), info.Size()
		}
	}
	return s
}

func (i *Identity) read() (*tls.Certificate, *x509.CertPool, error) {
	own, err := tls.LoadX509KeyPair(filepath.Join(i.dir, CertificateFile), filepath.Join(i.dir, KeyFile))
	if err != nil {
		return nil, nil, err
	}
	pem, err := os.ReadFile(filepath.Join(i.dir, CAFile))
	if err != nil {
		return nil, nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("%s holds no certificate", CAFile)
	}
	return &own, roots, nil
}

func idOf(certificate *x509.Certificate) (ID, error) {
	if len(certificate.URIs) != 1 {
		return ID{}, fmt.Errorf("the certificate of %q has %d URIs, want one SPIFFE ID", certificate.Subject.CommonName, len(certificate.URIs))
	}
	return ParseID(certificate.URIs[0])
}
