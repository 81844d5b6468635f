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

// rereadAfter is how long a read of the identity's files is trusted before their times are looked at again.
const rereadAfter = 10 * time.Second

// Identity is a process's own certificate and the authority it trusts, kept fresh from a folder.
type Identity struct {
	dir string
	id  ID

	mu      sync.Mutex
	checked time.Time
	// stamp is of the files as they were read, or before: a rotation in between is read again.
	stamp stamp
	own   *tls.Certificate
	roots *x509.CertPool
}

// LoadIdentity reads tls.crt, tls.key and ca.crt from dir. The certificate must carry one SPIFFE id.
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

// ID is the process's own identity.
func (i *Identity) ID() ID { return i.id }

// Dir is the folder that the identity is read from.
func (i *Identity) Dir() string { return i.dir }

// ServerTLS accepts clients with a certificate of the region's authority for one of the peers. With no peers, nobody is.
func (i *Identity) ServerTLS(peers ...Peer) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2", "http/1.1"},
		// The chain is verified in VerifyConnection, against roots that may have been rotated since this was made.
		ClientAuth:       tls.RequireAnyClientCert,
		GetCertificate:   func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.certificate(), nil },
		VerifyConnection: func(state tls.ConnectionState) error { return i.verify(state, peers, x509.ExtKeyUsageClientAuth) },
	}
}

// ClientTLS presents the own certificate and accepts only the server peer, whatever its address.
func (i *Identity) ClientTLS(server Peer) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// A SPIFFE certificate names a workload and not a host, so the host name is not checked; VerifyConnection
		// checks the chain and the workload.
		InsecureSkipVerify:   true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.certificate(), nil },
		VerifyConnection: func(state tls.ConnectionState) error {
			return i.verify(state, []Peer{server}, x509.ExtKeyUsageServerAuth)
		},
	}
}

// PeerOf is the verified identity at the other end of a connection that was made with one of the configs above.
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
		return fmt.Errorf("%s may not talk to %s here", id.URL(), i.id.URL())
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

// refresh reads the files again if they changed. A half-written rotation keeps the old identity until it is whole.
func (i *Identity) refresh() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if time.Since(i.checked) < rereadAfter {
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

// stamp tells the files of an identity from others: when each was written, and how large it is. A rotation may bring files that are
// older than those before.
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
		return ID{}, fmt.Errorf("the certificate of %q carries %d URIs, not one SPIFFE id", certificate.Subject.CommonName, len(certificate.URIs))
	}
	return ParseID(certificate.URIs[0])
}
