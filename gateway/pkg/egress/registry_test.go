package egress_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// sharedAdmin is that of all tests.
var sharedAdmin = sync.OnceValues(intenttest.Open)

// admin returns who signs the intents of the tests.
func admin(t testing.TB) *intenttest.Admin {
	t.Helper()
	a := must.Get(sharedAdmin())(t)
	return a
}

func options(t *testing.T, source egress.Source) egress.RegistryOptions {
	t.Helper()
	p := must.Get(egress.NewPolicy([]string{"quay.io"}, []uint16{443}))(t)
	return egress.RegistryOptions{Source: source, Policy: p, Intents: admin(t).Verifier, Keys: admin(t).Signer.Ring, ConnectionsPerLink: 2, NewPerSecond: 100, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: prometheus.NewRegistry()}
}

// startRegistry runs a registry until the test ends.
func startRegistry(t *testing.T, source egress.Source) *egress.Registry {
	t.Helper()
	r := egress.NewRegistry(options(t, source))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

// open opens a connection as soon as the registry has the link.
func open(t *testing.T, r *egress.Registry, id uint32) *egress.Connection {
	t.Helper()
	var c *egress.Connection
	eventually.Soon(t, "the link is known", func() (err error) {
		c, err = r.Open(t.Context(), id)
		return err
	})

	return c
}

func assign(t *testing.T, db *database.DB, id uint32, cluster, operation string, hosts ...string) {
	t.Helper()
	signed := admin(t).EgressLink(t, database.EgressLinkDocument{LinkID: strconv.FormatUint(uint64(id), 10), ClusterUID: cluster, ResourceID: "/" + cluster, Hosts: hosts, OperationID: operation})
	must.Get(db.AssignEgressLink(t.Context(), id, signed, signed.RequestTime))(t)
}

// TestChangesOfLinksEndConnections changes the hosts of a link and removes it. Both take effect on open connections, and those of another link
// stay open. Two replicas behave the same.
func TestChangesOfLinksEndConnections(t *testing.T) {
	db, _ := databasetest.New(t)
	assign(t, db, 7, "a", "one", "a.example")
	replicas := []*egress.Registry{startRegistry(t, db), startRegistry(t, db)}
	assign(t, db, 8, "b", "two", "a.example")
	type connections struct{ region, cluster, other *egress.Connection }
	var all []connections
	for _, r := range replicas {
		c := connections{open(t, r, 7), open(t, r, 7), open(t, r, 8)}
		for host, each := range map[string]*egress.Connection{"quay.io": c.region, "a.example": c.cluster, "A.example.": c.other} {
			if _, reason := each.Decide(egress.Request{Host: host, Port: 443}); reason != egress.Permitted {
				t.Errorf("%s is %s", host, reason)
			}
		}
		if c.region.Cluster != (egress.Cluster{Link: 7, UID: "a", ResourceID: "/a", Generation: 1}) {
			t.Errorf("the connection belongs to %+v", c.region.Cluster)
		}
		if _, err := r.Open(t.Context(), 7); !errors.Is(err, egress.ErrBusy) {
			t.Errorf("a third connection: %v", err)
		}
		if _, err := r.Open(t.Context(), 9); !errors.Is(err, egress.ErrUnknown) {
			t.Errorf("an unknown link: %v", err)
		}
		all = append(all, c)
	}
	assign(t, db, 7, "a", "three", "b.example")
	for _, c := range all {
		<-c.cluster.Context().Done()
		if cause := context.Cause(c.cluster.Context()); !errors.Is(cause, egress.ErrHost) || c.region.Context().Err() != nil {
			t.Errorf("a connection to a host that is no longer permitted ended with %v, the other one with %v", cause, c.region.Context().Err())
		}
		c.cluster.Close()
	}
	now := time.Now().UTC()
	must.Get(db.RemoveEgressLink(t.Context(), 7, "a", "four", now, now))(t)
	for i, c := range all {
		<-c.region.Context().Done()
		if cause := context.Cause(c.region.Context()); !errors.Is(cause, egress.ErrRemoved) || c.other.Context().Err() != nil {
			t.Errorf("a connection of a removed link ended with %v, one of another link with %v", cause, c.other.Context().Err())
		}
		if _, err := replicas[i].Open(t.Context(), 7); !errors.Is(err, egress.ErrUnknown) {
			t.Errorf("a removed link: %v", err)
		}
		c.region.Close()
		c.other.Close()
	}
	assign(t, db, 7, "a", "five")
	for _, r := range replicas {
		c := open(t, r, 7)
		if c.Cluster.Generation != 2 {
			t.Errorf("the generation is %d", c.Cluster.Generation)
		}
		c.Close()
	}
}

// source is a source whose feed the test reads in virtual time.
type source struct {
	*database.DB
	documents []database.EgressLinkDocument
	// read is the feed's function after a read.
	read chan struct{}
}

func (s *source) EachEgressLink(_ context.Context, each func(*database.Item[database.EgressLinkDocument]) error) error {
	for _, d := range s.documents {
		if err := each(&database.Item[database.EgressLinkDocument]{Value: d}); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) TailEgressLinks(ctx context.Context, _ time.Time, options database.FeedOptions, _ database.Handler) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.read:
			options.Read()
		}
	}
}

// TestStaleLinks checks the bounds of a registry whose source is away: not ready, and then no connection.
func TestStaleLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{documents: []database.EgressLinkDocument{admin(t).EgressLink(t, database.EgressLinkDocument{LinkID: "7", Generation: 1, ClusterUID: "a"}), {LinkID: "zero", Generation: 1, ClusterUID: "b"}}, read: make(chan struct{})}
		r := egress.NewRegistry(options(t, s))
		if err := r.Ready(t.Context()); err == nil {
			t.Error("ready before the first read")
		}
		if _, err := r.Open(t.Context(), 7); !errors.Is(err, egress.ErrStale) {
			t.Errorf("before the first read: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		synctest.Wait()
		c, err := r.Open(t.Context(), 7)
		if err != nil || r.Ready(t.Context()) != nil {
			t.Fatalf("after the first read: %v, %v", err, r.Ready(t.Context()))
		}
		time.Sleep(database.EgressMaxStaleness / 2)
		s.read <- struct{}{}
		synctest.Wait()
		time.Sleep(database.EgressMaxStaleness/2 + time.Second)
		if err := r.Ready(t.Context()); err == nil || c.Context().Err() != nil {
			t.Errorf("half of the bound after a read: %v, the connection: %v", err, c.Context().Err())
		}
		time.Sleep(database.EgressMaxStaleness/2 - 2*time.Second)
		if second, err := r.Open(t.Context(), 7); err != nil || c.Context().Err() != nil {
			t.Errorf("before the bound: %v", err)
		} else {
			second.Close()
		}
		time.Sleep(2 * time.Second)
		if _, err := r.Open(t.Context(), 7); !errors.Is(err, egress.ErrStale) || !errors.Is(context.Cause(c.Context()), egress.ErrStale) {
			t.Errorf("after the bound: %v, the connection: %v", err, context.Cause(c.Context()))
		}
		c.Close()
		s.read <- struct{}{}
		synctest.Wait()
		if c, err = r.Open(t.Context(), 7); err != nil || r.Ready(t.Context()) != nil {
			t.Errorf("after the next read: %v", err)
		}
		c.Close()
		cancel()
		<-ended
	})
}

// TestListingIsRetried starts a registry whose database refuses to list the links: it is not ready and refuses connections until it has them.
func TestListingIsRetried(t *testing.T) {
	db, server := databasetest.New(t)
	assign(t, db, 7, "a", "one")
	remove := server.InjectFault(t, faults.Rule{Container: "EgressLinks", Operations: []string{"query"}, Status: http.StatusForbidden})
	r := startRegistry(t, db)
	eventually.Soon(t, "the listing was tried", func() error {
		if server.FaultCount() == 0 {
			return errors.New("no request was refused")
		}
		return nil
	})
	if _, err := r.Open(t.Context(), 7); !errors.Is(err, egress.ErrStale) || r.Ready(t.Context()) == nil {
		t.Errorf("without the links: %v", err)
	}
	remove()
	open(t, r, 7).Close()
	if err := r.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRateOfNewConnections checks that a link may open the connections of ten seconds at once, and then as many as its rate permits.
func TestRegistryLimitsRateOfNewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{documents: []database.EgressLinkDocument{admin(t).EgressLink(t, database.EgressLinkDocument{LinkID: "7", Generation: 1, ClusterUID: "a"}),
			admin(t).EgressLink(t, database.EgressLinkDocument{LinkID: "8", Generation: 1, ClusterUID: "b"})}, read: make(chan struct{})}
		o := options(t, s)
		o.NewPerSecond = 3
		r := egress.NewRegistry(o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		synctest.Wait()
		opened := func(id uint32) (count int) {
			for {
				c, err := r.Open(t.Context(), id)
				if errors.Is(err, egress.ErrRate) && c != nil && c.Cluster.Link == id {
					return count
				}
				if err != nil {
					t.Fatal(err)
				}
				c.Close()
				count++
			}
		}
		for i, want := range []int{30, 3, 3} {
			if got := opened(7); got != want {
				t.Errorf("%d connections were opened in step %d, want %d", got, i, want)
			}
			time.Sleep(time.Second)
		}
		if got := opened(8); got != 30 {
			t.Errorf("another link opens %d connections", got)
		}
		cancel()
		<-ended
	})
}
