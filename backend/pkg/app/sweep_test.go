package app_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
)

// fewPoints is how many points of each life are tried with -short.
const fewPoints = 5

// sweep plays a life in a region of its own. prepare, which may be nil, is done by a backend that does not die; live is what
// customers and SREs ask for, and returns when all of it has ended.
func sweep(t *testing.T, prepare, live func(r *region)) {
	t.Parallel()
	crashsweep.Sweep(t, crashsweep.Options{ShortPoints: fewPoints, Parallel: true}, func(t *testing.T, d *crashsweep.Injector) any {
		r := newRegion(t)
		r.fleet.secrets = true
		if prepare != nil {
			stop := r.start("backend-0")
			prepare(r)
			stop()
		}
		end := r.mortal(d)
		live(r)
		end()
		// Whatever is still to be done is done by one that lives: what it finds to do would show.
		stop := r.start("backend-0")
		r.atRest()
		stop()
		return r.world(subscription)
	})
}

// atRest waits until nothing is under way.
func (r *region) atRest() {
	r.t.Helper()
	r.eventually("rest", func() string {
		problem := ""
		note := func(format string, values ...any) error {
			problem = fmt.Sprintf(format, values...)
			return nil
		}
		err := r.db.ActiveOperations(r.t.Context(), func(i *database.Item[database.OperationDocument]) error {
			return note("operation %s of %s is %s", i.Value.Request, i.Value.ResourceID, i.Value.Status)
		})
		if err == nil {
			err = r.db.UnnotifiedOperations(r.t.Context(), func(i *database.Item[database.OperationDocument]) error {
				return note("the end of operation %s of %s is not told", i.Value.Request, i.Value.ResourceID)
			})
		}
		if err == nil {
			err = r.db.AdminOperations().ForEach(r.t.Context(), database.AdminPartition, "", func(i *database.Item[database.AdminOperationDocument]) error {
				if !i.Value.State.Terminal() {
					return note("%s is %s", i.Value.Action, i.Value.State)
				}
				return nil
			})
		}
		if err != nil {
			return err.Error()
		}
		return problem
	})
}

// uid of a cluster.
func (r *region) uid(key database.Key) string {
	r.t.Helper()
	item, err := r.db.Clusters().Get(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return item.Value.UID
}

// ready makes a cluster with a node pool and an external auth.
func (r *region) ready(key database.Key) {
	r.t.Helper()
	for _, operation := range []database.Key{r.createCluster(key), r.createPool(key, "np1"), r.createAuth(key, "entra")} {
		r.ends(operation, hub.Succeeded)
	}
}

// pendingCredential is requestCredential in a fleet that holds it, once Cluster Service has heard of it.
func (r *region) pendingCredential(key database.Key) (operation database.Key) {
	r.t.Helper()
	r.fleet.hold(true)
	operation, credential := r.requestCredential(key)
	item, err := r.db.Credentials().Get(r.t.Context(), credential)
	if err != nil {
		r.t.Fatal(err)
	}
	r.eventually("the pending credential", func() string {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		if r.fleet.creds[item.Value.UID] == nil {
			return "Cluster Service has not heard of it"
		}
		return ""
	})
	return operation
}

// intervene writes down what an SRE asks for, as admin does.
func (r *region) intervene(action string, target database.AdminTarget, parameters any) {
	r.t.Helper()
	content, err := json.Marshal(parameters)
	if err != nil {
		r.t.Fatal(err)
	}
	id, now := uuid.NewString(), time.Now().UTC()
	r.commit(database.AdminPartition, func(batch *database.Batch) {
		database.Create(batch, r.db.AdminOperations(), database.AdminOperationKey(id), database.AdminOperationDocument{
			OperationID: id, SortKey: database.AdminSortKey(now, id), Action: action, Target: target, Parameters: content, State: database.AdminAccepted,
			StartTime: now, LastTransitionTime: now,
			Actor: database.AdminActor{Name: "ada@example.com", ObjectID: "ada", Role: "operator", Reason: "the customer asked for it", Ticket: "INC-1"},
		})
	})
}

var swept = clusterKey(subscription, "a")

// TestSweepCreation kills the backend at every external write while a cluster is made with a node pool, an external auth and a
// credential that are asked for at once.
//
// That it finds what it is for was tried by hand: with the beginning of the cluster's life noted for billing just after it is
// written that the cluster is ready, instead of just before, a backend that ends between the two leaves it out for good.
func TestSweepCreation(t *testing.T) {
	sweep(t, nil, func(r *region) {
		operations := []database.Key{r.createCluster(swept), r.createPool(swept, "np1"), r.createAuth(swept, "entra")}
		request, _ := r.requestCredential(swept)
		for _, operation := range append(operations, request) {
			r.ends(operation, hub.Succeeded)
		}
	})
}

// TestSweepUpgrade does the same while the versions of a cluster and then of its node pool are changed.
func TestSweepUpgrade(t *testing.T) {
	sweep(t, func(r *region) { r.ready(swept) }, func(r *region) {
		r.ends(update(r, r.db.Clusters(), movingCluster, swept, func(d *database.ClusterDocument) { d.Cluster.Properties.Version.ID = "4.21" }), hub.Succeeded)
		r.ends(update(r, r.db.NodePools(), movingPool, poolKey(swept, "np1"), func(d *database.NodePoolDocument) { d.NodePool.Properties.Version.ID = "4.21.3" }), hub.Succeeded)
	})
}

// TestSweepRevocation does the same while credentials are revoked of which one is issued and one is not, and while another
// one is requested afterwards.
func TestSweepRevocation(t *testing.T) {
	sweep(t, func(r *region) { r.ready(swept) }, func(r *region) {
		issued, _ := r.requestCredential(swept)
		r.ends(issued, hub.Succeeded)
		canceled := r.pendingCredential(swept)
		revocation := r.revoke(swept)
		r.ends(canceled, hub.Canceled)
		r.ends(revocation, hub.Succeeded)
		r.fleet.hold(false)
		again, _ := r.requestCredential(swept)
		r.ends(again, hub.Succeeded)
	})
}

// TestSweepDeletion does the same while a node pool is deleted, and then the cluster with another one, an external auth, and a
// credential that is still to be issued.
func TestSweepDeletion(t *testing.T) {
	sweep(t, func(r *region) {
		r.ready(swept)
		r.ends(r.createPool(swept, "np2"), hub.Succeeded)
		issued, _ := r.requestCredential(swept)
		r.ends(issued, hub.Succeeded)
	}, func(r *region) {
		r.ends(r.deletePool(poolKey(swept, "np1")), hub.Succeeded)
		pending := r.pendingCredential(swept)
		r.ends(r.change(swept, database.DeleteRequest), hub.Succeeded)
		r.ends(pending, hub.Canceled)
		r.nothingLeft(subscription)
	})
}

// TestSweepCascade does the same while a subscription with three clusters is deleted.
func TestSweepCascade(t *testing.T) {
	sweep(t, func(r *region) {
		r.setSubscription(subscription, hub.Registered)
		r.ready(swept)
		r.seedClusters(subscription, 2)
	}, func(r *region) {
		r.setSubscription(subscription, hub.Deleted)
		r.eventually("the subscription", func() string {
			if !r.emptied(subscription) {
				return "is not empty"
			}
			return ""
		})
		r.nothingLeft(subscription)
	})
}

// TestSweepInterventions does the same while an SRE pauses a cluster, upgrades it, scales its node pool, revokes its
// credentials, ends an upgrade policy, and forces a step of its deletion. None of it may be done twice, nor be said to have
// failed because it was done before; the last two have no uid of their own, and are known by the id of their call.
//
// That the sweep finds what it is for was tried by hand: with the call's id left out of byRPC in package intervention, the
// policy, which the process had ended before it died, is not found by the next, and the operation is said to have Failed.
func TestSweepInterventions(t *testing.T) {
	sweep(t, func(r *region) {
		r.ready(swept)
		issued, _ := r.requestCredential(swept)
		r.ends(issued, hub.Succeeded)
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		r.fleet.policies["weekly"] = true
	}, func(r *region) {
		pool, err := r.db.NodePools().Get(r.t.Context(), poolKey(swept, "np1"))
		if err != nil {
			r.t.Fatal(err)
		}
		uid := r.uid(swept)
		cluster := database.AdminTarget{Kind: "cluster", ID: uid, ResourceID: swept.ResourceID, ClusterUID: uid}
		ask := func(action string, target database.AdminTarget, parameters any) {
			r.intervene(action, target, parameters)
			r.atRest()
		}
		ask(adminv1.ActionClusterPause, cluster, map[string]string{"clusterUid": uid, "until": "2100-01-01T00:00:00Z"})
		ask(adminv1.ActionUpgradeStart, cluster, map[string]string{"clusterUid": uid, "version": "4.21.3"})
		r.eventually("the upgrade", func() string {
			item, err := r.db.Clusters().Get(r.t.Context(), swept)
			if err != nil || !slices.Equal(item.Value.Status.ActiveVersions, []string{"4.21.3"}) || item.Value.Fleet.Phase != "Ready" {
				return fmt.Sprint("is not seen: ", item, err)
			}
			return ""
		})
		ask(adminv1.ActionNodePoolScale, database.AdminTarget{Kind: "nodePool", ID: pool.Value.UID, ResourceID: pool.Key.ResourceID, ClusterUID: uid}, map[string]int32{"replicas": 5})
		ask(adminv1.ActionCredentialRevoke, cluster, adminv1.RevokeRequest{Class: "customer"})
		r.eventually("the revocation", func() string {
			r.fleet.mu.Lock()
			defer r.fleet.mu.Unlock()
			for _, v := range r.fleet.revokes {
				if v.Status.CompletionTime == nil {
					return v.Status.State.String()
				}
			}
			return ""
		})
		ask(adminv1.ActionUpgradePolicyDelete, database.AdminTarget{Kind: "upgradePolicy", ID: "weekly"}, map[string]string{"name": "weekly"})

		r.fleet.mu.Lock()
		r.fleet.waiting[uid] = true
		r.fleet.mu.Unlock()
		deletion := r.change(swept, database.DeleteRequest)
		r.eventually("the deletion", func() string {
			r.fleet.mu.Lock()
			defer r.fleet.mu.Unlock()
			if r.fleet.clusters[uid].DeleteTime == nil {
				return "has not begun"
			}
			return ""
		})
		r.intervene(adminv1.ActionDeletionForce, cluster, map[string]string{"clusterUid": uid, "step": "hosted-cluster"})
		r.ends(deletion, hub.Succeeded)
		r.atRest()
	})
}

// TestSweepNotification does the same while two clusters are made for a caller who wants to be told, and who refuses to hear
// it once. The notifications are external writes, too, and the only ones that a death may repeat.
func TestSweepNotification(t *testing.T) {
	t.Parallel()
	crashsweep.Sweep(t, crashsweep.Options{ShortPoints: fewPoints, Parallel: true}, func(t *testing.T, d *crashsweep.Injector) any {
		r, l := newRegion(t), newListener(t)
		l.refusing, l.point = 1, d.Point
		end := r.mortal(d)
		for _, name := range []string{"a", "b"} {
			operation := r.createWatched(clusterKey(subscription, name), l.url)
			r.ends(operation, hub.Succeeded)
			r.notified(operation)
		}
		end()
		w := r.world(subscription)
		l.mu.Lock()
		defer l.mu.Unlock()
		told := map[string]bool{}
		for _, heard := range l.heard {
			// What a crash had repeated was heard twice, and says the same.
			if !told[heard.Name+heard.Status] {
				w.Heard = append(w.Heard, heard.Status)
			}
			told[heard.Name+heard.Status] = true
		}
		return w
	})
}
