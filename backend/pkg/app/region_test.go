package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/app"
	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/notification"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

const subscription = "00000000-0000-0000-0000-0000000000aa"

// region is a Cosmos DB and a Cluster Service. Its methods write what a frontend writes.
type region struct {
	// resync is the interval of periodic resyncs; 0 means the default.
	resync time.Duration
	// lease is the duration of leases. A process on a busy machine does not lose leases of a minute. Only a replica with another name waits for
	// their end.
	lease      time.Duration
	t          testing.TB
	db         *database.DB
	cosmos     *databasetest.Server
	fleet      *fleet
	connection *grpc.ClientConn
	admin      *intenttest.Admin
	// records are the audit records of all replicas.
	records *audittest.Trail
	// lost is a backup to which the fleet is restored, and want is the state that it must have afterwards.
	lost backup
	want []string

	mu sync.Mutex
	// metrics are those of the backend that was started last.
	metrics *prometheus.Registry
}

func newRegion(t testing.TB) *region {
	t.Helper()
	db, cosmos := databasetest.New(t)
	fleet, connection := newFleet(t)
	return &region{t: t, lease: time.Minute, db: db, cosmos: cosmos, fleet: fleet, connection: connection, records: audittest.New(t, "backend", 0), admin: intenttest.New(t)}
}

// startRegion returns a region with a backend.
func startRegion(t testing.TB) *region {
	t.Helper()
	r := newRegion(t)
	r.start("backend-0")
	return r
}

// start runs a backend until the test ends or stop is called.
func (r *region) start(replica string) (stop func()) {
	r.t.Helper()
	log := r.log(replica)
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

// log returns a replica's logger, which writes errors to the test's output, or everything with BACKEND_TEST_LOG.
func (r *region) log(replica string) *slog.Logger {
	level := slog.LevelError
	if os.Getenv("BACKEND_TEST_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(r.t.Output(), &slog.HandlerOptions{Level: level})).With("replica", replica)
}

func (r *region) work(ctx context.Context, log *slog.Logger, db *database.DB, connection grpc.ClientConnInterface, replica string) error {
	p := process.New("backend", log)
	r.mu.Lock()
	r.metrics = p.Metrics
	r.mu.Unlock()
	return r.workAs(ctx, p, db, connection, replica)
}

func (r *region) workAs(ctx context.Context, p *process.Process, db *database.DB, connection grpc.ClientConnInterface, replica string) error {
	return app.Work(ctx, p, db, connection, r.admin.Verifier, app.Options{
		Replica: replica, Records: r.records, Workers: 8, CascadeDeletions: max(40, cascadeClusters/50), FeedIdle: 100 * time.Millisecond, LeaseDuration: r.lease, Resync: r.resync,
		Notification: notification.Options{Policy: asyncoperation.Policy{Loopback: true}, MinBackoff: 50 * time.Millisecond, MaxBackoff: 200 * time.Millisecond},
		Reconcile:    reconcile.Options{MinBackoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, PageSize: 3},
		Timing:       decision.Timing{Grace: 20 * time.Millisecond, Coalesce: 50 * time.Millisecond},
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

func resourceType(key database.Key) string {
	switch {
	case strings.Contains(key.ResourceID, "/nodePools/"):
		return hub.NodePoolResourceType
	case strings.Contains(key.ResourceID, "/externalAuths/"):
		return hub.ExternalAuthResourceType
	case strings.Contains(key.ResourceID, "/adminCredentials/"):
		return database.CredentialResourceType
	case strings.Contains(key.ResourceID, "/credentialRevocations/"):
		return database.RevocationResourceType
	}
	return hub.ClusterResourceType
}

func newOperation(request database.OperationRequest, key database.Key, uid string, generation int64) (database.Key, database.OperationDocument) {
	id := uuid.NewString()
	now := time.Now().UTC()
	return database.OperationKey(key.SubscriptionID, "westus3", id), database.OperationDocument{
		OperationID: id, Request: request, ResourceID: key.ResourceID, UID: uid, Generation: generation,
		Location: "westus3", ResourceType: resourceType(key), Status: hub.Accepted, StartTime: now, LastTransitionTime: now,
	}
}

func newCluster(key database.Key, uid string) database.ClusterDocument {
	name := key.ResourceID[strings.LastIndexByte(key.ResourceID, '/')+1:]
	document := database.ClusterDocument{
		UID: uid, Generation: 1,
		Cluster: hub.Cluster{Resource: hub.Resource{ID: key.ResourceID, Name: name, Location: "westus3"}},
	}
	document.Cluster.Properties.Version.ID = "4.20"
	document.Cluster.Properties.Platform.ManagedResourceGroup = "managed-" + uid
	document.Cluster.Properties.Platform.SubnetID = key.ResourceID + "/subnet"
	return document
}

// createCluster writes what the frontend writes for a PUT. It never sends the request to Cluster Service itself.
func (r *region) createCluster(key database.Key) (operation database.Key) {
	r.t.Helper()
	uid := uuid.NewString()
	opKey, op := newOperation(database.CreateRequest, key, uid, 1)
	document := newCluster(key, uid)
	document.ProvisioningState, document.ActiveOperationID = hub.Accepted, op.OperationID
	r.commit(key.SubscriptionID, func(batch *database.Batch) {
		database.Create(batch, r.db.Clusters(), key, document)
		database.Create(batch, r.db.Operations(), opKey, op)
		for reserved, reservation := range database.ClusterReservations(key, &document) {
			database.Create(batch, r.db.Reservations(), reserved, reservation)
		}
	})
	return opKey
}

// createdCluster creates a cluster and waits until it is ready.
func (r *region) createdCluster(name string) database.Key {
	r.t.Helper()
	key := clusterKey(subscription, name)
	r.ends(r.createCluster(key), hub.Succeeded)
	return key
}

func (r *region) createPool(cluster database.Key, name string, changes ...func(*hub.NodePool)) (operation database.Key) {
	r.t.Helper()
	parent := must.Get(r.db.Clusters().Get(r.t.Context(), cluster))(r.t)
	key, uid := poolKey(cluster, name), uuid.NewString()
	opKey, op := newOperation(database.CreateRequest, key, uid, 1)
	pool := hub.NodePool{Resource: hub.Resource{ID: key.ResourceID, Name: name}, Properties: hub.NodePoolProperties{Replicas: 2}}
	for _, change := range changes {
		change(&pool)
	}
	r.commit(key.SubscriptionID, func(batch *database.Batch) {
		database.Create(batch, r.db.NodePools(), key, database.NodePoolDocument{
			UID: uid, ClusterUID: parent.Value.UID, Generation: 1, ProvisioningState: hub.Accepted, ActiveOperationID: op.OperationID, NodePool: pool,
		})
		database.Create(batch, r.db.Operations(), opKey, op)
		database.Replace(batch, parent)
	})
	return opKey
}

// operationFields are the fields of a document that an operation changes.
type operationFields struct {
	uid        string
	generation *int64
	state      *hub.ProvisioningState
	operation  *string
}

func clusterFields(d *database.ClusterDocument) operationFields {
	return operationFields{d.UID, &d.Generation, &d.ProvisioningState, &d.ActiveOperationID}
}

func poolFields(d *database.NodePoolDocument) operationFields {
	return operationFields{d.UID, &d.Generation, &d.ProvisioningState, &d.ActiveOperationID}
}

func authFields(d *database.ExternalAuthDocument) operationFields {
	return operationFields{d.UID, &d.Generation, &d.ProvisioningState, &d.ActiveOperationID}
}

// begin starts another operation on a document, as PATCH and DELETE do. also, which may be nil, is called first; it
// changes the document and adds to the batch.
func begin[D any](r *region, in *database.Collection[D], of func(*D) operationFields, key database.Key, request database.OperationRequest, also func(context.Context, *database.Batch, *D) error) (operation database.Key) {
	r.t.Helper()
	must.Do(r.t, database.Retry(r.t.Context(), func(ctx context.Context) error {
		item, err := in.Get(ctx, key)
		if err != nil {
			return err
		}
		batch := r.db.NewBatch(key.SubscriptionID)
		if also != nil {
			if err := also(ctx, batch, &item.Value); err != nil {
				return err
			}
		}
		it := of(&item.Value)
		*it.state = hub.Deleting
		if request != database.DeleteRequest {
			*it.state = hub.Updating
			*it.generation++
		}
		var op database.OperationDocument
		operation, op = newOperation(request, key, it.uid, *it.generation)
		*it.operation = op.OperationID
		database.Replace(batch, item)
		database.Create(batch, r.db.Operations(), operation, op)
		return batch.Commit(ctx)
	}))
	return operation
}

// change starts another operation on a cluster.
func (r *region) change(key database.Key, request database.OperationRequest) (operation database.Key) {
	r.t.Helper()
	return begin(r, r.db.Clusters(), clusterFields, key, request, nil)
}

// update writes what the frontend writes for a PATCH.
func update[D any](r *region, in *database.Collection[D], of func(*D) operationFields, key database.Key, patch func(*D)) (operation database.Key) {
	r.t.Helper()
	return begin(r, in, of, key, database.UpdateRequest, func(_ context.Context, _ *database.Batch, document *D) error {
		patch(document)
		return nil
	})
}

func (r *region) deletePool(key database.Key) (operation database.Key) {
	r.t.Helper()
	return begin(r, r.db.NodePools(), poolFields, key, database.DeleteRequest, nil)
}

func (r *region) commit(sub string, add func(batch *database.Batch)) {
	r.t.Helper()
	batch := r.db.NewBatch(sub)
	add(batch)
	must.Do(r.t, batch.Commit(r.t.Context()))
}

// eventually waits until check returns an empty string. Otherwise check describes the current state.
func (r *region) eventually(what string, check func() string) {
	r.t.Helper()
	eventually.Soon(r.t, what, func() error {
		if problem := check(); problem != "" {
			return errors.New(problem)
		}
		return nil
	})
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

// nothingLeft checks that a subscription has no documents except terminal operations.
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
	auths, _, err := r.db.ExternalAuths().List(r.t.Context(), sub, "", "", 100)
	if problem := count(len(auths), err); problem != "" {
		r.t.Errorf("external auths: %s", problem)
	}
	credentials, _, err := r.db.Credentials().List(r.t.Context(), sub, "", "", 100)
	if problem := count(len(credentials), err); problem != "" {
		r.t.Errorf("credentials: %s", problem)
	}
	reservations, _, err := r.db.Reservations().List(r.t.Context(), sub, "", "", 100)
	if problem := count(len(reservations), err); problem != "" {
		r.t.Errorf("reservations: %s", problem)
	}
	if err := r.db.EachEgressLink(r.t.Context(), func(item *database.Item[database.EgressLinkDocument]) error {
		if id := item.Value.ResourceID; item.Value.RemovedTime == nil && strings.HasPrefix(strings.ToLower(id), "/subscriptions/"+strings.ToLower(sub)+"/") {
			r.t.Errorf("the egress link %s still belongs to %s", item.Value.LinkID, id)
		}
		return nil
	}); err != nil {
		r.t.Error(err)
	}
	if err := r.db.ActiveOperations(r.t.Context(), func(item *database.Item[database.OperationDocument]) error {
		r.t.Errorf("operation %s of %s is still %s", item.Value.OperationID, item.Value.ResourceID, item.Value.Status)
		return nil
	}); err != nil {
		r.t.Error(err)
	}
}
