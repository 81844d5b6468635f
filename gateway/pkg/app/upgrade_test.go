package app

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	remoteCommand = "v5.channel.k8s.io"
	channels      = "v4.channel.k8s.io"
	portForward   = "SPDY/3.1+portforward.k8s.io"
	execPath      = alicePath + "/api/v1/namespaces/default/pods/a/exec?command=id"
)

// asAdmin makes a session one of the mode admin.
func asAdmin(v *database.AccessSessionDocument) { v.Mode = "admin" }

// readyAdmin starts a gateway with a session of the mode admin that is ready.
func readyAdmin(t *testing.T, change func(*Parts)) (*region, *gateway, *clusterservicev1.BreakGlassCredential) {
	t.Helper()
	r := newRegion(t)
	r.change = change
	g, c := r.opened(aliceSession, "alice", asAdmin)
	return r, g, c
}

// webSocket opens a WebSocket through the gateway with one protocol.
func (g *gateway) webSocket(path, protocol string, headers ...string) (*websocket.Conn, *http.Response, error) {
	header := http.Header{"Authorization": {"Bearer alice"}}
	for i := 0; i+1 < len(headers); i += 2 {
		header.Add(headers[i], headers[i+1])
	}
	dialer := websocket.Dialer{Subprotocols: []string{protocol}}
	return dialer.DialContext(g.r.t.Context(), "ws"+strings.TrimPrefix(g.url, "http")+path, header)
}

// dial is webSocket for a WebSocket that must open. It is closed at the end of the test.
func (g *gateway) dial(path, protocol string, headers ...string) (*websocket.Conn, *http.Response) {
	g.r.t.Helper()
	connection, response, err := g.webSocket(path, protocol, headers...)
	if err != nil {
		g.r.t.Fatalf("%v: %v: %s", err, response, g.r.log)
	}
	g.r.t.Cleanup(func() { _ = connection.Close() })
	return connection, response
}

// upgraded serves a WebSocket with a function, and closes it.
func upgraded(protocol string, serve func(*websocket.Conn)) http.HandlerFunc {
	upgrader := websocket.Upgrader{Subprotocols: []string{protocol}}
	return func(w http.ResponseWriter, r *http.Request) {
		connection, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = connection.Close() }()
		serve(connection)
	}
}

// echo serves a WebSocket that repeats messages. It repeats the input of a command as its output.
func echo(protocol string) http.HandlerFunc {
	return upgraded(protocol, func(connection *websocket.Conn) {
		for {
			kind, content, err := connection.ReadMessage()
			if err == nil && protocol != portForward && len(content) > 0 {
				content[0] = 1
			}
			if err != nil || connection.WriteMessage(kind, content) != nil {
				return
			}
		}
	})
}

// readOnce serves a WebSocket that reads one message and sends the error of the read to ended.
func readOnce(protocol string, ended chan<- error) http.HandlerFunc {
	return upgraded(protocol, func(connection *websocket.Conn) {
		_, _, err := connection.ReadMessage()
		ended <- err
	})
}

// printForever serves a command that prints without end.
func printForever(connection *websocket.Conn) {
	for connection.WriteMessage(websocket.BinaryMessage, append([]byte{1}, make([]byte, 64<<10)...)) == nil {
		continue
	}
}

// opened opens a WebSocket that repeats messages, and sends one.
func (g *gateway) opened(path, protocol string) *websocket.Conn {
	g.r.t.Helper()
	g.r.handle(echo(protocol))
	connection, _ := g.dial(path, protocol)
	must.Do(g.r.t, connection.WriteMessage(websocket.BinaryMessage, []byte("\x00hello")))
	if _, content, err := connection.ReadMessage(); err != nil || string(content[1:]) != "hello" {
		g.r.t.Fatalf("%q: %v", content, err)
	}
	return connection
}

// TestUpgradeHasCertificateOfEngineerOnly opens a WebSocket with headers that identify its sender. The API server gets a handshake of the
// gateway's own without them. Both records are in the audit, the first one before the API server gets the request.
func TestUpgradeHasCertificateOfEngineerOnly(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	recorded := make(chan bool, 1)
	r.handle(func(w http.ResponseWriter, request *http.Request) {
		begun := false
		for _, record := range r.trail.Records(t) {
			begun = begun || record.Outcome == audit.Started && record.Action == "kubernetes.get" && record.Object.Kind == "pods/exec" && record.Object.ID == "/default/a"
		}
		recorded <- begun
		echo(remoteCommand)(w, request)
	})
	connection, response := g.dial(execPath, remoteCommand, "X-Remote-User", "system:admin", "X-Remote-Group", "system:masters", "Cookie", "session=secret",
		"Origin", "https://attacker.example.com", "Proxy-Authorization", "Basic x", "Audit-Id", "1", "User-Agent", "kubectl/1.35")
	if !<-recorded {
		t.Error("the upgrade was forwarded before its record")
	}
	must.Do(t, connection.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Time{}))
	if _, _, err := connection.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the WebSocket ended with %v", err)
	}
	arrived := r.arrived()
	if len(arrived) != 1 {
		t.Fatalf("%d requests arrived", len(arrived))
	}
	seen := arrived[0]
	for name, values := range seen.Header {
		switch name {
		case "Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Protocol", "User-Agent", "Audit-Id":
		default:
			t.Errorf("the API server got %s: %v", name, values)
		}
	}
	if seen.TLS.PeerCertificates[0].Subject.Organization[0] != "system:masters" || seen.TLS.PeerCertificates[0].Subject.CommonName != "system:sre-break-glass:alice" || seen.ProtoMajor != 1 ||
		seen.URL.RequestURI() != "/api/v1/namespaces/default/pods/a/exec?command=id" || seen.Header.Get("Sec-Websocket-Protocol") != remoteCommand ||
		seen.Header.Get("Audit-Id") != response.Header.Get("X-Request-Id") {
		t.Errorf("the API server got %s: %v", seen.URL, seen.Header)
	}
	g.stop()
	records := r.trail.Records(t)
	if len(records) != 2 || records[1].Outcome != audit.Succeeded || records[1].Level != "admin" || records[1].Request != response.Header.Get("X-Request-Id") {
		t.Errorf("the audit has %+v", records)
	}
}

// TestRefusalOfUpgradeIsReturned lets the API server refuse upgrades. The client gets its response, however long it is, but no redirect.
func TestRefusalOfUpgradeIsReturned(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	long := `{"kind":"Status","message":"` + strings.Repeat("x", 20<<10) + `"}`
	r.handle(func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, long)
	})
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", remoteCommand}
	response, body := g.send(http.MethodGet, "alice", execPath, "", upgrade...)
	if response.StatusCode != http.StatusNotFound || body != long || response.Header.Get("Set-Cookie") != "" {
		t.Errorf("%d: %v: %d bytes", response.StatusCode, response.Header, len(body))
	}
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://attacker.example.com/", http.StatusFound)
		}, "redirects"},
		"an endless response":        {func(w http.ResponseWriter, _ *http.Request) { writeForever(w) }, "does not respond"},
		"another protocol":           {echo(channels), "does not respond"},
		"no proof of the handshake":  {unproven, "does not respond"},
		"success without an upgrade": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.handle(tc.serve)
			response, body := g.send(http.MethodGet, "alice", execPath, "", upgrade...)
			if tc.want == "" {
				if response.StatusCode != http.StatusOK {
					t.Errorf("%d: %s", response.StatusCode, body)
				}
				return
			}
			if response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(message(t, body), tc.want) || response.Header.Get("Location") != "" {
				t.Errorf("%d: %s", response.StatusCode, body)
			}
		})
	}
}

func writeForever(w io.Writer) {
	for {
		if _, err := w.Write(make([]byte, 4<<10)); err != nil {
			return
		}
	}
}

// unproven changes the protocol without the header that proves that the server understood the handshake.
func unproven(w http.ResponseWriter, _ *http.Request) {
	connection, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: " + remoteCommand + "\r\n\r\n")
	_ = buffered.Flush()
	_ = connection.Close()
}

// answers completes the handshake of a WebSocket with a protocol, and further headers, whatever the client offers.
func answers(protocol string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		connection, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		proof := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) // RFC 6455, section 4.2.2
		_, _ = fmt.Fprintf(buffered, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\nSec-WebSocket-Protocol: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(proof[:]), protocol)
		_ = buffered.Flush()
		_ = connection.Close()
	}
}

// TestResponseMatchesOffer completes handshakes with what the gateway has not offered: another version than the recording assumes, or compression. The client
// does not get a WebSocket.
func TestResponseMatchesOffer(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	for offered, answer := range map[string]string{
		remoteCommand: channels, channels: remoteCommand,
		portForward: portForward + "\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover",
	} {
		path := execPath
		if offered == portForward {
			path = alicePath + "/api/v1/namespaces/default/pods/a/portforward"
		}
		r.handle(answers(answer))
		connection, response, err := g.webSocket(path, offered)
		if err == nil {
			_ = connection.Close()
		}
		if err == nil || response == nil || response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("%q for %s: %v: %v", answer, offered, err, response)
		}
	}
}

// TestClientGetsProtocolOfAPIServer offers protocols in different forms. API server and client get the same one, which the recording assumes.
func TestClientGetsProtocolOfAPIServer(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	for want, offers := range map[string][][]string{
		remoteCommand: {{remoteCommand}, {channels + ", " + remoteCommand}, {channels, remoteCommand}, {remoteCommand, channels}},
		channels:      {{channels}, {"v3.channel.k8s.io, " + channels}, {"v3.channel.k8s.io", channels}},
	} {
		for _, offered := range offers {
			before := len(r.arrived())
			r.handle(echo(want))
			upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
			for _, protocol := range offered {
				upgrade = append(upgrade, "Sec-WebSocket-Protocol", protocol)
			}
			response := must.Get(g.open(t.Context(), http.MethodGet, "alice", execPath, "", upgrade...))(t)
			_ = response.Body.Close()
			if got := response.Header["Sec-Websocket-Protocol"]; response.StatusCode != http.StatusSwitchingProtocols || !slices.Equal(got, []string{want}) {
				t.Errorf("%q: %d: the client has %q, want %q", offered, response.StatusCode, got, want)
			}
			if arrived := r.arrived()[before:]; len(arrived) != 1 || !slices.Equal(arrived[0].Header["Sec-Websocket-Protocol"], []string{want}) {
				t.Errorf("%q: %d handshakes of the API server, want one with %q", offered, len(arrived), want)
			}
		}
	}
}

// TestUpgradeEndsWithSession ends sessions in each possible way during a command and during port forwarding. Each WebSocket gets the
// reason in a close frame, the API server's is closed too, and no byte follows. The recordings of commands have the reason.
func TestUpgradeEndsWithSession(t *testing.T) {
	t.Parallel()
	for name, tc := range endings {
		for protocol, path := range map[string]string{remoteCommand: execPath, channels: execPath, portForward: alicePath + "/api/v1/namespaces/default/pods/a/portforward"} {
			t.Run(name+"/"+protocol[:4], func(t *testing.T) {
				t.Parallel()
				r, g, c := readyAdmin(t, nil)
				ended := make(chan error, 1)
				connection := g.opened(path, protocol)
				r.handle(readOnce(protocol, ended))
				second, _ := g.dial(path, protocol)
				tc.end(r, c)
				var closed *websocket.CloseError
				for _, one := range []*websocket.Conn{connection, second} {
					if _, content, err := one.ReadMessage(); !errors.As(err, &closed) || closed.Code != websocket.ClosePolicyViolation || !strings.Contains(closed.Text, tc.want) {
						t.Errorf("the client gets %q and %v, want a close frame with %q", content, err, tc.want)
					}
				}
				if err := <-ended; !websocket.IsCloseError(err, websocket.CloseGoingAway) {
					t.Errorf("the API server gets %v", err)
				}
				g.await(aliceSession, database.AccessSessionEnded)
				if _, response, err := g.webSocket(path, protocol); err == nil || response.StatusCode != http.StatusForbidden {
					t.Errorf("after the end: %v: %v", response, err)
				}
				if path == execPath {
					found := r.recordingsOf(aliceSession, 2)[0]
					if found.input != "hello" || found.output != "hello" || !strings.Contains(found.EndReason, tc.want) || !strings.Contains(found.markers[0], tc.want) {
						t.Errorf("the recording is %+v", found)
					}
				}
				g.stop()
				outcomes := map[string]int{}
				for _, record := range r.trail.Records(t) {
					outcomes[record.Outcome]++
				}
				if outcomes[audit.Started] != 2 || outcomes[audit.Failed] != 2 {
					t.Errorf("the audit has %v", outcomes)
				}
			})
		}
	}
}

// TestUpgradeEndsWithoutReader ends a session whose client reads nothing while the API server sends without end. Both connections are closed.
func TestUpgradeEndsWithoutReader(t *testing.T) {
	t.Parallel()
	r, g, c := readyAdmin(t, nil)
	ended := make(chan struct{})
	r.handle(upgraded(remoteCommand, func(server *websocket.Conn) { defer close(ended); printForever(server) }))
	g.dial(execPath, remoteCommand)
	r.revoke(c)
	g.await(aliceSession, database.AccessSessionEnded)
	eventually.Soon(t, "the connection to the API server is closed", func() error {
		r.clock.Step(time.Second) // until the gateway waits for the client no longer
		select {
		case <-ended:
			return nil
		default:
			return errors.New("the API server sends")
		}
	})
	g.stop() // it waits for all connections
}

// TestUpgradeIsLimited exceeds each limit of upgraded connections.
func TestUpgradeIsLimited(t *testing.T) {
	t.Parallel()
	closes := func(t *testing.T, connection *websocket.Conn, want string) {
		t.Helper()
		for {
			_, _, err := connection.ReadMessage()
			if err == nil {
				continue // what was transferred before the limit
			}
			var closed *websocket.CloseError
			if !errors.As(err, &closed) || !strings.Contains(closed.Text, want) {
				t.Errorf("the connection ended with %v, want %q", err, want)
			}
			return
		}
	}
	t.Run("size of a message", func(t *testing.T) {
		t.Parallel()
		_, g, _ := readyAdmin(t, nil)
		connection := g.opened(execPath, remoteCommand)
		// More than the buffers of a connection hold: the client reads nothing before it has sent all.
		must.Do(t, connection.WriteMessage(websocket.BinaryMessage, make([]byte, 32<<20)))
		if _, _, err := connection.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseMessageTooBig) {
			t.Errorf("the connection ended with %v", err)
		}
	})
	t.Run("bytes of a session", func(t *testing.T) {
		t.Parallel()
		_, g, _ := readyAdmin(t, func(p *Parts) { p.MaxBytes = 100 << 10 })
		connection := g.opened(execPath, remoteCommand)
		for range 4 {
			if connection.WriteMessage(websocket.BinaryMessage, make([]byte, 30<<10)) != nil {
				break
			}
		}
		closes(t, connection, "102400 bytes")
	})
	t.Run("number of connections", func(t *testing.T) {
		t.Parallel()
		_, g, _ := readyAdmin(t, nil)
		first := g.opened(execPath, remoteCommand)
		for range 9 {
			g.opened(execPath, remoteCommand)
		}
		if _, response, err := g.webSocket(execPath, remoteCommand); err == nil || response.StatusCode != http.StatusTooManyRequests {
			t.Errorf("%v: %v", response, err)
		}
		_ = first.Close()
		eventually.Soon(t, "another connection is accepted", func() error {
			connection, _, err := g.webSocket(execPath, remoteCommand)
			if err == nil {
				_ = connection.Close()
			}
			return err
		})
	})
}

// TestLostConnectionEndsBoth loses the connection of one side without a close frame. The other side is closed.
func TestLostConnectionEndsBoth(t *testing.T) {
	t.Parallel()
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		r, g, _ := readyAdmin(t, nil)
		ended := make(chan error, 1)
		r.handle(readOnce(remoteCommand, ended))
		connection, _ := g.dial(execPath, remoteCommand)
		_ = connection.Close()
		if err := <-ended; !websocket.IsCloseError(err, websocket.CloseGoingAway) {
			t.Errorf("the API server gets %v", err)
		}
	})
	t.Run("API server", func(t *testing.T) {
		t.Parallel()
		r, g, _ := readyAdmin(t, nil)
		connection := g.opened(execPath, remoteCommand)
		r.api.CloseClientConnections()
		_ = connection.WriteMessage(websocket.BinaryMessage, []byte("\x00x")) // hijacked connections are not closed by the test server
		r.handle(upgraded(remoteCommand, func(server *websocket.Conn) { _ = server.NetConn().Close() }))
		second, _ := g.dial(execPath, remoteCommand)
		if _, _, err := second.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseInternalServerErr) {
			t.Errorf("the client gets %v", err)
		}
	})
}

// TestStopDrainsUpgrades stops the process during a command. It continues for a while, and ends then with a close frame. A new one is refused.
func TestStopDrainsUpgrades(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	connection := g.opened(execPath, remoteCommand)
	timers := r.clock.Waiters()
	stopped := make(chan struct{})
	go func() { defer close(stopped); g.stop() }()
	<-g.closed
	must.Do(t, connection.WriteMessage(websocket.BinaryMessage, []byte("\x00more")))
	if _, content, err := connection.ReadMessage(); err != nil || string(content) != "\x01more" {
		t.Errorf("%q: %v", content, err)
	}
	eventually.Soon(t, "the drain has begun", func() error {
		if r.clock.Waiters() == timers {
			return errors.New("nothing waits for its end")
		}
		return nil
	})
	r.clock.Step(time.Minute)
	var closed *websocket.CloseError
	if _, _, err := connection.ReadMessage(); !errors.As(err, &closed) || !strings.Contains(closed.Text, "gateway stops") {
		t.Errorf("the connection ended with %v", err)
	}
	<-stopped
	if v, err := r.document(aliceSession); err != nil || v.State != database.AccessSessionReady {
		t.Errorf("the session is %+v: %v", v, err)
	}
}

// TestAdminPolicy sends what only the mode admin permits, and what no mode does.
func TestAdminPolicy(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	for name, tc := range map[string]struct {
		method, path string
		headers      []string
		status       int
		message      string
	}{
		"secrets":           {"GET", "/api/v1/secrets", nil, 200, ""},
		"a deletion":        {"DELETE", "/api/v1/namespaces/default/pods/a", nil, 200, ""},
		"a proxy":           {"POST", "/api/v1/namespaces/default/services/s/proxy/a/b", nil, 200, ""},
		"metrics of a node": {"GET", "/api/v1/nodes/n/proxy/metrics", nil, 200, ""},
		"a path":            {"GET", "/debug/pprof/heap", nil, 200, ""},
		"run on a node":     {"POST", "/api/v1/nodes/n/proxy/run/a/b/c?cmd=id", nil, 403, "only GET and HEAD of nodes/proxy"},
		"exec on a node":    {"GET", "/api/v1/nodes/n/proxy/exec/a/b/c?command=id", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 403, "for get of nodes/proxy"},
		"another user":      {"GET", "/api/v1/pods", []string{"Impersonate-User", "system:admin"}, 403, "impersonation"},
		"SPDY":              {"POST", "/api/v1/namespaces/default/pods/a/exec?command=id", []string{"Connection", "Upgrade", "Upgrade", "SPDY/3.1"}, 403, "does not forward upgrades to SPDY"},
		"no upgrade":        {"GET", "/api/v1/namespaces/default/pods/a/attach", nil, 403, "only over a WebSocket"},
		"an old protocol": {"GET", "/api/v1/namespaces/default/pods/a/exec?command=id", []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
			"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol", "v3.channel.k8s.io"}, 403, "with the protocol v5.channel.k8s.io or v4.channel.k8s.io. Use kubectl 1.31 or later, or"},
		"a WebSocket":         {"GET", "/api/v1/pods?watch=1", []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 403, "for watch of pods"},
		"encoded exec":        {"GET", "/api/v1/namespaces/default/pods/a/%65xec?command=id", nil, 403, "only over a WebSocket"},
		"dots before exec":    {"GET", "/api/v1/namespaces/default/pods/a/log/../exec?command=id", nil, 400, `the part ".."`},
		"encoded dots":        {"GET", "/api/v1/namespaces/default/pods/a/proxy/%2e%2e/exec?command=id", nil, 400, `the part ".."`},
		"dots behind a proxy": {"GET", "/api/v1/namespaces/default/pods/a/proxy/../exec?command=id", nil, 400, `the part ".."`},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.arrived())
			response, body := g.send(tc.method, "alice", alicePath+tc.path, "", tc.headers...)
			arrived := len(r.arrived()) > before
			if response.StatusCode != tc.status || arrived != (tc.status == 200) || tc.message != "" && !strings.Contains(message(t, body), tc.message) {
				t.Errorf("%d: %s, arrived: %t", response.StatusCode, body, arrived)
			}
		})
	}
}

// TestSmuggledRequestsDoNotArrive sends bytes in which servers disagree about where a request ends. At most the first one is forwarded, never a
// second one that no record has, and none is forwarded as an upgrade.
func TestSmuggledRequestsDoNotArrive(t *testing.T) {
	t.Parallel()
	r, g, _ := readyAdmin(t, nil)
	const second = "DELETE " + alicePath + "/api/v1/namespaces/smuggled HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer alice\r\n\r\n"
	handshake := "Host: h\r\nAuthorization: Bearer alice\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: " + remoteCommand + "\r\n"
	const plain = "Host: h\r\nAuthorization: Bearer alice\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(second))
	for name, content := range map[string]string{
		"a body of a handshake":      "GET " + execPath + " HTTP/1.1\r\n" + handshake + length + "\r\n" + second,
		"both lengths":               "POST " + alicePath + "/api/v1/namespaces HTTP/1.1\r\n" + plain + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + second,
		"two lengths":                "POST " + alicePath + "/api/v1/namespaces HTTP/1.1\r\n" + plain + "Content-Length: 0\r\n" + length + "\r\n" + second,
		"an unknown coding":          "POST " + alicePath + "/api/v1/namespaces HTTP/1.1\r\n" + plain + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + second,
		"a space before the colon":   "GET " + execPath + " HTTP/1.1\r\n" + handshake + "Content-Length : 5\r\n\r\n" + second,
		"a folded header":            "GET " + alicePath + "/api/v1/pods HTTP/1.1\r\n" + plain + "X: a\r\n Upgrade: websocket\r\n\r\n",
		"data before the handshake":  "GET " + execPath + " HTTP/1.1\r\n" + strings.Replace(handshake, "13", "8", 1) + "\r\n" + second,
		"a handshake with two hosts": "GET " + execPath + " HTTP/1.1\r\nHost: other\r\n" + handshake + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			before := len(r.arrived())
			connection := must.Get(net.Dial("tcp", strings.TrimPrefix(g.url, "http://")))(t)
			defer func() { _ = connection.Close() }()
			must.Get(io.WriteString(connection, content))(t)
			responses := bufio.NewReader(connection)
			response := must.Get(http.ReadResponse(responses, nil))(t)
			_, _ = io.Copy(io.Discard, response.Body)
			if response.StatusCode == http.StatusSwitchingProtocols {
				t.Error("the connection was upgraded")
			}
			for _, seen := range r.arrived()[before:] {
				if seen.Header.Get("Audit-Id") == "" || seen.Header.Get("Upgrade") != "" {
					t.Errorf("%s %s arrived with %v", seen.Method, seen.URL, seen.Header)
				}
			}
		})
	}
	g.stop()
	begun := map[string]bool{}
	for _, record := range r.trail.Records(t) {
		begun[record.Request] = true
	}
	for _, seen := range r.arrived() {
		if !begun[seen.Header.Get("Audit-Id")] {
			t.Errorf("%s %s has no record", seen.Method, seen.URL)
		}
	}
}

// TestKubectlActs runs the real kubectl through the gateway against a real API server with a kubelet: commands with their exit code, copies of
// files, attachments, forwarded ports and changes.
func TestKubectlActs(t *testing.T) {
	t.Parallel()
	const session, engineer = "a0000000-0000-4000-8000-0000000000e1", "actor"
	r := newHostedRegion(t)
	k := r.runKubelet("acting")
	g, _ := r.opened(session, engineer, asAdmin)
	run := func(stdin string, arguments ...string) (string, error) {
		command := r.kubectl(g.url, session, engineer, arguments...)
		command.Stdin = strings.NewReader(stdin)
		out, err := command.CombinedOutput()
		return string(out), err
	}
	for _, command := range []struct {
		want, stdin string
		arguments   []string
	}{
		{"hello from a pod", "", []string{"exec", "acting", "--", "sh", "-c", "echo hello from a pod"}},
		{"typed", "typed", []string{"exec", "-i", "acting", "--", "cat"}},
		{"on stderr", "", []string{"exec", "acting", "--", "sh", "-c", "echo on stderr >&2"}},
		{"attached", "attached", []string{"attach", "-i", "acting"}},
		{"namespace/acted created", "", []string{"create", "namespace", "acted"}},
		{`namespace "acted" deleted`, "", []string{"delete", "namespace", "acted", "--wait=false"}},
		{"No resources found", "", []string{"get", "secrets", "-n", "default"}},
	} {
		if out, err := run(command.stdin, command.arguments...); err != nil || !strings.Contains(out, command.want) {
			t.Errorf("kubectl %v: %s%v, want %q", command.arguments, out, err, command.want)
		}
	}
	if out, err := run("", "exec", "acting", "--", "sh", "-c", "exit 7"); err == nil || !strings.Contains(out, "exit code 7") {
		t.Errorf("the exit code: %s%v", out, err)
	}
	large := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	local := filepath.Join(t.TempDir(), "large")
	must.Do(t, os.WriteFile(local, large, 0o600))
	if out, err := run("", "cp", local, "acting:large"); err != nil {
		t.Errorf("kubectl cp: %s%v", out, err)
	}
	if copied, err := os.ReadFile(filepath.Join(k.dir, "large")); err != nil || !bytes.Equal(copied, large) {
		t.Errorf("the copy has %d of %d bytes: %v", len(copied), len(large), err)
	}
	back := local + ".back"
	if out, err := run("", "cp", "acting:large", back); err != nil {
		t.Errorf("kubectl cp: %s%v", out, err)
	}
	if copied, err := os.ReadFile(back); err != nil || !bytes.Equal(copied, large) {
		t.Errorf("the copy has %d bytes: %v", len(copied), err)
	}
	for want, arguments := range map[string][]string{
		"does not permit impersonation":   {"get", "pods", "--as=system:admin"},
		"only GET and HEAD of nodes/prox": {"create", "--raw", "/api/v1/nodes/node-of-acting/proxy/run/default/acting/main?cmd=id", "-f", os.DevNull},
	} {
		if out, err := run("", arguments...); err == nil || !strings.Contains(out, want) {
			t.Errorf("kubectl %v: %s%v, want %q", arguments, out, err, want)
		}
	}
	t.Run("forwarded port", func(t *testing.T) {
		target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "behind the pod") }))
		defer target.Close()
		_, port, err := net.SplitHostPort(target.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		address, wait := r.forwardPort(ctx, g, session, engineer, "acting", port)
		for range 3 {
			response := must.Get(client.Get("http://" + address))(t)
			content, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || string(content) != "behind the pod" {
				t.Errorf("%q: %v", content, err)
			}
		}
		cancel()
		wait()
	})
}

// forwardPort runs kubectl port-forward until ctx ends. It returns the local address and a function that waits for its end and returns
// what it printed.
func (r *hostedRegion) forwardPort(ctx context.Context, g *gateway, session, engineer, pod, port string) (address string, wait func() string) {
	r.t.Helper()
	command := r.kubectl(g.url, session, engineer, "port-forward", "--address", "127.0.0.1", "pod/"+pod, ":"+port)
	var errs bytes.Buffer
	command.Stderr = &errs
	out := must.Get(command.StdoutPipe())(r.t)
	must.Do(r.t, command.Start())
	stop := context.AfterFunc(ctx, func() { _ = command.Process.Kill() })
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	address, _, found := strings.Cut(strings.TrimPrefix(line, "Forwarding from "), " ")
	if err != nil || !found {
		_ = command.Process.Kill()
		r.t.Fatalf("kubectl port-forward: %q: %v: %s", line, errors.Join(err, command.Wait()), &errs)
	}
	return address, func() string {
		_, _ = io.Copy(io.Discard, lines)
		_ = command.Wait()
		stop()
		return errs.String()
	}
}

// TestKubectlEndsWithSession revokes the credential of a session while the real kubectl runs a command and forwards a port. Both end, and print the
// reason; the command ends in the pod too.
func TestKubectlEndsWithSession(t *testing.T) {
	t.Parallel()
	const session, engineer = "a0000000-0000-4000-8000-0000000000e2", "revoked"
	r := newHostedRegion(t)
	k := r.runKubelet("revoked")
	g, credential := r.opened(session, engineer, asAdmin)
	command := r.kubectl(g.url, session, engineer, "exec", "-i", "revoked", "--", "cat")
	input := must.Get(command.StdinPipe())(t)
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	must.Do(t, command.Start())
	defer func() { _ = input.Close() }()
	<-k.started // the command
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	address, wait := r.forwardPort(t.Context(), g, session, engineer, "revoked", port)
	connection := must.Get(net.Dial("tcp", address))(t)
	defer func() { _ = connection.Close() }()
	<-k.started // the connection to the port
	r.revoke(credential)
	<-k.stopped // the command or the connection to the port
	<-k.stopped // the other one
	if err := command.Wait(); err == nil || !strings.Contains(printed.String(), "its credential was revoked") {
		t.Errorf("kubectl exec: %s%v", &printed, err)
	}
	if _, err := io.ReadAll(connection); err != nil {
		t.Logf("the connection of the client: %v", err)
	}
	if text := wait(); !strings.Contains(text, "lost connection") {
		t.Errorf("kubectl port-forward: %s", text)
	}
}
