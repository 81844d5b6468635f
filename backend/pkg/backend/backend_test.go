package backend_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/backend"
	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/database/databasetest"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/faults"
)

const subscription = "00000000-0000-0000-0000-0000000000aa"

// region is a Cosmos DB, a Cluster Service and what a frontend does to them.
type region struct {
	t          testing.TB
	db         *database.DB
	cosmos     *databasetest.Server
	fleet      *fleet
	connection *grpc.ClientConn
}

func newRegion(t testing.TB) *region {
	t.Helper()
	db, cosmos := databasetest.New(t)
	fleet, connection := newFleet(t)
	return &region{t: t, db: db, cosmos: cosmos, fleet: fleet, connection: connection}
}

// start runs a backend until the test ends or stop is called.
func (r *region) start(replica string) (stop func()) {
	r.t.Helper()
	level := slog.LevelError
	if os.Getenv("BACKEND_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: level})).With("replica", replica)
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	db := r.cosmos.Open(r.t)
	go func() {
		defer close(done)
		_ = r.work(ctx, log, db, r.connection, replica)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(stop)
	return stop
}

func (r *region) work(ctx context.Context, log *slog.Logger, db *database.DB, connection grpc.ClientConnInterface, replica string) error {
	return backend.Work(ctx, process.New("backend", log), db, connection, backend.Options{
		Replica: replica, Workers: 8, FeedIdle: 100 * time.Millisecond, LeaseDuration: time.Second,
		Timing: lifecycle.Timing{Grace: 20 * time.Millisecond, Coalesce: 50 * time.Millisecond},
	})
}

func clusterKey(sub, name string) database.Key {
	key, err := database.ResourceKey("/subscriptions/" + sub + "/resourceGroups/RG/providers/" + hub.ClusterResourceType + "/" + name)
	if err != nil {
		panic(err)
	}
	return key
}

func poolKey(cluster database.Key, name string) database.Key {
	return database.Key{SubscriptionID: cluster.SubscriptionID, ResourceID: cluster.ResourceID + "/nodePools/" + name}
}

func newOperation(request database.OperationRequest, key database.Key, uid string, generation int64) (database.Key, database.OperationDocument) {
	id := uuid.NewString()
	now := time.Now().UTC()
	return database.OperationKey(key.SubscriptionID, "westus3", id), database.OperationDocument{
		OperationID: id, Request: request, ResourceID: key.ResourceID, UID: uid, Generation: generation,
		Location: "westus3", Status: hub.Accepted, StartTime: now, LastTransitionTime: now,
	}
}

// createCluster does what the frontend does with a PUT, but never sends anything to Cluster Service itself.
func (r *region) createCluster(key database.Key) (operation database.Key) {
	r.t.Helper()
	uid := uuid.NewString()
	opKey, op := newOperation(database.CreateRequest, key, uid, 1)
	name := key.ResourceID[len(key.ResourceID)-1:]
	document := database.ClusterDocument{
		UID: uid, Generation: 1, ProvisioningState: hub.Accepted, ActiveOperationID: op.OperationID,
		Cluster: hub.Cluster{Resource: hub.Resource{ID: key.ResourceID, Name: name, Location: "westus3"}},
	}
	document.Cluster.Properties.Version.ID = "4.20"
	document.Cluster.Properties.Platform.ManagedResourceGroup = "managed-" + uid
	document.Cluster.Properties.Platform.SubnetID = key.ResourceID + "/subnet"
	r.commit(key.SubscriptionID, func(batch *database.Batch) {
		database.Create(batch, r.db.Clusters(), key, document)
		database.Create(batch, r.db.Operations(), opKey, op)
		for reserved, reservation := range database.ClusterReservations(key, &document) {
			database.Create(batch, r.db.Reservations(), reserved, reservation)
		}
	})
	return opKey
}

func (r *region) createPool(cluster database.Key, name string) (operation database.Key) {
	r.t.Helper()
	parent, err := r.db.Clusters().Get(r.t.Context(), cluster)
	if err != nil {
		r.t.Fatal(err)
	}
	key, uid := poolKey(cluster, name), uuid.NewString()
	opKey, op := newOperation(database.CreateRequest, key, uid, 1)
	r.commit(key.SubscriptionID, func(batch *database.Batch) {
		database.Create(batch, r.db.NodePools(), key, database.NodePoolDocument{
			UID: uid, ClusterUID: parent.Value.UID, Generation: 1, ProvisioningState: hub.Accepted, ActiveOperationID: op.OperationID,
			NodePool: hub.NodePool{Resource: hub.Resource{ID: key.ResourceID, Name: name}, Properties: hub.NodePoolProperties{Replicas: 2}},
		})
		database.Create(batch, r.db.Operations(), opKey, op)
		database.Replace(batch, parent)
	})
	return opKey
}

// change gives a cluster another operation, as PATCH and DELETE do.
func (r *region) change(key database.Key, request database.OperationRequest) (operation database.Key) {
	r.t.Helper()
	err := database.Retry(r.t.Context(), func(ctx context.Context) error {
		item, err := r.db.Clusters().Get(ctx, key)
		if err != nil {
			return err
		}
		if request == database.DeleteRequest {
			item.Value.ProvisioningState = hub.Deleting
		} else {
			item.Value.Generation++
			item.Value.ProvisioningState = hub.Accepted
		}
		var op database.OperationDocument
		operation, op = newOperation(request, key, item.Value.UID, item.Value.Generation)
		item.Value.ActiveOperationID = op.OperationID
		batch := r.db.NewBatch(key.SubscriptionID)
		database.Replace(batch, item)
		database.Create(batch, r.db.Operations(), operation, op)
		return batch.Commit(ctx)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return operation
}

func (r *region) deletePool(key database.Key) (operation database.Key) {
	r.t.Helper()
	err := database.Retry(r.t.Context(), func(ctx context.Context) error {
		item, err := r.db.NodePools().Get(ctx, key)
		if err != nil {
			return err
		}
		var op database.OperationDocument
		operation, op = newOperation(database.DeleteRequest, key, item.Value.UID, item.Value.Generation)
		item.Value.ProvisioningState, item.Value.ActiveOperationID = hub.Deleting, op.OperationID
		batch := r.db.NewBatch(key.SubscriptionID)
		database.Replace(batch, item)
		database.Create(batch, r.db.Operations(), operation, op)
		return batch.Commit(ctx)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return operation
}

func (r *region) commit(sub string, add func(batch *database.Batch)) {
	r.t.Helper()
	batch := r.db.NewBatch(sub)
	add(batch)
	if err := batch.Commit(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// eventually waits until check returns an empty string, which it else explains itself by.
func (r *region) eventually(what string, check func() string) {
	r.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: %s", what, problem)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *region) ends(operation database.Key, want hub.ProvisioningState) database.OperationDocument {
	r.t.Helper()
	var got database.OperationDocument
	r.eventually("operation "+operation.ResourceID, func() string {
		item, err := r.db.Operations().Get(r.t.Context(), operation)
		if err != nil {
			return err.Error()
		}
		got = item.Value
		if !got.Status.Terminal() {
			return "is " + string(got.Status)
		}
		return ""
	})
	if got.Status != want || got.EndTime == nil {
		r.t.Fatalf("operation %s %s ended as %s (%+v) at %v, want %s", got.Request, got.ResourceID, got.Status, got.Error, got.EndTime, want)
	}
	return got
}

// nothingLeft checks that a subscription holds no live document but terminal operations.
func (r *region) nothingLeft(sub string) {
	r.t.Helper()
	count := func(found int, err error) string {
		if err != nil || found > 0 {
			return fmt.Sprint(found, " left, ", err)
		}
		return ""
	}
	clusters, _, err := r.db.Clusters().List(r.t.Context(), sub, "", "", 100)
	if problem := count(len(clusters), err); problem != "" {
		r.t.Errorf("clusters: %s", problem)
	}
	pools, _, err := r.db.NodePools().List(r.t.Context(), sub, "", "", 100)
	if problem := count(len(pools), err); problem != "" {
		r.t.Errorf("node pools: %s", problem)
	}
	reservations, _, err := r.db.Reservations().List(r.t.Context(), sub, "", "", 100)
	if problem := count(len(reservations), err); problem != "" {
		r.t.Errorf("reservations: %s", problem)
	}
	if err := r.db.ActiveOperations(r.t.Context(), func(item *database.Item[database.OperationDocument]) error {
		r.t.Errorf("operation %s of %s is still %s", item.Value.OperationID, item.Value.ResourceID, item.Value.Status)
		return nil
	}); err != nil {
		r.t.Error(err)
	}
}

func TestLifeOfACluster(t *testing.T) {
	r := newRegion(t)
	r.start("backend-0")
	key := clusterKey(subscription, "a")

	r.ends(r.createCluster(key), hub.Succeeded)
	got, err := r.db.Clusters().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if v := got.Value; v.ProvisioningState != hub.Succeeded || v.ActiveOperationID != "" || v.Status.APIURL != "https://api.a" || v.Fleet.ObservedGeneration != 1 {
		t.Errorf("the cluster after its creation: %+v", v)
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

	// The name is free again, and the new incarnation is another cluster.
	r.ends(r.createCluster(key), hub.Succeeded)
	again, err := r.db.Clusters().Get(t.Context(), key)
	if err != nil || again.Value.UID == got.Value.UID {
		t.Errorf("the cluster made again: %+v, %v", again, err)
	}
	r.ends(r.change(key, database.DeleteRequest), hub.Succeeded)
	r.nothingLeft(subscription)
}

func TestFailuresAreReported(t *testing.T) {
	r := newRegion(t)
	r.fleet.mu.Lock()
	r.fleet.broken["b"] = true
	r.fleet.mu.Unlock()
	r.start("backend-0")
	broken := r.ends(r.createCluster(clusterKey(subscription, "b")), hub.Failed)
	if broken.Error == nil || broken.Error.Code != "NoCapacity" || broken.Error.Message != "No shard has room." {
		t.Errorf("error of a cluster that failed: %+v", broken.Error)
	}
	item, err := r.db.Clusters().Get(t.Context(), clusterKey(subscription, "b"))
	if err != nil || item.Value.ProvisioningState != hub.Failed || item.Value.ActiveOperationID != "" {
		t.Errorf("the failed cluster: %+v, %v", item, err)
	}
	r.ends(r.change(clusterKey(subscription, "b"), database.DeleteRequest), hub.Succeeded)

	r.fleet.mu.Lock()
	r.fleet.refuse = apierror.ToGRPC(apierror.InvalidFields([]apierror.Violation{{Field: "spec.network.host_prefix", Message: "Invalid value: 30"}}), "clusterservice.hcpmesh")
	r.fleet.mu.Unlock()
	refused := r.ends(r.createCluster(clusterKey(subscription, "c")), hub.Failed)
	if refused.Error == nil || refused.Error.Code != "InvalidRequestContent" || len(refused.Error.Details) != 1 {
		t.Errorf("error of a request that was refused: %+v", refused.Error)
	}
}

func TestClusterServiceComesBack(t *testing.T) {
	r := newRegion(t)
	r.fleet.mu.Lock()
	r.fleet.refuse = status.Error(codes.Unavailable, "not now")
	r.fleet.mu.Unlock()
	r.start("backend-0")
	operation := r.createCluster(clusterKey(subscription, "a"))
	r.eventually("the request", func() string {
		item, err := r.db.Operations().Get(t.Context(), operation)
		if err != nil || item.Value.Status.Terminal() {
			t.Fatalf("the operation ended early: %+v, %v", item, err)
		}
		if time.Since(item.Value.StartTime) < 200*time.Millisecond {
			return "too early"
		}
		return ""
	})
	r.fleet.mu.Lock()
	r.fleet.refuse = nil
	r.fleet.mu.Unlock()
	r.ends(operation, hub.Succeeded)
}

// TestRestartAtEveryStep has one backend after the other work a little and end, while clusters come and go.
func TestRestartAtEveryStep(t *testing.T) {
	r := newRegion(t)
	stop := r.start("backend-0")
	var keys []database.Key
	var operations []database.Key
	for i := range 8 {
		keys = append(keys, clusterKey(fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i%3), fmt.Sprintf("c%d", i)))
	}
	restarts := 0
	restart := func() {
		stop()
		restarts++
		stop = r.start("backend-0")
	}
	for _, key := range keys {
		operations = append(operations, r.createCluster(key))
		restart()
	}
	for i, operation := range operations {
		r.ends(operation, hub.Succeeded)
		operations[i] = r.createPool(keys[i], "np")
		if i%2 == 0 {
			restart()
		}
	}
	for _, operation := range operations {
		r.ends(operation, hub.Succeeded)
	}
	for i, key := range keys {
		operations[i] = r.change(key, database.DeleteRequest)
		restart()
	}
	for _, operation := range operations {
		r.ends(operation, hub.Succeeded)
	}
	for i := range 3 {
		r.nothingLeft(fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i))
	}
	r.fleet.mu.Lock()
	defer r.fleet.mu.Unlock()
	for uid, effects := range r.fleet.effects {
		if effects > 2 {
			t.Errorf("%s was applied and deleted %d times", uid, effects)
		}
	}
	t.Logf("%d restarts", restarts)
}

func TestFaultsOfCosmos(t *testing.T) {
	r := newRegion(t)
	p := func(v float64) *float64 { return &v }
	r.start("backend-0")
	r.cosmos.Inject(t, faults.Rule{Container: "Resources", Status: http.StatusTooManyRequests, RetryAfterMS: 5, Probability: p(0.1)})
	r.cosmos.Inject(t, faults.Rule{Container: "Resources", Status: http.StatusServiceUnavailable, Probability: p(0.05)})
	r.cosmos.Inject(t, faults.Rule{Operations: []string{"batch"}, DropResponse: true, Probability: p(0.2)})
	r.cosmos.Inject(t, faults.Rule{Operations: []string{"batch"}, DropRequest: true, Probability: p(0.1)})
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

func TestTwoReplicasShare(t *testing.T) {
	r := newRegion(t)
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
		if r.fleet.effects[uid] != 1 || r.fleet.calls[uid] > 3 {
			t.Errorf("%s was applied %d times with %d effects", uid, r.fleet.calls[uid], r.fleet.effects[uid])
		}
	}
}

func TestChangesThatWereCompacted(t *testing.T) {
	r := newRegion(t)
	stop := r.start("backend-0")
	key := clusterKey(subscription, "a")
	r.ends(r.createCluster(key), hub.Succeeded)
	stop()

	// While nobody looks the cluster is deleted, by a request that the frontend had sent itself.
	operation := r.change(key, database.DeleteRequest)
	item, err := r.db.Clusters().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clusterservice.NewClient(r.connection).DeleteCluster(t.Context(), &item.Value); err != nil {
		t.Fatal(err)
	}
	r.fleet.compact()
	r.start("backend-0")
	r.ends(operation, hub.Succeeded)
	r.nothingLeft(subscription)
}

func TestManyNodePoolsGoWithTheirCluster(t *testing.T) {
	r := newRegion(t)
	r.start("backend-0")
	key := clusterKey(subscription, "a")
	r.ends(r.createCluster(key), hub.Succeeded)
	r.fleet.mu.Lock()
	r.fleet.frozen = true
	r.fleet.mu.Unlock()
	var pools []database.Key
	for i := range 60 {
		pools = append(pools, r.createPool(key, fmt.Sprintf("np%d", i)))
	}
	operation := r.change(key, database.DeleteRequest)
	r.fleet.mu.Lock()
	r.fleet.frozen = false
	r.fleet.mu.Unlock()
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
	r := newRegion(t)
	r.fleet.mu.Lock()
	r.fleet.frozen = true
	r.fleet.mu.Unlock()
	r.start("backend-0")
	key := clusterKey(subscription, "a")
	first := r.createCluster(key)
	second := r.change(key, database.DeleteRequest)
	r.ends(first, hub.Canceled)
	r.fleet.mu.Lock()
	r.fleet.frozen = false
	r.fleet.mu.Unlock()
	r.ends(second, hub.Succeeded)
	r.nothingLeft(subscription)
}
