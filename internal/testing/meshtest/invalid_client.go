package meshtest

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// expiredSince is the time since when an expired certificate is not valid. It is shorter than the time by which package authority
// backdates certificates.
const expiredSince = time.Minute

// InvalidClient is a client without a valid identity of the region. No server may accept its connection.
type InvalidClient struct {
	// Name describes what is wrong, for example "expired certificate of backend".
	Name string
	// certificate is nil for a client without one.
	certificate *tls.Certificate
}

// InvalidClients returns clients that pretend to be a client: one without a certificate, and those with a certificate of another authority,
// of another region, that has expired, for servers only, without an identity, with two, and with an identity of no workload. The
// certificates contain hosts.
func (r *Region) InvalidClients(client mesh.Peer, hosts ...string) []InvalidClient {
	r.t.Helper()
	return invalidClients(r.t, r.dir, r.trustDomain, client, hosts...)
}

// invalidClients is Region.InvalidClients for the authority in dir.
func invalidClients(t testing.TB, dir, trustDomain string, workload mesh.Peer, hosts ...string) []InvalidClient {
	t.Helper()
	own, err := authority.Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	other, err := authority.Open(t.TempDir(), "hcpmesh "+trustDomain)
	if err != nil {
		t.Fatal(err)
	}
	id := func(domain string, peer mesh.Peer) *url.URL { return mesh.ID{TrustDomain: domain, Peer: peer}.URL() }
	client, server := x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	all := []InvalidClient{{Name: "no certificate"}}
	for _, s := range []struct {
		name     string
		signer   *authority.Authority
		lifetime time.Duration
		usage    x509.ExtKeyUsage
		uris     []*url.URL
	}{
		{"certificate of another authority for ", other, time.Hour, client, []*url.URL{id(trustDomain, workload)}},
		{"certificate of another region for ", own, time.Hour, client, []*url.URL{id("another-"+trustDomain, workload)}},
		{"expired certificate of ", own, -expiredSince, client, []*url.URL{id(trustDomain, workload)}},
		{"certificate for servers of ", own, time.Hour, server, []*url.URL{id(trustDomain, workload)}},
		{"certificate without identity of ", own, time.Hour, client, nil},
		{"certificate with two identities of ", own, time.Hour, client, []*url.URL{id(trustDomain, workload), id(trustDomain, workload)}},
		{"unknown workload instead of ", own, time.Hour, client, []*url.URL{id(trustDomain, "unknown")}},
		{"certificate of engineers instead of ", own, time.Hour, client, []*url.URL{id(trustDomain, mesh.Engineers)}},
		{"certificate of anybody instead of ", own, time.Hour, client, []*url.URL{id(trustDomain, mesh.Anybody)}},
	} {
		files := t.TempDir()
		certificateFile, keyFile := filepath.Join(files, mesh.CertificateFile), filepath.Join(files, mesh.KeyFile)
		template := x509.Certificate{Subject: pkix.Name{CommonName: string(workload)}, URIs: s.uris, ExtKeyUsage: []x509.ExtKeyUsage{s.usage}}
		if err := s.signer.IssueFor(s.lifetime, certificateFile, keyFile, template, hosts...); err != nil {
			t.Fatal(err)
		}
		certificate, err := tls.LoadX509KeyPair(certificateFile, keyFile)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, InvalidClient{Name: s.name + string(workload), certificate: &certificate})
	}
	return all
}

// TLS returns the configuration of the client, which accepts every server.
func (s InvalidClient) TLS() *tls.Config {
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} // the server must refuse the client
	if s.certificate != nil {
		config.Certificates = []tls.Certificate{*s.certificate}
	}
	return config
}

// refuseCalls checks that a server refuses all calls of the invalid clients with the name of a client. A server refuses their connections;
// behind a sidecar it refuses the calls of those whose connections the sidecar accepts.
func (r *Region) refuseCalls(client mesh.Peer, address string, calls []Call) {
	r.t.Helper()
	for _, invalid := range r.InvalidClients(client, "127.0.0.1") {
		connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(invalid.TLS())))
		if err != nil {
			r.t.Fatal(err)
		}
		for _, call := range calls {
			err := invoke(r.t.Context(), connection, call)
			if status.Code(err) != codes.Unavailable && !(r.sidecars[address] && refusedByMesh(err)) {
				r.t.Errorf("%s with %s: got %v, want a refused connection", call.Method, invalid.Name, err)
			}
		}
		_ = connection.Close()
	}
}

// refuseRequests checks that a server refuses all requests of the invalid clients with the name of a client.
func (r *Region) refuseRequests(client mesh.Peer, base string, requests []string) {
	r.t.Helper()
	for _, invalid := range r.InvalidClients(client, "127.0.0.1") {
		transport := &http.Transport{TLSClientConfig: invalid.TLS(), ForceAttemptHTTP2: true}
		for _, text := range requests {
			response, err := roundTrip(r.t, transport, text, base)
			if err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
				if code := response.StatusCode; r.sidecars[strings.TrimPrefix(base, "https://")] && (code == http.StatusUnauthorized || code == http.StatusForbidden) {
					continue
				}
				r.t.Errorf("%s with %s: got %s, want a refused connection", text, invalid.Name, response.Status)
			}
		}
		transport.CloseIdleConnections()
	}
}
