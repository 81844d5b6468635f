package conformance

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// Two replicas share the consumers. When one stops the other takes over, and statuses reach the subscribers of both.
func TestReplicasTakeOver(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	one, two := r.StartServer(), r.StartServer()
	var consumers []string
	for range 4 {
		c := r.consumer(one)
		r.startAgent(c)
		consumers = append(consumers, c)
	}
	onOne, onTwo := r.source(one, "cluster-service"), r.source(two, "cluster-service")
	onOne.subscribe()
	onTwo.subscribe()
	for _, c := range consumers {
		a, b := newBundle(c, "x"), newBundle(c, "x")
		onOne.must("create", a)
		onTwo.must("create", b)
		for _, id := range []string{a.ID, b.ID} {
			onOne.untilApplied(id, 1)
			onTwo.untilApplied(id, 1)
		}
	}
	eventually.Soon(t, "each consumer is served once", func() error {
		served := append(one.Server.Dispatcher().Serving(), two.Server.Dispatcher().Serving()...)
		slices.Sort(served)
		if len(served) != len(slices.Compact(slices.Clone(served))) || len(served) != len(consumers) {
			return fmt.Errorf("served: %v", served)
		}
		return nil
	})

	one.Stop()
	for _, c := range consumers {
		b := newBundle(c, "x")
		onTwo.must("create", b)
		onTwo.untilApplied(b.ID, 1)
	}
}

// The broker closes connections periodically; all works are applied and deleted.
func TestBrokerDropsConnections(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	_, consumer, cs := r.withAgent()
	stop := make(chan struct{})
	var dropping sync.WaitGroup
	dropping.Go(func() {
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
				r.Broker.DropConnections([]string{"", consumer, "maestro-server"}[i%3])
			}
		}
	})
	works := make([]bundle, 100)
	for i := range works {
		works[i] = newBundle(consumer, "x")
	}
	err := inParallel(4, works, func(b bundle) error {
		if _, err := cs.publish("create", b); err != nil {
			return err
		}
		_, err := cs.publish("update", b.with("y"))
		return err
	})
	close(stop)
	dropping.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range works {
		cs.until(b.ID, "applied", func(st statusEvent) bool { return st.applied(st.Version) && st.Version == 2 })
	}
	for _, b := range works {
		cs.must("delete", b)
	}
	r.Broker.DropConnections("")
	for _, b := range works {
		cs.untilDeleted(b.ID)
	}
}

// The published server terminates if the broker or the database is unreachable at its start. Ours waits and reports which.
func TestPublishedFault_UnreachableBrokerAtStartIsFatal(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	address := r.BrokerAddress
	_ = r.Broker.Close()
	s := r.StartServerUnready()
	eventually.Soon(t, "the server waits for the broker alone", func() error {
		checks := s.Server.Checks()
		if err := checks["database"](t.Context()); err != nil {
			return err
		}
		if checks["mqtt"](t.Context()) == nil {
			return errors.New("the broker is reported as reachable")
		}
		return nil
	})

	consumer := r.consumer(s)
	r.startAgent(consumer)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	b := newBundle(consumer, "x")
	cs.must("create", b)
	r.StartBroker(address)
	cs.untilApplied(b.ID, 1)
}

// The server survives outages of the database, at its start and later.
func TestServerSurvivesDatabaseOutages(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	database := must.Get(url.Parse(r.Database))(t)
	proxy := netfault.StartProxy(t, database.Host)
	database.Host = proxy.Address
	r.Database = database.String()
	proxy.Disconnect()
	s := r.StartServerUnready()
	cs := r.source(s, "cluster-service")
	b := newBundle("nobody", "x")
	if _, err := cs.publish("create", b); status.Code(err) != codes.Unavailable {
		t.Fatalf("publish without a database: %v", err)
	}
	if err := s.Server.Checks()["database"](t.Context()); err == nil {
		t.Error("the database is reported as reachable")
	}
	proxy.Continue()
	eventually.Soon(t, "the server is ready", func() error {
		for _, check := range s.Server.Checks() {
			if err := check(t.Context()); err != nil {
				return err
			}
		}
		return nil
	})

	consumer := r.consumer(s)
	r.startAgent(consumer)
	cs.subscribe()
	first := newBundle(consumer, "x")
	cs.must("create", first)
	cs.untilApplied(first.ID, 1)

	proxy.Disconnect()
	if _, err := cs.publish("create", newBundle(consumer, "x")); status.Code(err) != codes.Unavailable && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("publish without a database: %v", err)
	}
	proxy.Continue()
	second := newBundle(consumer, "x")
	eventually.Soon(t, "publishing works again", func() error { _, err := cs.publish("create", second); return err })
	cs.untilApplied(second.ID, 1)
}
