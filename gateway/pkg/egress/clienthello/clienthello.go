// Package clienthello reads the first message of a TLS client without terminating TLS. The bytes that it reads are kept, so that they can be
// forwarded. crypto/tls parses them, as it would for a server.
package clienthello

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

// MaxSize is the most bytes that are read, with all records of the message.
const MaxSize = 16 << 10

// encryptedClientHello is the number of the extension of Encrypted Client Hello (RFC 9849).
const encryptedClientHello = 0xfe0d

// ErrTooLarge is the error about a message with more than MaxSize bytes.
var ErrTooLarge = errors.New("the first message of the TLS client is too large")

// errRead ends the handshake after the message was parsed.
var errRead = errors.New("the message was read")

// Hello is the first message of a TLS client.
type Hello struct {
	// ServerName is the name in the message, or empty.
	ServerName string
	// Encrypted is set if the message has the extension of Encrypted Client Hello. Then ServerName is not the name of the host.
	Encrypted bool
	// Bytes is everything that was read.
	Bytes []byte
}

// Read reads the first message of a TLS client. It reads at most MaxSize bytes from the reader, and also returns bytes that followed the message.
// The caller limits the time.
func Read(reader *bufio.Reader) (*Hello, error) {
	connection := &recorder{reader: reader}
	var hello *Hello
	// A server without certificates: the handshake ends before it would need one. TLS without verification is no TLS of this process.
	server := tls.Server(connection, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		hello = &Hello{ServerName: info.ServerName, Encrypted: slices.Contains(info.Extensions, encryptedClientHello)}
		return nil, errRead
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

// recorder is the connection of a TLS server that records what it reads and sends nothing.
type recorder struct {
	reader   io.Reader
	recorded []byte
	// err is the error of the connection, in contrast to those of TLS.
	err error
}

// Read implements net.Conn.
func (r *recorder) Read(p []byte) (int, error) {
	if len(r.recorded) >= MaxSize {
		r.err = ErrTooLarge
		return 0, r.err
	}
	n, err := r.reader.Read(p[:min(len(p), MaxSize-len(r.recorded))])
	r.recorded = append(r.recorded, p[:n]...)
	if err != nil {
		r.err = err
	}
	return n, err
}

// Write drops the alert with which the handshake ends.
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }

// Close, LocalAddr, RemoteAddr and the deadlines implement net.Conn and do nothing.
func (r *recorder) Close() error                     { return nil }
func (r *recorder) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (r *recorder) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (r *recorder) SetDeadline(time.Time) error      { return nil }
func (r *recorder) SetReadDeadline(time.Time) error  { return nil }
func (r *recorder) SetWriteDeadline(time.Time) error { return nil }
