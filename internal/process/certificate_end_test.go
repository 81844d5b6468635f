package process

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// pipes is a listener whose connections are in memory, so that the fake clock advances while all of them are idle.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
	open   atomic.Int64
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case connection := <-p.accept:
		return connection, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.open.Add(1)
	p.accept <- &counted{Conn: server, open: &p.open}
	return client, nil
}

// counted is a connection of the server that is counted until it is closed.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}

// exchange is a server and a client with a certificate. It runs in a bubble of synctest.
type exchange struct {
	t         *testing.T
	authority *authority.Authority
	listener  *pipes
	client    *http.Client
	dir       string
}

func newExchange(t *testing.T, http2 bool, handler http.HandlerFunc) *exchange {
	t.Helper()
	signer := must.Get(authority.Open(t.TempDir(), "test"))(t)
	e := &exchange{t: t, authority: signer, dir: t.TempDir(), listener: &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}}
	own := certificate(t, signer, 30*24*time.Hour, filepath.Join(t.TempDir(), "server"))
	e.renew(24 * time.Hour)
	pair := must.Get(certfile.LoadPair(filepath.Join(e.dir, "client.crt"), filepath.Join(e.dir, "client.key")))(t)
	server := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAnyClientCert}}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- ServeHTTP(ctx, server, e.listener, time.Minute) }()
	transport := &http.Transport{DialContext: e.listener.dial, ForceAttemptHTTP2: http2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Certificate(), nil }}}
	e.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return e
}

// renew issues another certificate of the client.
func (e *exchange) renew(lifetime time.Duration) {
	e.t.Helper()
	certificate(e.t, e.authority, lifetime, filepath.Join(e.dir, "client"))
}

func certificate(t *testing.T, signer *authority.Authority, lifetime time.Duration, path string) tls.Certificate {
	t.Helper()
	must.Do(t, signer.IssueFor(lifetime, path+".crt", path+".key", x509.Certificate{Subject: pkix.Name{CommonName: "test"}}, "127.0.0.1"))
	return must.Get(tls.LoadX509KeyPair(path+".crt", path+".key"))(t)
}

func (e *exchange) get() (int, error) {
	response, err := e.client.Get("https://127.0.0.1/")
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}

// TestClientsThatRenewTheirCertificatesNeverFail makes a request every 10 minutes for 3 days. The client renews its certificate of 24 hours
// after 16 hours. No request may fail, and none may arrive with a certificate that has ended.
func TestClientsThatRenewTheirCertificatesNeverFail(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				serials := map[string]bool{}
				e := newExchange(t, http2, func(_ http.ResponseWriter, r *http.Request) {
					used := r.TLS.PeerCertificates[0]
					serials[used.SerialNumber.String()] = true
					if time.Now().After(used.NotAfter) {
						t.Errorf("a request at %v with a certificate that ended at %v", time.Now(), used.NotAfter)
					}
					if (r.ProtoMajor == 2) != http2 {
						t.Errorf("the protocol is %s", r.Proto)
					}
				})
				start, renewed := time.Now(), time.Now()
				for time.Since(start) < 72*time.Hour {
					if time.Since(renewed) >= 16*time.Hour {
						renewed = time.Now()
						e.renew(24 * time.Hour)
					}
					if status, err := e.get(); err != nil || status != http.StatusOK {
						t.Fatalf("after %s: %d, %v", time.Since(start), status, err)
					}
					time.Sleep(10 * time.Minute)
				}
				if len(serials) < 4 {
					t.Errorf("%d certificates were used in 3 days, want one for each renewal", len(serials))
				}
			})
		})
	}
}

// TestIdleConnectionIsClosedAtTheEndOfItsCertificate lets the certificate of a connection end while it has no request.
func TestIdleConnectionIsClosedAtTheEndOfItsCertificate(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newExchange(t, http2, func(http.ResponseWriter, *http.Request) {})
				if status, err := e.get(); err != nil || status != http.StatusOK {
					t.Fatal(status, err)
				}
				time.Sleep(23 * time.Hour)
				synctest.Wait()
				if open := e.listener.open.Load(); open != 1 {
					t.Errorf("an hour before the end, %d connections are open", open)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if open := e.listener.open.Load(); open != 0 {
					t.Errorf("an hour after the end, %d connections are open", open)
				}
			})
		})
	}
}

// TestRequestCompletesAfterTheEndOfItsCertificate starts a request before the end and lets it complete after that. A request that takes
// much longer is interrupted.
func TestRequestCompletesAfterTheEndOfItsCertificate(t *testing.T) {
	for name, c := range map[string]struct {
		longer    time.Duration
		completes bool
	}{"shortly after": {10 * time.Second, true}, "long after": {time.Hour, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newExchange(t, false, func(_ http.ResponseWriter, r *http.Request) {
					select {
					case <-time.After(24*time.Hour + c.longer):
					case <-r.Context().Done():
					}
				})
				status, err := e.get()
				if completed := err == nil && status == http.StatusOK; completed != c.completes {
					t.Errorf("the request: %d, %v", status, err)
				}
				synctest.Wait()
				if open := e.listener.open.Load(); open != 0 {
					t.Errorf("%d connections are open", open)
				}
			})
		})
	}
}

// TestRequestOfClosedConnectionIsNotWatched begins the handler of a request after its connection was closed, as HTTP/2 may do.
func TestRequestOfClosedConnectionIsNotWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connection, other := net.Pipe()
		defer func() { _ = other.Close() }()
		e := &certificateEnds{connections: map[net.Conn]*clientConnection{}}
		c := e.opened(connection)
		e.changed(connection, http.StateClosed)
		e.watch(c, &x509.Certificate{NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)})
		if len(e.connections) > 0 || c.timer != nil {
			t.Errorf("a closed connection is kept: %v, timer %v", e.connections, c.timer)
		}
	})
}
