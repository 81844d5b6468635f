package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// oneShot is a kind of operation that brings no resource to a desired state: Cluster Service is asked for something once,
// under the operation's id, and does it or not. credential.go and revocation.go say what differs between the kinds.
type oneShot struct {
	*Controller
	// subject reads what the operation is about; nil when that has come to an end without it, or is gone.
	subject func(ctx context.Context, operation *database.Item[database.OperationDocument]) (subject, error)
	get     func(ctx context.Context, uid string) (clusterservice.Report, error)
	// outcomes are how the operation ends when a report says so; phases that are not in it are on the way.
	outcomes map[string]hub.ProvisioningState
}

// subject is what an errand is about, as it was read.
type subject interface {
	// request asks Cluster Service; the same question has its effect once.
	request(ctx context.Context) (clusterservice.Report, error)
	// finish adds to the batch that ends the operation what becomes of the subject. report is nil when none was heard.
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
	return errors.New("the answers of Cluster Service do not show what it was asked")
}

func (e *oneShot) step(ctx context.Context, r eventqueue.Resource) (again bool, err error) {
	letter := e.queue.Peek(r)
	for id, key := range letter.Operations {
		operation, err := e.db.Operations().Find(ctx, key)
		if err != nil {
			return false, err
		}
		if operation == nil || operation.Removed != nil || operation.Value.Status.Terminal() {
			e.queue.RemoveOperation(r, id)
			continue
		}
		about, err := e.subject(ctx, operation)
		if err != nil {
			return false, err
		}
		if about == nil {
			if err := e.endOperation(ctx, r, id, key, nil); err != nil {
				return false, err
			}
			continue
		}
		report, err := e.reportOf(ctx, r, letter, id)
		if err != nil {
			return false, err
		}
		if again, err := e.do(ctx, r, about, operation, report); again || err != nil {
			return again, err
		}
	}
	e.queue.FinishRefresh(r, letter.RefreshRequests)
	e.acknowledge(r, letter)
	return false, nil
}

// reportOf is the newest report of the errand, asked for anew when the inbox says so; nil when Cluster Service was not asked
// for it yet, or does not know of it any more.
func (e *oneShot) reportOf(ctx context.Context, r eventqueue.Resource, letter eventqueue.Event, uid string) (*clusterservice.Report, error) {
	if letter.RefreshRequests > 0 {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		report, err := e.get(ctx, uid)
		switch {
		case err == nil:
			e.queue.UpdateReport(r, &report)
			if letter.Report == nil || letter.Report.Revision < report.Revision {
				letter.Report = &report
			}
		case apierror.KindOf(err) != apierror.NotFound:
			return nil, fmt.Errorf("asking Cluster Service for a report: %w", err)
		case letter.Report != nil && letter.Report.UID == uid:
			e.queue.DiscardReport(r, letter.Report.Revision)
			letter.Report = nil
		}
	}
	if letter.Report == nil || letter.Report.UID != uid {
		return nil, nil
	}
	return letter.Report, nil
}

func (e *oneShot) do(ctx context.Context, r eventqueue.Resource, about subject, operation *database.Item[database.OperationDocument], report *clusterservice.Report) (again bool, err error) {
	d := e.decide(time.Now().UTC(), &operation.Value, report)
	if d.after > 0 {
		e.queue.AddAfter(r, d.after)
	}
	switch d.action {
	case apply:
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		e.metrics.Sent.Inc()
		answer, err := about.request(callCtx)
		if err == nil {
			e.queue.UpdateReport(r, &answer)
			return true, nil
		}
		if d.failure = refusal(err); d.failure == nil {
			return false, fmt.Errorf("sending operation %s to Cluster Service: %w", operation.Value.OperationID, err)
		}
		return false, e.finish(ctx, r, about, operation, nil, hub.Failed, d.failure)
	case finish:
		return false, e.finish(ctx, r, about, operation, report, d.status, d.failure)
	}
	return false, nil
}

// decide is the decision on an errand. It is pure.
func (e *oneShot) decide(now time.Time, operation *database.OperationDocument, report *clusterservice.Report) decision {
	s := situation{now: now, timing: e.timing, operation: operation, report: report}
	if report != nil {
		if status, ok := e.outcomes[report.Phase]; ok {
			d := decision{action: finish, status: status}
			switch status {
			case hub.Failed:
				failure := failureOf(report)
				d.failure = &failure
			case hub.Canceled:
				d.failure = &database.OperationError{Code: "Canceled", Message: "The request was given up before it was complete."}
			}
			return d
		}
	}
	switch left := s.left(); {
	case left <= 0:
		return s.overdue()
	case report != nil:
		return decision{action: wait, after: left}
	}
	return s.send(apply)
}

func (e *oneShot) finish(ctx context.Context, r eventqueue.Resource, about subject, operation *database.Item[database.OperationDocument], report *clusterservice.Report, status hub.ProvisioningState, failure *database.OperationError) error {
	batch := e.db.NewBatch(operation.Key.SubscriptionID)
	if err := about.finish(ctx, batch, status, report); err != nil {
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
