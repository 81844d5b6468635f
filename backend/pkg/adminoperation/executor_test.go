package adminoperation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// fleet is a Cluster Service in which each UID has its effect once.
type fleet struct {
	clusterservicev1.UnimplementedClusterServiceServer
	mu      sync.Mutex
	effects map[string]int
	actors  map[string]*clusterservicev1.Actor
	calls   int
	// respond, if not nil, returns the error of a call, counted from 1, after its effect.
	respond func(call int) error
	// revoked is the last request for the revocation of credentials.
	revoked *clusterservicev1.RevokeBreakGlassCredentialsRequest
	// reject, if not nil, is the error before any effect.
	reject error
}

func (f *fleet) do(uid string, actor *clusterservicev1.Actor) (*clusterservicev1.ClusterAction, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.reject != nil {
		return nil, apierror.ToGRPC(f.reject, "test")
	}
	if f.actors[uid] == nil {
		f.effects[uid]++
		f.actors[uid] = actor
	}
	if f.respond != nil {
		if err := f.respond(f.calls); err != nil {
			return nil, apierror.ToGRPC(err, "test")
		}
	}
	return &clusterservicev1.ClusterAction{Uid: uid, Effect: "The action was executed."}, nil
}

func (f *fleet) PauseCluster(_ context.Context, r *clusterservicev1.PauseClusterRequest) (*clusterservicev1.ClusterAction, error) {
	return f.do(r.GetUid(), r.GetActor())
}

func (f *fleet) RetryCluster(_ context.Context, r *clusterservicev1.RetryClusterRequest) (*clusterservicev1.ClusterAction, error) {
	return f.do(r.GetUid(), r.GetActor())
}

func (f *fleet) serve(t testing.TB) *grpc.ClientConn {
	t.Helper()
	f.effects, f.actors = map[string]int{}, map[string]*clusterservicev1.Actor{}
	return grpctest.Dial(t, grpctest.Serve(t, func(s grpc.ServiceRegistrar) { clusterservicev1.RegisterClusterServiceServer(s, f) }))
}

// environment is a store and a Cluster Service.
type environment struct {
	db    *database.DB
	fleet *fleet
	rpc   clusterservicev1.ClusterServiceClient
	admin *intenttest.Admin
	trail *audittest.Trail
	// metrics are those of the executor that was started last, and log its records.
	metrics *prometheus.Registry
	log     logtest.Log
}

// ReconcileAll returns a result in which half of the resources were lost.
func (h *environment) ReconcileAll(context.Context) (reconcile.Result, error) {
	return reconcile.Result{Desired: 4, Fleet: 2, Applied: 2, Findings: map[reconcile.Finding]int{reconcile.Newer: 1}}, nil
}

func newEnvironment(t testing.TB) *environment {
	t.Helper()
	db, _ := databasetest.New(t)
	h := &environment{db: db, fleet: &fleet{}, admin: intenttest.New(t), trail: audittest.New(t, "backend", 0)}
	h.rpc = clusterservicev1.NewClusterServiceClient(h.fleet.serve(t))
	return h
}

// refused returns the counter of refused operations with a reason, of the executor that was started last.
func (h *environment) refused(t *testing.T, reason string) prometheus.Collector {
	t.Helper()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "backend_admin_operations_refused_total", Help: "Admin operations that no valid intent of an engineer authorized, by reason."}, []string{"reason"})
	err := h.metrics.Register(counter)
	var registered prometheus.AlreadyRegisteredError
	if !errors.As(err, &registered) {
		t.Fatalf("the metric is not registered: %v", err)
	}
	return registered.ExistingCollector.(*prometheus.CounterVec).WithLabelValues(reason)
}

// run runs an executor until stop is called. stop waits for its end.
func (h *environment) run(t testing.TB, options adminoperation.Options) (stop func()) {
	t.Helper()
	return h.runWith(t, h.admin.Verifier, options)
}

// runWith is run with a verifier of intents.
func (h *environment) runWith(t testing.TB, intents adminoperation.IntentVerifier, options adminoperation.Options) (stop func()) {
	t.Helper()
	all := func(controller.Group) bool { return true }
	if options.Audit == nil {
		options.Audit = h.trail
	}
	h.metrics = prometheus.NewRegistry()
	executor := adminoperation.New(h.db, h.rpc, h, intents, all, options, h.metrics, slog.New(slog.NewTextHandler(&h.log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { executor.Run(ctx) })
	wg.Go(func() {
		_ = h.db.TailAdmin(ctx, time.Now().Add(-time.Minute), database.FeedOptions{BusyInterval: time.Millisecond, IdleInterval: 10 * time.Millisecond}, func(ctx context.Context, changes []database.Change) error {
			for _, change := range changes {
				executor.HandleChange(ctx, change)
			}
			return nil
		})
	})
	if err := executor.Resync(ctx, false); err != nil {
		t.Error(err)
	}
	once := sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(once)
	return once
}

// until returns the error of all calls before one, counted from 1.
func until(call int, err error) func(call int) error {
	return func(n int) error {
		if n < call {
			return err
		}
		return nil
	}
}

// create creates a document.
func create[D any](t testing.TB, h *environment, in *database.Collection[D], key database.Key, document D) {
	t.Helper()
	batch := h.db.NewBatch(key.SubscriptionID)
	database.Create(batch, in, key, document)
	must.Do(t, batch.Commit(t.Context()))
}

// request writes an operation, as admin does.
func (h *environment) request(t testing.TB, id, action string, parameters any, changes ...func(*database.AdminOperationDocument)) database.Key {
	t.Helper()
	document := operation(id)
	document.Action, document.Parameters = action, nil
	if parameters != nil {
		document.Parameters, _ = json.Marshal(parameters)
	}
	for _, change := range changes {
		change(&document)
	}
	batch := h.db.NewBatch(database.AdminPartition)
	h.admin.Create(t, h.db, batch, document)
	must.Do(t, batch.Commit(t.Context()))
	return database.AdminOperationKey(id)
}

// await waits until an operation has a state.
func (h *environment) await(t testing.TB, key database.Key, state database.AdminOperationState) *database.AdminOperationDocument {
	t.Helper()
	var document *database.AdminOperationDocument
	eventually.Soon(t, "the operation is "+string(state), func() error {
		item, err := h.db.AdminOperations().Get(t.Context(), key)
		if err != nil {
			return err
		}
		document = &item.Value
		if document.State != state && document.State.Terminal() {
			t.Fatalf("the operation is %s: %+v", document.State, document.Error)
		}
		if document.State != state {
			return fmt.Errorf("it is %s", document.State)
		}
		return nil
	})

	return document
}

func TestOperationIsExecuted(t *testing.T) {
	h := newEnvironment(t)
	h.run(t, adminoperation.Options{})
	key := h.request(t, "one", adminv1.ActionClusterPause, map[string]string{"clusterUid": "uid", "until": "2030-01-01T00:00:00Z"})
	o := h.await(t, key, database.AdminSucceeded)
	if o.EndTime == nil || o.Attempts != 1 || !strings.Contains(string(o.Result), "The action was executed.") {
		t.Errorf("%+v", o)
	}
	if actor := h.fleet.actors["one"]; actor.GetName() != "alice@example.com" || actor.GetReason() != "it is stuck" || actor.GetTicket() != "INC-1" {
		t.Errorf("Cluster Service received the actor %v", actor)
	}
}

func TestRejectedOperationFails(t *testing.T) {
	h := newEnvironment(t)
	h.fleet.reject = apierror.New(apierror.FailedPrecondition, "The cluster is being deleted.").WithReason("CLUSTER_DELETING")
	h.run(t, adminoperation.Options{})
	o := h.await(t, h.request(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}), database.AdminFailed)
	if o.Error == nil || o.Error.Code != "Conflict" || o.Error.Message != "The cluster is being deleted." {
		t.Errorf("%+v", o.Error)
	}
	o = h.await(t, h.request(t, "two", "clusters.unsupported", nil), database.AdminFailed)
	if o.Error == nil || o.Error.Code != "NotFound" {
		t.Errorf("an unsupported action: %+v", o.Error)
	}
}

func TestTransientFailuresAreRetried(t *testing.T) {
	h := newEnvironment(t)
	h.fleet.respond = until(4, apierror.New(apierror.Unavailable, "The database cannot be reached."))
	stop := h.run(t, adminoperation.Options{})
	o := h.await(t, h.request(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}), database.AdminSucceeded)
	if o.Attempts != 4 || h.fleet.effects["one"] != 1 {
		t.Errorf("%d attempts had %d effects", o.Attempts, h.fleet.effects["one"])
	}
	stop()
	h.fleet.respond = func(int) error { return apierror.New(apierror.Unavailable, "The database cannot be reached.") }
	h.run(t, adminoperation.Options{RetryTimeout: time.Millisecond})
	if o := h.await(t, h.request(t, "two", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}), database.AdminFailed); o.Error.Code != "ServiceUnavailable" {
		t.Errorf("after the retry timeout: %+v", o.Error)
	}
}

// TestRetryTimeoutStartsWithFirstAttempt: an operation that waited longer than the retry timeout for a backend is still
// retried.
func TestRetryTimeoutStartsWithFirstAttempt(t *testing.T) {
	h := newEnvironment(t)
	h.fleet.respond = until(3, apierror.New(apierror.Unavailable, "Cluster Service is starting, too."))
	key := h.request(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}, func(o *database.AdminOperationDocument) {
		o.StartTime = time.Now().UTC().Add(-time.Hour)
		o.LastTransitionTime = o.StartTime
	})
	h.run(t, adminoperation.Options{})
	h.await(t, key, database.AdminSucceeded)
}

// TestOperationSurvivesRestarts stops the executor repeatedly after the effect and before the outcome is written. There
// is one effect, and the last executor completes the operation.
func TestOperationSurvivesRestarts(t *testing.T) {
	h := newEnvironment(t)
	reached := make(chan struct{}, 16)
	h.fleet.respond = func(call int) error {
		reached <- struct{}{}
		if call <= 3 {
			return apierror.New(apierror.Unavailable, "The response is lost.")
		}
		return nil
	}
	key := h.request(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"})
	for range 3 {
		stop := h.run(t, adminoperation.Options{})
		<-reached
		stop()
	}
	h.run(t, adminoperation.Options{})
	h.await(t, key, database.AdminSucceeded)
	if h.fleet.effects["one"] != 1 {
		t.Errorf("the operation had %d effects", h.fleet.effects["one"])
	}
}

// TestTwoReplicasHaveOneEffect runs two executors.
func TestTwoReplicasHaveOneEffect(t *testing.T) {
	h := newEnvironment(t)
	h.run(t, adminoperation.Options{})
	h.run(t, adminoperation.Options{})
	var keys []database.Key
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		keys = append(keys, h.request(t, id, adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}))
	}
	for _, key := range keys {
		h.await(t, key, database.AdminSucceeded)
	}
	for id, effects := range h.fleet.effects {
		if effects != 1 {
			t.Errorf("%s had %d effects", id, effects)
		}
	}
}
