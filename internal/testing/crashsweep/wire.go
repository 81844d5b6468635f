package crashsweep

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

// Transport is the way to a server of a process that dies at its writes there: written says what a request writes, and is
// empty for one that only reads.
func (d *Deaths) Transport(written func(*http.Request) string) http.RoundTripper {
	return transport{d, written}
}

type transport struct {
	*Deaths
	written func(*http.Request) string
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	what := t.written(request)
	if what == "" {
		if t.Dead() {
			return nil, ErrDead
		}
		return http.DefaultTransport.RoundTrip(request)
	}
	if err := t.Point("before writing " + what); err != nil {
		return nil, err
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if err := t.Point("after writing " + what); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return response, nil
}

// Calls is the same for a gRPC server: every method writes but those named Get… and List….
func (d *Deaths) Calls() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		name := method[strings.LastIndexByte(method, '/')+1:]
		if strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") {
			if d.Dead() {
				return ErrDead
			}
			return invoke(ctx, method, request, reply, connection, options...)
		}
		if err := d.Point("before " + name); err != nil {
			return err
		}
		if err := invoke(ctx, method, request, reply, connection, options...); err != nil {
			return err
		}
		return d.Point("after " + name)
	}
}

// Handler is what serves the requests to a process that may die: what a dead process works on is cut off there and then.
func (d *Deaths) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cut := context.WithCancel(r.Context())
		defer cut()
		var group sync.WaitGroup
		defer group.Wait()
		over, died := make(chan struct{}), d.Died()
		defer close(over)
		group.Go(func() {
			select {
			case <-died:
				cut()
			case <-over:
			}
		})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
