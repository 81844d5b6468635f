package app_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// fleetState describes what the fleet has. It is for comparisons within one region.
func (r *region) fleetState() []string {
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	var all []string
	// With the UID: an incarnation of a name that was restored is not the one that replaced it.
	add := func(uid, id, phase string, generation, observed int64, spec fmt.Stringer) {
		if phase == "DELETED" {
			return // tombstones may or may not be there
		}
		all = append(all, fmt.Sprintf("%s %s %s %d %d %s", uid, strings.ToLower(id[strings.LastIndex(id, "/providers/")+1:]), phase, generation, observed, spec))
	}
	for _, c := range r.fleet.clusters {
		add(c.Uid, c.ResourceId, strings.TrimPrefix(c.Status.Phase.String(), "CLUSTER_PHASE_"), c.Generation, c.Status.ObservedGeneration, c.Spec.GetVersion())
	}
	for _, p := range r.fleet.pools {
		add(p.Uid, p.ResourceId, strings.TrimPrefix(p.Status.Phase.String(), "NODE_POOL_PHASE_"), p.Generation, p.Status.ObservedGeneration, p.Spec.GetVersion())
	}
	for _, a := range r.fleet.auths {
		add(a.Uid, a.ResourceId, strings.TrimPrefix(a.Status.Phase.String(), "EXTERNAL_AUTH_PHASE_"), a.Generation, a.Status.ObservedGeneration, a.Spec.GetIssuer())
	}
	slices.Sort(all)
	return all
}

// customerView returns what customers see of a subscription: the ETags of all resources, and the operations.
func (r *region) customerView(sub string) map[string]string {
	r.t.Helper()
	seen := map[string]string{}
	note := func(err error) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	note(r.db.Clusters().ForEach(r.t.Context(), sub, "", func(i *database.Item[database.ClusterDocument]) error {
		seen[i.Key.ResourceID] = i.ETag
		return nil
	}))
	note(r.db.NodePools().ForEach(r.t.Context(), sub, "", func(i *database.Item[database.NodePoolDocument]) error {
		seen[i.Key.ResourceID] = i.ETag
		return nil
	}))
	note(r.db.ExternalAuths().ForEach(r.t.Context(), sub, "", func(i *database.Item[database.ExternalAuthDocument]) error {
		seen[i.Key.ResourceID] = i.ETag
		return nil
	}))
	note(r.db.Operations().ForEach(r.t.Context(), sub, "", func(i *database.Item[database.OperationDocument]) error {
		seen[i.Key.ResourceID] = i.ETag
		return nil
	}))
	return seen
}

func (r *region) fleetBecomes(want []string) {
	r.t.Helper()
	r.eventually("the fleet", func() string {
		if got := r.fleetState(); !slices.Equal(got, want) {
			return "is\n" + strings.Join(got, "\n") + "\nwant\n" + strings.Join(want, "\n")
		}
		return ""
	})
}

// createBefore creates resources before a backup and changeAfter changes them after it. All operations have ended when
// they return.
func (r *region) createBefore() {
	r.t.Helper()
	for _, name := range []string{"changed", "deleted", "parent", "same"} {
		r.ends(r.createCluster(clusterKey(subscription, name)), hub.Succeeded)
	}
	for _, name := range []string{"np1", "np2"} {
		r.ends(r.createPool(clusterKey(subscription, "parent"), name), hub.Succeeded)
	}
	r.ends(r.createPool(clusterKey(subscription, "deleted"), "np1"), hub.Succeeded)
}

func (r *region) changeAfter() {
	r.t.Helper()
	created := r.createdCluster("created")
	r.ends(r.createPool(created, "np1"), hub.Succeeded)
	r.ends(r.createAuth(created, "entra"), hub.Succeeded)
	r.ends(r.createAuth(clusterKey(subscription, "parent"), "entra"), hub.Succeeded)
	r.ends(r.change(clusterKey(subscription, "changed"), database.UpdateRequest), hub.Succeeded)
	r.ends(r.change(clusterKey(subscription, "deleted"), database.DeleteRequest), hub.Succeeded)
	r.ends(r.deletePool(poolKey(clusterKey(subscription, "parent"), "np2")), hub.Succeeded)
	again := clusterKey(subscription, "same")
	r.ends(r.change(again, database.DeleteRequest), hub.Succeeded)
	r.ends(r.createCluster(again), hub.Succeeded) // another incarnation of the name
}

// gauge returns the value of a metric of the backend that was started last, by its label.
func (r *region) gauge(name, label string) float64 {
	r.t.Helper()
	r.mu.Lock()
	metrics := r.metrics
	r.mu.Unlock()
	families := must.Get(metrics.Gather())(r.t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == label {
				return m.GetGauge().GetValue()
			}
		}
	}
	r.t.Fatalf("there is no metric %s of %s", name, label)
	return 0
}

// TestLostStateIsSentAgain makes Cluster Service lose completed changes: clusters and their children, an update,
// deletions, and the reuse of a name. All are sent again, and customers see no difference.
func TestLostStateIsSentAgain(t *testing.T) {
	for name, down := range map[string]bool{"while a backend runs": false, "while none runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRegion(t)
			r.fleet.secrets = true
			stop := r.start("backend-0")
			r.createBefore()
			before := r.fleet.backup()
			r.changeAfter()
			want, seen := r.fleetState(), r.customerView(subscription)
			if down {
				stop()
			}
			r.fleet.restore(before)
			if down {
				r.start("backend-0")
			}
			r.fleetBecomes(want)
			if now := r.customerView(subscription); !maps.Equal(now, seen) {
				t.Errorf("customers see a difference: before %v, now %v", seen, now)
			}
			created := must.Get(r.db.Clusters().Get(t.Context(), clusterKey(subscription, "created")))(t)
			r.fleet.mu.Lock()
			defer r.fleet.mu.Unlock()
			if key := r.fleet.recovered[created.Value.UID]; key != "sealed for "+created.Value.UID {
				t.Errorf("the cluster was recreated with the signing key %q", key)
			}
		})
	}
}

// TestSweepReconciliation does the same while the backend crashes before and after each external write.
func TestSweepReconciliation(t *testing.T) {
	sweep(t, func(r *region) {
		r.createBefore()
		before := r.fleet.backup()
		r.changeAfter()
		r.lost, r.want = before, r.fleetState()
	}, func(r *region) {
		r.fleet.restore(r.lost)
		r.fleetBecomes(r.want)
	})
}

// TestCustomerRequestsDuringReconciliation changes, deletes and creates resources while lost state is sent again. The
// customers' requests win.
func TestCustomerRequestsDuringReconciliation(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.fleet.secrets = true
	r.start("backend-0")
	const clusters = 12
	key := func(i int) database.Key { return clusterKey(subscription, fmt.Sprintf("c%d", i)) }
	all := func(do func(i int) database.Key) {
		t.Helper()
		var operations []database.Key
		for i := range clusters {
			operations = append(operations, do(i))
		}
		for _, operation := range operations {
			r.ends(operation, hub.Succeeded)
		}
	}
	all(func(i int) database.Key { return r.createCluster(key(i)) })
	before := r.fleet.backup()
	all(func(i int) database.Key { return r.change(key(i), database.UpdateRequest) })
	var group sync.WaitGroup
	group.Go(func() { r.fleet.restore(before) })
	all(func(i int) database.Key {
		switch i % 3 {
		case 0:
			return r.change(key(i), database.DeleteRequest)
		case 1:
			return r.change(key(i), database.UpdateRequest)
		default:
			return r.createPool(key(i), "np1")
		}
	})
	group.Wait()
	r.eventually("the fleet", func() string {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		for _, c := range r.fleet.clusters {
			want := int64(2)
			var i int
			if _, err := fmt.Sscanf(c.Spec.GetName(), "c%d", &i); err != nil {
				return err.Error()
			}
			if i%3 == 1 {
				want = 3
			}
			if i%3 == 0 {
				if c.Status.Phase != clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED {
					return c.Spec.GetName() + " is not deleted"
				}
				continue
			}
			if c.Generation != want || c.Status.ObservedGeneration != want || c.DeleteTime != nil {
				return fmt.Sprintf("%s is at %d of %d", c.Spec.GetName(), c.Generation, want)
			}
		}
		return ""
	})
}

// TestUnknownFleetStateIsKept: the fleet has state that Cosmos DB, restored to an earlier state, does not have: a
// cluster, a newer generation, and other content under the same generation. It is not reverted until a customer makes a
// request, which then wins.
func TestUnknownFleetStateIsKept(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	newer, other := clusterKey(subscription, "newer"), clusterKey(subscription, "other")
	r.ends(r.createCluster(newer), hub.Succeeded)
	r.ends(r.createCluster(other), hub.Succeeded)
	orphan := uuid.NewString()
	rpc := clusterservicev1.NewClusterServiceClient(r.connection)
	apply := func(uid string, key database.Key, generation int64, version string) {
		t.Helper()
		must.Get(rpc.ApplyCluster(t.Context(), &clusterservicev1.ApplyClusterRequest{Uid: uid, ResourceId: key.ResourceID, Generation: generation,
			Spec: &clusterservicev1.ClusterSpec{Name: "lost", Version: &clusterservicev1.Version{Id: version}}}))(t)
	}
	apply(orphan, clusterKey(subscription, "orphan"), 1, "4.20")
	apply(r.uid(newer), newer, 7, "4.99")
	apply(r.uid(other), other, 2, "4.99")
	r.eventually("the fleet", func() string {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		for _, c := range r.fleet.clusters {
			if c.Status.ObservedGeneration != c.Generation {
				return "is not at rest"
			}
		}
		return ""
	})
	want := r.fleetState()
	r.fleet.restore(r.fleet.backup()) // this requests a comparison of all groups
	for concern, want := range map[string]float64{"Orphan": 1, "Newer": 2} {
		r.eventually("the findings", func() string {
			if got := r.gauge("backend_reconciliation_findings", concern); got != want {
				return fmt.Sprintf("are %v of %s, want %v", got, concern, want)
			}
			return ""
		})
	}
	if got := r.fleetState(); !slices.Equal(got, want) {
		t.Errorf("the state of the fleet was %q and is %q", want, got)
	}
	for _, key := range []database.Key{newer, other} {
		r.ends(r.change(key, database.UpdateRequest), hub.Succeeded)
		item := must.Get(r.db.Clusters().Get(t.Context(), key))(t)
		r.fleet.mu.Lock()
		c := r.fleet.clusters[item.Value.UID]
		if c.Generation != item.Value.Generation || c.Spec.GetVersion().GetId() != "4.20" {
			t.Errorf("%s has generation %d with version %s, want generation %d", key.ResourceID, c.Generation, c.Spec.GetVersion().GetId(), item.Value.Generation)
		}
		r.fleet.mu.Unlock()
	}
	// An SRE who has resolved findings reconciles, and does not wait for the next comparison.
	r.requestAction(adminv1.ActionDriftReconcile, database.AdminTarget{Kind: "region", ID: "region"}, map[string]string{})
	for concern, want := range map[string]float64{"Orphan": 1, "Newer": 0} {
		r.eventually("the findings after the reconciliation", func() string {
			if got := r.gauge("backend_reconciliation_findings", concern); got != want {
				return fmt.Sprintf("are %v of %s, want %v", got, concern, want)
			}
			return ""
		})
	}
}
