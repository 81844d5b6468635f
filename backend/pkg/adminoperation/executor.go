// Package intervention executes what SREs asked admin for. Each operation is a document that admin wrote before it accepted
// the request; the change feed brings it here, to the replica that owns what SREs do, and here it is brought to its end:
// what it asks for is asked of Cluster Service, or decided on ARM's documents, and what came of it is written down.
//
// Every action has its effect once for the operation's id, however often it is begun: a crash after the effect and before
// the outcome is written is no harm, and neither are two replicas at one operation. What cannot be done now is tried again
// for a while; what is refused is not.
package adminoperation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

const (
	// workers is how many operations are under way at once.
	workers = 4
	// callTimeout bounds one attempt.
	callTimeout = 15 * time.Second
)

// Options are the timing.
type Options struct {
	// RetryTimeout is how long an operation is tried that cannot be done now, from its first attempt on; 0 means 10 minutes.
	RetryTimeout time.Duration
}

// Executor executes the operations. It is a changes.Seeker.
type Executor struct {
	db  *database.DB
	rpc clusterservicev1.ClusterServiceClient
	// reconciler compares what was promised with what the fleet holds.
	reconciler Reconciler
	owns       func(partition.Group) bool
	options    Options
	log        *slog.Logger
	finished   *prometheus.CounterVec
	queue      workqueue.TypedRateLimitingInterface[database.Key]
	actions    map[string]action
}

// Reconciler is what *reconcile.Reconciler does for SREs.
type Reconciler interface {
	ReconcileAll(ctx context.Context) (reconcile.Result, error)
}

// New makes an Executor.
func New(db *database.DB, rpc clusterservicev1.ClusterServiceClient, reconciler Reconciler, owns func(partition.Group) bool, options Options, metrics prometheus.Registerer, log *slog.Logger) *Executor {
	if options.RetryTimeout == 0 {
		options.RetryTimeout = 10 * time.Minute
	}
	e := &Executor{
		db: db, rpc: rpc, reconciler: reconciler, owns: owns, options: options, log: log,
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_admin_operations_total", Help: "Operations of SREs that came to their end, by action and state.",
		}, []string{"action", "state"}),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[database.Key](100*time.Millisecond, 15*time.Second)),
	}
	e.actions = e.table()
	metrics.MustRegister(e.finished)
	return e
}

// HandleChange notes an operation that is under way.
func (e *Executor) HandleChange(ctx context.Context, change database.Change) {
	if change.Kind != database.AdminOperationKind || change.Removed {
		return
	}
	operation, err := database.DecodeChange(e.db.AdminOperations(), change)
	if err != nil {
		e.log.ErrorContext(ctx, "an operation of an SRE cannot be read", "key", change.Key.ResourceID, "error", err)
		return
	}
	// One that runs is in the queue, or was in that of a replica that is gone, which Look finds out.
	if operation.Value.State == database.AdminAccepted {
		e.queue.Add(operation.Key)
	}
}

// Resync notes every operation that has not ended.
func (e *Executor) Resync(ctx context.Context, _ bool) error {
	if !e.owns(partition.Of(database.AdminPartition)) {
		return nil
	}
	filter := database.AdminFilter{Kinds: []database.Kind{database.AdminOperationKind}, ActiveOnly: true}
	for continuation := ""; ; {
		records, next, err := e.db.AdminRecords(ctx, filter, continuation, 200)
		if err != nil {
			return fmt.Errorf("looking for operations of SREs that are under way: %w", err)
		}
		for _, record := range records {
			e.queue.Add(record.Operation.Key)
		}
		if next == "" {
			return nil
		}
		continuation = next
	}
}

// Run works until ctx ends.
func (e *Executor) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, e.queue.ShutDown)()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				key, shutdown := e.queue.Get()
				if shutdown {
					return
				}
				e.process(ctx, key)
				e.queue.Done(key)
			}
		})
	}
	wg.Wait()
}

func (e *Executor) process(ctx context.Context, key database.Key) {
	if ctx.Err() != nil || !e.owns(partition.Of(key.SubscriptionID)) {
		e.queue.Forget(key)
		return
	}
	again, err := e.execute(ctx, key)
	switch {
	case err != nil && !errors.Is(err, context.Canceled):
		e.log.WarnContext(ctx, "an operation of an SRE could not be brought forward; will go on", "operation", key.ResourceID, "error", err)
		again = true
	case err != nil:
		return
	}
	if again {
		e.queue.AddRateLimited(key)
		return
	}
	e.queue.Forget(key)
}

// execute makes one attempt. again is set when the operation has not ended.
func (e *Executor) execute(ctx context.Context, key database.Key) (again bool, err error) {
	item, err := e.begin(ctx, key)
	if err != nil || item == nil {
		return false, err
	}
	o := &item.Value
	do := e.actions[o.Action]
	if do == nil {
		return false, e.end(ctx, item, nil, apierror.New(apierror.NotFound, "This release of the backend does not know the action %s.", o.Action))
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	result, failure := do(callCtx, o)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if failure != nil && transient(failure) {
		// LastTransitionTime is that of the first attempt, which may come long after the request: nobody was here to make it.
		if time.Since(o.LastTransitionTime) < e.options.RetryTimeout {
			return true, fmt.Errorf("executing %s: %w", o.Action, failure)
		}
		failure = apierror.New(apierror.Unavailable, "It could not be done for %s: %s", e.options.RetryTimeout, apierror.As(failure).Message).WithCause(failure)
	}
	return false, e.end(ctx, item, result, failure)
}

// transient reports whether the same may succeed later.
func transient(err error) bool {
	switch apierror.KindOf(err) {
	case apierror.Unavailable, apierror.Throttled, apierror.Internal:
		return true
	}
	_, lost := database.AsWriteConflict(err)
	return lost
}

// begin writes down that an attempt is made; nil when there is nothing to do.
func (e *Executor) begin(ctx context.Context, key database.Key) (*database.Item[database.AdminOperationDocument], error) {
	var begun *database.Item[database.AdminOperationDocument]
	err := database.Retry(ctx, func(ctx context.Context) error {
		begun = nil
		item, err := e.db.AdminOperations().Find(ctx, key)
		if err != nil || item == nil || item.Removed != nil || item.Value.State.Terminal() {
			return err
		}
		o := &item.Value
		if o.State != database.AdminRunning {
			o.State, o.LastTransitionTime = database.AdminRunning, time.Now().UTC()
		}
		o.Attempts++
		batch := e.db.NewBatch(key.SubscriptionID)
		database.Replace(batch, item)
		if err := batch.Commit(ctx); err != nil {
			return err
		}
		begun = item
		return nil
	})
	return begun, err
}

// end writes the outcome down. Another replica that was at the operation too has the same one, for the effect is one.
func (e *Executor) end(ctx context.Context, item *database.Item[database.AdminOperationDocument], result any, failure error) error {
	o := &item.Value
	state := database.AdminSucceeded
	var shown *database.OperationError
	if failure != nil {
		state = database.AdminFailed
		shown = errorOf(failure)
	}
	if result != nil {
		content, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("encoding the result of %s: %w", o.Action, err)
		}
		o.Result = content
	}
	o.End(state, shown, time.Now().UTC())
	batch := e.db.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	e.finished.WithLabelValues(o.Action, string(state)).Inc()
	attributes := []any{
		"record", "audit", "action", o.Action, "operation_id", o.OperationID, "target", o.Target.ID, "cluster_uid", o.Target.ClusterUID,
		"actor", o.Actor.Name, "object_id", o.Actor.ObjectID, "reason", o.Actor.Reason, "ticket", o.Actor.Ticket, "outcome", state,
	}
	if shown != nil {
		attributes = append(attributes, "error", shown.Message)
	}
	e.log.InfoContext(ctx, "audit", attributes...)
	return nil
}

func errorOf(err error) *database.OperationError {
	e := apierror.As(err)
	shown := &database.OperationError{Code: e.Kind.ARMCode(), Message: e.Message, Target: e.Target}
	if len(e.Violations) > 1 {
		for _, v := range e.Violations {
			shown.Details = append(shown.Details, database.OperationError{Code: shown.Code, Message: v.Message, Target: v.Field})
		}
	}
	return shown
}
