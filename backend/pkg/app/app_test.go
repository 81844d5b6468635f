package app_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func TestClusterLifecycle(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	key := r.createdCluster("a")
	got := must.Get(r.db.Clusters().Get(t.Context(), key))(t)
	if v := got.Value; v.ProvisioningState != hub.Succeeded || v.ActiveOperationID != "" || v.Status.APIURL != "https://api.a" || v.Fleet.ObservedGeneration != 1 {
		t.Errorf("the cluster after its creation: %+v", v)
	}

	billed := func() *database.BillingDocument {
		t.Helper()
		document, err := r.db.Billing(t.Context(), subscription, got.Value.UID)
		if err != nil || document == nil || document.ResourceID != key.ResourceID {
			t.Fatalf("billing: %+v, %v", document, err)
		}
		return document
	}
	if document := billed(); document.CreationTime.IsZero() || document.DeletionTime != nil || document.ManagedResourceGroup != "/subscriptions/"+subscription+"/resourcegroups/"+strings.ToLower(got.Value.Cluster.Properties.Platform.ManagedResourceGroup) {
		t.Errorf("billing of a ready cluster: %+v", document)
	}

	pool := r.createPool(key, "np")
	r.ends(pool, hub.Succeeded)
	r.ends(r.change(key, database.UpdateRequest), hub.Succeeded)
	gone := r.createPool(key, "gone")
	r.ends(gone, hub.Succeeded)
	r.ends(r.deletePool(poolKey(key, "gone")), hub.Succeeded)
	if _, err := r.db.NodePools().Get(t.Context(), poolKey(key, "gone")); apierror.KindOf(err) != apierror.ResourceNotFound {
		t.Errorf("the deleted node pool: %v", err)
	}

	r.ends(r.change(key, database.DeleteRequest), hub.Succeeded)
	r.nothingLeft(subscription)
	if document := billed(); document.DeletionTime == nil || document.DeletionTime.Before(document.CreationTime) {
		t.Errorf("billing of a deleted cluster: %+v", document)
	}

	// The name is free again, and the new incarnation is another cluster.
	r.ends(r.createCluster(key), hub.Succeeded)
	again, err := r.db.Clusters().Get(t.Context(), key)
	if err != nil || again.Value.UID == got.Value.UID {
		t.Errorf("the recreated cluster: %+v, %v", again, err)
	}
	r.ends(r.change(key, database.DeleteRequest), hub.Succeeded)
	r.nothingLeft(subscription)
}

func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.fleet.mu.Lock()
	r.fleet.broken["b"] = true
	r.fleet.mu.Unlock()
	r.start("backend-0")
	broken := r.ends(r.createCluster(clusterKey(subscription, "b")), hub.Failed)
	if broken.Error == nil || broken.Error.Code != "InternalServerError" || strings.Contains(broken.Error.Message, "shard") || !strings.Contains(broken.Error.Cause, "No shard has room.") {
		t.Errorf("error of a cluster that failed: %+v", broken.Error)
	}
	item, err := r.db.Clusters().Get(t.Context(), clusterKey(subscription, "b"))
	if err != nil || item.Value.ProvisioningState != hub.Failed || item.Value.ActiveOperationID != "" {
		t.Errorf("the failed cluster: %+v, %v", item, err)
	}
	r.ends(r.change(clusterKey(subscription, "b"), database.DeleteRequest), hub.Succeeded)

	r.refuse(apierror.ToGRPC(apierror.InvalidFields([]apierror.Violation{{Field: "spec.network.host_prefix", Message: "Invalid value: 30"}}), "clusterservice.hcpmesh"))
	refused := r.ends(r.createCluster(clusterKey(subscription, "c")), hub.Failed)
	if refused.Error == nil || refused.Error.Code != "InvalidRequestContent" || refused.Error.Target != "properties.network.hostPrefix" {
		t.Errorf("error of a rejected request: %+v", refused.Error)
	}
}

func TestOperationsWaitForClusterService(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.refuse(status.Error(codes.Unavailable, "not now"))
	r.start("backend-0")
	operation := r.createCluster(clusterKey(subscription, "a"))
	r.eventually("the request is repeated", func() string {
		item, err := r.db.Operations().Get(t.Context(), operation)
		if err != nil || item.Value.Status.Terminal() {
			t.Fatalf("the operation ended early: %+v, %v", item, err)
		}
		r.fleet.mu.Lock()
		defer r.fleet.mu.Unlock()
		if r.fleet.refused < 3 {
			return fmt.Sprint("was refused ", r.fleet.refused, " times")
		}
		return ""
	})
	r.refuse(nil)
	r.ends(operation, hub.Succeeded)
}

func TestOperationsEndDespiteCosmosFaults(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	p := func(v float64) *float64 { return &v }
	r.start("backend-0")
	r.cosmos.InjectFault(t, faults.Rule{Container: "Resources", Status: http.StatusTooManyRequests, RetryAfterMS: 5, Probability: p(0.1)})
	r.cosmos.InjectFault(t, faults.Rule{Container: "Resources", Status: http.StatusServiceUnavailable, Probability: p(0.05)})
	r.cosmos.InjectFault(t, faults.Rule{Operations: []string{"batch"}, DropResponse: true, Probability: p(0.2)})
	r.cosmos.InjectFault(t, faults.Rule{Operations: []string{"batch"}, DropRequest: true, Probability: p(0.1)})
	operations := map[database.Key]database.Key{}
	for i := range 10 {
		key := clusterKey(subscription, fmt.Sprintf("c%d", i))
		operations[key] = r.createCluster(key)
	}
	for key, operation := range operations {
		r.ends(operation, hub.Succeeded)
		operations[key] = r.change(key, database.DeleteRequest)
	}
	for _, operation := range operations {
		r.ends(operation, hub.Succeeded)
	}
	r.nothingLeft(subscription)
}

func TestTwoReplicasShareSubscriptions(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.lease = time.Second
	stopFirst := r.start("backend-0")
	r.start("backend-1")
	var operations []database.Key
	for i := range 24 {
		operations = append(operations, r.createCluster(clusterKey(fmt.Sprintf("00000000-0000-0000-0000-0000000000%02d", i), "a")))
		if i == 12 {
			stopFirst()
		}
	}
	for _, operation := range operations {
		r.ends(operation, hub.Succeeded)
	}
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	if len(r.fleet.effects) != len(operations) {
		t.Errorf("%d clusters were applied, want %d", len(r.fleet.effects), len(operations))
	}
	for _, uid := range slices.Sorted(maps.Keys(r.fleet.effects)) {
		// The number of requests depends on how often groups changed their owner: on a busy machine leases expire.
		if r.fleet.effects[uid] != 1 {
			t.Errorf("%s was applied %d times with %d effects", uid, r.fleet.calls[uid], r.fleet.effects[uid])
		}
	}
}

func TestCompactedRevisionsAreListed(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	stop := r.start("backend-0")
	key := r.createdCluster("a")
	stop()

	// While no backend runs, the cluster is deleted by a request that the frontend sends itself.
	operation := r.change(key, database.DeleteRequest)
	item := must.Get(r.db.Clusters().Get(t.Context(), key))(t)
	must.Get(clusterservice.NewClient(r.connection).DeleteCluster(t.Context(), &item.Value))(t)
	r.fleet.compact()
	r.start("backend-0")
	r.ends(operation, hub.Succeeded)
	r.nothingLeft(subscription)
}

// TestMissedTombstone: a backend has seen the start of a deletion, and no backend ran until Cluster Service had removed
// the tombstone.
func TestMissedTombstone(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.resync = 500 * time.Millisecond
	stop := r.start("backend-0")
	key := r.createdCluster("a")
	r.freeze(true)
	operation := r.change(key, database.DeleteRequest)
	var uid string
	r.eventually("the deletion is recorded", func() string {
		item, err := r.db.Clusters().Get(t.Context(), key)
		if err != nil || item.Value.Fleet.Phase != clusterservice.PhaseDeleting {
			return fmt.Sprint(item, err)
		}
		uid = item.Value.UID
		return ""
	})
	stop()
	r.fleet.mu.Lock()
	delete(r.fleet.clusters, uid)
	r.fleet.mu.Unlock()
	r.fleet.compact()
	r.freeze(false)
	r.start("backend-0")
	r.ends(operation, hub.Succeeded)
	r.nothingLeft(subscription)
}

func TestClusterDeletionExceedsOneTransaction(t *testing.T) {
	t.Parallel()
	r := startRegion(t)
	key := r.createdCluster("a")
	r.freeze(true)
	var pools []database.Key
	for i := range 60 {
		pools = append(pools, r.createPool(key, fmt.Sprintf("np%d", i)))
	}
	operation := r.change(key, database.DeleteRequest)
	r.freeze(false)
	r.ends(operation, hub.Succeeded)
	for _, pool := range pools {
		item, err := r.db.Operations().Get(t.Context(), pool)
		if err != nil || !item.Value.Status.Terminal() {
			t.Errorf("operation of a node pool: %+v, %v", item, err)
		}
	}
	r.nothingLeft(subscription)
}

func TestSupersededOperationsEnd(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.freeze(true)
	r.start("backend-0")
	key := clusterKey(subscription, "a")
	first := r.createCluster(key)
	second := r.change(key, database.DeleteRequest)
	r.ends(first, hub.Canceled)
	r.freeze(false)
	r.ends(second, hub.Succeeded)
	r.nothingLeft(subscription)
}

// TestFailedClusterIsNotBilled: a cluster whose creation has failed is billed when an update of it has succeeded, even if
// it became ready before.
func TestFailedClusterIsNotBilled(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.freeze(true)
	stop := r.start("backend-0")
	key := clusterKey(subscription, "a")
	operation := r.createCluster(key)
	r.delivered(key)
	r.age(operation, asyncoperation.CreateDeadline)
	r.ends(operation, hub.Failed)
	r.freeze(false)
	var cluster database.ClusterDocument
	r.eventually("the report that the cluster is ready", func() string {
		item, err := r.db.Clusters().Get(t.Context(), key)
		if err != nil {
			return err.Error()
		}
		cluster = item.Value
		return map[bool]string{false: "is " + cluster.Fleet.Phase}[cluster.Fleet.Phase == clusterservice.PhaseReady]
	})
	if billed, err := r.db.Billing(t.Context(), subscription, cluster.UID); err != nil || billed != nil || cluster.ProvisioningState != hub.Failed {
		t.Errorf("a cluster in state %s is billed: %+v, %v", cluster.ProvisioningState, billed, err)
	}
	stop()
	r.start("backend-0")
	r.ends(r.change(key, database.UpdateRequest), hub.Succeeded)
	if billed, err := r.db.Billing(t.Context(), subscription, cluster.UID); err != nil || billed == nil {
		t.Errorf("a cluster whose update has succeeded is not billed: %v", err)
	}
}
