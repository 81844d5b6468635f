package grpcserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// serveHealth calls a test in a synctest bubble with a server that has a health service whose calls last as long as their context.
func serveHealth(t *testing.T, test func(t *testing.T, listener *bufconn.Listener)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		listener, served := bufconn.Listen(64<<10), make(chan error, 1)
		server := New()
		grpc_health_v1.RegisterHealthServer(server, untilDone{health.NewServer()})
		go func() { served <- Serve(ctx, server, listener, time.Second) }()
		test(t, listener)
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

type untilDone struct{ *health.Server }

func (untilDone) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func dial(t *testing.T, listener *bufconn.Listener) net.Conn {
	t.Helper()
	return must.Get(listener.DialContext(t.Context()))(t)
}

// TestSilentHandshakesEnd checks when the server closes a connection whose client sends a text and then nothing.
func TestSilentHandshakesEnd(t *testing.T) {
	for name, sent := range map[string]string{"nothing": "", "half a preface": http2.ClientPreface[:10], "a preface without settings": http2.ClientPreface,
		"half a frame": http2.ClientPreface + "\x00\x00"} {
		t.Run(name, func(t *testing.T) {
			serveHealth(t, func(t *testing.T, listener *bufconn.Listener) {
				began, connection := time.Now(), dial(t, listener)
				defer func() { _ = connection.Close() }()
				must.Get(io.WriteString(connection, sent))(t)
				_, _ = io.Copy(io.Discard, connection) // ends with the connection
				if took := time.Since(began); took != handshakeTimeout {
					t.Errorf("the server closed the connection after %s, want %s", took, handshakeTimeout)
				}
			})
		})
	}
}

// TestConnectionsAreLimited opens the maximum of connections, and more.
func TestConnectionsAreLimited(t *testing.T) {
	serveHealth(t, func(t *testing.T, listener *bufconn.Listener) {
		refused := func() bool {
			connection := dial(t, listener)
			defer func() { _ = connection.Close() }()
			synctest.Wait()
			_ = connection.SetReadDeadline(time.Now())
			_, err := io.Copy(io.Discard, connection)
			return err == nil
		}
		open := make([]net.Conn, maxConnections)
		for i := range open {
			open[i] = dial(t, listener)
		}
		if synctest.Wait(); !refused() {
			t.Error("a connection beyond the maximum is open")
		}
		_ = open[0].Close()
		if synctest.Wait(); refused() {
			t.Error("a connection is refused after another one was closed")
		}
		for _, connection := range open {
			_ = connection.Close()
		}
	})
}

// client is a client of HTTP/2 that sends what a client of gRPC would not.
type client struct {
	*http2.Framer
	net.Conn
	// streams receives the ID of each stream that the server ends, and ended is closed when the connection ends.
	streams chan uint32
	ended   chan struct{}
}

// begin connects. The client responds to pings until the connection ends.
func begin(t *testing.T, listener *bufconn.Listener) *client {
	t.Helper()
	connection := dial(t, listener)
	must.Get(io.WriteString(connection, http2.ClientPreface))(t)
	c := &client{http2.NewFramer(connection, connection), connection, make(chan uint32, 10), make(chan struct{})}
	must.Do(t, c.WriteSettings())
	go func() {
		defer close(c.ended)
		for {
			frame, err := c.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.PingFrame:
				if !frame.IsAck() {
					_ = c.WritePing(true, frame.Data) // the connection may have ended
				}
			case *http2.HeadersFrame:
				if frame.StreamEnded() {
					c.streams <- frame.StreamID
				}
			}
		}
	}()
	return c
}

// call begins a call of a method of the health service without its message.
func (c *client) call(t *testing.T, method string) {
	t.Helper()
	var header bytes.Buffer
	encoder := hpack.NewEncoder(&header)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "server"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		must.Do(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
	}
	must.Do(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: header.Bytes(), EndHeaders: true}))
}

// TestSlowRequestsEnd begins a unary call whose request never arrives. The same call with its request lasts.
func TestSlowRequestsEnd(t *testing.T) {
	for name, complete := range map[string]bool{"half a message": false, "a message": true} {
		t.Run(name, func(t *testing.T) {
			serveHealth(t, func(t *testing.T, listener *bufconn.Listener) {
				began, c := time.Now(), begin(t, listener)
				defer func() { _ = c.Conn.Close(); <-c.ended }()
				c.call(t, grpc_health_v1.Health_Check_FullMethodName)
				message := []byte{0, 0, 0, 0, 100, 'x'} // the length of a message, and its first byte
				if complete {
					message = []byte{0, 0, 0, 0, 0}
				}
				must.Do(t, c.WriteData(1, complete, message))
				select {
				case <-c.streams:
					if took := time.Since(began); complete || took != requestTimeout {
						t.Errorf("the call ended after %s", took)
					}
				case <-time.After(10 * requestTimeout):
					if !complete {
						t.Error("the call waits for its request")
					}
				}
			})
		})
	}
}

// TestFrequentPingsEndConnections sends pings more often than permitted, and as often. It runs in a synctest bubble.
func TestFrequentPingsEndConnections(t *testing.T) {
	for pause, ends := range map[time.Duration]bool{minPing / 5: true, minPing: false} {
		serveHealth(t, func(t *testing.T, listener *bufconn.Listener) {
			c := begin(t, listener)
			for range 20 {
				_ = c.WritePing(false, [8]byte{}) // the connection may have ended
				time.Sleep(pause)
			}
			select {
			case <-c.ended:
				if !ends {
					t.Errorf("pings every %s end the connection", pause)
				}
			default:
				if ends {
					t.Errorf("pings every %s do not end the connection", pause)
				}
			}
			_ = c.Conn.Close()
			<-c.ended
		})
	}
}

// TestMetadataIsLimited sends metadata that is as large as permitted, and larger.
func TestMetadataIsLimited(t *testing.T) {
	serveHealth(t, func(t *testing.T, listener *bufconn.Listener) {
		connection := must.Get(grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) })))(t)
		defer func() { _ = connection.Close() }()
		for size, want := range map[int]codes.Code{maxHeader / 2: codes.OK, maxHeader: codes.Internal} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "a", strings.Repeat("a", size))
			_, err := grpc_health_v1.NewHealthClient(connection).List(ctx, &grpc_health_v1.HealthListRequest{})
			if status.Code(err) != want || errors.Is(err, context.Canceled) {
				t.Errorf("metadata of %d bytes: %v, want %s", size, err, want)
			}
		}
	})
}
