// Package transport builds the transports of all HTTP requests of hcpctl, so that proxies count for every command alike: HTTP_PROXY,
// HTTPS_PROXY and NO_PROXY select them, as package http documents. Only connections to the supervisor of a local region, which is a Unix
// socket, have another transport.
package transport

import (
	"crypto/tls"
	"fmt"
	"net/http"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// System returns a transport that trusts the certificate authorities of the system.
func System() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = http.ProxyFromEnvironment
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	return transport
}

// New returns a transport that trusts only the certificate authorities in a PEM file; an empty caFile trusts those of the system.
func New(caFile string) (*http.Transport, error) {
	transport := System()
	if caFile == "" {
		return transport, nil
	}
	authorities, err := certfile.LoadRoots(caFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority: %w", err)
	}
	transport.TLSClientConfig.RootCAs = authorities.Pool()
	return transport, nil
}
