package certfile

import (
	"crypto/x509"
	"net/http"
	"sync"
)

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
