// Package adminoperation executes the actions that SREs request from admin. Each admin operation is a document, which
// admin writes before it accepts the request. The change feed brings it to the replica that owns the admin partition.
// The Executor calls Cluster Service or changes ARM's documents, and stores the outcome.
//
// The document authorizes nothing: before every attempt, the Executor verifies the intent that admin signed for the engineer,
// and that the engineer's elevation is still active. It records a refused operation as failed, in the audit and in a metric.
//
// Every action has its effect once per operation ID, however often it is executed. A crash between the effect and the
// write of the outcome is harmless, and so are two replicas that execute one operation. Transient failures are retried
// for a limited time; rejected requests are not.
package adminoperation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/backend/pkg/controller"
	"github.com/hcpmesh/hcpmesh/backend/pkg/reconcile"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// workers is how many operations are executed at a time.
	workers = 4
	// callTimeout bounds one attempt.
	callTimeout = 15 * time.Second
)

// Options configure the Executor.
type Options struct {
	// RetryTimeout is how long transient failures are retried after the first attempt; 0 means 10 minutes. See also retryTimeout.
	RetryTimeout time.Duration
	// Audit stores the audit records of all attempts.
	Audit audit.Recorder
}

// Executor executes admin operations. It is a controller.Handler.
type Executor struct {
	db  *database.DB
	rpc clusterservicev1.ClusterServiceClient
	// reconciler compares the desired state with the fleet.
	reconciler Reconciler
	intents    IntentVerifier
	owns       func(controller.Group) bool
	options    Options
	log        *slog.Logger
	finished   *prometheus.CounterVec
	refused    *prometheus.CounterVec
	queue      workqueue.TypedRateLimitingInterface[database.Key]
	actions    map[string]action
}

// Reconciler compares the desired state with the fleet. *reconcile.Reconciler implements it.
type Reconciler interface {
	ReconcileAll(ctx context.Context) (reconcile.Result, error)
}

// New returns an Executor.
func New(db *database.DB, rpc clusterservicev1.ClusterServiceClient, reconciler Reconciler, intents IntentVerifier, owns func(controller.Group) bool, options Options, metrics prometheus.Registerer, log *slog.Logger) *Executor {
	if options.RetryTimeout == 0 {
		options.RetryTimeout = 10 * time.Minute
	}
	e := &Executor{
		db: db, rpc: rpc, reconciler: reconciler, intents: intents, owns: owns, options: options, log: log,
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_admin_operations_total", Help: "Admin operations that have ended, by action and state.",
		}, []string{"action", "state"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "backend_admin_operations_refused_total", Help: "Admin operations that no valid intent of an engineer authorized, by reason.",
		}, []string{"reason"}),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[database.Key](100*time.Millisecond, 15*time.Second)),
	}
	e.actions = e.table()
	metrics.MustRegister(e.finished, e.refused)
	return e
}

// HandleChange queues an accepted operation.
func (e *Executor) HandleChange(ctx context.Context, change database.Change) {
	if change.Kind != database.AdminOperationKind || change.Removed {
		return
	}
	operation, err := database.DecodeChange(e.db.AdminOperations(), change)
	if err != nil {
		e.log.ErrorContext(ctx, "skipping an admin operation that cannot be decoded", logkey.Key, change.Key.ResourceID, logkey.Error, err)
		return
	}
	// A running operation is in the queue, or was in the queue of a replica that has stopped; then Resync finds it.
	if operation.Value.State == database.AdminAccepted {
		e.queue.Add(operation.Key)
	}
}

// Resync queues every operation that is not terminal.
func (e *Executor) Resync(ctx context.Context, _ bool) error {
	if !e.owns(controller.GroupOf(database.AdminPartition)) {
		return nil
	}
	filter := database.AdminFilter{Kinds: []database.Kind{database.AdminOperationKind}, ActiveOnly: true}
	for continuation := ""; ; {
		records, next, err := e.db.AdminRecords(ctx, filter, continuation, 200)
		if err != nil {
			return fmt.Errorf("listing the active admin operations: %w", err)
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

// Run executes operations until ctx ends.
func (e *Executor) Run(ctx context.Context) {
	controller.RunWorkers(ctx, e.queue, workers, e.process)
}

func (e *Executor) process(ctx context.Context, key database.Key) {
	if ctx.Err() != nil || !e.owns(controller.GroupOf(key.SubscriptionID)) {
		e.queue.Forget(key)
		return
	}
	again, err := e.execute(ctx, key)
	switch {
	case err != nil && !errors.Is(err, context.Canceled):
		e.log.WarnContext(ctx, "executing an admin operation failed; retrying", logkey.OperationID, path.Base(key.ResourceID), logkey.Error, err)
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

// execute makes one attempt. again is set if the operation is not terminal.
func (e *Executor) execute(ctx context.Context, key database.Key) (again bool, err error) {
	item, err := e.begin(ctx, key)
	if err != nil || item == nil {
		return false, err
	}
	o := &item.Value
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked, result, failure := e.attempt(callCtx, o)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if failure != nil && (transient(failure) || waits(o.Action, failure)) {
		// LastTransitionTime is the time of the first attempt, which may be long after the request if no backend was
		// running.
		timeout := e.retryTimeout(o.Action)
		if time.Since(o.LastTransitionTime) < timeout {
			return true, fmt.Errorf("executing %s: %w", o.Action, failure)
		}
		failure = apierror.New(apierror.Unavailable, "The action failed for %s: %s", timeout, apierror.As(failure).Message).WithCause(failure)
	}
	return false, e.end(ctx, item, asked, result, failure)
}

// transient reports whether a repetition may succeed.
func transient(err error) bool {
	switch apierror.KindOf(err) {
	case apierror.Unavailable, apierror.Throttled, apierror.Internal:
		return true
	}
	_, lost := database.AsWriteConflict(err)
	return lost
}

// waits reports whether a rejected action succeeds later by itself: credentials can be requested and revoked when the revocation of their
// class, which the end of another engineer's elevation may have caused, has ended.
func waits(action string, err error) bool {
	return slices.Contains([]string{adminv1.ActionCredentialRequest, adminv1.ActionCredentialRevoke, adminv1.ActionAccessSessionRequest}, action) && apierror.As(err).Reason == clusterservice.ReasonRevocationInProgress
}

// retryTimeout returns how long transient failures of an action are retried. The certificates of an elevation work until they are
// revoked or expire, so that their revocation is retried until its intent expires.
func (e *Executor) retryTimeout(action string) time.Duration {
	if action == adminv1.ActionElevationEnd {
		return intent.MaxValidity
	}
	return e.options.RetryTimeout
}

// begin stores that an attempt is made. It returns nil if there is nothing to do.
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

// end stores the outcome. Another replica that executed the same operation has the same outcome. The engineer is that of the
// verified intent. If asked is nil, the document's writer is unknown: it may name any engineer, so that nobody is recorded.
func (e *Executor) end(ctx context.Context, item *database.Item[database.AdminOperationDocument], asked *intent.Intent, result any, failure error) error {
	o := &item.Value
	claimed := o.Actor.Name
	if asked == nil {
		o.Actor = database.AdminActor{}
	}
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
		logkey.Record, "audit", logkey.Action, o.Action, logkey.OperationID, o.OperationID, logkey.Target, o.Target.ID, logkey.ClusterUID, o.Target.ClusterUID,
		logkey.Actor, o.Actor.Name, logkey.ObjectID, o.Actor.ObjectID, logkey.Reason, o.Actor.Reason, logkey.Ticket, o.Actor.Ticket, logkey.Outcome, state,
	}
	if shown != nil {
		attributes = append(attributes, logkey.Error, shown.Message)
	}
	if asked == nil {
		attributes = append(attributes, logkey.ClaimedActor, truncate(claimed))
	}
	e.log.InfoContext(ctx, "audit", attributes...)
	return nil
}

// maxClaimedName limits the name that an unverified document claims, in an audit record.
const maxClaimedName = 256

func truncate(name string) string {
	if len(name) > maxClaimedName {
		return strings.ToValidUTF8(name[:maxClaimedName], "")
	}
	return name
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
