package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// callTimeout bounds one call of Cluster Service, turnTimeout the whole turn of a resource.
const (
	callTimeout    = 10 * time.Second
	processTimeout = time.Minute
)

// missingResourceGrace is how old an operation must be before the absence of its resource is believed.
const missingResourceGrace = 30 * time.Second

// Controller gives each resource in the inbox its turn. A resource never has two turns at once.
type Controller struct {
	db             *database.DB
	clusterService *clusterservice.Client
	queue          *eventqueue.Queue
	owns           func(partition.Group) bool
	timing         Timing
	log            *slog.Logger
	metrics        *Metrics
	traces         *tracing.Tracing

	clusters      *kind[database.ClusterDocument]
	nodePools     *kind[database.NodePoolDocument]
	externalAuths *kind[database.ExternalAuthDocument]
	// reconcilers give a resource of each kind its turn.
	reconcilers map[database.Kind]reconciler

	mu sync.Mutex
	// cascades holds the clusters whose deletion, now under way, has told all that is beneath them.
	cascades map[eventqueue.Resource]cascadeState
	// deletions holds the deletions under way.
	deletions map[eventqueue.Resource]deletionState
}

// reconciler does what is next for a resource, until there is nothing but to wait.
type reconciler interface {
	reconcile(ctx context.Context, r eventqueue.Resource) error
}

// New makes a Controller of the resources whose groups are owned.
func New(db *database.DB, clusterService *clusterservice.Client, in *eventqueue.Queue, owns func(partition.Group) bool, timing Timing, metrics *Metrics, traces *tracing.Tracing, log *slog.Logger) *Controller {
	c := &Controller{
		db: db, clusterService: clusterService, queue: in, owns: owns, timing: timing.complete(), log: log, metrics: metrics, traces: traces,
		cascades: map[eventqueue.Resource]cascadeState{}, deletions: map[eventqueue.Resource]deletionState{},
	}
	c.clusters, c.nodePools, c.externalAuths = clusterKind(c), nodePoolKind(c), externalAuthKind(c)
	c.reconcilers = map[database.Kind]reconciler{
		database.ClusterKind: c.clusters, database.NodePoolKind: c.nodePools, database.ExternalAuthKind: c.externalAuths,
		database.CredentialKind: credentialOneShot(c), eventqueue.Revocation: revocationOneShot(c),
	}
	return c
}

// Run works with that many resources at once until ctx ends.
func (c *Controller) Run(ctx context.Context, workers int) {
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				resource, done, ok := c.queue.Next()
				if !ok {
					return
				}
				c.process(ctx, resource)
				done()
			}
		})
	}
	wg.Wait()
}

func (c *Controller) process(ctx context.Context, r eventqueue.Resource) {
	if ctx.Err() != nil {
		return
	}
	if !c.owns(r.Group()) {
		c.forgetDeletion(r)
		c.queue.Forget(r)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, processTimeout)
	defer cancel()
	started := time.Now()
	reconcile := c.unknown
	if known := c.reconcilers[r.Kind()]; known != nil {
		reconcile = known.reconcile
	}
	err := reconcile(ctx, r)
	c.metrics.observeTurn(time.Since(started), err)
	if err == nil {
		c.queue.Forget(r)
		return
	}
	// In an outage every resource tries again and again: the first tries and most of the later ones are not worth a line.
	retries := c.queue.NumRequeues(r)
	level := slog.LevelDebug
	if retries >= 4 && retries&(retries-1) == 0 && !errors.Is(err, context.Canceled) {
		level = slog.LevelWarn
	}
	c.log.Log(ctx, level, "will try again", "resourceId", string(r), "retries", retries, "error", err)
	c.recordDeletionFailure(ctx, r, err, retries+1)
	c.queue.AddRateLimited(r)
}

// unknown deals with news of a resource type that this release does not know: the release that does will, when it
// starts.
func (c *Controller) unknown(ctx context.Context, r eventqueue.Resource) error {
	letter := c.queue.Peek(r)
	c.log.WarnContext(ctx, "news of an unknown type of resource", "resourceId", string(r))
	for id := range letter.Operations {
		c.queue.RemoveOperation(r, id)
	}
	c.queue.FinishRefresh(r, letter.RefreshRequests)
	c.acknowledge(r, letter)
	return nil
}

// view is what the documents of all kinds have in common.
type view struct {
	uid        string
	generation int64
	state      *hub.ProvisioningState
	operation  *string
	fleet      *database.FleetState
	limits     limits
	// generationField is where the generation is kept.
	generationField *int64
}

// kind is a kind of resource that is brought to its desired state, and what differs between those.
type kind[D any] struct {
	*Controller
	collection *database.Collection[D]
	view       func(document *D) view
	// observe takes over the status of a report and says whether the customer can see a difference.
	observe func(document *D, report *clusterservice.Report) bool
	apply   func(ctx context.Context, document *D) (clusterservice.Report, error)
	remove  func(ctx context.Context, document *D) (clusterservice.Report, error)
	get     func(ctx context.Context, uid string) (clusterservice.Report, error)
	// spec is the spec of the request that apply sends.
	spec func(document *D) proto.Message
	// The rest may be nil. reservations are what the resource holds.
	reservations func(key database.Key, document *D) map[database.Key]database.ReservationDocument
	// markChildrenDeleting tells what stands beneath a resource that it is being deleted with it.
	markChildrenDeleting func(ctx context.Context, item *database.Item[D]) error
	// onReady is called before it is written that the resource is ready; it may be called again.
	onReady func(ctx context.Context, item *database.Item[D]) error
	// recovery reads what has to be kept of the resource beside its document.
	recovery func(ctx context.Context, document *D, report *clusterservice.Report) (*database.FleetRecovery, error)
	// removeDependents adds to the batch that removes the resource what goes with it; ended is called once that is committed.
	removeDependents func(ctx context.Context, batch *database.Batch, item *database.Item[D]) (ended func(), err error)
}

// maxSteps bounds a turn: the answer of a request is news that is decided on at once.
const maxSteps = 4

func (k *kind[D]) reconcile(ctx context.Context, r eventqueue.Resource) error {
	for range maxSteps {
		again := false
		err := database.Retry(ctx, func(ctx context.Context) error {
			var err error
			again, err = k.step(ctx, r)
			return err
		})
		if err != nil || !again {
			return err
		}
	}
	return errors.New("the answers of Cluster Service do not show what it was asked")
}

// step reads, decides and does one thing. It reports whether the next should follow at once.
func (k *kind[D]) step(ctx context.Context, r eventqueue.Resource) (again bool, err error) {
	key, err := database.ResourceKey(string(r))
	if err != nil {
		return false, err
	}
	// The letter is opened before the resource is read: an operation in it is then in the resource, or over.
	letter := k.queue.Peek(r)
	if early := k.holdBack(letter); early > 0 {
		k.queue.AddAfter(r, early)
		return false, nil
	}
	item, err := k.collection.Find(ctx, key)
	if err != nil {
		return false, err
	}
	if item == nil || item.Removed != nil {
		return false, k.handleMissing(ctx, r, letter)
	}
	v := k.view(&item.Value)
	if err := k.endSuperseded(ctx, r, letter, item, v); err != nil {
		return false, err
	}
	operation, err := k.activeOperation(ctx, key, v)
	if err != nil {
		return false, err
	}
	report, lost, err := k.reportOf(ctx, r, letter, v, operation)
	switch {
	case err != nil:
		return false, err
	case lost:
		return true, k.recordFleetLoss(ctx, item)
	}
	k.queue.FinishRefresh(r, letter.RefreshRequests)
	s := situation{
		now: time.Now().UTC(), timing: k.timing, generation: v.generation, state: *v.state, fleet: *v.fleet, limits: v.limits,
		report: report, waiting: letter.UnhandledSince,
	}
	if operation != nil {
		s.operation = &operation.Value
	}
	if report != nil {
		stays := !report.Deleting && report.Phase != clusterservice.PhaseDeleted
		switch {
		case stays && operation == nil && (report.Generation > v.generation || report.ObservedGeneration < v.fleet.ObservedGeneration):
			// Cosmos DB, or the fleet, was restored to an earlier state: package reconcile deals with both, and until the fleet has
			// again what it had there is nothing to show.
			k.acknowledge(r, letter)
			return false, nil
		case stays && operation != nil && operation.Value.Request != database.DeleteRequest && k.isForeign(item, v, report):
			return true, k.raiseGeneration(ctx, item, operation, report)
		}
		s.news = k.updateStatus(item, operation, report)
	}
	if operation != nil && operation.Value.Request == database.DeleteRequest || operation == nil && report != nil && report.Deleting && *v.state != hub.Deleting {
		k.trackDeletion(r, v, operation, s)
	}
	return k.execute(ctx, r, item, operation, letter, report, decide(s))
}

// holdBack is how long news that can end nothing may still be collected, before anything is read for its sake: a cluster that
// is coming up reports many times a second.
func (c *Controller) holdBack(letter eventqueue.Event) time.Duration {
	if letter.Report == nil || letter.RefreshRequests > 0 || letter.UnhandledSince.IsZero() {
		return 0
	}
	switch letter.Report.Phase {
	case clusterservice.PhasePending, clusterservice.PhaseInstalling, clusterservice.PhaseUpdating, clusterservice.PhaseDeleting:
		return time.Until(letter.UnhandledSince.Add(c.timing.Coalesce))
	}
	return 0
}

// handleMissing deals with news of a resource that does not exist, or no more.
func (k *kind[D]) handleMissing(ctx context.Context, r eventqueue.Resource, letter eventqueue.Event) error {
	for id, key := range letter.Operations {
		if err := k.endOperation(ctx, r, id, key, nil); err != nil {
			return err
		}
	}
	k.forgetDeletion(r)
	k.queue.FinishRefresh(r, letter.RefreshRequests)
	k.acknowledge(r, letter)
	return nil
}

func (c *Controller) acknowledge(r eventqueue.Resource, letter eventqueue.Event) {
	if letter.Report != nil {
		c.queue.Acknowledge(r, letter.Report.Revision)
	}
}

// reportOf is the newest report of the incarnation, asked for anew when the inbox says so. lost is set when Cluster Service does
// not know of the incarnation, and the document says that it does.
func (k *kind[D]) reportOf(ctx context.Context, r eventqueue.Resource, letter eventqueue.Event, v view, operation *database.Item[database.OperationDocument]) (newest *clusterservice.Report, lost bool, err error) {
	if letter.RefreshRequests > 0 && operation != nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		report, err := k.get(ctx, v.uid)
		switch {
		case err == nil:
			k.queue.UpdateReport(r, &report)
			if letter.Report == nil || letter.Report.Revision < report.Revision {
				letter.Report = &report
			}
		case apierror.KindOf(err) != apierror.NotFound:
			return nil, false, fmt.Errorf("asking Cluster Service for a report: %w", err)
		case letter.Report != nil && letter.Report.UID == v.uid && letter.Report.Phase == clusterservice.PhaseDeleted:
			// Its end was heard, and even the tombstone is gone since.
		default:
			// Either it was never sent, or it was lost: it is sent then, or sent again. Or the tombstone of a deletion is no longer
			// kept, and its end was missed: asked to delete what it does not know, Cluster Service says that it is deleted.
			if letter.Report != nil && letter.Report.UID == v.uid {
				k.queue.DiscardReport(r, letter.Report.Revision)
				letter.Report = nil
			}
			if *v.fleet != (database.FleetState{Recovery: v.fleet.Recovery}) {
				return nil, true, nil
			}
		}
	}
	if letter.Report == nil || letter.Report.UID != v.uid || letter.Report.Revision < v.fleet.Revision {
		return nil, false, nil
	}
	return letter.Report, false, nil
}

// recordFleetLoss writes down that Cluster Service does not know of the resource. It is written so that it holds after a crash, too.
func (k *kind[D]) recordFleetLoss(ctx context.Context, item *database.Item[D]) error {
	k.log.WarnContext(ctx, "Cluster Service does not know any more what it had accepted; it is told again", "resourceId", item.Key.ResourceID)
	fleet := k.view(&item.Value).fleet
	*fleet = database.FleetState{Recovery: fleet.Recovery}
	batch := k.db.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	return batch.Commit(ctx)
}

func (k *kind[D]) execute(ctx context.Context, r eventqueue.Resource, item *database.Item[D], operation *database.Item[database.OperationDocument], letter eventqueue.Event, report *clusterservice.Report, d decision) (again bool, err error) {
	if d.after > 0 {
		k.queue.AddAfter(r, d.after)
	}
	if operation != nil && operation.Value.Request == database.DeleteRequest && k.markChildrenDeleting != nil {
		if err := k.markChildrenDeleting(ctx, item); err != nil {
			return false, withStep(deletion.StepChildrenMarked, err)
		}
	}
	// Whatever becomes of the operation: a cluster that took too long, and is ready after all, can be used.
	if d.action == wait || d.action == record || d.action == finish {
		if v := k.view(&item.Value); k.onReady != nil && report != nil && report.Phase == clusterservice.PhaseReady && v.fleet.Phase != clusterservice.PhaseReady {
			if err := k.onReady(ctx, item); err != nil {
				return false, err
			}
		}
	}
	switch d.action {
	case collect:
		return false, nil
	case apply:
		return k.send(ctx, r, item, operation, k.apply, d.failure)
	case remove:
		return k.send(ctx, r, item, operation, k.remove, d.failure)
	case record, finish:
		if err := k.write(ctx, item, operation, report, d); err != nil {
			return false, err
		}
	case purge:
		if operation != nil {
			operation.Value.End(d.status, d.failure, time.Now().UTC())
		}
		if err := k.purge(ctx, item, operation); err != nil {
			return false, err
		}
		k.forgetDeletion(r)
	}
	if operation != nil && operation.Value.Status.Terminal() {
		k.operationEnded(ctx, r, operation)
	}
	k.acknowledge(r, letter)
	return false, nil
}

// purge removes the resource with what hangs on it, and ends the operation, which may be nil, in the same transaction.
func (k *kind[D]) purge(ctx context.Context, item *database.Item[D], operation *database.Item[database.OperationDocument]) error {
	batch := k.db.NewBatch(item.Key.SubscriptionID)
	ended := func() {}
	if k.removeDependents != nil {
		var err error
		if ended, err = k.removeDependents(ctx, batch, item); err != nil {
			return err
		}
	}
	reserved, err := k.reserved(ctx, item)
	if err != nil {
		return err
	}
	for _, reservation := range reserved {
		database.Remove(batch, reservation)
	}
	if operation != nil {
		database.Replace(batch, operation)
	}
	database.Remove(batch, item)
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	ended()
	return nil
}

// send asks Cluster Service, and takes its answer as news. A refusal for good ends the operation, and so does any other with the
// failure of a last time, which is nil before.
func (k *kind[D]) send(ctx context.Context, r eventqueue.Resource, item *database.Item[D], operation *database.Item[database.OperationDocument],
	call func(ctx context.Context, document *D) (clusterservice.Report, error), last *database.OperationError) (again bool, err error) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	callCtx, span := k.span(callCtx, "send "+string(operation.Value.Request), &operation.Value)
	defer span.End()
	k.metrics.Sent.Inc()
	report, err := call(callCtx, &item.Value)
	if err == nil {
		k.queue.UpdateReport(r, &report)
		return true, nil
	}
	failure := refusal(err)
	if failure == nil && ctx.Err() == nil {
		failure = last // this process's end is no answer
	}
	if failure == nil {
		return false, fmt.Errorf("sending operation %s to Cluster Service: %w", operation.Value.OperationID, err)
	}
	if err := k.write(ctx, item, operation, nil, decision{action: finish, state: hub.Failed, status: hub.Failed, failure: failure}); err != nil {
		return false, err
	}
	k.operationEnded(ctx, r, operation)
	return false, nil
}

// write stores the resource and its operation together.
func (k *kind[D]) write(ctx context.Context, item *database.Item[D], operation *database.Item[database.OperationDocument], report *clusterservice.Report, d decision) error {
	v := k.view(&item.Value)
	*v.state = d.state
	if report != nil {
		recovery, err := k.recoveryOf(ctx, item, report)
		if err != nil {
			return err
		}
		*v.fleet = database.FleetState{
			Revision:           report.Revision,
			AcceptedGeneration: report.Generation,
			ObservedGeneration: report.ObservedGeneration,
			Phase:              report.Phase,
			Recovery:           recovery,
		}
	}
	batch := k.db.NewBatch(item.Key.SubscriptionID)
	now := time.Now().UTC()
	switch {
	case d.action == finish:
		*v.operation = ""
		operation.Value.End(d.status, d.failure, now)
		database.Replace(batch, operation)
	case operation != nil && operation.Value.Status != d.status:
		operation.Value.Status, operation.Value.LastTransitionTime = d.status, now
		database.Replace(batch, operation)
	}
	database.Replace(batch, item)
	return batch.Commit(ctx)
}

// operationEnded says so, once for each operation that this replica has ended.
func (c *Controller) operationEnded(ctx context.Context, r eventqueue.Resource, operation *database.Item[database.OperationDocument]) {
	o := &operation.Value
	c.queue.RemoveOperation(r, o.OperationID)
	if o.Request == database.DeleteRequest {
		c.forgetDeletion(r)
	}
	took := time.Since(o.StartTime)
	c.metrics.observeOperation(o, took)
	c.recordSpan(ctx, o)
	attrs := []any{
		"resourceId", o.ResourceID, "operationId", o.OperationID, "correlationId", o.CorrelationID,
		"request", string(o.Request), "status", string(o.Status), "took", took.Round(time.Millisecond).String(),
	}
	if o.Error != nil {
		attrs = append(attrs, "code", o.Error.Code, "message", o.Error.Message)
	}
	c.log.InfoContext(ctx, "operation ended", attrs...)
}
