package mesh

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/authority"
)

// Authority is the certificate authority of a local region or a test. In AKS, Istio issues the certificates.
type Authority struct {
	*authority.Authority
	trustDomain string
}

// OpenAuthority reads the authority of trustDomain from ca.crt and ca.key in dir, or creates these files.
func OpenAuthority(dir, trustDomain string) (*Authority, error) {
	opened, err := authority.Open(dir, "hcpmesh "+trustDomain)
	if err != nil {
		return nil, err
	}
	return &Authority{Authority: opened, trustDomain: trustDomain}, nil
}

// Issue writes the identity folder of a workload to dir. Besides the SPIFFE ID the certificate contains hosts: DNS names or
// IP addresses, for clients that verify host names and for brokers that read a DNS name.
func (a *Authority) Issue(dir string, peer Peer, hosts ...string) error {
	if err := a.IssueFor(defaultLifetime, dir, peer, hosts...); err != nil {
		return err
	}
	return authority.WriteFile(filepath.Join(dir, CAFile), a.CertificatePEM(), 0o644)
}

// defaultLifetime is the lifetime of the certificates of Issue.
const defaultLifetime = 365 * 24 * time.Hour

// IssueFor writes the certificate and the key of Issue, with another lifetime, and not the trusted authorities.
func (a *Authority) IssueFor(lifetime time.Duration, dir string, peer Peer, hosts ...string) error {
	id := ID{TrustDomain: a.trustDomain, Peer: peer}
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: string(peer)},
		URIs:        []*url.URL{id.URL()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	return a.Authority.IssueFor(lifetime, filepath.Join(dir, CertificateFile), filepath.Join(dir, KeyFile), template, hosts...)
}
