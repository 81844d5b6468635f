package crashsweep

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"
)

// Transport returns an HTTP transport that intercepts the requests of a process. write returns a description of what a
// request writes, or "" for a request that only reads.
func (i *Injector) Transport(write func(*http.Request) string) http.RoundTripper {
	return i.TransportOver(http.DefaultTransport, write)
}

// TransportOver returns the transport that Transport returns, for the requests of another one.
func (i *Injector) TransportOver(next http.RoundTripper, write func(*http.Request) string) http.RoundTripper {
	return transport{points: i, next: next, write: write}
}

// transport passes the points before and after each request that writes, and rejects all requests of a crashed process.
type transport struct {
	points Points
	next   http.RoundTripper
	write  func(*http.Request) string
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	name := t.write(request)
	if name == "" {
		if t.points.Crashed() {
			return reject(request)
		}
		return t.next.RoundTrip(request)
	}
	if t.points.Point("before "+name) != nil {
		return reject(request)
	}
	response, err := t.next.RoundTrip(request)
	if err == nil && t.points.Point("after "+name) != nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		return nil, ErrCrashed
	}
	return response, err
}

// reject closes the request's body, as http.RoundTripper requires, and returns ErrCrashed.
func reject(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
	return nil, ErrCrashed
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// kubernetesWrite returns the method and path of a request that changes an object. Reviews (SubjectAccessReview and
// others) are posted but change nothing.
func kubernetesWrite(request *http.Request) string {
	if request.Method == http.MethodGet || strings.HasSuffix(request.URL.Path, "reviews") {
		return ""
	}
	return request.Method + " " + request.URL.Path
}

// UnaryClientInterceptor returns an interceptor for the gRPC clients of a process. Every method is a write, except for
// those whose names begin with Get or List.
func (i *Injector) UnaryClientInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		name := method[strings.LastIndexByte(method, '/')+1:]
		if strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") {
			if i.Crashed() {
				return ErrCrashed
			}
			return invoke(ctx, method, request, reply, connection, options...)
		}
		if err := i.Point("before " + name); err != nil {
			return err
		}
		if err := invoke(ctx, method, request, reply, connection, options...); err != nil {
			return err
		}
		return i.Point("after " + name)
	}
}

// Handler returns a handler that cancels the context of every running request when the instance that serves it crashes.
func (i *Injector) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		var group sync.WaitGroup
		defer group.Wait()
		finished, crashed := make(chan struct{}), i.Done()
		defer close(finished)
		group.Go(func() {
			select {
			case <-crashed:
				cancel()
			case <-finished:
			}
		})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
