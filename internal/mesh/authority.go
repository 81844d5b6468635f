package mesh

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/internal/authority"
)

// Authority is a region's certificate authority, for the local region and for tests. In AKS Istio's takes its place.
type Authority struct {
	*authority.Authority
	trustDomain string
}

// OpenAuthority reads the authority of trustDomain from dir (ca.crt and ca.key), or makes it there.
func OpenAuthority(dir, trustDomain string) (*Authority, error) {
	opened, err := authority.Open(dir, "hcpmesh "+trustDomain)
	if err != nil {
		return nil, err
	}
	return &Authority{Authority: opened, trustDomain: trustDomain}, nil
}

// Issue writes an identity folder for a workload. Beside the SPIFFE id the certificate carries hosts, DNS names or IP
// addresses, for clients that check host names or brokers that read a DNS name.
func (a *Authority) Issue(dir string, peer Peer, hosts ...string) error {
	id := ID{TrustDomain: a.trustDomain, Peer: peer}
	template := x509.Certificate{
		Subject:     pkix.Name{CommonName: string(peer)},
		URIs:        []*url.URL{id.URL()},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if err := a.Authority.Issue(filepath.Join(dir, CertificateFile), filepath.Join(dir, KeyFile), template, hosts...); err != nil {
		return err
	}
	return authority.WriteFile(filepath.Join(dir, CAFile), a.CertificatePEM(), 0o644)
}
