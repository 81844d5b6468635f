package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
)

// slowClient is a client that occupies a connection with a request that does not end.
type slowClient struct {
	// protocol is that of TLS, or empty for a client without TLS.
	protocol string
	// first is what the client sends, and again what it repeats each second. With an empty again, it sends nothing more.
	first, again string
	// identities are true for a client that comes once without a certificate and once with that of each workload.
	identities bool
}

const (
	overHTTP1, overHTTP2 = "http/1.1", "h2"

	halfBodyOverTLS, endlessBodyOverTLS = "half of a body, TLS", "an endless body, TLS"

	beginOfRequest = " / HTTP/1.1\r\nHost: a\r\n"
	halfHeader     = "GET" + beginOfRequest
	halfBody       = "POST" + beginOfRequest + "Content-Length: 1000\r\n\r\nx"
	endlessBody    = "POST" + beginOfRequest + "Transfer-Encoding: chunked\r\n\r\n"
	wholeRequest   = "GET" + beginOfRequest + "\r\n"
	fieldOfHeader  = "A: a\r\n"
	chunkOfBody    = "1\r\nx\r\n"

	// The preface of HTTP/2 with empty SETTINGS, and then HEADERS and DATA of a POST whose body does not end (RFC 9113).
	beginOfHTTP2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	bodyOfHTTP2  = "\x00\x00\x06\x01\x04\x00\x00\x00\x01\x83\x87\x84\x41\x01a" + "\x00\x00\x01\x00\x00\x00\x00\x00\x01x"
)

// slowClients are the clients by their names.
var slowClients = map[string]slowClient{
	"nothing":                  {},
	"half of a handshake":      {first: "\x16\x03\x01\x00\xff\x01"},
	"half of a header":         {first: halfHeader},
	"a header without an end":  {first: halfHeader, again: fieldOfHeader},
	"half of a body":           {first: halfBody},
	"a body without an end":    {first: endlessBody, again: chunkOfBody},
	"one request":              {first: wholeRequest},
	"nothing, over TLS":        {protocol: overHTTP1, identities: true},
	"half of a header, TLS":    {protocol: overHTTP1, first: halfHeader},
	"an endless header, TLS":   {protocol: overHTTP1, first: halfHeader, again: fieldOfHeader},
	halfBodyOverTLS:            {protocol: overHTTP1, first: halfBody, identities: true},
	endlessBodyOverTLS:         {protocol: overHTTP1, first: endlessBody, again: chunkOfBody, identities: true},
	"one request, TLS":         {protocol: overHTTP1, first: wholeRequest, identities: true},
	"nothing, over HTTP/2":     {protocol: overHTTP2, identities: true},
	"half of a header, HTTP/2": {protocol: overHTTP2, first: beginOfHTTP2 + "\x00\x00", identities: true},
	"half of a body, HTTP/2":   {protocol: overHTTP2, first: beginOfHTTP2 + bodyOfHTTP2, identities: true},
}

// every is the name of all slow clients in holdConnections.
const every = ""

// bodiesOfKubernetes is the reason why servers of Kubernetes hold connections.
const bodiesOfKubernetes = "Kubernetes has no limit for the time of a body over HTTP/1, and no flag for one; HTTP/2 ends the stream"

// holdConnections are the programs whose servers do not close the connections of each slow client, by the name of the client, with the reason.
var holdConnections = map[string]map[string]string{
	"kube-apiserver":         {halfBodyOverTLS: bodiesOfKubernetes, endlessBodyOverTLS: bodiesOfKubernetes},
	"management-controllers": {halfBodyOverTLS: bodiesOfKubernetes, endlessBodyOverTLS: bodiesOfKubernetes},
	"etcd":                   {every: "it has no limit for handshakes, headers and bodies, and no flag for one; in Azure, only the API servers of its control plane reach it"},
}

// TestSlowClientsHoldNoPort connects to each port of the region as clients that send nothing, a part of a handshake, a header or a body, or a request after which they
// keep the connection. Some go on sending each second. The server closes each connection, however long its limit is. It listens on loopback only.
func TestSlowClientsHoldNoPort(t *testing.T) {
	needsRegion(t)
	nightly.Only(t) // it waits for the longest limit of all servers
	t.Parallel()
	certificates := map[string][]tls.Certificate{"": nil}
	for name, dir := range region.Endpoints().Identities {
		certificate := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, mesh.CertificateFile), filepath.Join(dir, mesh.KeyFile)))(t)
		certificates[name] = []tls.Certificate{certificate}
	}
	ctx, cancel := eventually.Context(t)
	defer cancel()
	var connections sync.WaitGroup
	for _, l := range regionListeners(t) {
		for name, client := range slowClients {
			if held := holdConnections[l.program]; held[every] != "" || held[name] != "" {
				continue
			}
			for workload, certificate := range certificates {
				if workload != "" && !client.identities {
					continue
				}
				connections.Go(func() {
					if took, err := client.occupy(ctx, l.Address.String(), certificate); errors.Is(err, syscall.ECONNREFUSED) {
						t.Logf("%s does not listen at %s any more: another test restarts it", l.program, l.Address)
					} else if err != nil {
						t.Errorf("%s at %s, client %q that sends %s: %v", l.Command, l.Address, workload, name, err)
					} else if workload == "" {
						t.Logf("%s at %s closes a client that sends %s after %s", l.program, l.Address, name, took.Round(time.Second))
					}
				})
			}
		}
	}
	connections.Wait()
}

// listener is a port of the region with the name of its program.
type listener struct {
	procfs.Listener
	program string
}

// regionListeners returns all ports on which processes of the region listen.
func regionListeners(t *testing.T) []listener {
	t.Helper()
	found, err := procfs.Listeners(os.Getpid())
	if err != nil || len(found) < len(region.Endpoints().Ops) {
		t.Fatalf("%d ports: %v", len(found), err)
	}
	var all []listener
	for _, l := range found {
		program := filepath.Base(strings.Fields(l.Command)[0])
		if !l.Address.Addr().IsLoopback() {
			t.Errorf("%s listens on %s", program, l.Address)
			continue
		}
		all = append(all, listener{l, program})
	}
	return all
}

// occupy connects to an address, and returns after which time the server has closed the connection. It returns an error if ctx ends before.
func (s slowClient) occupy(ctx context.Context, address string, certificates []tls.Certificate) (time.Duration, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })()
	defer func() { _ = connection.Close() }()
	client := connection
	if s.protocol != "" {
		secured := tls.Client(connection, &tls.Config{InsecureSkipVerify: true, Certificates: certificates, NextProtos: []string{s.protocol}}) //nolint:gosec // the client is an attacker
		// A server without TLS, or one that refuses the client, ends the handshake, and must close the connection.
		if secured.Handshake() == nil {
			client = secured
		}
	}
	ended := make(chan struct{})
	var sending sync.WaitGroup
	defer sending.Wait()
	defer close(ended)
	sending.Go(func() {
		repeat := time.NewTicker(time.Second)
		defer repeat.Stop()
		for text := s.first; ; text = s.again {
			if _, err := io.WriteString(client, text); err != nil || s.again == "" {
				return
			}
			select {
			case <-repeat.C:
			case <-ended:
				return
			}
		}
	})
	_, _ = io.Copy(io.Discard, client) // ends with the connection
	took := time.Since(began)
	if ctx.Err() != nil {
		return 0, fmt.Errorf("the connection is open after %s", took.Round(time.Second))
	}
	return took, nil
}

// acceptAll are the programs that accept as many connections as this test opens, with the reason. Their ports for operations do not.
var acceptAll = map[string]string{
	"etcd":                   "it has no flag for a limit; in Azure, only the API servers of its control plane reach it",
	"gateway-egress":         "its limit for the connections of all links is higher: TestLimits of the gateway has a lower one",
	"kube-apiserver":         "it has no flag for a limit of connections, only of requests",
	"management-controllers": "the controllers of Kubernetes have no flag for a limit; in Azure, they are part of AKS",
	"postgres":               "it starts a process for each connection that has sent nothing yet, without a limit; in Azure, only the subnets of its services reach it",
}

// mostConnections is more than each limit of connections and the queue of the kernel for those that a server has not accepted yet.
const mostConnections = 14000

// TestManyConnectionsAreRefused opens connections to each port of the region that send nothing, until the server closes one at once: before others that were opened
// earlier, which end with their limits for handshakes and headers.
func TestManyConnectionsAreRefused(t *testing.T) {
	needsRegion(t)
	nightly.Only(t) // other tests cannot use the region meanwhile
	for _, l := range regionListeners(t) {
		if acceptAll[l.program] != "" && !strings.Contains(l.Command, "--ops-listen="+l.Address.String()) {
			continue
		}
		opened, err := flood(t, l.Address.String())
		if err != nil {
			t.Errorf("%s at %s: %v", l.Command, l.Address, err)
			continue
		}
		t.Logf("%s at %s refuses one of %d connections", l.program, l.Address, opened)
	}
}

// flood returns the number of connections that it has opened when the server closed one of them at once.
func flood(t *testing.T, address string) (opened int, err error) {
	t.Helper()
	ctx, cancel := eventually.Context(t)
	defer cancel()
	var reading sync.WaitGroup
	defer reading.Wait()
	closed, done := make(chan int), make(chan struct{})
	defer close(done)
	open := map[int]net.Conn{}
	defer func() {
		for _, connection := range open {
			_ = connection.Close()
		}
	}()
	// apart is the number of connections after an open one from which on a closed one was refused: those whose limits have ended at the same time are closed in any order.
	const apart = 500
	oldest := 0
	for ctx.Err() == nil {
		var connection net.Conn
		if len(open) < mostConnections {
			if connection, err = (&net.Dialer{}).DialContext(ctx, "tcp", address); err != nil {
				return opened, err
			}
			_ = connection.(*net.TCPConn).SetLinger(0) // no port of this machine waits afterwards
			number := opened
			open[number] = connection
			opened++
			reading.Go(func() {
				_, _ = io.Copy(io.Discard, connection)
				select {
				case closed <- number:
				case <-done:
				}
			})
		} else {
			return opened, fmt.Errorf("%d connections are open", len(open))
		}
		for more := true; more; {
			select {
			case number := <-closed:
				_ = open[number].Close()
				delete(open, number)
				for ; oldest < opened && open[oldest] == nil; oldest++ {
				}
				if oldest+apart < number {
					return opened, nil
				}
			default:
				more = false
			}
		}
	}
	return opened, ctx.Err()
}
