package app_test

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/databasetest"
)

// mortal runs a backend that dies at its external writes: what it writes to Resources and Billing, and what it asks of Cluster
// Service. Another one of its name takes over whenever it has died. What it does with its leases is no point: they are
// written all the time, and dying there is dying between two of the others.
func (r *region) mortal(d *crashsweep.Injector) (end func()) {
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
			case <-d.Done():
			}
			stop()
			d.Restart()
		}
	})
	end = sync.OnceFunc(func() { close(over); group.Wait() })
	r.t.Cleanup(end)
	return end
}

// live is one life of a mortal backend, until it is stopped.
func (r *region) live(d *crashsweep.Injector) (stop func()) {
	// Not the test's, which is over before its cleanup: the end of a life waits for what it has under way.
	ctx, cancel := context.WithCancel(context.Background())
	options := r.cosmos.Options
	options.Transport = d.Transport(databasetest.WriteContainer)
	db, err := database.Open(ctx, options)
	if err != nil {
		r.t.Errorf("opening the database for another life: %v", err)
		return cancel
	}
	connection := r.fleet.dial(grpc.WithUnaryInterceptor(d.UnaryClientInterceptor()))
	var group sync.WaitGroup
	group.Go(func() { _ = r.work(ctx, r.log("backend-0"), db, connection, "backend-0") })
	return func() {
		cancel()
		group.Wait()
		_ = connection.Close()
		db.Close()
	}
}
