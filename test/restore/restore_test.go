package restore

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// The size of a region and the number of random histories.
var (
	clusters = nightly.Choose(6, 100)
	seeds    = nightly.Choose(1, 5)
)

// record returns a function that stores what a customer sees of a document, without the status that the fleet reports: that
// may change during the repair, and its transition times differ afterwards.
func record[T any](seen map[string]any, forget func(*T)) func(*database.Item[T]) error {
	return func(i *database.Item[T]) error {
		forget(&i.Value)
		seen[i.Key.ResourceID] = i.Value
		return nil
	}
}

// visible returns what customers see of all their resources.
func (r *region) visible() map[string]any {
	r.t.Helper()
	seen, ctx := map[string]any{}, r.t.Context()
	check := func(err error) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	for n := range 5 {
		sub := subscription(n)
		check(r.db.Clusters().ForEach(ctx, sub, "", record(seen, func(d *database.ClusterDocument) { d.Status, d.Fleet = hub.ClusterStatus{}, database.FleetState{} })))
		check(r.db.NodePools().ForEach(ctx, sub, "", record(seen, func(d *database.NodePoolDocument) { d.Status, d.Fleet = hub.NodePoolStatus{}, database.FleetState{} })))
		check(r.db.ExternalAuths().ForEach(ctx, sub, "", record(seen, func(d *database.ExternalAuthDocument) {
			d.Status, d.Fleet = hub.ExternalAuthStatus{}, database.FleetState{}
		})))
		check(r.db.Operations().ForEach(ctx, sub, "", record(seen, func(*database.OperationDocument) {})))
	}
	return seen
}

// difference returns the first difference between the desired state in Cosmos DB and the fleet, in either direction.
func (r *region) difference(ctx context.Context, fleet *clusterservice.Client, rpc csv1.ClusterServiceClient) error {
	uids := map[string]bool{}
	check := func(id, uid string, generation int64, wanted proto.Message, got clusterservice.Report, err error) error {
		uids[uid] = true
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", id, err)
		case got.Phase != clusterservice.PhaseReady || got.Generation != generation || got.ObservedGeneration != generation || got.Deleting:
			return fmt.Errorf("%s: phase %s, generation %d, observed %d, want %d", id, got.Phase, got.Generation, got.ObservedGeneration, generation)
		case !proto.Equal(got.Spec, wanted):
			return fmt.Errorf("%s: Cluster Service has %v, Cosmos DB has %v", id, got.Spec, wanted)
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
				return fmt.Errorf("%s is on shard %s, recorded is %+v", i.Key.ResourceID, c.GetStatus().GetProvisionShard(), was)
			}
			now, err := fleet.Recovery(ctx, i.Value.UID, "")
			if err == nil && string(now.SigningKey) != string(i.Value.Fleet.Recovery.SigningKey) {
				err = fmt.Errorf("%s: the signing key differs", i.Key.ResourceID)
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
		return fmt.Errorf("%s: %s", f.Key.ResourceID, f.Type)
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
				return fmt.Errorf("%s (%s) is in the fleet, but not in Cosmos DB", e.GetResourceId(), e.GetUid())
			}
		}
		if token = page.GetNextPageToken(); token == "" {
			return nil
		}
	}
}

// awaitRepaired waits until the fleet matches Cosmos DB.
func (r *region) awaitRepaired() {
	r.t.Helper()
	r.awaitRepair("the fleet matches Cosmos DB", func(difference error) error { return difference })
}

// awaitCrash waits until the backend has crashed, or until the fleet is repaired: the repair can need fewer calls.
func (r *region) awaitCrash(d *crash) {
	r.t.Helper()
	r.awaitRepair("the backend has crashed, or the fleet is repaired", func(difference error) error {
		select {
		case <-d.done:
			return nil
		default:
			return difference
		}
	})
}

// awaitRepair waits until check returns nil for the difference between the fleet and Cosmos DB, which is nil if they match.
func (r *region) awaitRepair(condition string, check func(difference error) error) {
	r.t.Helper()
	connection := r.connect()
	defer func() { _ = connection.Close() }()
	fleet, rpc := clusterservice.NewClient(connection), csv1.NewClusterServiceClient(connection)
	eventually.Soon(r.t, condition, func() error { return check(r.difference(r.t.Context(), fleet, rpc)) })
}

// bundles returns the IDs of the bundles in Maestro.
func (r *region) bundles() []string { return slices.Sorted(maps.Keys(r.maestro.Resources())) }

// wantedBundles returns the IDs of the bundles of the clusters and node pools in Cosmos DB.
func (r *region) wantedBundles() (ids []string) {
	r.t.Helper()
	for n := range 5 {
		clusters := map[string]*database.ClusterDocument{}
		must.Do(r.t, r.db.Clusters().ForEach(r.t.Context(), subscription(n), "", func(i *database.Item[database.ClusterDocument]) error {
			clusters[i.Key.ResourceID] = &i.Value
			for _, kind := range []fleet.WorkKind{fleet.Namespaces, fleet.HostedCluster} {
				ids = append(ids, fleet.WorkID(i.Value.Fleet.Recovery.ProvisionShard, fleet.WorkName(kind, fleet.ClusterID(i.Value.UID), ""), ""))
			}
			return nil
		}))
		must.Do(r.t, r.db.NodePools().ForEach(r.t.Context(), subscription(n), "", func(i *database.Item[database.NodePoolDocument]) error {
			cluster := clusters[path.Dir(path.Dir(i.Key.ResourceID))]
			ids = append(ids, fleet.WorkID(cluster.Fleet.Recovery.ProvisionShard, fleet.WorkName(fleet.NodePoolWork, fleet.ClusterID(cluster.UID), path.Base(i.Key.ResourceID)), i.Value.UID))
			return nil
		}))
	}
	slices.Sort(ids)
	return ids
}

// awaitBundles waits until Maestro has exactly the wanted bundles.
func (r *region) awaitBundles(want []string) {
	r.t.Helper()
	eventually.Soon(r.t, "Maestro has exactly the wanted bundles", func() error {
		if now := r.bundles(); !slices.Equal(now, want) {
			return fmt.Errorf("Maestro has %d bundles, want %d", len(now), len(want))
		}
		return nil
	})

}

// names returns the names of the bundles of clusters in Maestro. It excludes node pools, because their names can be reused.
func (r *region) names() map[string]bool {
	names := map[string]bool{}
	for _, held := range r.maestro.Resources() {
		if !strings.Contains(held.Name, "-") || strings.HasSuffix(held.Name, "-00-namespaces") {
			names[held.Name] = true
		}
	}
	return names
}

// TestRestoreKeepsDesiredState runs random histories and restores Cluster Service's database to a moment in them, while the
// backend runs and crashes at random calls. Afterwards the fleet must match Cosmos DB with the same bundles, and customers must
// not see a change.
func TestRestoreKeepsDesiredState(t *testing.T) {
	t.Parallel()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := newRegion(t)
			r.startBackend()
			histories := r.histories(seed, clusters)
			must.Do(t, advance(t.Context(), histories, 4))
			backup := r.backup()
			must.Do(t, advance(t.Context(), histories, 4))
			r.awaitRepaired()
			seen, held, names := r.visible(), r.bundles(), r.names()
			began := len(r.maestro.History())
			random := rand.New(rand.NewPCG(seed, 99))
			r.restore(backup)
			for range 3 {
				d := &crash{after: random.IntN(2) == 0, done: make(chan struct{})}
				d.left.Store(int64(1 + random.IntN(4*clusters)))
				r.crash.Store(d)
				r.awaitCrash(d)
			}
			r.crash.Store(nil)
			r.awaitRepaired()
			r.awaitBundles(held)
			if diff := cmp.Diff(seen, r.visible()); diff != "" {
				t.Errorf("customers see a change (-before +after):\n%s", diff)
			}
			for _, did := range r.maestro.History()[began:] {
				if bundle, ok := strings.CutPrefix(did, "delete "); ok && names[bundle] {
					t.Errorf("the bundle of an existing cluster was deleted: %s", bundle)
				}
			}
			// Customers can continue.
			if err := advance(t.Context(), histories, 2); err != nil {
				t.Error(err)
			}
			r.awaitRepaired()
		})
	}
}

// TestRestoreDuringRequests lets customers continue during the repair. Their requests take precedence.
func TestRestoreDuringRequests(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	r := newRegion(t)
	r.startBackend()
	histories := r.histories(77, clusters)
	must.Do(t, advance(t.Context(), histories, 3))
	backup := r.backup()
	must.Do(t, advance(t.Context(), histories, 3))
	advanced := make(chan error, 1)
	go func() { advanced <- advance(t.Context(), histories, 3) }()
	r.restore(backup)
	if err := <-advanced; err != nil {
		t.Fatal(err)
	}
	r.awaitRepaired()
	r.awaitBundles(r.wantedBundles())
}
