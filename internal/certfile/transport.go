package certfile

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"sync"
)

// NewClient returns a client with a transport that trusts the authorities in a file; if file is empty, those of the system. transport must not be used otherwise.
func NewClient(file string, transport *http.Transport) (*http.Client, error) {
	if file == "" {
		return &http.Client{Transport: transport}, nil
	}
	roots, err := LoadRoots(file)
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: roots.Transport(transport)}, nil
}

// Transport returns a transport that trusts the current authorities for each request. It takes the other settings from base, which must
// not be changed. When the authorities change, it closes the idle connections and uses the others only until their requests end.
func (r *Roots) Transport(base *http.Transport) http.RoundTripper {
	return &transport{roots: r, base: base}
}

type transport struct {
	roots *Roots
	base  *http.Transport

	mu      sync.Mutex
	trusted *x509.CertPool
	current *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	return t.choose().RoundTrip(request)
}

// CloseIdleConnections closes the connections that have no request, as http.Client expects it.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
}

// choose returns the transport for the current authorities.
func (t *transport) choose() *http.Transport {
	trusted := t.roots.Pool()
	t.mu.Lock()
	defer t.mu.Unlock()
	if trusted == t.trusted {
		return t.current
	}
	next := t.base.Clone()
	next.TLSClientConfig.RootCAs = trusted
	if t.current != nil {
		t.current.CloseIdleConnections()
	}
	t.trusted, t.current = trusted, next
	return next
}
