package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
)

// dialTimeout limits the wait for the response of one agent, which limits its own connection to less.
const dialTimeout = 7 * time.Second

// ErrNotConnected is the error of Dial if the management cluster has no tunnel to this replica.
var ErrNotConnected = errors.New("no tunnel is connected")

// Dial connects to the API server of a cluster through a tunnel of its management cluster; the ID APIServer is that of the management cluster itself. If a tunnel fails, it tries the next one; a refusal is final.
func (s *Server) Dial(ctx context.Context, managementCluster, clusterID string) (net.Conn, error) {
	var conn net.Conn
	err := s.try(ctx, managementCluster, func(t *tunnel) (err error) {
		conn, err = s.dial(ctx, t, clusterID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connecting through the tunnel of management cluster %s: %w", managementCluster, err)
	}
	return conn, nil
}

// try uses the tunnels of a management cluster until one succeeds or refuses. Without a tunnel it returns ErrNotConnected. If ctx has ended, it uses none.
func (s *Server) try(ctx context.Context, managementCluster string, use func(*tunnel) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	tunnels := slices.Clone(s.tunnels[managementCluster])
	s.mu.Unlock()
	failure := ErrNotConnected
	for _, t := range tunnels {
		if !t.client.CanTakeNewRequest() {
			continue
		}
		if failure = use(t); failure == nil {
			return nil
		}
		if refused := new(grant.RefusedError); errors.As(failure, &refused) || ctx.Err() != nil {
			break
		}
	}
	return failure
}

// dial connects through one tunnel. ctx limits only the time until the connection exists.
func (s *Server) dial(ctx context.Context, t *tunnel, clusterID string) (net.Conn, error) {
	ctx, cancelDial := context.WithTimeout(ctx, dialTimeout)
	defer cancelDial()
	done, ok := s.begin()
	if !ok {
		return nil, ErrNotConnected
	}
	stream, end := context.WithCancel(s.ctx)
	outer, inner := net.Pipe()
	abandon := context.AfterFunc(ctx, end)
	response, err := s.connect(stream, t, clusterID, requestBody{inner})
	if err == nil && !abandon() {
		err = errors.Join(ctx.Err(), response.Body.Close())
	}
	if err != nil {
		end()
		done()
		return nil, errors.Join(err, outer.Close(), inner.Close())
	}
	go func() {
		defer done()
		defer end()
		_, _ = io.Copy(inner, response.Body) // the reader gets the end of the connection
		_ = inner.Close()
		_ = response.Body.Close()
	}()
	return &streamConn{Conn: outer, end: end}, nil
}

// connect sends CONNECT. The body of the request is what the gateway writes.
func (s *Server) connect(ctx context.Context, t *tunnel, clusterID string, body io.ReadCloser) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodConnect, "https://"+clusterID, body)
	if err != nil {
		return nil, err
	}
	response, err := t.client.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	return nil, errors.Join(grant.RefusalOf(response), response.Body.Close())
}

// requestBody is the body of the request of a connection. HTTP/2 closes it when it sends no more, and may still have data of the response then.
type requestBody struct{ conn net.Conn }

func (b requestBody) Read(p []byte) (int, error) { return b.conn.Read(p) }

// Close ends reads, and leaves the other direction open.
func (b requestBody) Close() error { return b.conn.SetReadDeadline(time.Now()) }

// streamConn is a connection in a tunnel.
type streamConn struct {
	net.Conn
	end context.CancelFunc
}

// Close implements net.Conn. It ends the stream at once, in both directions.
func (c *streamConn) Close() error {
	err := c.Conn.Close()
	c.end()
	return err
}
