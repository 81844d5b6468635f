package service

import (
	"context"

	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// CallAuditor stores audit records of calls: those that an engineer asked for, and those that were refused. It is safe for concurrent use.
//
// A call with a verified intent has a record before it has an effect and one with its outcome. The call is validated and reads what it
// needs while the first is stored; package store waits for it before it commits. If it cannot be stored, the call has no effect. The person,
// the reason and the object are those of the intent, not those of the request. Calls without an intent are those of customers; they do not
// depend on the audit.
type CallAuditor struct {
	records  audit.Recorder
	refusals *refusals.Aggregator
}

// NewCallAuditor returns an CallAuditor that stores its records with a Recorder. Run must be called.
func NewCallAuditor(records audit.Recorder) *CallAuditor {
	return &CallAuditor{records, refusals.New(records)}
}

// Run stores the numbers of repeated refusals until ctx ends.
func (a *CallAuditor) Run(ctx context.Context) { a.refusals.Run(ctx) }

// Unary is a unary interceptor that records the calls with an intent. It must follow the interceptor that verifies intents.
func (a *CallAuditor) Unary(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	asked := intent.FromContext(ctx)
	if asked == nil {
		return handle(ctx, request)
	}
	begun, err := a.records.Begin(ctx, callRecord(ctx, asked, nil))
	if err != nil {
		return nil, apierror.ToGRPC(err, Domain)
	}
	response, failure := handle(audit.WithAction(ctx, begun), request)
	if err := begun.End(ctx, callRecord(ctx, asked, failure)); err != nil {
		return nil, apierror.ToGRPC(err, Domain)
	}
	return response, failure
}

// callRecord returns the audit record of a call that ended with failure, which may be nil.
func callRecord(ctx context.Context, asked *intent.Intent, failure error) audit.Record {
	r := audit.Record{
		Peer:   mesh.ClientName(ctx),
		Person: audit.Person{Name: asked.Name, ObjectID: asked.ObjectID, TenantID: asked.TenantID, Role: asked.Elevation.Role, Elevation: asked.Elevation.ID},
		Action: asked.Action, Reason: asked.Reason, Ticket: asked.Ticket, Emergency: asked.Elevation.Emergency, Operation: asked.OperationID, Trace: tracing.Reference(ctx),
		Object:  audit.Object{Kind: asked.Target.Kind, ID: asked.Target.ID, ResourceID: asked.Target.ResourceID, Cluster: asked.Target.ClusterUID},
		Outcome: audit.Succeeded,
	}
	e := apierror.As(apierror.FromGRPC(failure))
	if e == nil || e.Reason == clusterservice.ReasonCallDone {
		// A repeated call succeeds for the engineer: it had its effect before.
		return r
	}
	r.Outcome, r.Code = audit.Failed, e.Kind.ARMCode()
	if e.Kind == apierror.PermissionDenied {
		r.Outcome = audit.Refused
	}
	return r
}

// Refused records a refused call, and counts repeated ones: a workload that repeats a refused call has two records in a minute. The call
// stays refused if the record cannot be stored; the Authorizer has logged it. The engineer is known only if the intent proves who asked
// for the call.
func (a *CallAuditor) Refused(ctx context.Context, r mesh.Refusal) { a.refusals.Call(ctx, r) }
