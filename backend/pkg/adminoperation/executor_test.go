package adminoperation_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/adminoperation"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

const patience = 20 * time.Second

// fleet is a Cluster Service that keeps the contract of interventions: each uid has its effect once.
type fleet struct {
	clusterservicev1.UnimplementedClusterServiceServer
	mu      sync.Mutex
	effects map[string]int
	actors  map[string]*clusterservicev1.Actor
	calls   int
	// answer, when not nil, decides on the answer of a call, counted from 1, after its effect.
	answer func(call int) error
	// refuse, when not nil, is the answer before any effect.
	refuse error
}

func (f *fleet) do(uid string, actor *clusterservicev1.Actor) (*clusterservicev1.ClusterAction, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.refuse != nil {
		return nil, apierror.ToGRPC(f.refuse, "test")
	}
	if f.actors[uid] == nil {
		f.effects[uid]++
		f.actors[uid] = actor
	}
	if f.answer != nil {
		if err := f.answer(f.calls); err != nil {
			return nil, apierror.ToGRPC(err, "test")
		}
	}
	return &clusterservicev1.ClusterAction{Uid: uid, Effect: "It was done."}, nil
}

func (f *fleet) PauseCluster(_ context.Context, r *clusterservicev1.PauseClusterRequest) (*clusterservicev1.ClusterAction, error) {
	return f.do(r.GetUid(), r.GetActor())
}

func (f *fleet) RetryCluster(_ context.Context, r *clusterservicev1.RetryClusterRequest) (*clusterservicev1.ClusterAction, error) {
	return f.do(r.GetUid(), r.GetActor())
}

func (f *fleet) serve(t *testing.T) *grpc.ClientConn {
	t.Helper()
	f.effects, f.actors = map[string]int{}, map[string]*clusterservicev1.Actor{}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	clusterservicev1.RegisterClusterServiceServer(server, f)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	connection, err := grpc.NewClient("passthrough:///fleet", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close(); server.Stop(); <-served })
	return connection
}

// house is a store and a Cluster Service; executors come and go.
type house struct {
	db    *database.DB
	fleet *fleet
	rpc   clusterservicev1.ClusterServiceClient
}

// ReconcileAll finds that half of what there is was lost.
func (h *house) ReconcileAll(context.Context) (reconcile.Result, error) {
	return reconcile.Result{Desired: 4, Fleet: 2, Applied: 2, Findings: map[reconcile.Finding]int{reconcile.Newer: 1}}, nil
}

func newHouse(t *testing.T) *house {
	t.Helper()
	cosmos, err := emulator.Open(emulator.Options{DataDir: t.TempDir(), Key: emulator.WellKnownKey})
	if err != nil {
		t.Fatal(err)
	}
	account := httptest.NewServer(cosmos)
	t.Cleanup(func() { account.Close(); _ = cosmos.Close() })
	db, err := database.Open(t.Context(), database.Options{Endpoint: account.URL, Key: emulator.WellKnownKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.EnsureSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &house{db: db, fleet: &fleet{}}
	h.rpc = clusterservicev1.NewClusterServiceClient(h.fleet.serve(t))
	return h
}

// run runs an executor until stop, which returns when it has ended.
func (h *house) run(t *testing.T, options adminoperation.Options) (stop func()) {
	t.Helper()
	all := func(partition.Group) bool { return true }
	executor := adminoperation.New(h.db, h.rpc, h, all, options, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { executor.Run(ctx) })
	wg.Go(func() {
		_ = h.db.Tail(ctx, time.Now().Add(-time.Minute), database.FeedOptions{BusyInterval: time.Millisecond, IdleInterval: 10 * time.Millisecond}, func(ctx context.Context, changes []database.Change) error {
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

// ask writes an operation down, as admin does.
func (h *house) ask(t *testing.T, id, action string, parameters any, changes ...func(*database.AdminOperationDocument)) database.Key {
	t.Helper()
	now := time.Now().UTC()
	document := database.AdminOperationDocument{
		OperationID: id, SortKey: database.AdminSortKey(now, id), Action: action, State: database.AdminAccepted, StartTime: now, LastTransitionTime: now,
		Target: database.AdminTarget{Kind: "cluster", ID: "uid", ClusterUID: "uid"},
		Actor:  database.AdminActor{Name: "alice@example.com", ObjectID: "alice", Role: "operator", Reason: "it is stuck", Ticket: "INC-1"},
	}
	if parameters != nil {
		document.Parameters, _ = json.Marshal(parameters)
	}
	for _, change := range changes {
		change(&document)
	}
	key := database.AdminOperationKey(id)
	batch := h.db.NewBatch(database.AdminPartition)
	database.Create(batch, h.db.AdminOperations(), key, document)
	if err := batch.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return key
}

// await waits until an operation is in a state.
func (h *house) await(t *testing.T, key database.Key, state database.AdminOperationState) *database.AdminOperationDocument {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		item, err := h.db.AdminOperations().Get(ctx, key)
		if err != nil {
			t.Fatalf("waiting for %s: %v", state, err)
		}
		if item.Value.State == state {
			return &item.Value
		}
		if item.Value.State.Terminal() {
			t.Fatalf("the operation ended as %s: %+v", item.Value.State, item.Value.Error)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the operation is %s, not %s", item.Value.State, state)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestAnOperationIsExecuted(t *testing.T) {
	h := newHouse(t)
	h.run(t, adminoperation.Options{})
	key := h.ask(t, "one", adminv1.ActionClusterPause, map[string]string{"clusterUid": "uid", "until": "2030-01-01T00:00:00Z"})
	o := h.await(t, key, database.AdminSucceeded)
	if o.EndTime == nil || o.Attempts != 1 || !strings.Contains(string(o.Result), "It was done.") {
		t.Errorf("%+v", o)
	}
	if actor := h.fleet.actors["one"]; actor.GetName() != "alice@example.com" || actor.GetReason() != "it is stuck" || actor.GetTicket() != "INC-1" {
		t.Errorf("Cluster Service heard of %v", actor)
	}
}

func TestARefusalEndsAnOperation(t *testing.T) {
	h := newHouse(t)
	h.fleet.refuse = apierror.New(apierror.FailedPrecondition, "The cluster is being deleted.").WithReason("CLUSTER_DELETING")
	h.run(t, adminoperation.Options{})
	o := h.await(t, h.ask(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}), database.AdminFailed)
	if o.Error == nil || o.Error.Code != "Conflict" || o.Error.Message != "The cluster is being deleted." {
		t.Errorf("%+v", o.Error)
	}
	o = h.await(t, h.ask(t, "two", "clusters.paint", nil), database.AdminFailed)
	if o.Error == nil || o.Error.Code != "NotFound" {
		t.Errorf("an action that nobody knows: %+v", o.Error)
	}
}

func TestAnOperationIsTriedForAWhile(t *testing.T) {
	h := newHouse(t)
	h.fleet.answer = func(call int) error {
		if call < 4 {
			return apierror.New(apierror.Unavailable, "The database cannot be reached.")
		}
		return nil
	}
	stop := h.run(t, adminoperation.Options{})
	o := h.await(t, h.ask(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}), database.AdminSucceeded)
	if o.Attempts != 4 || h.fleet.effects["one"] != 1 {
		t.Errorf("%d attempts had %d effects", o.Attempts, h.fleet.effects["one"])
	}
	stop()
	h.fleet.answer = func(int) error { return apierror.New(apierror.Unavailable, "The database cannot be reached.") }
	h.run(t, adminoperation.Options{RetryTimeout: time.Millisecond})
	if o := h.await(t, h.ask(t, "two", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}), database.AdminFailed); o.Error.Code != "ServiceUnavailable" {
		t.Errorf("after its time it ends: %+v", o.Error)
	}
}

// TestAnOperationThatWaitedForItsFirstAttemptIsTriedForAsLong: when nobody was here for longer than an operation is tried, its first
// attempt is not its last.
func TestAnOperationThatWaitedForItsFirstAttemptIsTriedForAsLong(t *testing.T) {
	h := newHouse(t)
	h.fleet.answer = func(call int) error {
		if call < 3 {
			return apierror.New(apierror.Unavailable, "Cluster Service is starting, too.")
		}
		return nil
	}
	key := h.ask(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}, func(o *database.AdminOperationDocument) {
		o.StartTime = time.Now().UTC().Add(-time.Hour)
		o.LastTransitionTime = o.StartTime
	})
	h.run(t, adminoperation.Options{})
	h.await(t, key, database.AdminSucceeded)
}

// TestAnOperationSurvivesTheBackend ends the executor after the effect and before the outcome is written, again and again:
// the effect is one, and the next executor brings the operation to its end.
func TestAnOperationSurvivesTheBackend(t *testing.T) {
	h := newHouse(t)
	reached := make(chan struct{}, 16)
	h.fleet.answer = func(call int) error {
		reached <- struct{}{}
		if call <= 3 {
			return apierror.New(apierror.Unavailable, "The answer is lost.")
		}
		return nil
	}
	key := h.ask(t, "one", adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"})
	for range 3 {
		stop := h.run(t, adminoperation.Options{})
		select {
		case <-reached:
		case <-time.After(patience):
			t.Fatal("the operation was not taken up again")
		}
		stop()
	}
	h.run(t, adminoperation.Options{})
	h.await(t, key, database.AdminSucceeded)
	if h.fleet.effects["one"] != 1 {
		t.Errorf("the operation had %d effects", h.fleet.effects["one"])
	}
}

// TestTwoReplicasHaveOneEffect has two executors at every operation.
func TestTwoReplicasHaveOneEffect(t *testing.T) {
	h := newHouse(t)
	h.run(t, adminoperation.Options{})
	h.run(t, adminoperation.Options{})
	var keys []database.Key
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		keys = append(keys, h.ask(t, id, adminv1.ActionClusterRetry, map[string]string{"clusterUid": "uid"}))
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
