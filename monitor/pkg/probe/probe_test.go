package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	okResponse = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	etcdChecks = "[+]ping ok\n[-]etcd failed: reason withheld\n[+]poststarthook/generic ok\nlivez check failed\n"
	rbacChecks = "[+]etcd ok\n[-]poststarthook/rbac failed: reason withheld\nlivez check failed\n"
)

var (
	etcdResponse = fmt.Sprintf("HTTP/1.1 500 Internal Server Error\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(etcdChecks), etcdChecks)
	rbacResponse = fmt.Sprintf("HTTP/1.1 500 Internal Server Error\r\nContent-Length: %d\r\n\r\n%s", len(rbacChecks), rbacChecks)
)

// server is a TLS server on a loopback port that answers each request with respond.
type server struct {
	target      Target
	accepted    atomic.Int64
	open        atomic.Int64
	mu          sync.Mutex
	connections map[net.Conn]bool
}

// certificates are a certificate authority and the certificates that it issued.
type certificates struct {
	t         *testing.T
	authority *authority.Authority
}

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	signer := must.Get(authority.Open(t.TempDir(), "test"))(t)
	return &certificates{t, signer}
}

func (c *certificates) issue(lifetime time.Duration, hosts ...string) tls.Certificate {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "tls")
	must.Do(c.t, c.authority.IssueFor(lifetime, path+".crt", path+".key", x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}}, hosts...))
	return must.Get(tls.LoadX509KeyPair(path+".crt", path+".key"))(c.t)
}

// serve starts a server. respond is called for each request and returns whether the connection stays open. A nil certificate
// serves without TLS, and respond is then called without a request.
func (c *certificates) serve(certificate *tls.Certificate, respond func(conn net.Conn, request string) bool) *server {
	c.t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(c.t)
	s := &server{connections: map[net.Conn]bool{}}
	s.target = Target{Cluster: "cluster", URL: "https://" + listener.Addr().String(), Authorities: string(c.authority.CertificatePEM())}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			s.open.Add(1)
			s.mu.Lock()
			s.connections[conn] = true
			s.mu.Unlock()
			wg.Go(func() {
				defer s.open.Add(-1)
				defer func() { _ = conn.Close() }()
				if certificate == nil {
					respond(conn, "")
					return
				}
				serveConnection(tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{*certificate}}), respond)
			})
		}
	})
	c.t.Cleanup(func() {
		_ = listener.Close()
		s.closeConnections()
		wg.Wait()
	})
	return s
}

func serveConnection(conn *tls.Conn, respond func(conn net.Conn, request string) bool) {
	buffer, request := make([]byte, 4096), ""
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		request += string(buffer[:n])
		if strings.HasSuffix(request, "\r\n\r\n") {
			if !respond(conn, request) {
				return
			}
			request = ""
		}
	}
}

// closeConnections closes all connections from the server's side.
func (s *server) closeConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.connections {
		_ = conn.Close()
	}
	clear(s.connections)
}

// answer responds with a text and keeps the connection open.
func answer(text string) func(net.Conn, string) bool {
	return func(conn net.Conn, _ string) bool {
		_, err := io.WriteString(conn, text)
		return err == nil
	}
}

// answerAndClose responds with a text and closes the connection.
func answerAndClose(text string) func(net.Conn, string) bool {
	return func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, text)
		return false
	}
}

// hang responds with a text and nothing more, until the client closes the connection.
func hang(text string) func(net.Conn, string) bool {
	return func(conn net.Conn, _ string) bool {
		_, _ = io.WriteString(conn, text)
		_, _ = io.Copy(io.Discard, conn)
		return false
	}
}

// newProber returns a Prober without time limits that a slow machine may reach.
func newProber(t *testing.T, change func(*Options)) *Prober {
	t.Helper()
	options := Options{Vantage: Outside, Connections: 100, Deadline: time.Hour, KeptDeadline: time.Hour, ConnectDeadline: time.Hour}
	if change != nil {
		change(&options)
	}
	p := New(options)
	t.Cleanup(p.Close)
	return p
}

func TestProbeClassifiesResults(t *testing.T) {
	t.Parallel()
	c, other := newCertificates(t), newCertificates(t)
	good := c.issue(time.Hour, "127.0.0.1")
	expired, wrongName, untrusted := c.issue(time.Nanosecond, "127.0.0.1"), c.issue(time.Hour, "192.0.2.1"), other.issue(time.Hour, "127.0.0.1")
	dial := func(err error) func(*Options) {
		return func(o *Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)}
			}
		}
	}
	for reason, test := range map[string]struct {
		certificate *tls.Certificate
		respond     func(net.Conn, string) bool
		target      func(Target) Target
		options     func(*Options)
		outcome     Outcome
		status      int
		detail      string
	}{
		"healthy":                   {certificate: &good, respond: answer(okResponse), outcome: OK, status: 200},
		"etcd, chunked":             {certificate: &good, respond: answer(etcdResponse), outcome: Etcd, status: 500, detail: "status 500: etcd"},
		"another check":             {certificate: &good, respond: answer(rbacResponse), outcome: ServerError, status: 500, detail: "status 500: poststarthook/rbac"},
		"without a list of checks":  {certificate: &good, respond: answer("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"), outcome: ServerError, status: 503, detail: "status 503"},
		"overload":                  {certificate: &good, respond: answer("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"), outcome: Overloaded, status: 429, detail: "status 429"},
		"anonymous is not allowed":  {certificate: &good, respond: answer("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"), outcome: Rejected, status: 401, detail: "status 401"},
		"half a body":               {certificate: &good, respond: answerAndClose("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), outcome: Reset, detail: "response: unexpected EOF"},
		"half a header":             {certificate: &good, respond: answerAndClose("HTTP/1.1 200 OK\r\n"), outcome: Reset, detail: "response: unexpected EOF"},
		"no response, then closed":  {certificate: &good, respond: answerAndClose(""), outcome: Reset, detail: "response: "},
		"not HTTP":                  {certificate: &good, respond: answerAndClose("SSH-2.0-OpenSSH_9.6\r\n"), outcome: Malformed, detail: "response: malformed HTTP response"},
		"endless header":            {certificate: &good, respond: answer("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxResponse+1)), outcome: Malformed, detail: "response: the response is too large"},
		"large body":                {certificate: &good, respond: answer("HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n" + strings.Repeat("x", 40000)), outcome: Malformed, detail: "response: the response is too large"},
		"expired certificate":       {certificate: &expired, respond: answer(okResponse), outcome: CertificateExpired, detail: "handshake: "},
		"certificate of other name": {certificate: &wrongName, respond: answer(okResponse), outcome: CertificateName, detail: "handshake: "},
		"other authority":           {certificate: &untrusted, respond: answer(okResponse), outcome: CertificateUntrusted, detail: "handshake: "},
		"no TLS":                    {respond: answerAndClose("HTTP/1.1 400 Bad Request\r\n\r\n"), outcome: TLS, detail: "handshake: "},
		"closed before handshake":   {respond: func(net.Conn, string) bool { return false }, outcome: Reset, detail: "handshake: "},
		"refused":                   {options: dial(syscall.ECONNREFUSED), outcome: Refused, detail: "connect: "},
		"no route":                  {options: dial(syscall.EHOSTUNREACH), outcome: Unreachable, detail: "connect: "},
		"no descriptors":            {options: dial(syscall.EMFILE), outcome: Local, detail: "connect: "},
		"unknown name": {options: func(o *Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "api.example.com", IsNotFound: true}}
			}
		}, outcome: DNS, detail: "connect: "},
		"not https":      {target: func(t Target) Target { t.URL = "http://127.0.0.1"; return t }, outcome: Local, detail: "target: "},
		"no authorities": {target: func(t Target) Target { t.Authorities = ""; return t }, outcome: Local, detail: "target: the authorities contain no certificate"},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			respond := test.respond
			if respond == nil {
				respond = answer(okResponse)
			}
			s := (&certificates{t, c.authority}).serve(test.certificate, respond)
			if test.target != nil {
				s.target = test.target(s.target)
			}
			p := newProber(t, test.options)
			result := p.Probe(t.Context(), s.target, Livez)
			if result.Outcome != test.outcome || result.Status != test.status || !strings.HasPrefix(result.Detail, test.detail) || len(result.Detail) > maxDetail {
				t.Errorf("result %+v, want %s with status %d and detail %q…", result, test.outcome, test.status, test.detail)
			}
			if result.Vantage != Outside || result.Check != Livez || result.Time.IsZero() || result.Duration <= 0 {
				t.Errorf("incomplete result %+v", result)
			}
			if seen := test.outcome == CertificateExpired || test.status != 0; seen && result.CertificateEnd.IsZero() {
				t.Error("the end of the certificate is missing")
			}
			if kept := p.Connections(); kept > 0 != (test.status != 0) {
				t.Errorf("%d connections are kept", kept)
			}
		})
	}
}

func TestProbeSendsOneRequestPerCheck(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	good, requests := c.issue(time.Hour, "127.0.0.1"), make(chan string, 10)
	s := c.serve(&good, func(conn net.Conn, request string) bool {
		requests <- request
		return answer(okResponse)(conn, request)
	})
	p := newProber(t, nil)
	for _, check := range []Check{Livez, Readyz} {
		if result := p.Probe(t.Context(), s.target, check); result.Outcome != OK || result.Check != check {
			t.Fatalf("%+v", result)
		}
		want := "GET /" + string(check) + " HTTP/1.1\r\nHost: " + strings.TrimPrefix(s.target.URL, "https://") + "\r\nUser-Agent: hcpmesh-monitor\r\nAccept: */*\r\n\r\n"
		if got := <-requests; got != want {
			t.Errorf("request %q, want %q", got, want)
		}
	}
	if s.accepted.Load() != 1 {
		t.Errorf("%d connections for two probes, want 1", s.accepted.Load())
	}
}

// TestConnectionIsReplaced: a connection that the server closed, that is old, or whose target has changed is replaced, and the
// probe succeeds.
func TestConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	good := c.issue(time.Hour, "127.0.0.1", "localhost")
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	for reason, disturb := range map[string]func(*server, *Prober){
		"closed by the server": func(s *server, _ *Prober) { s.closeConnections() },
		"old":                  func(*server, *Prober) { now.Add(int64(RenewAfter)) },
		"other URL":            func(s *server, _ *Prober) { s.target.URL = strings.Replace(s.target.URL, "127.0.0.1", "localhost", 1) },
		"forgotten":            func(s *server, p *Prober) { p.Forget(s.target.Cluster) },
	} {
		t.Run(reason, func(t *testing.T) {
			s := (&certificates{t, c.authority}).serve(&good, answer(okResponse))
			p := newProber(t, func(o *Options) { o.Now = func() time.Time { return time.Unix(0, now.Load()) } })
			for range 3 {
				if result := p.Probe(t.Context(), s.target, Livez); result.Outcome != OK {
					t.Fatalf("%+v", result)
				}
			}
			disturb(s, p)
			if result := p.Probe(t.Context(), s.target, Livez); result.Outcome != OK {
				t.Errorf("after the disturbance: %+v", result)
			}
			if s.accepted.Load() != 2 || p.Connections() != 1 {
				t.Errorf("%d connections were opened and %d are kept, want 2 and 1", s.accepted.Load(), p.Connections())
			}
		})
	}
}

// onPipes makes a Prober connect within the process, so that all time limits are on the clock of a bubble. serve gets the server's end of each connection.
// stop closes these ends and waits until serve has returned.
func onPipes(serve func(net.Conn)) (dial func(context.Context, string, string) (net.Conn, error), stop func()) {
	var serving sync.WaitGroup
	var mu sync.Mutex
	var accepted []net.Conn
	return func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			mu.Lock()
			defer mu.Unlock()
			accepted = append(accepted, server)
			serving.Go(func() { serve(server) })
			return client, nil
		}, func() {
			mu.Lock()
			defer mu.Unlock()
			for _, conn := range accepted {
				_ = conn.Close()
			}
			serving.Wait()
		}
}

// withTLS returns a server for onPipes that answers each request with respond. It sends no tickets: on a pipe, it would wait until the client reads them.
func withTLS(certificate tls.Certificate, respond func(net.Conn, string) bool) func(net.Conn) {
	return func(conn net.Conn) {
		defer func() { _ = conn.Close() }()
		serveConnection(tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{certificate}, SessionTicketsDisabled: true}), respond)
	}
}

// TestProbeEndsAtDeadline probes servers that stop to respond at each step. The clock is that of the bubble.
func TestProbeEndsAtDeadline(t *testing.T) {
	t.Parallel()
	silent := func(tls.Certificate) func(net.Conn) {
		return func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }
	}
	hangsAfter := func(text string) func(tls.Certificate) func(net.Conn) {
		return func(certificate tls.Certificate) func(net.Conn) { return withTLS(certificate, hang(text)) }
	}
	for reason, test := range map[string]struct {
		// serve returns a server for onPipes. It is nil if no packet arrives.
		serve   func(tls.Certificate) func(net.Conn)
		outcome Outcome
		detail  string
		after   time.Duration
	}{
		"packets are dropped": {nil, ConnectTimeout, "connect: ", connectDeadline},
		"no handshake":        {silent, Timeout, "handshake: ", Deadline},
		"no response":         {hangsAfter(""), Timeout, "response: ", Deadline},
		"no end of the body":  {hangsAfter("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"), Timeout, "response: ", Deadline},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCertificates(t)
				dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
					<-ctx.Done()
					return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
				}
				if test.serve != nil {
					var stop func()
					dial, stop = onPipes(test.serve(c.issue(time.Hour, "127.0.0.1")))
					defer stop()
				}
				p := newProber(t, func(o *Options) { *o = Options{Vantage: o.Vantage, Connections: o.Connections, Dial: dial} })
				result := p.Probe(t.Context(), Target{Cluster: "cluster", URL: "https://127.0.0.1", Authorities: string(c.authority.CertificatePEM())}, Livez)
				if result.Outcome != test.outcome || result.Status != 0 || !strings.HasPrefix(result.Detail, test.detail) || len(result.Detail) > maxDetail {
					t.Errorf("result %+v, want %s with detail %q…", result, test.outcome, test.detail)
				}
				if result.Vantage != Outside || result.Check != Livez || result.Time.IsZero() || result.Duration != test.after {
					t.Errorf("result %+v, want the duration %s", result, test.after)
				}
				if kept := p.Connections(); kept > 0 {
					t.Errorf("%d connections are kept", kept)
				}
			})
		})
	}
}

// TestSilentConnectionIsReplaced: something on the way drops the packets of the kept connection, and new connections work. The clock is that of the bubble.
func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCertificates(t)
		var silent atomic.Bool
		var accepted atomic.Int64
		respond := withTLS(c.issue(time.Hour, "127.0.0.1"), func(conn net.Conn, request string) bool {
			if silent.CompareAndSwap(true, false) {
				return hang("")(conn, request)
			}
			return answer(okResponse)(conn, request)
		})
		dial, stop := onPipes(func(conn net.Conn) {
			accepted.Add(1)
			respond(conn)
		})
		defer stop()
		p := newProber(t, func(o *Options) { o.Dial, o.KeptDeadline = dial, 0 })
		target := Target{Cluster: "cluster", URL: "https://127.0.0.1", Authorities: string(c.authority.CertificatePEM())}
		p.Probe(t.Context(), target, Livez)
		silent.Store(true)
		began := time.Now()
		if result := p.Probe(t.Context(), target, Livez); result.Outcome != OK || accepted.Load() != 2 {
			t.Errorf("%+v with %d connections, want ok with 2", result, accepted.Load())
		}
		if took := time.Since(began); took != keptDeadline {
			t.Errorf("the probe took %s, want %s", took, keptDeadline)
		}
	})
}

func TestServerMayCloseAfterResponse(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	good := c.issue(time.Hour, "127.0.0.1")
	s := c.serve(&good, answerAndClose("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"))
	p := newProber(t, nil)
	for range 3 {
		if result := p.Probe(t.Context(), s.target, Livez); result.Outcome != OK || p.Connections() != 0 {
			t.Errorf("%+v, and %d connections are kept", result, p.Connections())
		}
	}
	if s.accepted.Load() != 3 {
		t.Errorf("%d connections for 3 probes, want 3", s.accepted.Load())
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	good := c.issue(time.Hour, "127.0.0.1")
	s := c.serve(&good, answer(okResponse))
	p := newProber(t, func(o *Options) { o.Connections = 10 })
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			target := s.target
			target.Cluster = fmt.Sprint("cluster-", i)
			for range 5 {
				if result := p.Probe(t.Context(), target, Livez); result.Outcome != OK {
					t.Errorf("%+v", result)
				}
			}
		})
	}
	wg.Wait()
	if p.Connections() != 10 {
		t.Errorf("%d connections are kept, want 10", p.Connections())
	}
	for i := range 50 {
		p.Forget(fmt.Sprint("cluster-", i))
	}
	p.Close()
	eventually.Soon(t, "the server sees no connection", func() error {
		if open := s.open.Load(); open != 0 {
			return fmt.Errorf("%d connections are open", open)
		}
		return nil
	})
}

func TestCanceledProbeReportsNothingAboutCluster(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	good := c.issue(time.Hour, "127.0.0.1")
	received := make(chan struct{})
	s := c.serve(&good, func(conn net.Conn, request string) bool {
		close(received)
		return hang("")(conn, request)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-received; cancel(errors.New("the lease was lost")) }()
	if result := newProber(t, nil).Probe(ctx, s.target, Livez); result.Outcome != Local {
		t.Errorf("%+v, want %s", result, Local)
	}
}

// FuzzResponse reads arbitrary responses. A result never has more than the bounds, and a detail is printable.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{okResponse, etcdResponse, rbacResponse, "", "HTTP/1.1 200", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 500 \r\nContent-Length: 9\r\n\r\n[-]\x00 \xff\n", "HTTP/1.1 -1 OK\r\n\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		status, body, _, err := readResponse(bufio.NewReaderSize(nil, bufferSize), strings.NewReader(text))
		if err != nil {
			if outcome, text := outcomeOf(stepResponse, err), detail(stepResponse, err); outcome == OK || !valid(text) {
				t.Errorf("%s: %q", outcome, text)
			}
			return
		}
		if outcome, text := outcomeOfStatus(status, body); len(body) > maxBody || !valid(text) || (outcome == OK) != (status == 200) {
			t.Errorf("status %d with %d bytes: %s: %q", status, len(body), outcome, text)
		}
	})
}

func valid(text string) bool { return len(text) <= maxDetail && printable(text) == text }
