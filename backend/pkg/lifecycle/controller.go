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
	"github.com/hcpmesh/hcpmesh/backend/pkg/inbox"
	"github.com/hcpmesh/hcpmesh/backend/pkg/partition"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// callTimeout bounds one call of Cluster Service, turnTimeout the whole turn of a resource.
const (
	callTimeout = 10 * time.Second
	turnTimeout = time.Minute
)

// missingGrace is how old an operation must be before the absence of its resource is believed.
const missingGrace = 30 * time.Second

// Controller gives each resource in the inbox its turn. A resource never has two turns at once.
type Controller struct {
	db             *database.DB
	clusterService *clusterservice.Client
	inbox          *inbox.Inbox
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
	// doomed holds the clusters whose deletion, now under way, has told all that is beneath them.
	doomed map[inbox.Resource]doomed
	// overseen holds the deletions under way.
	overseen map[inbox.Resource]overseen
}

// reconciler does what is next for a resource, until there is nothing but to wait.
type reconciler interface {
	reconcile(ctx context.Context, r inbox.Resource) error
}

// New makes a Controller of the resources whose groups are owned.
func New(db *database.DB, clusterService *clusterservice.Client, in *inbox.Inbox, owns func(partition.Group) bool, timing Timing, metrics *Metrics, traces *tracing.Tracing, log *slog.Logger) *Controller {
	c := &Controller{
		db: db, clusterService: clusterService, inbox: in, owns: owns, timing: timing.complete(), log: log, metrics: metrics, traces: traces,
		doomed: map[inbox.Resource]doomed{}, overseen: map[inbox.Resource]overseen{},
	}
	c.clusters, c.nodePools, c.externalAuths = clusterKind(c), nodePoolKind(c), externalAuthKind(c)
	c.reconcilers = map[database.Kind]reconciler{
		database.ClusterKind: c.clusters, database.NodePoolKind: c.nodePools, database.ExternalAuthKind: c.externalAuths,
		database.CredentialKind: credentialErrand(c), inbox.Revocation: revocationErrand(c),
	}
	return c
}

// Run works with that many resources at once until ctx ends.
func (c *Controller) Run(ctx context.Context, workers int) {
	stop := context.AfterFunc(ctx, c.inbox.Close)
	defer stop()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				resource, done, ok := c.inbox.Next()
				if !ok {
					return
				}
				c.turn(ctx, resource)
				done()
			}
		})
	}
	wg.Wait()
}

func (c *Controller) turn(ctx context.Context, r inbox.Resource) {
	if ctx.Err() != nil {
		return
	}
	if !c.owns(r.Group()) {
		c.unsee(r)
		c.inbox.Settled(r)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	started := time.Now()
	reconcile := c.unknown
	if known := c.reconcilers[r.Kind()]; known != nil {
		reconcile = known.reconcile
	}
	err := reconcile(ctx, r)
	c.metrics.turn(time.Since(started), err)
	if err == nil {
		c.inbox.Settled(r)
		return
	}
	// In an outage every resource tries again and again: the first tries and most of the later ones are not worth a line.
	retries := c.inbox.Retries(r)
	level := slog.LevelDebug
	if retries >= 4 && retries&(retries-1) == 0 && !errors.Is(err, context.Canceled) {
		level = slog.LevelWarn
	}
	c.log.Log(ctx, level, "will try again", "resourceId", string(r), "retries", retries, "error", err)
	c.failed(ctx, r, err, retries+1)
	c.inbox.Retry(r)
}

// unknown deals with news of a resource type that this release does not know: the release that does will, when it
// starts.
func (c *Controller) unknown(ctx context.Context, r inbox.Resource) error {
	letter := c.inbox.Open(r)
	c.log.WarnContext(ctx, "news of an unknown type of resource", "resourceId", string(r))
	for id := range letter.Operations {
		c.inbox.Finished(r, id)
	}
	c.inbox.Refreshed(r, letter.Refresh)
	c.handled(r, letter)
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
	// raise is where the generation is kept.
	raise *int64
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
	// wanted is the spec of the request that apply sends.
	wanted func(document *D) proto.Message
	// The rest may be nil. reservations are what the resource holds.
	reservations func(key database.Key, document *D) map[database.Key]database.ReservationDocument
	// doom tells what stands beneath a resource that it is being deleted with it.
	doom func(ctx context.Context, item *database.Item[D]) error
	// usable is called before it is written that the resource is ready; it may be called again.
	usable func(ctx context.Context, item *database.Item[D]) error
	// recovery reads what has to be kept of the resource beside its document.
	recovery func(ctx context.Context, document *D, report *clusterservice.Report) (*database.FleetRecovery, error)
	// along adds to the batch that removes the resource what goes with it; ended is called once that is committed.
	along func(ctx context.Context, batch *database.Batch, item *database.Item[D]) (ended func(), err error)
}

// mostSteps bounds a turn: the answer of a request is news that is decided on at once.
const mostSteps = 4

func (k *kind[D]) reconcile(ctx context.Context, r inbox.Resource) error {
	for range mostSteps {
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
func (k *kind[D]) step(ctx context.Context, r inbox.Resource) (again bool, err error) {
	key, err := database.ResourceKey(string(r))
	if err != nil {
		return false, err
	}
	// The letter is opened before the resource is read: an operation in it is then in the resource, or over.
	letter := k.inbox.Open(r)
	if early := k.early(letter); early > 0 {
		k.inbox.Again(r, early)
		return false, nil
	}
	item, err := k.collection.Find(ctx, key)
	if err != nil {
		return false, err
	}
	if item == nil || item.Removed != nil {
		return false, k.gone(ctx, r, letter)
	}
	v := k.view(&item.Value)
	if err := k.settleOthers(ctx, r, letter, item, v); err != nil {
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
		return true, k.forget(ctx, item)
	}
	k.inbox.Refreshed(r, letter.Refresh)
	s := situation{
		now: time.Now().UTC(), timing: k.timing, generation: v.generation, state: *v.state, fleet: *v.fleet, limits: v.limits,
		report: report, waiting: letter.Waiting,
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
			k.handled(r, letter)
			return false, nil
		case stays && operation != nil && operation.Value.Request != database.DeleteRequest && k.foreign(item, v, report):
			return true, k.overtake(ctx, item, operation, report)
		}
		s.news = k.news(item, operation, report)
	}
	if operation != nil && operation.Value.Request == database.DeleteRequest || operation == nil && report != nil && report.Deleting && *v.state != hub.Deleting {
		k.overseeDeletion(r, v, operation, s)
	}
	return k.do(ctx, r, item, operation, letter, report, decide(s))
}

// early is how long news that can end nothing may still be collected, before anything is read for its sake: a cluster that
// is coming up reports many times a second.
func (c *Controller) early(letter inbox.Letter) time.Duration {
	if letter.Report == nil || letter.Refresh > 0 || letter.Waiting.IsZero() {
		return 0
	}
	switch letter.Report.Phase {
	case clusterservice.PhasePending, clusterservice.PhaseInstalling, clusterservice.PhaseUpdating, clusterservice.PhaseDeleting:
		return time.Until(letter.Waiting.Add(c.timing.Coalesce))
	}
	return 0
}

// gone deals with news of a resource that does not exist, or no more.
func (k *kind[D]) gone(ctx context.Context, r inbox.Resource, letter inbox.Letter) error {
	for id, key := range letter.Operations {
		if err := k.settle(ctx, r, id, key, nil); err != nil {
			return err
		}
	}
	k.unsee(r)
	k.inbox.Refreshed(r, letter.Refresh)
	k.handled(r, letter)
	return nil
}

func (c *Controller) handled(r inbox.Resource, letter inbox.Letter) {
	if letter.Report != nil {
		c.inbox.Handled(r, letter.Report.Revision)
	}
}

// reportOf is the newest report of the incarnation, asked for anew when the inbox says so. lost is set when Cluster Service does
// not know of the incarnation, and the document says that it does.
func (k *kind[D]) reportOf(ctx context.Context, r inbox.Resource, letter inbox.Letter, v view, operation *database.Item[database.OperationDocument]) (newest *clusterservice.Report, lost bool, err error) {
	if letter.Refresh > 0 && operation != nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		report, err := k.get(ctx, v.uid)
		switch {
		case err == nil:
			k.inbox.Answer(r, &report)
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
				k.inbox.Lost(r, letter.Report.Revision)
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

// forget writes down that Cluster Service does not know of the resource. It is written so that it holds after a crash, too.
func (k *kind[D]) forget(ctx context.Context, item *database.Item[D]) error {
	k.log.WarnContext(ctx, "Cluster Service does not know any more what it had accepted; it is told again", "resourceId", item.Key.ResourceID)
	fleet := k.view(&item.Value).fleet
	*fleet = database.FleetState{Recovery: fleet.Recovery}
	batch := k.db.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	return batch.Commit(ctx)
}

func (k *kind[D]) do(ctx context.Context, r inbox.Resource, item *database.Item[D], operation *database.Item[database.OperationDocument], letter inbox.Letter, report *clusterservice.Report, d decision) (again bool, err error) {
	if d.after > 0 {
		k.inbox.Again(r, d.after)
	}
	if operation != nil && operation.Value.Request == database.DeleteRequest && k.doom != nil {
		if err := k.doom(ctx, item); err != nil {
			return false, at(deletion.StepChildrenMarked, err)
		}
	}
	// Whatever becomes of the operation: a cluster that took too long, and is ready after all, can be used.
	if d.action == wait || d.action == record || d.action == finish {
		if v := k.view(&item.Value); k.usable != nil && report != nil && report.Phase == clusterservice.PhaseReady && v.fleet.Phase != clusterservice.PhaseReady {
			if err := k.usable(ctx, item); err != nil {
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
		k.unsee(r)
	}
	if operation != nil && operation.Value.Status.Terminal() {
		k.ended(ctx, r, operation)
	}
	k.handled(r, letter)
	return false, nil
}

// purge removes the resource with what hangs on it, and ends the operation, which may be nil, in the same transaction.
func (k *kind[D]) purge(ctx context.Context, item *database.Item[D], operation *database.Item[database.OperationDocument]) error {
	batch := k.db.NewBatch(item.Key.SubscriptionID)
	ended := func() {}
	if k.along != nil {
		var err error
		if ended, err = k.along(ctx, batch, item); err != nil {
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
func (k *kind[D]) send(ctx context.Context, r inbox.Resource, item *database.Item[D], operation *database.Item[database.OperationDocument],
	call func(ctx context.Context, document *D) (clusterservice.Report, error), last *database.OperationError) (again bool, err error) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	callCtx, span := k.span(callCtx, "send "+string(operation.Value.Request), &operation.Value)
	defer span.End()
	k.metrics.Sent.Inc()
	report, err := call(callCtx, &item.Value)
	if err == nil {
		k.inbox.Answer(r, &report)
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
	k.ended(ctx, r, operation)
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

// ended says so, once for each operation that this replica has ended.
func (c *Controller) ended(ctx context.Context, r inbox.Resource, operation *database.Item[database.OperationDocument]) {
	o := &operation.Value
	c.inbox.Finished(r, o.OperationID)
	if o.Request == database.DeleteRequest {
		c.unsee(r)
	}
	took := time.Since(o.StartTime)
	c.metrics.ended(o, took)
	c.tell(ctx, o)
	attrs := []any{
		"resourceId", o.ResourceID, "operationId", o.OperationID, "correlationId", o.CorrelationID,
		"request", string(o.Request), "status", string(o.Status), "took", took.Round(time.Millisecond).String(),
	}
	if o.Error != nil {
		attrs = append(attrs, "code", o.Error.Code, "message", o.Error.Message)
	}
	c.log.InfoContext(ctx, "operation ended", attrs...)
}
