package credential

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

// rejectedTimeout limits the question whether an API server rejects a certificate.
const rejectedTimeout = 3 * time.Second

// Rejected reports whether the API server rejects the current certificate: its signer was replaced because credentials of the class were
// revoked. It returns false if the server does not respond.
func (a *Access) Rejected(ctx context.Context) bool {
	certificate, err := tls.X509KeyPair([]byte(a.Certificate), []byte(a.Key))
	if err != nil || a.Server == "" {
		return false
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM([]byte(a.Authority))
	connections := transport.System()
	connections.DisableKeepAlives = true
	connections.TLSClientConfig.RootCAs = authorities
	// Certificates would leave out a certificate whose authority the server does not name, which is the one to ask about.
	connections.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	if a.Proxy != "" {
		location, err := url.Parse(a.Proxy)
		if err != nil {
			return false
		}
		connections.Proxy = http.ProxyURL(location)
	}
	client := &http.Client{Transport: connections, Timeout: rejectedTimeout}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Server+"/version", nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusUnauthorized
}
