package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/customererror"
	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// oneShot describes a kind of operation that is not declarative: a request is sent to Cluster Service once, under the
// operation's ID, and its outcome is followed. Its fields are what differs between the kinds.
type oneShot struct {
	*Controller
	// subject reads the subject of an operation. It returns nil if the subject was removed or has already ended.
	subject func(ctx context.Context, operation *database.Item[database.OperationDocument]) (subject, error)
	get     func(ctx context.Context, uid string) (clusterservice.Report, error)
	// outcomes maps phases of reports to the status with which the operation ends. Other phases are intermediate.
	outcomes map[string]hub.ProvisioningState
}

// subject is what a one-shot operation is about.
type subject interface {
	// request sends the request to Cluster Service. A repeated request has no further effect.
	request(ctx context.Context) (clusterservice.Report, error)
	// finish adds the final state of the subject to the batch that ends the operation. report may be nil.
	finish(ctx context.Context, batch *database.Batch, status hub.ProvisioningState, report *clusterservice.Report) error
}

func (e *oneShot) reconcile(ctx context.Context, r eventqueue.Resource) error {
	for range maxSteps {
		again := false
		err := database.Retry(ctx, func(ctx context.Context) error {
			var err error
			again, err = e.step(ctx, r)
			return err
		})
		if err != nil || !again {
			return err
		}
	}
	return errors.New("the responses of Cluster Service do not reflect the requests")
}

func (e *oneShot) step(ctx context.Context, r eventqueue.Resource) (again bool, err error) {
	event := e.queue.Peek(r)
	for id, key := range event.Operations {
		operation, err := e.db.Operations().Find(ctx, key)
		if err != nil {
			return false, err
		}
		if operation == nil || operation.Removed != nil || operation.Value.Status.Terminal() {
			e.queue.RemoveOperation(r, id)
			continue
		}
		subject, err := e.subject(ctx, operation)
		if err != nil {
			return false, err
		}
		if subject == nil {
			if err := e.endOperation(ctx, r, id, key, nil); err != nil {
				return false, err
			}
			continue
		}
		report, err := e.reportOf(ctx, r, event, id)
		if err != nil {
			return false, err
		}
		if again, err := e.execute(ctx, r, subject, operation, report); again || err != nil {
			return again, err
		}
	}
	e.queue.FinishRefresh(r, event.RefreshRequests)
	e.acknowledge(r, event)
	return false, nil
}

// reportOf returns the newest report, or nil if Cluster Service does not have the request. It reads the report from
// Cluster Service if a refresh was requested.
func (e *oneShot) reportOf(ctx context.Context, r eventqueue.Resource, event eventqueue.Event, uid string) (*clusterservice.Report, error) {
	if event.RefreshRequests > 0 {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		report, err := e.get(ctx, uid)
		switch {
		case err == nil:
			e.queue.UpdateReport(r, &report)
			if event.Report == nil || event.Report.Revision < report.Revision {
				event.Report = &report
			}
		case apierror.KindOf(err) != apierror.NotFound:
			return nil, fmt.Errorf("reading the report of Cluster Service: %w", err)
		case event.Report != nil && event.Report.UID == uid:
			e.queue.DiscardReport(r, event.Report.Revision)
			event.Report = nil
		}
	}
	if event.Report == nil || event.Report.UID != uid {
		return nil, nil
	}
	return event.Report, nil
}

func (e *oneShot) execute(ctx context.Context, r eventqueue.Resource, subject subject, operation *database.Item[database.OperationDocument], report *clusterservice.Report) (again bool, err error) {
	d := decision.DecideOneShot(decision.Situation{Now: time.Now().UTC(), Timing: e.timing, Operation: &operation.Value, Report: report}, e.outcomes)
	if d.After > 0 {
		e.queue.AddAfter(r, d.After)
	}
	switch d.Action {
	case decision.Apply:
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		e.metrics.Sent.Inc()
		response, err := subject.request(callCtx)
		if err == nil {
			e.queue.UpdateReport(r, &response)
			return true, nil
		}
		if d.Failure = customererror.FromRejection(err); d.Failure == nil {
			return false, fmt.Errorf("sending operation %s to Cluster Service: %w", operation.Value.OperationID, err)
		}
		return false, e.finish(ctx, r, subject, operation, nil, hub.Failed, d.Failure)
	case decision.Finish:
		return false, e.finish(ctx, r, subject, operation, report, d.Status, d.Failure)
	}
	return false, nil
}

func (e *oneShot) finish(ctx context.Context, r eventqueue.Resource, subject subject, operation *database.Item[database.OperationDocument], report *clusterservice.Report, status hub.ProvisioningState, failure *database.OperationError) error {
	batch := e.db.NewBatch(operation.Key.SubscriptionID)
	if err := subject.finish(ctx, batch, status, report); err != nil {
		return err
	}
	operation.Value.End(status, failure, time.Now().UTC())
	database.Replace(batch, operation)
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	e.operationEnded(ctx, r, operation)
	return nil
}
