// Package probe asks API servers of hosted clusters for their health. A Prober keeps one TLS connection for each API server
// and writes plain HTTP/1.1 to it, because a client of net/http would use several goroutines and buffers for each of thousands of
// idle connections. Between two probes a connection uses no goroutine and no buffer of this package.
//
// A Prober verifies every certificate with the authorities of its target, and has no option to skip that. Its Result states
// what happened and judges nothing; package judge decides what it means. Everything that it reads comes from outside and is
// bounded.
//
// A Wheel decides which API servers are due. CheckAnchors checks servers that do not depend on hosted clusters.
package probe

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// The bounds of a probe.
const (
	// Deadline is the time of a probe. It is longer than the 4 s after which kube-apiserver answers while etcd is away.
	Deadline = 5 * time.Second
	// keptDeadline is the time of a request on a kept connection before a new connection is tried.
	keptDeadline = 3 * time.Second
	// connectDeadline is the part of it in which the TCP connection must be established.
	connectDeadline = 3 * time.Second
	// RenewAfter is the age from which a connection is replaced, so that probes see the certificate and the way that new
	// clients see. A certificate that was replaced by a wrong one is found within this time.
	RenewAfter = 10 * time.Minute
	// maxResponse is the size of the largest response, and maxBody the part of its body that is read.
	maxResponse, maxBody = 64 << 10, 16 << 10
	// maxPools is the number of different authorities whose pools are shared.
	maxPools = 256
	// bufferSize is the size of the buffers that probes share.
	bufferSize = 2 << 10
)

// Target is the API server of one cluster.
type Target struct {
	// Cluster is the UID of the cluster. It identifies the kept connection.
	Cluster string
	// URL is the address of the API server: https, with a host and optionally a port. Its certificate must be for this host.
	URL string
	// Address is the host:port to which connections are opened; empty means those of URL.
	Address string
	// Authorities are the certificates that verify the API server, PEM.
	Authorities string
}

// Options are the options of a Prober.
type Options struct {
	Vantage Vantage
	// Connections is the maximum number of kept connections; probes beyond it close theirs. Greater than 0.
	Connections int
	// Dial opens TCP connections; nil means a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Deadline, KeptDeadline, ConnectDeadline and RenewAfter replace the defaults if they are greater than 0.
	Deadline, KeptDeadline, ConnectDeadline, RenewAfter time.Duration
	// Now is the clock of ages and of certificates; nil means time.Now.
	Now func() time.Time
}

// Prober probes API servers. It is safe for concurrent use, with at most one probe of a cluster at a time. The caller bounds
// the number of concurrent probes.
type Prober struct {
	options Options
	buffers sync.Pool

	mu   sync.Mutex
	kept map[string]*connection
	// pools are the last pools of authorities by their PEM.
	pools  map[string]*x509.CertPool
	closed bool
}

// connection is a kept connection. It belongs to the running probe, or to Prober.kept.
type connection struct {
	*tls.Conn
	target Target
	// host is the header Host of requests.
	host           string
	opened         time.Time
	certificateEnd time.Time
}

// New returns a Prober without connections. The caller must call Close.
func New(options Options) *Prober {
	if options.Dial == nil {
		options.Dial = (&net.Dialer{KeepAlive: -1}).DialContext
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	setDefault(&options.Deadline, Deadline)
	setDefault(&options.KeptDeadline, keptDeadline)
	setDefault(&options.ConnectDeadline, connectDeadline)
	setDefault(&options.RenewAfter, RenewAfter)
	p := &Prober{options: options, kept: map[string]*connection{}, pools: map[string]*x509.CertPool{}}
	p.buffers.New = func() any { return bufio.NewReaderSize(nil, bufferSize) }
	return p
}

func setDefault(value *time.Duration, otherwise time.Duration) {
	if *value <= 0 {
		*value = otherwise
	}
}

// Probe requests one health check of a target. A request that is not answered on the kept connection is repeated once on a new
// one, because the server or something on the way may have closed the old one for reasons that do not affect customers.
// Probe returns after 8 s at the latest with the default options.
func (p *Prober) Probe(ctx context.Context, target Target, check Check) Result {
	if c := p.take(target); c != nil {
		result, reusable := p.request(ctx, c, check, min(p.options.KeptDeadline, p.options.Deadline))
		p.putBack(c, reusable)
		if result.Status != 0 {
			return result
		}
	}
	started := p.options.Now()
	limited, cancel := context.WithTimeout(ctx, p.options.Deadline)
	defer cancel()
	c, result := p.open(limited, target)
	if c != nil {
		var reusable bool
		result, reusable = p.request(limited, c, check, p.options.Deadline)
		p.putBack(c, reusable)
	}
	if ctx.Err() != nil && result.Status == 0 {
		result.Outcome, result.Detail = Local, "the probe was canceled"
	}
	result.Check, result.Time = check, p.options.Now()
	result.Duration = result.Time.Sub(started)
	return result
}

// Forget closes the connection of a cluster that is no longer probed.
func (p *Prober) Forget(cluster string) {
	p.mu.Lock()
	c := p.kept[cluster]
	delete(p.kept, cluster)
	p.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// Close closes all connections. Later probes keep none.
func (p *Prober) Close() {
	p.mu.Lock()
	kept := p.kept
	p.kept, p.closed = map[string]*connection{}, true
	p.mu.Unlock()
	for _, c := range kept {
		c.close()
	}
}

// Connections returns the number of kept connections.
func (p *Prober) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.kept)
}

// take removes and returns the connection of a target. It returns nil if there is none for exactly this target, or if it
// must be renewed.
func (p *Prober) take(target Target) *connection {
	p.mu.Lock()
	c := p.kept[target.Cluster]
	delete(p.kept, target.Cluster)
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	now := p.options.Now()
	if c.target != target || now.Sub(c.opened) >= p.options.RenewAfter || !now.Before(c.certificateEnd) {
		c.close()
		return nil
	}
	return c
}

// putBack keeps a connection if it is reusable and there is room, and closes it otherwise.
func (p *Prober) putBack(c *connection, reusable bool) {
	p.mu.Lock()
	kept := reusable && !p.closed && len(p.kept) < p.options.Connections
	if kept {
		p.kept[c.target.Cluster] = c
	}
	p.mu.Unlock()
	if !kept {
		c.close()
	}
}

// close closes the connection at once. tls.Conn.Close would wait up to 5 s to notify a server that does not read.
func (c *connection) close() { _ = c.NetConn().Close() }

// open connects to a target and verifies its certificate. If it fails, it returns nil and the result.
func (p *Prober) open(ctx context.Context, target Target) (*connection, Result) {
	failed := func(step string, err error) (*connection, Result) {
		return nil, Result{Vantage: p.options.Vantage, Outcome: outcomeOf(step, err), Detail: detail(step, err), CertificateEnd: endOfExpired(err)}
	}
	u, err := parseURL(target.URL)
	if err != nil {
		return failed(stepTarget, err)
	}
	roots := p.roots(target.Authorities)
	if roots == nil {
		return failed(stepTarget, errors.New("the authorities contain no certificate"))
	}
	connecting, cancel := context.WithTimeout(ctx, p.options.ConnectDeadline)
	defer cancel()
	raw, err := p.options.Dial(connecting, "tcp", cmp.Or(target.Address, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))))
	if err != nil {
		return failed(stepConnect, err)
	}
	conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: u.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Time: p.options.Now})
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return failed(stepHandshake, err)
	}
	return &connection{Conn: conn, target: target, host: u.Host, opened: p.options.Now(), certificateEnd: endOf(conn.ConnectionState())}, Result{}
}

// roots returns the pool of authorities in PEM; nil if they contain no certificate. Most clusters have the same ones, and each
// connection keeps its pool, so that pools are shared.
func (p *Prober) roots(authorities string) *x509.CertPool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pool := p.pools[authorities]; pool != nil {
		return pool
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(authorities)) {
		return nil
	}
	if len(p.pools) >= maxPools {
		clear(p.pools)
	}
	p.pools[authorities] = pool
	return pool
}

// parseURL returns the URL of an API server.
func parseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil && (u.Scheme != "https" || u.Hostname() == "") {
		err = fmt.Errorf("%q is not an https URL with a host", text)
	}
	return u, err
}

// endOf returns the earliest end of validity in the chain that was verified.
func endOf(state tls.ConnectionState) time.Time {
	var end time.Time
	for _, chain := range state.VerifiedChains[:min(len(state.VerifiedChains), 1)] {
		for _, certificate := range chain {
			if end.IsZero() || certificate.NotAfter.Before(end) {
				end = certificate.NotAfter
			}
		}
	}
	return end
}

// endOfExpired returns the end of a certificate that was rejected because it has expired, or the zero time. The end of a
// certificate of another server does not matter.
func endOfExpired(err error) time.Time {
	var verification *tls.CertificateVerificationError
	if !errors.As(err, &verification) || outcomeOfCertificate(verification) != CertificateExpired || len(verification.UnverifiedCertificates) == 0 {
		return time.Time{}
	}
	return verification.UnverifiedCertificates[0].NotAfter
}

// request sends one request on a connection and reads the response. The result has a status if the server answered. reusable
// reports whether the connection can be used again.
func (p *Prober) request(ctx context.Context, c *connection, check Check, timeout time.Duration) (result Result, reusable bool) {
	started := p.options.Now()
	result = Result{Vantage: p.options.Vantage, Check: check, CertificateEnd: c.certificateEnd}
	defer func() {
		result.Time = p.options.Now()
		result.Duration = result.Time.Sub(started)
	}()
	failed := func(step string, err error) (Result, bool) {
		result.Outcome, result.Detail = outcomeOf(step, err), detail(step, err)
		return result, false
	}
	if err := c.SetDeadline(time.Now().Add(timeout)); err != nil {
		return failed(stepRequest, err)
	}
	// The end of ctx ends the request at once.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := writeRequest(c, check); err != nil {
		return failed(stepRequest, err)
	}
	buffer := p.buffers.Get().(*bufio.Reader)
	defer p.buffers.Put(buffer)
	defer buffer.Reset(nil) // a buffer in the pool must not refer to the connection
	status, body, open, err := readResponse(buffer, c)
	if err != nil {
		return failed(stepResponse, err)
	}
	result.Status = status
	result.Outcome, result.Detail = outcomeOfStatus(status, body)
	return result, open && stop()
}

func writeRequest(c *connection, check Check) error {
	_, err := io.WriteString(c, "GET "+check.Path()+" HTTP/1.1\r\nHost: "+c.host+"\r\nUser-Agent: hcpmesh-monitor\r\nAccept: */*\r\n\r\n")
	return err
}

// readResponse reads one response of at most maxResponse bytes. open reports whether the response was read to its end and
// the server keeps the connection open.
func readResponse(buffer *bufio.Reader, from io.Reader) (status int, body []byte, open bool, err error) {
	limited := &io.LimitedReader{R: from, N: maxResponse}
	buffer.Reset(limited)
	response, err := http.ReadResponse(buffer, &http.Request{Method: http.MethodGet})
	if err != nil {
		if limited.N <= 0 {
			err = errTooLarge
		}
		return 0, nil, false, err
	}
	body, err = io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	_ = response.Body.Close()
	switch {
	case err != nil && limited.N <= 0, len(body) > maxBody:
		return 0, nil, false, errTooLarge
	case err != nil:
		return 0, nil, false, err
	}
	// Bytes after the response belong to no request.
	return response.StatusCode, body, !response.Close && buffer.Buffered() == 0, nil
}
