package adminoperation

import (
	"context"

	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
)

// attempt authorizes an operation and executes it between two audit records: one that is durable before the action has an effect,
// and one with its outcome. A refused operation has one record. An attempt whose intent could not be verified yet has none, because
// nothing was decided.
//
// If a record cannot be stored, the error is transient, so that the attempt is repeated; actions have their effect once. asked is
// the engineer's authentic intent, or nil.
func (e *Executor) attempt(ctx context.Context, o *database.AdminOperationDocument) (asked *intent.Intent, result any, failure error) {
	asked, failure = e.authorize(ctx, o)
	if asked != nil {
		o.Actor = adminaction.ActorOf(asked)
	}
	switch {
	case failure != nil && transient(failure):
		return asked, nil, failure
	case failure != nil:
		if err := e.options.Audit.Append(ctx, record(o, asked, failure)); err != nil {
			return asked, nil, err
		}
		e.refused.WithLabelValues(apierror.As(failure).Reason).Inc()
		return asked, nil, failure
	}
	begun, err := e.options.Audit.Begin(ctx, record(o, asked, nil))
	if err != nil {
		return asked, nil, err
	}
	if failure = begun.Durable(ctx); failure == nil {
		result, failure = e.do(ctx, o)
	}
	if err := begun.End(ctx, record(o, asked, failure)); err != nil {
		return asked, nil, err
	}
	return asked, result, failure
}

// do executes an authorized operation.
func (e *Executor) do(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	execute := e.actions[o.Action]
	if execute == nil {
		return nil, apierror.New(apierror.NotFound, "This release of the backend does not support the action %s.", o.Action)
	}
	return execute(ctx, o)
}

// record returns the audit record of an attempt that ended with failure, which may be nil. The person is that of the intent: a
// document without one may name anybody, so that the record names nobody.
func record(o *database.AdminOperationDocument, asked *intent.Intent, failure error) audit.Record {
	r := audit.Record{
		Action: o.Action, Operation: o.OperationID, Request: o.RequestID,
		Object:  audit.Object{Kind: o.Target.Kind, ID: o.Target.ID, ResourceID: o.Target.ResourceID, Cluster: o.Target.ClusterUID},
		Outcome: audit.Succeeded,
	}
	if asked != nil {
		r.Person = audit.Person{Name: asked.Name, ObjectID: asked.ObjectID, TenantID: asked.TenantID, Role: asked.Elevation.Role, Elevation: asked.Elevation.ID}
		r.Reason, r.Ticket, r.Emergency = asked.Reason, asked.Ticket, asked.Elevation.Emergency
	}
	if failure != nil {
		r.Outcome, r.Code = audit.Failed, apierror.KindOf(failure).ARMCode()
		if apierror.KindOf(failure) == apierror.PermissionDenied {
			r.Outcome = audit.Refused
		}
	}
	return r
}
