package meshtest

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Mode is how the servers of a test authenticate their callers.
type Mode string

const (
	// Certificates are servers with certificates of their own.
	Certificates Mode = "Certificates"
	// Sidecars are servers behind the stand-in of a sidecar; see Region.Sidecar.
	Sidecars Mode = "Sidecars"
)

// Modes returns all modes.
func Modes() []Mode { return []Mode{Certificates, Sidecars} }

// sidecarAddress is the address from which a sidecar of Istio connects to its program.
const sidecarAddress = "127.0.0.6"

// Transport returns the transport of a server. With Sidecars, the gateway has the identity of ARM's front door.
func (r *Region) Transport(mode Mode, server mesh.Peer) mesh.Transport {
	r.t.Helper()
	if mode == Certificates {
		return r.Identity(server)
	}
	options := r.Options(mode, server)
	transport, err := options.Load(server)
	if err != nil {
		r.t.Fatal(err)
	}
	return transport
}

// Options returns the flags of Transport.
func (r *Region) Options(mode Mode, server mesh.Peer) mesh.Options {
	r.t.Helper()
	if mode == Certificates {
		return mesh.Options{IdentityDir: r.Identity(server).Dir()}
	}
	id := func(peer mesh.Peer) string { return mesh.ID{TrustDomain: r.trustDomain, Peer: peer}.URL().String() }
	return mesh.Options{SidecarIdentity: id(server), SidecarGateways: id(mesh.ARMFrontDoor)}
}

// Front returns the address at which clients reach a server with the transport of a mode, which serves at address.
func (r *Region) Front(mode Mode, server mesh.Peer, address string) string {
	r.t.Helper()
	if mode == Certificates {
		return address
	}
	return r.Sidecar(server, address)
}

// Sidecar starts a stand-in of the sidecar of a server, until the test ends, and returns its address. Like the inbound listener of an Istio
// sidecar in mode STRICT, it accepts only connections with a certificate of the region's authority, appends an element about this
// certificate to the header x-forwarded-client-cert, and sends each request without TLS, from 127.0.0.6, to the program at address: gRPC
// over HTTP/2, all others over HTTP/1.1. Unlike Istio it accepts every trust domain, and certificates without an identity, so that the
// program must refuse them. It is not Envoy.
func (r *Region) Sidecar(server mesh.Peer, address string) string {
	r.t.Helper()
	own, err := tls.LoadX509KeyPair(filepath.Join(r.Identity(server).Dir(), mesh.CertificateFile), filepath.Join(r.Identity(server).Dir(), mesh.KeyFile))
	if err != nil {
		r.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.authority.CertificatePEM())
	by := mesh.ID{TrustDomain: r.trustDomain, Peer: server}.URL().String()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(sidecarAddress)}}
	http1, http2 := &http.Transport{DialContext: dialer.DialContext, Protocols: new(http.Protocols)}, &http.Transport{DialContext: dialer.DialContext, Protocols: new(http.Protocols)}
	http1.Protocols.SetHTTP1(true)
	http2.Protocols.SetUnencryptedHTTP2(true)
	sidecar := r.proxy(http1, http2, func(request *httputil.ProxyRequest) {
		request.Out.URL.Scheme, request.Out.URL.Host = "http", address
		header := append(request.In.Header.Values(mesh.ClientCertHeader), element(by, request.In.TLS.PeerCertificates[0]))
		request.Out.Header.Set(mesh.ClientCertHeader, strings.Join(header, ","))
	})
	sidecar.EnableHTTP2 = true
	sidecar.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
	}
	sidecar.StartTLS()
	front := sidecar.Listener.Addr().String()
	r.sidecars[front] = true
	return front
}

// ClientSidecar starts a stand-in of the sidecar of a client, until the test ends, and returns its address. It accepts requests without TLS,
// and sends them to the server at address over mutual TLS, with the certificate of the client. Istio redirects the connections of a client to
// its sidecar; here the client must use the returned address.
func (r *Region) ClientSidecar(client, server mesh.Peer, address string) string {
	r.t.Helper()
	http1, http2 := r.Identity(client).ClientTransport(server), r.Identity(client).ClientTransport(server)
	http1.Protocols, http2.Protocols = new(http.Protocols), new(http.Protocols)
	http1.Protocols.SetHTTP1(true)
	http2.Protocols.SetHTTP2(true)
	sidecar := r.proxy(http1, http2, func(request *httputil.ProxyRequest) {
		request.Out.URL.Scheme, request.Out.URL.Host = "https", address
	})
	sidecar.Config.Protocols = new(http.Protocols)
	sidecar.Config.Protocols.SetHTTP1(true)
	sidecar.Config.Protocols.SetUnencryptedHTTP2(true)
	sidecar.Start()
	return sidecar.Listener.Addr().String()
}

// proxy returns a server that sends gRPC requests on over HTTP/2, and all others over HTTP/1.1. The caller starts it; it stops when the test
// ends.
func (r *Region) proxy(http1, http2 *http.Transport, rewrite func(*httputil.ProxyRequest)) *httptest.Server {
	http1.DisableCompression, http2.DisableCompression = true, true
	handler := &httputil.ReverseProxy{
		Rewrite: rewrite,
		Transport: roundTripper(func(request *http.Request) (*http.Response, error) {
			if strings.HasPrefix(request.Header.Get("Content-Type"), "application/grpc") {
				return http2.RoundTrip(request)
			}
			return http1.RoundTrip(request)
		}),
		FlushInterval:  -1, // at once
		ModifyResponse: statusInTrailers,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = handler.ErrorLog
	r.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		http1.CloseIdleConnections()
		http2.CloseIdleConnections()
	})
	return server
}

// statusInTrailers moves the status of a gRPC response without messages from the headers to the trailers. ReverseProxy ends the headers and
// the body of a response separately, and a status in headers must end both.
func statusInTrailers(response *http.Response) error {
	for _, key := range []string{"Grpc-Status", "Grpc-Message", "Grpc-Status-Details-Bin"} {
		if values := response.Header.Values(key); len(values) > 0 {
			if response.Trailer == nil {
				response.Trailer = http.Header{}
			}
			response.Trailer[key] = values
			response.Header.Del(key)
		}
	}
	return nil
}

// element returns what Envoy says about a client's certificate, with the fields that Istio has it say.
func element(by string, certificate *x509.Certificate) string {
	digest := sha256.Sum256(certificate.Raw)
	parts := []string{"By=" + by, "Hash=" + hex.EncodeToString(digest[:]), `Subject="` + certificate.Subject.String() + `"`}
	for _, uri := range certificate.URIs {
		parts = append(parts, "URI="+uri.String())
	}
	if len(certificate.URIs) == 0 {
		parts = append(parts, "URI=")
	}
	for _, name := range certificate.DNSNames {
		parts = append(parts, "DNS="+name)
	}
	return strings.Join(parts, ";")
}

// roundTripper is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
