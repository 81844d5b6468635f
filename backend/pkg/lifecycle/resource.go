package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/customererror"
	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// view gives access to the fields that the documents of all kinds have in common.
type view struct {
	uid        string
	generation int64
	state      *hub.ProvisioningState
	operation  *string
	fleet      *database.FleetState
	limits     decision.Limits
	// generationField points to the generation in the document.
	generationField *int64
}

// kind describes a kind of resource with a desired state. Its functions are what differs between the kinds.
type kind[D any] struct {
	*Controller
	collection *database.Collection[D]
	view       func(document *D) view
	// observe copies the status of a report into the document and reports whether the customer sees a difference.
	observe func(document *D, report *clusterservice.Report) bool
	apply   func(ctx context.Context, document *D) (clusterservice.Report, error)
	remove  func(ctx context.Context, document *D) (clusterservice.Report, error)
	get     func(ctx context.Context, uid string) (clusterservice.Report, error)
	// spec returns the spec of the request that apply sends.
	spec func(document *D) proto.Message
	// The functions below may be nil. reservations returns the reservations of the resource.
	reservations func(key database.Key, document *D) map[database.Key]database.ReservationDocument
	// markChildrenDeleting marks the children of a resource for deletion.
	markChildrenDeleting func(ctx context.Context, item *database.Item[D]) error
	// onSucceeded is called before the resource is written as Succeeded. It may be called repeatedly.
	onSucceeded func(ctx context.Context, item *database.Item[D]) error
	// recovery reads the recovery data that is stored in the document.
	recovery func(ctx context.Context, document *D, report *clusterservice.Report) (*database.FleetRecovery, error)
	// removeDependents adds the removal of dependents to the batch that removes the resource. ended is called after the
	// commit.
	removeDependents func(ctx context.Context, batch *database.Batch, item *database.Item[D]) (ended func(), err error)
}

// maxSteps bounds the steps of one processing. A response of Cluster Service is a report and causes the next step at
// once.
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
	return errors.New("the responses of Cluster Service do not reflect the requests")
}

// step reads, decides and executes one action. It returns true if the next step should follow at once.
func (k *kind[D]) step(ctx context.Context, r eventqueue.Resource) (again bool, err error) {
	key, err := database.ResourceKey(string(r))
	if err != nil {
		return false, err
	}
	// The event is read before the resource. Therefore the resource already refers to an operation in it, or no longer.
	event := k.queue.Peek(r)
	if early := k.holdBack(event); early > 0 {
		k.queue.AddAfter(r, early)
		return false, nil
	}
	item, err := k.collection.Find(ctx, key)
	if err != nil {
		return false, err
	}
	if item == nil || item.Removed != nil {
		return false, k.handleMissing(ctx, r, event)
	}
	v := k.view(&item.Value)
	if err := k.endSuperseded(ctx, r, event, item, v); err != nil {
		return false, err
	}
	operation, err := k.activeOperation(ctx, key, v)
	if err != nil {
		return false, err
	}
	report, lost, err := k.reportOf(ctx, r, event, v, operation)
	switch {
	case err != nil:
		return false, err
	case lost:
		return true, k.recordFleetLoss(ctx, item)
	}
	k.queue.FinishRefresh(r, event.RefreshRequests)
	s := decision.Situation{
		Now: time.Now().UTC(), Timing: k.timing, Generation: v.generation, State: *v.state, Fleet: *v.fleet, Limits: v.limits,
		Report: report, UnhandledSince: event.UnhandledSince,
	}
	if operation != nil {
		s.Operation = &operation.Value
	}
	if report != nil {
		stays := !report.Deleting && report.Phase != clusterservice.PhaseDeleted
		switch {
		case stays && operation == nil && (report.Generation > v.generation || report.ObservedGeneration < v.fleet.ObservedGeneration):
			// Cosmos DB or the fleet was restored to an earlier state. Package reconcile handles both. Until the fleet
			// has the accepted state again, its reports are not shown.
			k.acknowledge(r, event)
			return false, nil
		case stays && operation != nil && operation.Value.Request != database.DeleteRequest && k.isForeign(item, v, report):
			return true, k.raiseGeneration(ctx, item, operation, report)
		}
		s.StatusChanged = k.updateStatus(item, operation, report)
	}
	if operation != nil && operation.Value.Request == database.DeleteRequest || operation == nil && report != nil && report.Deleting && *v.state != hub.Deleting {
		k.trackDeletion(r, v, operation, s)
	}
	return k.execute(ctx, r, item, operation, event, report, decision.Decide(s))
}

// holdBack returns how long to collect further reports before anything is read. It is positive only for reports that
// cannot end an operation: an installing cluster sends many reports per second.
func (c *Controller) holdBack(event eventqueue.Event) time.Duration {
	if event.Report == nil || event.RefreshRequests > 0 || event.UnhandledSince.IsZero() {
		return 0
	}
	switch event.Report.Phase {
	case clusterservice.PhasePending, clusterservice.PhaseInstalling, clusterservice.PhaseUpdating, clusterservice.PhaseDeleting:
		return time.Until(event.UnhandledSince.Add(c.timing.Coalesce))
	}
	return 0
}

// handleMissing handles the events of a resource that does not exist.
func (k *kind[D]) handleMissing(ctx context.Context, r eventqueue.Resource, event eventqueue.Event) error {
	for id, key := range event.Operations {
		if err := k.endOperation(ctx, r, id, key, nil); err != nil {
			return err
		}
	}
	k.forgetDeletion(r)
	k.queue.FinishRefresh(r, event.RefreshRequests)
	k.acknowledge(r, event)
	return nil
}

func (c *Controller) acknowledge(r eventqueue.Resource, event eventqueue.Event) {
	if event.Report != nil {
		c.queue.Acknowledge(r, event.Report.Revision)
	}
}

// reportOf returns the newest report of the incarnation. It reads the report from Cluster Service if a refresh was
// requested. lost is set if Cluster Service does not have the incarnation although the document shows that it had
// accepted it.
func (k *kind[D]) reportOf(ctx context.Context, r eventqueue.Resource, event eventqueue.Event, v view, operation *database.Item[database.OperationDocument]) (newest *clusterservice.Report, lost bool, err error) {
	if event.RefreshRequests > 0 && operation != nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		report, err := k.get(ctx, v.uid)
		switch {
		case err == nil:
			k.queue.UpdateReport(r, &report)
			if event.Report == nil || event.Report.Revision < report.Revision {
				event.Report = &report
			}
		case apierror.KindOf(err) != apierror.NotFound:
			return nil, false, fmt.Errorf("reading the report of Cluster Service: %w", err)
		case event.Report != nil && event.Report.UID == v.uid && event.Report.Phase == clusterservice.PhaseDeleted:
			// The end of the deletion was reported, and Cluster Service has removed the tombstone since.
		default:
			// The resource was never sent, or Cluster Service has lost it: it is sent. Or the tombstone of a deletion
			// no longer exists and its report was missed: Cluster Service reports the deletion of an unknown resource
			// as done.
			if event.Report != nil && event.Report.UID == v.uid {
				k.queue.DiscardReport(r, event.Report.Revision)
				event.Report = nil
			}
			if *v.fleet != (database.FleetState{Recovery: v.fleet.Recovery}) {
				return nil, true, nil
			}
		}
	}
	if event.Report == nil || event.Report.UID != v.uid || event.Report.Revision < v.fleet.Revision {
		return nil, false, nil
	}
	return event.Report, false, nil
}

// recordFleetLoss stores that Cluster Service has lost the resource, so that it is sent again even after a crash.
func (k *kind[D]) recordFleetLoss(ctx context.Context, item *database.Item[D]) error {
	k.log.WarnContext(ctx, "Cluster Service has lost an accepted resource; sending it again", logkey.ResourceID, item.Key.ResourceID)
	fleet := k.view(&item.Value).fleet
	*fleet = database.FleetState{Recovery: fleet.Recovery}
	batch := k.db.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	return batch.Commit(ctx)
}

func (k *kind[D]) execute(ctx context.Context, r eventqueue.Resource, item *database.Item[D], operation *database.Item[database.OperationDocument], event eventqueue.Event, report *clusterservice.Report, d decision.Decision) (again bool, err error) {
	if d.After > 0 {
		k.queue.AddAfter(r, d.After)
	}
	if operation != nil && operation.Value.Request == database.DeleteRequest && k.markChildrenDeleting != nil {
		if err := k.markChildrenDeleting(ctx, item); err != nil {
			return false, withStep(deletion.StepChildrenMarked, err)
		}
	}
	if k.onSucceeded != nil && d.State == hub.Succeeded && *k.view(&item.Value).state != hub.Succeeded {
		if err := k.onSucceeded(ctx, item); err != nil {
			return false, err
		}
	}
	switch d.Action {
	case decision.Collect:
		return false, nil
	case decision.Apply:
		return k.send(ctx, r, item, operation, k.apply, d.Failure)
	case decision.Remove:
		return k.send(ctx, r, item, operation, k.remove, d.Failure)
	case decision.Record, decision.Finish:
		if err := k.write(ctx, item, operation, report, d); err != nil {
			return false, err
		}
	case decision.Purge:
		if operation != nil {
			operation.Value.End(d.Status, d.Failure, time.Now().UTC())
		}
		if err := k.purge(ctx, item, operation); err != nil {
			return false, err
		}
		k.forgetDeletion(r)
	}
	if operation != nil && operation.Value.Status.Terminal() {
		k.operationEnded(ctx, r, operation)
	}
	k.acknowledge(r, event)
	return false, nil
}

// purge removes the resource and its dependents, and ends the operation, which may be nil, in one transaction.
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

// send sends a request to Cluster Service and stores the response as a report. A permanent rejection ends the
// operation. last is nil, or the error that ends the operation if this last attempt fails for any reason.
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
	failure := customererror.FromRejection(err)
	if failure == nil && ctx.Err() == nil {
		failure = last // the end of this process is not a failure of the request
	}
	if failure == nil {
		return false, fmt.Errorf("sending operation %s to Cluster Service: %w", operation.Value.OperationID, err)
	}
	if err := k.write(ctx, item, operation, nil, decision.Decision{Action: decision.Finish, State: hub.Failed, Status: hub.Failed, Failure: failure}); err != nil {
		return false, err
	}
	k.operationEnded(ctx, r, operation)
	return false, nil
}

// write stores the resource and its operation in one transaction.
func (k *kind[D]) write(ctx context.Context, item *database.Item[D], operation *database.Item[database.OperationDocument], report *clusterservice.Report, d decision.Decision) error {
	v := k.view(&item.Value)
	*v.state = d.State
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
	case d.Action == decision.Finish:
		*v.operation = ""
		operation.Value.End(d.Status, d.Failure, now)
		database.Replace(batch, operation)
	case operation != nil && operation.Value.Status != d.Status:
		operation.Value.Status, operation.Value.LastTransitionTime = d.Status, now
		database.Replace(batch, operation)
	}
	database.Replace(batch, item)
	return batch.Commit(ctx)
}
