package mesh

import (
	"crypto/x509"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// A connection of gRPC is replaced after this part of the lifetime of a certificate, and its calls have as much time again. A client renews
// its certificate after two thirds, so both fit into the last third, with the random tenth that gRPC adds.
const connectionAge = 8

// Keepalive returns the parameters with which a gRPC server checks and replaces connections. TLS verifies a certificate in the handshake
// only. The server makes clients connect again so often that a client which renews its certificate never uses an ended one.
func (i *Identity) Keepalive() keepalive.ServerParameters {
	// The certificates of a region have the same lifetime.
	own := i.own.Certificate().Leaf
	age := own.NotAfter.Sub(own.NotBefore) / connectionAge
	return keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionAge: age, MaxConnectionAgeGrace: age}
}

// endingCredentials are credentials of a gRPC server that close each connection when the client's certificate ends.
type endingCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c endingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	connection, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if verified, ok := info.(credentials.TLSInfo); ok && len(verified.State.PeerCertificates) > 0 {
		connection = closeAtEnd(connection, verified.State.PeerCertificates[0])
	}
	return connection, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c endingCredentials) Clone() credentials.TransportCredentials {
	return endingCredentials{c.TransportCredentials.Clone()}
}

// endingConnection is closed when a certificate ends.
type endingConnection struct {
	net.Conn
	timer *time.Timer
}

func closeAtEnd(connection net.Conn, certificate *x509.Certificate) net.Conn {
	return &endingConnection{connection, time.AfterFunc(time.Until(certificate.NotAfter), func() { _ = connection.Close() })}
}

// Close implements net.Conn.
func (c *endingConnection) Close() error {
	c.timer.Stop()
	return c.Conn.Close()
}
