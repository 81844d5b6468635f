package backend_test

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/internal/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// mortal runs a backend that dies at its external writes: what it writes to Resources and Billing, and what it asks of Cluster
// Service. Another one of its name takes over whenever it has died. What it does with its leases is no point: they are
// written all the time, and dying there is dying between two of the others.
func (r *region) mortal(d *crashsweep.Deaths) (end func()) {
	r.t.Helper()
	over := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			stop := r.live(d)
			select {
			case <-over:
				stop()
				return
			case <-d.Died():
			}
			stop()
			d.Revive()
		}
	})
	end = sync.OnceFunc(func() { close(over); group.Wait() })
	r.t.Cleanup(end)
	return end
}

// live is one life of a mortal backend, until it is stopped.
func (r *region) live(d *crashsweep.Deaths) (stop func()) {
	// Not the test's, which is over before its cleanup: the end of a life waits for what it has under way.
	ctx, cancel := context.WithCancel(context.Background())
	options := r.cosmos.Options
	options.Transport = mortalTransport{d}
	db, err := database.Open(ctx, options)
	if err != nil {
		r.t.Errorf("opening the database for another life: %v", err)
		return cancel
	}
	connection := r.fleet.dial(grpc.WithUnaryInterceptor(mortalCalls(d)))
	var group sync.WaitGroup
	group.Go(func() { _ = r.work(ctx, r.log("backend-0"), db, connection, "backend-0") })
	return func() {
		cancel()
		group.Wait()
		_ = connection.Close()
		db.Close()
	}
}

// mortalTransport is the way to Cosmos DB of a backend that may die.
type mortalTransport struct{ *crashsweep.Deaths }

// RoundTrip implements http.RoundTripper.
func (m mortalTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	container := writtenTo(request)
	if container == "" {
		if m.Dead() {
			return nil, crashsweep.ErrDead
		}
		return http.DefaultTransport.RoundTrip(request)
	}
	if err := m.Point("before writing " + container); err != nil {
		return nil, err
	}
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if err := m.Point("after writing " + container); err != nil {
		_ = response.Body.Close()
		return nil, err
	}
	return response, nil
}

// writtenTo is the container that a request writes to, if that is more than a lease.
func writtenTo(request *http.Request) string {
	switch {
	case request.Method == http.MethodPost && request.Header.Get("x-ms-cosmos-is-batch-request") != "" && strings.Contains(request.URL.Path, "/colls/Resources/"):
		return "Resources"
	case request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/colls/Billing/"):
		return "Billing"
	}
	return ""
}

// mortalCalls is the way to Cluster Service of one.
func mortalCalls(d *crashsweep.Deaths) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		name := method[strings.LastIndexByte(method, '/')+1:]
		if strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List") {
			if d.Dead() {
				return crashsweep.ErrDead
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
