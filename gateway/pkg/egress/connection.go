package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/publicaddress"
	"github.com/hcpmesh/hcpmesh/internal/relay"
)

// httpsPort is the port of hosts that clients name in TLS.
const httpsPort = 443

// Outcome is the result of a connection's beginning, as in the label of the metric and in access records: a reason of the policy, or one of the
// constants.
type Outcome string

// The outcomes beside those of the policy.
const (
	// Local is a connection of the proxy itself, for example a health check.
	Local Outcome = "local"
	// NoLink is a connection without a valid PROXY header.
	NoLink Outcome = "no-link"
	// Stale is a connection that was refused because the links could not be read for too long.
	Stale Outcome = "stale"
	// UnverifiedLink is a connection of a link for whose document no signed intent of an engineer is.
	UnverifiedLink Outcome = "unverified-link"
	// Busy and BusyLink are connections beyond the limits of the gateway and of their link, RateLink one beyond the rate of new connections.
	Busy     Outcome = "busy"
	BusyLink Outcome = "busy-link"
	RateLink Outcome = "rate-link"
	// Timeout is a client that has not named a host in time, and Malformed one that sent something else.
	Timeout   Outcome = "timeout"
	Malformed Outcome = "malformed"
	// Address is a host without a public address, Unresolved one that does not resolve, and Unreachable one that accepts no connection.
	Address     Outcome = "address"
	Unresolved  Outcome = "unresolved"
	Unreachable Outcome = "unreachable"
	// Canceled is a connection that ended while the gateway connected to its host: its link was removed, or the gateway stops.
	Canceled Outcome = "canceled"
)

// connection is one connection of a client.
type connection struct {
	server   *Server
	protocol Protocol
	id       string
	start    time.Time
	client   net.Conn
	reader   *bufio.Reader
	header   proxyHeader
	cluster  Cluster
	host     string
	port     uint16
}

// serve serves one connection and closes it.
func (s *Server) serve(ctx context.Context, protocol Protocol, client net.Conn) {
	defer func() { _ = client.Close() }()
	c := &connection{server: s, protocol: protocol, id: uuid.NewString(), start: time.Now(), client: client, reader: bufio.NewReaderSize(client, proxyHeaderBuffer)}
	// The end of the gateway ends all waiting for the client.
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	if err := client.SetDeadline(c.start.Add(s.options.Limits.Handshake)); err != nil {
		return
	}
	var err error
	c.header, err = readProxyHeader(c.reader)
	switch {
	case errors.Is(err, errLocalConnection):
		c.count(Local)
		return
	case err != nil:
		// Nothing identifies the client, so that there is no access record.
		outcome := NoLink
		if errors.Is(err, os.ErrDeadlineExceeded) {
			outcome = Timeout
		}
		c.count(outcome)
		s.options.Log.Debug("connection without a PROXY header", logkey.Remote, client.RemoteAddr().String(), logkey.Error, err)
		return
	}
	c.cluster.Link = c.header.LinkID
	opened, err := s.options.Links.Open(ctx, c.header.LinkID)
	if opened != nil {
		c.cluster = opened.Cluster
	}
	if err != nil {
		c.refuse(map[error]Outcome{ErrStale: Stale, ErrBusy: BusyLink, ErrRate: RateLink, ErrUnknown: Outcome(UnknownLink), ErrUnverified: UnverifiedLink}[err], err.Error())
		return
	}
	defer opened.Close()
	upstream, first := c.connect(opened)
	if upstream == nil {
		return
	}
	c.reader = nil // a tunnel needs no buffer of its own
	c.tunnel(opened.Context(), upstream, first)
}

// connect connects to the host that the client names. first are the bytes for the host that the client has sent already. It returns nil after a
// refusal.
func (c *connection) connect(opened *Connection) (upstream net.Conn, first []byte) {
	request, first, err := c.read()
	if err != nil {
		outcome := Malformed
		if errors.Is(err, os.ErrDeadlineExceeded) {
			outcome = Timeout
		}
		c.refuse(outcome, err.Error())
		return nil, nil
	}
	host, reason := opened.Decide(request)
	c.host, c.port = host, request.Port
	if reason != Permitted {
		c.refuse(Outcome(reason), refusalText(reason))
		return nil, nil
	}
	upstream, err = c.server.options.Dialer.Connect(opened.Context(), host, request.Port, false)
	if err != nil {
		c.refuse(dialOutcome(opened.Context(), err), err.Error())
		return nil, nil
	}
	return upstream, first
}

// read reads which host the client names, and returns the bytes for the host that it has sent already.
func (c *connection) read() (Request, []byte, error) {
	if c.protocol == Connect {
		asked, err := readConnectRequest(c.reader)
		if err != nil {
			return Request{}, nil, err
		}
		first := make([]byte, c.reader.Buffered())
		_, err = io.ReadFull(c.reader, first)
		return Request{Protocol: Connect, Host: asked.Host, Port: asked.Port}, first, err
	}
	hello, err := readClientHello(c.reader)
	if err != nil {
		return Request{}, nil, err
	}
	return Request{Protocol: SNI, Host: hello.ServerName, Port: httpsPort, Encrypted: hello.Encrypted}, hello.Bytes, nil
}

func dialOutcome(ctx context.Context, err error) Outcome {
	var refused *publicaddress.RefusedError
	var unresolved *publicaddress.UnresolvedError
	switch {
	case ctx.Err() != nil:
		return Canceled
	case errors.As(err, &refused):
		return Address
	case errors.As(err, &unresolved):
		return Unresolved
	}
	return Unreachable
}

// refusalText explains a reason of the policy to the client.
func refusalText(reason Reason) string {
	switch reason {
	case EncryptedHello:
		return "the client encrypts the name of the host (Encrypted Client Hello)"
	case MissingName:
		return "the client sends no server name in TLS"
	case InvalidName:
		return "the host is not a DNS name"
	case Port:
		return "the port is not permitted"
	case Host:
		return "the host is not permitted for this cluster"
	}
	return "the connection is not permitted"
}

// tunnel copies bytes until the connection ends.
func (c *connection) tunnel(ctx context.Context, upstream net.Conn, first []byte) {
	log := c.server.options.Log
	c.count(Outcome(Permitted))
	log.Info("egress connection opened", append(c.attributes(), logkey.Address, upstream.RemoteAddr().String())...)
	var result relay.Result
	err := c.client.SetDeadline(time.Time{})
	if err == nil && c.protocol == Connect {
		_, err = io.WriteString(c.client, connectionEstablished)
	}
	if err == nil && len(first) > 0 {
		if err = upstream.SetWriteDeadline(time.Now().Add(c.server.options.Limits.Handshake)); err == nil {
			_, err = upstream.Write(first)
		}
	}
	if err == nil {
		result = c.server.tunnels.Run(ctx, c.client, upstream)
		result.Sent += int64(len(first))
	} else {
		result.End = relay.EndClosed
		_ = upstream.Close()
	}
	end := endOf(ctx, result.End)
	c.server.metrics.ended.WithLabelValues(string(end)).Inc()
	c.server.metrics.bytes.WithLabelValues("sent").Add(float64(result.Sent))
	c.server.metrics.bytes.WithLabelValues("received").Add(float64(result.Received))
	log.Info("egress connection closed", append(c.attributes(), logkey.Reason, end, logkey.Sent, result.Sent, logkey.Received, result.Received, logkey.Duration, time.Since(c.start).String())...)
}

// End is why a connection that was permitted ended, as in the label of the metric and in access records.
type End string

// The ends: by one side, without bytes, with the link or the permission of its host, because of a link that is not verified or of stale links, or with the gateway.
const (
	EndClosed     End = "closed"
	EndIdle       End = "idle"
	EndRemoved    End = "removed"
	EndHost       End = "host"
	EndUnverified End = "unverified"
	EndStale      End = "stale"
	EndStopped    End = "stopped"
)

// ends returns all ends.
func ends() []End {
	return []End{EndClosed, EndIdle, EndRemoved, EndHost, EndUnverified, EndStale, EndStopped}
}

func endOf(ctx context.Context, end relay.End) End {
	if end != relay.EndCanceled {
		return End(end)
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrRemoved):
		return EndRemoved
	case errors.Is(cause, ErrHost):
		return EndHost
	case errors.Is(cause, ErrUnverified):
		return EndUnverified
	case errors.Is(cause, ErrStale):
		return EndStale
	}
	return EndStopped
}

// refuse records a refusal and tells the client why. The text about a host that cannot be reached may have addresses: the client gets it without
// them.
func (c *connection) refuse(outcome Outcome, text string) {
	c.count(outcome)
	if _, wait := c.server.records.Take(c.cluster.String()); wait > 0 {
		c.server.metrics.suppressed.Inc()
	} else {
		c.server.options.Log.Info("egress connection refused", append(c.attributes(), logkey.Outcome, outcome, logkey.Reason, clip(text))...)
	}
	if err := c.client.SetDeadline(time.Now().Add(lingerTimeout)); err != nil {
		return
	}
	if c.protocol == Connect {
		status, shown := response(outcome)
		if shown == "" {
			shown = clip(text)
		}
		if writeConnectError(c.client, status, shown) != nil {
			return
		}
	} else if _, err := c.client.Write(alert(outcome)); err != nil {
		return
	}
	// Closing a connection with unread bytes would discard the response.
	if half, ok := c.client.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.client, maxClientHello)
	}
}

// clip bounds a text that may contain what a client sent.
func clip(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// response returns the status of HTTP for an outcome, and the text for the client; empty stands for the text of the refusal.
func response(outcome Outcome) (status int, shown string) {
	switch outcome {
	case Malformed:
		return http.StatusBadRequest, ""
	case Timeout:
		return http.StatusRequestTimeout, "the request was not received in time"
	case BusyLink, RateLink:
		return http.StatusTooManyRequests, ""
	case Stale, Canceled:
		return http.StatusServiceUnavailable, "the gateway cannot serve the connection at the moment"
	case Unresolved:
		return http.StatusBadGateway, "the host does not resolve"
	case Unreachable:
		return http.StatusBadGateway, "no address of the host accepts a connection"
	}
	return http.StatusForbidden, ""
}

// The alerts of TLS (RFC 8446, section 6.2).
const (
	alertAccessDenied  = 49
	alertDecodeError   = 50
	alertInternalError = 80
)

// alert returns the record of TLS with a fatal alert.
func alert(outcome Outcome) []byte {
	description := byte(alertAccessDenied)
	switch outcome {
	case Malformed, Timeout:
		description = alertDecodeError
	case Stale, BusyLink, RateLink, Canceled, Unresolved, Unreachable:
		description = alertInternalError
	}
	return []byte{21, 3, 3, 0, 2, 2, description}
}

func (c *connection) count(outcome Outcome) {
	c.server.metrics.connections.WithLabelValues(string(c.protocol), string(outcome)).Inc()
}

// attributes returns those of all access records of the connection.
func (c *connection) attributes() []any {
	attributes := []any{logkey.Connection, c.id, logkey.Protocol, c.protocol, logkey.Link, c.cluster.String(), logkey.ClusterUID, c.cluster.UID, logkey.ResourceID, c.cluster.ResourceID}
	if c.header.Source.IsValid() {
		attributes = append(attributes, logkey.Remote, c.header.Source.String())
	}
	if c.port > 0 {
		attributes = append(attributes, logkey.Host, c.host, logkey.Port, c.port)
	}
	return attributes
}
