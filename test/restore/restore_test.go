package restore

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

var (
	clusters = flag.Int("restore-clusters", 6, "how many customers have a cluster")
	seeds    = flag.Int("restore-seeds", 1, "how many random histories are played")
)

const patience = 8 * time.Minute

// see keeps what a customer sees of a document, but for what the fleet says of itself: while it carries again what it lost, that may
// say so, and the same as before in the end, since another time.
func see[T any](seen map[string]any, forget func(*T)) func(*database.Item[T]) error {
	return func(i *database.Item[T]) error {
		forget(&i.Value)
		seen[i.Key.ResourceID] = i.Value
		return nil
	}
}

// seen is what customers see of all that is theirs.
func (r *region) seen() map[string]any {
	r.t.Helper()
	seen, ctx := map[string]any{}, r.t.Context()
	note := func(err error) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	for n := range 5 {
		sub := subscription(n)
		note(r.db.Clusters().ForEach(ctx, sub, "", see(seen, func(d *database.ClusterDocument) { d.Status, d.Fleet = hub.ClusterStatus{}, database.FleetState{} })))
		note(r.db.NodePools().ForEach(ctx, sub, "", see(seen, func(d *database.NodePoolDocument) { d.Status, d.Fleet = hub.NodePoolStatus{}, database.FleetState{} })))
		note(r.db.ExternalAuths().ForEach(ctx, sub, "", see(seen, func(d *database.ExternalAuthDocument) {
			d.Status, d.Fleet = hub.ExternalAuthStatus{}, database.FleetState{}
		})))
		note(r.db.Operations().ForEach(ctx, sub, "", see(seen, func(*database.OperationDocument) {})))
	}
	return seen
}

// broken is the first promise that is not held, and what is held and was not promised.
func (r *region) broken(ctx context.Context, fleet *clusterservice.Client, rpc csv1.ClusterServiceClient) error {
	uids := map[string]bool{}
	check := func(id, uid string, generation int64, wanted proto.Message, got clusterservice.Report, err error) error {
		uids[uid] = true
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", id, err)
		case got.Phase != clusterservice.PhaseReady || got.Generation != generation || got.ObservedGeneration != generation || got.Deleting:
			return fmt.Errorf("%s is %s at %d, %d observed, want %d", id, got.Phase, got.Generation, got.ObservedGeneration, generation)
		case !proto.Equal(got.Spec, wanted):
			return fmt.Errorf("%s is wanted as %v, and promised as %v", id, got.Spec, wanted)
		}
		return nil
	}
	for n := range 5 {
		sub := subscription(n)
		err := r.db.Clusters().ForEach(ctx, sub, "", func(i *database.Item[database.ClusterDocument]) error {
			request, err := clusterservice.ClusterRequest(&i.Value)
			if err != nil {
				return err
			}
			report, err := fleet.GetCluster(ctx, i.Value.UID)
			if err := check(i.Key.ResourceID, i.Value.UID, i.Value.Generation, request.GetSpec(), report, err); err != nil {
				return err
			}
			c, err := rpc.GetCluster(ctx, &csv1.GetClusterRequest{Uid: i.Value.UID})
			if err != nil {
				return err
			}
			if was := i.Value.Fleet.Recovery; was == nil || was.ProvisionShard != c.GetStatus().GetProvisionShard() {
				return fmt.Errorf("%s is on %s, and was where %+v says", i.Key.ResourceID, c.GetStatus().GetProvisionShard(), was)
			}
			now, err := fleet.Recovery(ctx, i.Value.UID, "")
			if err == nil && string(now.SigningKey) != string(i.Value.Fleet.Recovery.SigningKey) {
				err = fmt.Errorf("%s has another signing key", i.Key.ResourceID)
			}
			return err
		})
		if err == nil {
			err = r.db.NodePools().ForEach(ctx, sub, "", func(i *database.Item[database.NodePoolDocument]) error {
				request, err := clusterservice.NodePoolRequest(&i.Value)
				if err != nil {
					return err
				}
				report, err := fleet.GetNodePool(ctx, i.Value.UID)
				return check(i.Key.ResourceID, i.Value.UID, i.Value.Generation, request.GetSpec(), report, err)
			})
		}
		if err == nil {
			err = r.db.ExternalAuths().ForEach(ctx, sub, "", func(i *database.Item[database.ExternalAuthDocument]) error {
				request, err := clusterservice.ExternalAuthRequest(&i.Value)
				if err != nil {
					return err
				}
				report, err := fleet.GetExternalAuth(ctx, i.Value.UID)
				return check(i.Key.ResourceID, i.Value.UID, i.Value.Generation, request.GetSpec(), report, err)
			})
		}
		if err != nil {
			return err
		}
	}
	_, err := reconciliation.Compare(ctx, r.db, reconciliation.FleetInventory{Client: rpc}, reconciliation.Options{}, func(f reconciliation.Drift) error {
		return fmt.Errorf("%s is %s", f.Key.ResourceID, f.Type)
	})
	if err != nil {
		return err
	}
	for token := ""; ; {
		page, err := rpc.ListInventory(ctx, &csv1.ListInventoryRequest{PageToken: token})
		if err != nil {
			return err
		}
		for _, e := range page.GetEntries() {
			if !uids[e.GetUid()] {
				return fmt.Errorf("%s (%s) is held, and not promised", e.GetResourceId(), e.GetUid())
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

// kept waits until all promises are held, and nothing else is.
func (r *region) kept() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	connection := r.connect()
	defer func() { _ = connection.Close() }()
	fleet, rpc := clusterservice.NewClient(connection), csv1.NewClusterServiceClient(connection)
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := r.broken(ctx, fleet, rpc)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("the promises are not held: %v", err)
		case <-ticker.C:
		}
	}
}

// bundles are the ids of what Maestro holds.
func (r *region) bundles() []string { return slices.Sorted(maps.Keys(r.maestro.Resources())) }

// settled waits until Maestro holds what it held.
func (r *region) settled(held []string) {
	r.t.Helper()
	within, ticker := time.NewTimer(patience), time.NewTicker(50*time.Millisecond)
	defer within.Stop()
	defer ticker.Stop()
	for {
		now := r.bundles()
		if slices.Equal(now, held) {
			return
		}
		select {
		case <-within.C:
			r.t.Fatalf("Maestro held %d bundles, and holds %d others", len(held), len(now))
		case <-ticker.C:
		}
	}
}

// names of the bundles of clusters that Maestro holds, but not of node pools, of which another may have had the name.
func (r *region) names() map[string]bool {
	names := map[string]bool{}
	for _, held := range r.maestro.Resources() {
		if !strings.Contains(held.Name, "-") || strings.HasSuffix(held.Name, "-00-namespaces") {
			names[held.Name] = true
		}
	}
	return names
}

// TestRestoredClusterService plays random histories, and has Cluster Service's database restored to a moment in them, while the
// backend goes on, dies at random calls, or is away. In the end every promise is held as it was, by the same bundles, and no
// customer has seen anything.
func TestRestoredClusterService(t *testing.T) {
	for seed := range uint64(*seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := newRegion(t)
			r.startBackend()
			lives := r.lives(seed, *clusters)
			if err := live(t.Context(), lives, 4); err != nil {
				t.Fatal(err)
			}
			backup := r.backup()
			if err := live(t.Context(), lives, 4); err != nil {
				t.Fatal(err)
			}
			r.kept()
			seen, held, names := r.seen(), r.bundles(), r.names()
			began := len(r.maestro.History())
			random := rand.New(rand.NewPCG(seed, 99))
			r.restore(backup)
			for range 3 {
				d := &death{after: random.IntN(2) == 0, died: make(chan struct{})}
				d.left.Store(int64(1 + random.IntN(4**clusters)))
				r.dying.Store(d)
				select {
				case <-d.died:
				case <-time.After(3 * time.Second): // it has less to do than that
				}
			}
			r.dying.Store(nil)
			r.kept()
			r.settled(held)
			if diff := cmp.Diff(seen, r.seen()); diff != "" {
				t.Errorf("customers see a change (-before +now):\n%s", diff)
			}
			for _, did := range r.maestro.History()[began:] {
				if bundle, ok := strings.CutPrefix(did, "delete "); ok && names[bundle] {
					t.Errorf("a promised bundle was deleted: %s", bundle)
				}
			}
			// And life goes on.
			if err := live(t.Context(), lives, 2); err != nil {
				t.Error(err)
			}
			r.kept()
		})
	}
}

// TestCustomersGoOnMeanwhile has customers go on while what was lost is sent again: what they ask for wins.
func TestCustomersGoOnMeanwhile(t *testing.T) {
	r := newRegion(t)
	r.startBackend()
	lives := r.lives(77, *clusters)
	if err := live(t.Context(), lives, 3); err != nil {
		t.Fatal(err)
	}
	backup := r.backup()
	if err := live(t.Context(), lives, 3); err != nil {
		t.Fatal(err)
	}
	went := make(chan error, 1)
	go func() { went <- live(t.Context(), lives, 3) }()
	r.restore(backup)
	if err := <-went; err != nil {
		t.Fatal(err)
	}
	r.kept()
}
