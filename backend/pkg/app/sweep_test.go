package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// sweep runs a scenario in a region of its own. prepare, which may be nil, runs with a backend that does not crash. run
// makes the requests of customers and engineers, and returns after all of them have ended.
func sweep(t *testing.T, prepare, run func(r *region)) {
	t.Parallel()
	crashsweep.Sweep(t, crashsweep.Options{Parallel: true}, func(t *testing.T, d *crashsweep.Injector) any {
		r := newRegion(t)
		r.fleet.secrets = true
		if prepare != nil {
			stop := r.start("backend-0")
			prepare(r)
			stop()
		}
		stop := r.supervise(d)
		run(r)
		stop()
		// A backend that does not crash completes the rest, which would show in the final state.
		stop = r.start("backend-0")
		r.idle()
		stop()
		return r.state(subscription)
	})
}

// supervise runs a backend that crashes at its external writes: writes to Resources and Billing, and calls of Cluster
// Service. A replacement with the same name follows each crash. Writes of leases are no crash points, because they are
// frequent, and a crash there is a crash between two other points.
func (r *region) supervise(injector *crashsweep.Injector) (stop func()) {
	r.t.Helper()
	// After a failed write of a lease, the next attempt follows after a third of the duration. A sweep does not depend on who has the leases.
	r.lease = time.Second
	stop = injector.Supervise(func() func() { return r.startCrashing(injector) })
	r.t.Cleanup(stop)
	return stop
}

// startCrashing starts one instance of a backend that crashes at the injector's points. stop waits for its end.
func (r *region) startCrashing(injector *crashsweep.Injector) (stop func()) {
	// The context of the test ends before its cleanup, which waits for the instance.
	ctx, cancel := context.WithCancel(context.Background())
	options := r.cosmos.Options
	options.Transport = injector.Transport(databasetest.WriteContainer)
	db, err := database.Open(ctx, options)
	if err != nil {
		r.t.Errorf("opening the database for another instance: %v", err)
		return cancel
	}
	connection := r.fleet.dial(grpc.WithUnaryInterceptor(injector.UnaryClientInterceptor()))
	var group sync.WaitGroup
	group.Go(func() { _ = r.work(ctx, r.log("backend-0"), db, connection, "backend-0") })
	return sync.OnceFunc(func() {
		cancel()
		group.Wait()
		_ = connection.Close()
		db.Close()
	})
}

// runUntilCrash runs a backend until it crashes at a point, counted from 1, or until done returns true. It reports whether
// the backend has crashed.
func (r *region) runUntilCrash(point int, done func() bool) (crashed bool) {
	r.t.Helper()
	injector := crashsweep.NewInjector(point)
	stop := r.startCrashing(injector)
	defer stop()
	r.eventually("the backend has crashed or is done", func() string {
		if injector.Crashed() || done() {
			return ""
		}
		return fmt.Sprintf("it has passed %d points", len(injector.Passed()))
	})
	return injector.Crashed()
}

// idle waits until no operation or notification is open.
func (r *region) idle() {
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
				return note("the notification of operation %s of %s is open", i.Value.Request, i.Value.ResourceID)
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

// uid returns the UID of a cluster.
func (r *region) uid(key database.Key) string {
	r.t.Helper()
	item := must.Get(r.db.Clusters().Get(r.t.Context(), key))(r.t)
	return item.Value.UID
}

// createReady creates a cluster with a node pool and an external authentication.
func (r *region) createReady(key database.Key) {
	r.t.Helper()
	for _, operation := range []database.Key{r.createCluster(key), r.createPool(key, "np1"), r.createAuth(key, "entra")} {
		r.ends(operation, hub.Succeeded)
	}
}

// pendingCredential requests a credential in a fleet that holds it back, and waits until Cluster Service has the
// request.
func (r *region) pendingCredential(key database.Key) (operation database.Key) {
	r.t.Helper()
	r.fleet.hold(true)
	operation, credential := r.requestCredential(key)
	item := must.Get(r.db.Credentials().Get(r.t.Context(), credential))(r.t)
	r.eventually("the pending credential", func() string {
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		if r.fleet.creds[item.Value.UID] == nil {
			return "Cluster Service does not have the request"
		}
		return ""
	})
	return operation
}

// requestAction writes an admin operation, as admin does.
func (r *region) requestAction(action string, target database.AdminTarget, parameters any) {
	r.t.Helper()
	content := must.Get(json.Marshal(parameters))(r.t)
	id, now := uuid.NewString(), time.Now().UTC()
	r.commit(database.AdminPartition, func(batch *database.Batch) {
		r.admin.Create(r.t, r.db, batch, database.AdminOperationDocument{
			OperationID: id, SortKey: database.AdminSortKey(now, id), Action: action, Target: target, Parameters: content, State: database.AdminAccepted,
			StartTime: now, LastTransitionTime: now,
			Actor: database.AdminActor{Name: "ada@example.com", ObjectID: "ada", Role: "operator", Reason: "the customer asked for it", Ticket: "INC-1"},
		})
	})
}

var swept = clusterKey(subscription, "a")

// TestSweepCreation crashes the backend at every external write while a cluster is created with a node pool, an
// external authentication and a credential at the same time.
//
// The sweep was verified by hand: if the start of the billing is written just after the cluster is written as ready,
// instead of just before, a crash in between loses it permanently.
func TestSweepCreation(t *testing.T) {
	sweep(t, nil, func(r *region) {
		operations := []database.Key{r.createCluster(swept), r.createPool(swept, "np1"), r.createAuth(swept, "entra")}
		request, _ := r.requestCredential(swept)
		for _, operation := range append(operations, request) {
			r.ends(operation, hub.Succeeded)
		}
	})
}

// TestSweepUpgrade does the same while the versions of a cluster and then of its node pool change.
func TestSweepUpgrade(t *testing.T) {
	sweep(t, func(r *region) { r.createReady(swept) }, func(r *region) {
		r.ends(update(r, r.db.Clusters(), clusterFields, swept, func(d *database.ClusterDocument) { d.Cluster.Properties.Version.ID = "4.21" }), hub.Succeeded)
		r.ends(update(r, r.db.NodePools(), poolFields, poolKey(swept, "np1"), func(d *database.NodePoolDocument) { d.NodePool.Properties.Version.ID = "4.21.3" }), hub.Succeeded)
	})
}

// TestSweepRevocation does the same while an issued and a pending credential are revoked, and while another one is
// requested afterwards.
func TestSweepRevocation(t *testing.T) {
	sweep(t, func(r *region) { r.createReady(swept) }, func(r *region) {
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

// TestSweepDeletion does the same while a node pool is deleted, and then its cluster with another node pool, an
// external authentication, a pending credential and two links of the egress gateway.
func TestSweepDeletion(t *testing.T) {
	sweep(t, func(r *region) {
		r.createReady(swept)
		r.ends(r.createPool(swept, "np2"), hub.Succeeded)
		issued, _ := r.requestCredential(swept)
		r.ends(issued, hub.Succeeded)
		r.assignLink(swept, 7)
		r.assignLink(swept, 8)
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
		r.createReady(swept)
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

// TestSweepActions does the same while an engineer pauses a cluster, upgrades it, scales its node pool, revokes its
// credentials, deletes an upgrade policy and forces a step of its deletion. Every action must have its effect once, and
// none may fail because it was executed before. The last two have no UID; Cluster Service recognizes them by their call
// ID.
//
// The sweep was verified by hand: if forward in package adminoperation leaves out the call ID, the operation that
// deletes the policy fails after a crash, because the policy no longer exists.
func TestSweepActions(t *testing.T) {
	sweep(t, func(r *region) {
		r.createReady(swept)
		issued, _ := r.requestCredential(swept)
		r.ends(issued, hub.Succeeded)
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		r.fleet.policies["weekly"] = true
	}, func(r *region) {
		pool := must.Get(r.db.NodePools().Get(r.t.Context(), poolKey(swept, "np1")))(r.t)
		uid := r.uid(swept)
		cluster := database.AdminTarget{Kind: "cluster", ID: uid, ResourceID: swept.ResourceID, ClusterUID: uid}
		ask := func(action string, target database.AdminTarget, parameters any) {
			r.requestAction(action, target, parameters)
			r.idle()
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
		r.requestAction(adminv1.ActionDeletionForce, cluster, map[string]string{"clusterUid": uid, "step": "hosted-cluster"})
		r.ends(deletion, hub.Succeeded)
		r.idle()
	})
}

// TestSweepNotification does the same while two clusters are created for a caller that requests notifications and
// rejects the first one. Notifications are external writes, too, and the only ones that a crash may repeat.
func TestSweepNotification(t *testing.T) {
	t.Parallel()
	crashsweep.Sweep(t, crashsweep.Options{Parallel: true}, func(t *testing.T, d *crashsweep.Injector) any {
		r, l := newRegion(t), newListener(t)
		l.refusing, l.point = 1, d.Point
		stop := r.supervise(d)
		for _, name := range []string{"a", "b"} {
			operation := r.createWatched(clusterKey(subscription, name), l.url)
			r.ends(operation, hub.Succeeded)
			r.notified(operation)
		}
		stop()
		w := r.state(subscription)
		l.mu.Lock()
		defer l.mu.Unlock()
		received := map[string]bool{}
		for _, notification := range l.received {
			// A notification that a crash has repeated has the same content.
			if !received[notification.Name+notification.Status] {
				w.Notifications = append(w.Notifications, notification.Status)
			}
			received[notification.Name+notification.Status] = true
		}
		return w
	})
}
