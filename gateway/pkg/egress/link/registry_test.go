package link_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/link"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/policy"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/databasetest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// sharedAdmin is that of all tests.
var sharedAdmin = sync.OnceValues(intenttest.Open)

// admin returns who signs the intents of the tests.
func admin(t testing.TB) *intenttest.Admin {
	t.Helper()
	a, err := sharedAdmin()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func options(t *testing.T, source link.Source) link.Options {
	t.Helper()
	p, err := policy.New([]string{"quay.io"}, []uint16{443})
	if err != nil {
		t.Fatal(err)
	}
	return link.Options{Source: source, Policy: p, Intents: admin(t).Verifier, Keys: admin(t).Signer.Ring, ConnectionsPerLink: 2, NewPerSecond: 100, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: prometheus.NewRegistry()}
}

// start runs a registry until the test ends.
func start(t *testing.T, source link.Source) *link.Registry {
	t.Helper()
	r := link.NewRegistry(options(t, source))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return r
}

// open opens a connection as soon as the registry has the link.
func open(t *testing.T, r *link.Registry, id uint32) *link.Connection {
	t.Helper()
	var c *link.Connection
	eventually.Soon(t, "the link is known", func() (err error) {
		c, err = r.Open(t.Context(), id)
		return err
	})

	return c
}

func assign(t *testing.T, db *database.DB, id uint32, cluster, operation string, hosts ...string) {
	t.Helper()
	signed := admin(t).EgressLink(t, database.EgressLinkDocument{LinkID: strconv.FormatUint(uint64(id), 10), ClusterUID: cluster, ResourceID: "/" + cluster, Hosts: hosts, OperationID: operation})
	if _, err := db.AssignEgressLink(t.Context(), id, signed, signed.RequestTime); err != nil {
		t.Fatal(err)
	}
}

// TestChangesOfLinksEndConnections changes the hosts of a link and removes it. Both take effect on open connections, and those of another link
// stay open. Two replicas behave the same.
func TestChangesOfLinksEndConnections(t *testing.T) {
	db, _ := databasetest.New(t)
	assign(t, db, 7, "a", "one", "a.example")
	replicas := []*link.Registry{start(t, db), start(t, db)}
	assign(t, db, 8, "b", "two", "a.example")
	type connections struct{ region, cluster, other *link.Connection }
	var all []connections
	for _, r := range replicas {
		c := connections{open(t, r, 7), open(t, r, 7), open(t, r, 8)}
		for host, each := range map[string]*link.Connection{"quay.io": c.region, "a.example": c.cluster, "A.example.": c.other} {
			if _, reason := each.Decide(policy.Request{Host: host, Port: 443}); reason != policy.Permitted {
				t.Errorf("%s is %s", host, reason)
			}
		}
		if c.region.Cluster != (link.Cluster{Link: 7, UID: "a", ResourceID: "/a", Generation: 1}) {
			t.Errorf("the connection belongs to %+v", c.region.Cluster)
		}
		if _, err := r.Open(t.Context(), 7); !errors.Is(err, link.ErrBusy) {
			t.Errorf("a third connection: %v", err)
		}
		if _, err := r.Open(t.Context(), 9); !errors.Is(err, link.ErrUnknown) {
			t.Errorf("an unknown link: %v", err)
		}
		all = append(all, c)
	}
	assign(t, db, 7, "a", "three", "b.example")
	for _, c := range all {
		<-c.cluster.Context().Done()
		if cause := context.Cause(c.cluster.Context()); !errors.Is(cause, link.ErrHost) || c.region.Context().Err() != nil {
			t.Errorf("a connection to a host that is no longer permitted ended with %v, the other one with %v", cause, c.region.Context().Err())
		}
		c.cluster.Close()
	}
	now := time.Now().UTC()
	if _, err := db.RemoveEgressLink(t.Context(), 7, "a", "four", now, now); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		<-c.region.Context().Done()
		if cause := context.Cause(c.region.Context()); !errors.Is(cause, link.ErrRemoved) || c.other.Context().Err() != nil {
			t.Errorf("a connection of a removed link ended with %v, one of another link with %v", cause, c.other.Context().Err())
		}
		if _, err := replicas[i].Open(t.Context(), 7); !errors.Is(err, link.ErrUnknown) {
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
		r := link.NewRegistry(options(t, s))
		if err := r.Ready(t.Context()); err == nil {
			t.Error("ready before the first read")
		}
		if _, err := r.Open(t.Context(), 7); !errors.Is(err, link.ErrStale) {
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
		if _, err := r.Open(t.Context(), 7); !errors.Is(err, link.ErrStale) || !errors.Is(context.Cause(c.Context()), link.ErrStale) {
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
	r := start(t, db)
	eventually.Soon(t, "the listing was tried", func() error {
		if server.FaultCount() == 0 {
			return errors.New("no request was refused")
		}
		return nil
	})

	if _, err := r.Open(t.Context(), 7); !errors.Is(err, link.ErrStale) || r.Ready(t.Context()) == nil {
		t.Errorf("without the links: %v", err)
	}
	remove()
	open(t, r, 7).Close()
	if err := r.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRateOfNewConnections checks that a link may open the connections of ten seconds at once, and then as many as its rate permits.
func TestRateOfNewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &source{documents: []database.EgressLinkDocument{admin(t).EgressLink(t, database.EgressLinkDocument{LinkID: "7", Generation: 1, ClusterUID: "a"}),
			admin(t).EgressLink(t, database.EgressLinkDocument{LinkID: "8", Generation: 1, ClusterUID: "b"})}, read: make(chan struct{})}
		o := options(t, s)
		o.NewPerSecond = 3
		r := link.NewRegistry(o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		synctest.Wait()
		opened := func(id uint32) (count int) {
			for {
				c, err := r.Open(t.Context(), id)
				if errors.Is(err, link.ErrRate) && c != nil && c.Cluster.Link == id {
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
