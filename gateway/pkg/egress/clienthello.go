package egress

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// maxClientHello is the most bytes that are read, with all records of the message.
const maxClientHello = 16 << 10

// encryptedClientHello is the number of the extension of Encrypted Client Hello (RFC 9849).
const encryptedClientHello = 0xfe0d

// errClientHelloTooLarge is the error about a message with more than maxClientHello bytes.
var errClientHelloTooLarge = errors.New("the first message of the TLS client is too large")

// errClientHelloRead ends the handshake after the message was parsed.
var errClientHelloRead = errors.New("the message was read")

// clientHello is the first message of a TLS client.
type clientHello struct {
	// ServerName is the name in the message, or empty.
	ServerName string
	// Encrypted is set if the message has the extension of Encrypted Client Hello. Then ServerName is not the name of the host.
	Encrypted bool
	// Bytes is everything that was read.
	Bytes []byte
}

// readClientHello reads the first message of a TLS client without terminating TLS: crypto/tls parses it, as it would for a server, and its bytes
// are kept, so that they can be forwarded. It reads at most maxClientHello bytes from the reader, and also returns bytes that followed the message.
// The caller limits the time.
func readClientHello(reader *bufio.Reader) (*clientHello, error) {
	connection := &helloRecorder{reader: reader}
	var hello *clientHello
	// The server has no certificate: it ends the handshake before it needs one. The client verifies the certificate of the host,
	// to which the gateway forwards these bytes.
	server := tls.Server(connection, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = &clientHello{ServerName: info.ServerName, Encrypted: slices.Contains(info.Extensions, encryptedClientHello)}
		return nil, errClientHelloRead
	}})
	err := server.Handshake()
	switch {
	case hello != nil:
	case connection.err != nil:
		return nil, fmt.Errorf("reading the first message of the TLS client: %w", connection.err)
	default:
		return nil, fmt.Errorf("the connection does not begin with TLS: %w", err)
	}
	hello.Bytes = connection.recorded
	if rest := reader.Buffered(); rest > 0 {
		bytes, err := reader.Peek(rest)
		if err != nil {
			return nil, err
		}
		hello.Bytes = append(hello.Bytes, bytes...)
		if _, err := reader.Discard(rest); err != nil {
			return nil, err
		}
	}
	return hello, nil
}

// helloRecorder is the connection of a TLS server that records what it reads and sends nothing.
type helloRecorder struct {
	reader   io.Reader
	recorded []byte
	// err is the error of the connection, in contrast to those of TLS.
	err error
}

// Read implements net.Conn.
func (r *helloRecorder) Read(p []byte) (int, error) {
	if len(r.recorded) >= maxClientHello {
		r.err = errClientHelloTooLarge
		return 0, r.err
	}
	n, err := r.reader.Read(p[:min(len(p), maxClientHello-len(r.recorded))])
	r.recorded = append(r.recorded, p[:n]...)
	if err != nil {
		r.err = err
	}
	return n, err
}

// Write drops the alert with which the handshake ends.
func (r *helloRecorder) Write(p []byte) (int, error) { return len(p), nil }

// Close, LocalAddr, RemoteAddr and the deadlines implement net.Conn and do nothing.
func (r *helloRecorder) Close() error                     { return nil }
func (r *helloRecorder) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (r *helloRecorder) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (r *helloRecorder) SetDeadline(time.Time) error      { return nil }
func (r *helloRecorder) SetReadDeadline(time.Time) error  { return nil }
func (r *helloRecorder) SetWriteDeadline(time.Time) error { return nil }
