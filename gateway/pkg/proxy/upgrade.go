package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/utils/clock"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/policy"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/recorder"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/session"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	format "github.com/hcpmesh/hcpmesh/internal/recording"
)

const (
	// maxMessage is the maximum size of a message of a WebSocket in bytes. API servers and kubectl send at most 64 KiB.
	maxMessage = 256 << 10
	// maxRefusal limits the response of an API server that does not upgrade the connection.
	maxRefusal = 64 << 10
	// upgradeTimeout limits the handshake with the API server.
	upgradeTimeout = 30 * time.Second
	// answerTimeout limits the response to the client's handshake.
	answerTimeout = 10 * time.Second
	// bufferSize is the size of the buffers of a WebSocket.
	bufferSize = 32 << 10
	// closeTimeout limits the time for sending the close frame of one side, and lingerTimeout the wait for the client to read it. A session ends
	// within a second.
	closeTimeout  = 200 * time.Millisecond
	lingerTimeout = 300 * time.Millisecond
	// discardTimeout limits the time in which the gateway discards what a client sends that has exceeded a limit. TCP resets a connection that is
	// closed with unread data, and the client would lose the close frame.
	discardTimeout = 5 * time.Second
	// maxCloseReason is the maximum length of the reason in a close frame (RFC 6455, section 5.5).
	maxCloseReason = 123
)

// upgrade forwards a request that upgrades the connection to a WebSocket. The gateway is the server of the client's WebSocket and the client of the
// API server's. It forwards complete messages in both directions, so that neither side has a frame that the gateway understands
// differently. It returns after both connections are closed. A failure after the handshake is in a close frame.
//
// A command or an attachment is recorded. The recording begins before the API server gets the request, because a command runs from then on.
func (h *Handler) upgrade(ctx context.Context, x *exchange, backend *session.Backend) (failure error) {
	t := &tunnel{session: x.session, clock: h.Clock}
	if x.parsed.Recorded() {
		recorded, err := h.Recordings.Start(x.facts(), x.r.URL.Query()["command"])
		if err != nil {
			return err
		}
		t.recording = recorded
	}
	server, refusal, err := dialWebSocket(ctx, x, backend, &h.messages)
	if err == nil && refusal != nil {
		if t.recording != nil {
			t.recording.Discard()
		}
		x.respond(refusal)
		return nil
	}
	if t.recording != nil {
		t.recording.Begin()
		defer func() {
			// A recording without an end is a failure, which the client may not get any more.
			if err := t.recording.End(context.WithoutCancel(ctx), t.reason(failure)); failure == nil {
				failure = err
			}
		}()
	}
	if err != nil {
		return unavailable(err)
	}
	// The buffer of the server is used for reading: it may have the first messages already.
	upgrader := websocket.Upgrader{HandshakeTimeout: answerTimeout, WriteBufferSize: bufferSize,
		// Without cookies, a page of another origin has no rights.
		CheckOrigin: func(*http.Request) bool { return true },
		Error:       func(http.ResponseWriter, *http.Request, int, error) {},
	}
	// The library would look for the protocol only in the first of several headers.
	client, err := upgrader.Upgrade(x.w, x.r, http.Header{auditID: {x.id}, "X-Request-Id": {x.id}, "Sec-Websocket-Protocol": {server.Subprotocol()}})
	if err != nil {
		closeNow(server)
		return apierror.New(apierror.Unavailable, "The connection of the client cannot be upgraded.").WithCause(err)
	}
	x.status, x.switched = http.StatusSwitchingProtocols, true
	t.client, t.server = client, server
	return t.run(ctx)
}

// facts returns what a recording of the request states in clear text.
func (x *exchange) facts() format.Facts {
	s := x.session
	facts := format.Facts{ID: x.id, SessionID: s.ID, ClusterUID: s.ClusterUID, ResourceID: s.ResourceID, Shard: s.Shard, Owner: format.Person{Name: s.Owner.Name, ObjectID: s.Owner.ObjectID, TenantID: s.Owner.TenantID},
		Reason: s.Owner.Reason, Ticket: s.Owner.Ticket, Start: time.Now(), Kind: x.parsed.Kind(), Namespace: x.parsed.Namespace, Pod: x.parsed.Name}
	if x.parsed.Recorded() {
		query := x.r.URL.Query()
		facts.Container, facts.TTY = query.Get("container"), policy.IsTrue(query.Get("tty"))
	}
	return facts
}

// refusal is the response of an API server that does not upgrade the connection.
type refusal struct {
	status int
	header http.Header
	body   []byte
}

// respond sends the response of the API server to the client.
func (x *exchange) respond(r *refusal) {
	x.status = r.status
	for _, name := range []string{"Content-Type", "Retry-After", "Warning", auditID} {
		if values := r.header[name]; len(values) > 0 {
			x.w.Header()[name] = values
		}
	}
	x.w.Header().Set("X-Content-Type-Options", "nosniff")
	x.w.Header().Set("Cache-Control", "no-store")
	x.w.WriteHeader(r.status)
	_, _ = x.w.Write(r.body)
}

// dialWebSocket opens a WebSocket to the API server, or returns its refusal.
func dialWebSocket(ctx context.Context, x *exchange, backend *session.Backend, messages websocket.BufferPool) (*websocket.Conn, *refusal, error) {
	ctx, cancel := context.WithTimeout(ctx, upgradeTimeout)
	defer cancel()
	plain, err := backend.Dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	connection := &handshake{Conn: plain}
	interrupt := context.AfterFunc(ctx, func() { _ = plain.Close() })
	defer interrupt()
	// A message that is larger than the buffer would be sent in several frames, each of which an API server takes for a message.
	dialer := websocket.Dialer{ReadBufferSize: bufferSize, WriteBufferSize: maxMessage, WriteBufferPool: messages, Subprotocols: []string{string(x.protocol)},
		NetDialTLSContext: func(context.Context, string, string) (net.Conn, error) { return connection, nil }}
	target := &url.URL{Scheme: "wss", Host: backend.URL.Host, Path: x.parsed.Path, RawPath: x.path, RawQuery: x.r.URL.RawQuery}
	server, response, err := dialer.DialContext(ctx, target.String(), x.forwardedHeaders(backend))
	switch {
	case err == nil && server.Subprotocol() != string(x.protocol):
		closeNow(server)
		return nil, nil, fmt.Errorf("the API server has the protocol %q", server.Subprotocol())
	case err == nil && len(response.Header["Sec-Websocket-Extensions"]) > 0:
		// The library would decompress messages without a limit, of a node that may be a customer's (RFC 6455, section 4.1).
		closeNow(server)
		return nil, nil, fmt.Errorf("the API server has the extension %q, which the gateway does not offer", response.Header.Get("Sec-Websocket-Extensions"))
	case err == nil:
		connection.done = true
		return server, nil, nil
	}
	defer func() { _ = plain.Close() }()
	if response == nil || response.StatusCode == http.StatusSwitchingProtocols {
		return nil, nil, err
	}
	refused, err := connection.refusal()
	if err == nil && isRedirect(refused.status) {
		err = errRedirect
	}
	return nil, refused, err
}

// handshake is a connection during the handshake of a WebSocket. It limits the size of the response and keeps it, because the library
// returns only the beginning of a response that refuses the handshake.
type handshake struct {
	net.Conn
	response bytes.Buffer
	// done is set when the handshake is complete.
	done bool
}

// Read implements net.Conn.
func (c *handshake) Read(into []byte) (int, error) {
	if c.done {
		return c.Conn.Read(into)
	}
	left := maxRefusal - c.response.Len()
	if left <= 0 {
		return 0, fmt.Errorf("the response of the API server is larger than %d bytes", maxRefusal)
	}
	n, err := c.Conn.Read(into[:min(len(into), left)])
	c.response.Write(into[:n])
	return n, err
}

// Close implements net.Conn. The library closes the connection after a refusal, whose rest is read later.
func (c *handshake) Close() error {
	if c.done {
		return c.Conn.Close()
	}
	return nil
}

// refusal returns the whole response.
func (c *handshake) refusal() (*refusal, error) {
	known := bytes.Clone(c.response.Bytes())
	rest := &io.LimitedReader{R: c.Conn, N: int64(maxRefusal - len(known))}
	response, err := http.ReadResponse(bufio.NewReader(io.MultiReader(bytes.NewReader(known), rest)), nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the response of the API server: %w", err)
	}
	return &refusal{status: response.StatusCode, header: response.Header, body: body}, nil
}

// tunnel is a pair of WebSockets.
type tunnel struct {
	session        *session.Session
	clock          clock.WithDelayedExecution
	client, server *websocket.Conn
	// recording is nil for a forwarded port.
	recording *recorder.Recording
	// closedBy is the side that has closed or lost its connection first; nil if another reason ended the tunnel.
	closedBy *websocket.Conn
}

// reason returns why the tunnel has ended, for people.
func (t *tunnel) reason(failure error) string {
	switch {
	case failure != nil:
		return apierror.As(failure).Message
	case t.closedBy != nil && t.closedBy == t.client:
		return "The client has closed the connection."
	}
	return "The API server has closed the connection."
}

// end is why a direction of a tunnel has ended: side was closed or lost, with an error of the library; or, without a side, from exceeded a limit.
type end struct {
	from, side *websocket.Conn
	err        error
}

// run forwards messages until one side ends or ctx ends, and closes both connections.
func (t *tunnel) run(ctx context.Context) error {
	ends := make(chan end, 2)
	go func() { ends <- t.forward(t.client, t.server) }()
	go func() { ends <- t.forward(t.server, t.client) }()
	running := 2
	var failed <-chan struct{}
	if t.recording != nil {
		failed = t.recording.Failed()
	}
	var first end
	select {
	case first = <-ends:
		running--
	case <-failed:
		first.err = t.recording.Err()
	case <-ctx.Done():
	}
	t.closedBy = first.side
	cause, wait, canceled := context.Cause(ctx), lingerTimeout, ctx.Done()
	failure := t.close(cause, first)
	switch {
	case cause != nil:
		canceled = nil
	case first.side == nil && first.from == t.client:
		wait = discardTimeout
		running++
		go func() { ends <- t.discard() }()
	}
	linger := t.clock.NewTimer(wait)
	defer linger.Stop()
	for running > 0 {
		select {
		case <-ends: // after a close frame, the other side closes its connection
			running--
			continue
		case <-linger.C():
		case <-canceled:
		}
		break
	}
	closeNow(t.client)
	closeNow(t.server)
	for range running {
		<-ends
	}
	return failure
}

// discard reads what the client sends until it closes its connection.
func (t *tunnel) discard() end {
	_, err := io.Copy(io.Discard, t.client.NetConn())
	return end{from: t.client, side: t.client, err: err}
}

// forward copies messages, and records each before. It returns why it ended.
func (t *tunnel) forward(from, to *websocket.Conn) end {
	from.SetReadLimit(maxMessage)
	for {
		kind, content, err := from.ReadMessage()
		if errors.Is(err, websocket.ErrReadLimit) {
			return end{from: from, err: apierror.New(apierror.Invalid, "A message is larger than %d bytes.", maxMessage)}
		}
		if err != nil {
			return end{from: from, side: from, err: err}
		}
		if err := t.session.Transfer(len(content)); err != nil {
			return end{from: from, err: err}
		}
		if t.recording != nil {
			content, err = t.recording.Take(t.server.Subprotocol(), from == t.client, content)
			if err != nil {
				return end{from: from, err: err}
			}
			if len(content) == 0 {
				continue
			}
		}
		if err := to.WriteMessage(kind, content); err != nil {
			return end{from: from, side: to, err: err}
		}
	}
}

// close sends close frames with the reason to the sides that have not ended, and returns the failure of the request: nil if one of
// the sides closed its connection as the protocol requires, or if the client has gone.
func (t *tunnel) close(cause error, first end) error {
	var closed *websocket.CloseError
	known := errors.As(first.err, &closed) && closed.Code != websocket.CloseAbnormalClosure
	switch {
	case cause != nil:
		t.send(t.client, websocket.ClosePolicyViolation, apierror.As(cause).Message)
		t.send(t.server, websocket.CloseGoingAway, "")
		return cause
	case first.side == nil:
		t.send(t.client, websocket.ClosePolicyViolation, apierror.As(first.err).Message)
		t.send(t.server, websocket.CloseGoingAway, "")
		return first.err
	case first.side == t.client && known:
		t.send(t.server, closed.Code, closed.Text)
	case first.side == t.client:
		t.send(t.server, websocket.CloseGoingAway, "")
	case known:
		t.send(t.client, closed.Code, closed.Text)
	default:
		failure := apierror.New(apierror.Unavailable, "The connection to the API server has ended.").WithCause(first.err)
		t.send(t.client, websocket.CloseInternalServerErr, failure.Message)
		return failure
	}
	return nil
}

// send sends a close frame. It closes the connection of a peer that does not read.
func (t *tunnel) send(to *websocket.Conn, code int, reason string) {
	if len(reason) > maxCloseReason {
		reason = strings.ToValidUTF8(reason[:maxCloseReason], "")
	}
	limit := t.clock.AfterFunc(closeTimeout, func() { closeNow(to) })
	defer limit.Stop()
	_ = to.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, reason), time.Time{})
}

// closeNow closes a connection without waiting for its peer. The end of TLS would wait for a peer that does not read.
func closeNow(connection *websocket.Conn) {
	inner := connection.NetConn()
	if wrapped, ok := inner.(*handshake); ok {
		inner = wrapped.Conn
	}
	if secure, ok := inner.(*tls.Conn); ok {
		inner = secure.NetConn()
	}
	_ = inner.Close()
}
