package app_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

var errDead = errors.New("this backend is dead")

// death kills a backend at one of its steps: a write to Resources or Billing, or a call of Cluster Service. From then
// on nothing that it does has any effect, as after kill -9; it does not even give back its leases.
type death struct {
	transport http.RoundTripper
	// at is the step, from 1. after lets the step happen, and only its answer be lost.
	at    int
	after bool
	kill  context.CancelFunc

	mu    sync.Mutex
	steps int
	dead  bool
}

// step counts, and says whether the step happens and whether its answer arrives.
func (d *death) step(counts bool) (happens, arrives bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		return false, false
	}
	if counts {
		d.steps++
	}
	if counts && d.steps == d.at {
		d.dead = true
		d.kill()
		return d.after, false
	}
	return true, true
}

func (d *death) happened() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

func (d *death) RoundTrip(request *http.Request) (*http.Response, error) {
	batch := request.Method == http.MethodPost && request.Header.Get("x-ms-cosmos-is-batch-request") != ""
	writes := batch && strings.Contains(request.URL.Path, "/colls/Resources/") ||
		request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/colls/Billing/")
	happens, arrives := d.step(writes)
	if !happens {
		return nil, errDead
	}
	if !arrives {
		request = request.WithContext(context.WithoutCancel(request.Context()))
	}
	response, err := d.transport.RoundTrip(request)
	if arrives || err != nil {
		return response, err
	}
	_ = response.Body.Close()
	return nil, errDead
}

func (d *death) call(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	happens, arrives := d.step(true)
	if !happens {
		return errDead
	}
	if !arrives {
		ctx = context.WithoutCancel(ctx)
	}
	err := invoke(ctx, method, request, reply, connection, options...)
	if !arrives {
		return errDead
	}
	return err
}

// runUntilDead runs a backend that dies at a step. settled, if the backend has not died by then, ends it; the result is
// whether it died.
func (r *region) runUntilDead(at int, after bool, settled func() bool) bool {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	d := &death{transport: http.DefaultTransport, at: at, after: after, kill: cancel}
	options := r.cosmos.Options
	options.Transport = d
	db, err := database.Open(ctx, options)
	if err != nil {
		r.t.Fatal(err)
	}
	connection := r.fleet.dial(grpc.WithUnaryInterceptor(d.call))
	defer func() { _ = connection.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.work(ctx, slog.New(slog.DiscardHandler), db, connection, "backend-0")
	}()
	r.within(time.Hour, "dying or being done", func() string {
		if d.happened() || settled() {
			return ""
		}
		return "still running"
	})
	cancel()
	<-done
	return d.happened()
}
