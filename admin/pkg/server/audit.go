package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// recordTimeout limits the wait for the audit record of a request whose client or deadline may be gone.
const recordTimeout = 10 * time.Second

// auditFields holds what the audit record of a request contains besides the caller.
type auditFields struct {
	// object is the object of the request.
	object audit.Object
	// reason and ticket of a request without an elevation, and whether it is for an emergency elevation.
	reason, ticket string
	emergency      bool
	// level is the level of the requested credential.
	level string
	// operation is the ID of the stored operation or elevation.
	operation string
	// revocations are the operations that the end of an elevation stored.
	revocations []database.AdminOperationDocument
}

// objectOf returns the object of an audit record for the target of an operation.
func objectOf(t database.AdminTarget) audit.Object {
	return audit.Object{Kind: t.Kind, ID: t.ID, ResourceID: t.ResourceID, Cluster: t.ClusterUID}
}

// changes reports whether requests of the route change something.
func (r *Route) changes() bool { return r.Method != http.MethodGet }

// beginAudit records that an authorized request starts to change or to read something sensitive. It does not wait for the disk: writes
// of the database with the returned context do, and so does recordAudit before the response. The request must not go on if it returns an error.
func (s *Server) beginAudit(ctx context.Context, rq *request) (_ context.Context, err error) {
	if !rq.route.changes() && !rq.route.Sensitive {
		return ctx, nil
	}
	if rq.begun, err = s.Audit.Begin(ctx, s.record(ctx, rq, nil)); err != nil {
		return ctx, err
	}
	return audit.WithAction(ctx, rq.begun), nil
}

// actionAuthenticate is the action of the records of requests without a valid token. It is one action for all routes, so that whoever has
// no token does not use up the kinds of refusals that are counted separately.
const actionAuthenticate = "authenticate"

// recordAudit records the outcome of each request that changes something, that reads something sensitive, or that was refused. It
// returns an error if the record of a change or a read is not durable; then the response must not have the result. Repeated refusals are
// counted: a caller that is refused must not fill the disk. A refusal stays one if its record cannot be stored.
func (s *Server) recordAudit(ctx context.Context, rq *request, failure error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	record := s.record(ctx, rq, failure)
	switch known := rq.caller.ObjectID != ""; {
	case rq.begun != nil:
		begun := rq.begun
		rq.begun = nil
		return begun.End(ctx, record)
	case !known && (failure == nil || !unauthenticated(failure)):
		return nil // nobody was refused: the token could not be verified
	case !known:
		record.Action, record.Object, record.Outcome = actionAuthenticate, audit.Object{Kind: "route", ID: rq.route.Name}, audit.Refused
		record.Person.Role = ""
		s.Refusals.Refused(ctx, record)
	case record.Outcome == audit.Refused:
		s.Refusals.Refused(ctx, record)
	case rq.route.changes() || rq.route.Sensitive:
		return s.Audit.Append(ctx, record)
	}
	return nil
}

// endAfterPanic records the outcome of a request whose handler panicked. The server goes on, and the queue of the audit would keep the
// space and the segments of an action without an outcome.
func (s *Server) endAfterPanic(ctx context.Context, rq *request) {
	if rq.begun != nil {
		_ = s.recordAudit(ctx, rq, errPanic) // nobody gets a response
	}
}

// errPanic is the failure of a request whose handler panicked.
var errPanic = errors.New("the handler of the request panicked")

// unauthenticated reports whether a request was refused because it has no valid token, or because its peer has sent too many such requests.
func unauthenticated(failure error) bool {
	kind := apierror.KindOf(failure)
	return kind == apierror.Unauthenticated || kind == apierror.Throttled
}

// record returns the audit record of a request.
func (s *Server) record(ctx context.Context, rq *request, failure error) audit.Record {
	r := audit.Record{
		Person: audit.Person{Name: rq.caller.Name, ObjectID: rq.caller.ObjectID, TenantID: rq.caller.TenantID, Role: string(rq.route.Role)},
		Action: rq.route.Name, Object: rq.audited.object, Level: rq.audited.level, Reason: rq.audited.reason, Ticket: rq.audited.ticket, Operation: rq.audited.operation, Emergency: rq.audited.emergency,
		Request: rq.id, Trace: tracing.Reference(ctx), Outcome: outcomeOf(rq.route, failure),
	}
	if rq.caller.AppID != "" {
		r.Peer = "app:" + rq.caller.AppID
	}
	if rq.elevation != nil {
		r.Reason, r.Ticket, r.Person.Elevation = rq.elevation.Actor.Reason, rq.elevation.Actor.Ticket, rq.elevation.ElevationID
		r.Emergency = rq.elevation.Emergency
	}
	if r.Object == (audit.Object{}) {
		r.Object.Kind, r.Object.ID = rq.objectInPath()
	}
	if failure != nil {
		r.Code = apierror.KindOf(failure).ARMCode()
	}
	return r
}

// outcomeOf returns the outcome of a request that ended with failure, which may be nil.
func outcomeOf(route *Route, failure error) string {
	switch {
	case failure == nil && route.changes():
		return audit.Accepted
	case failure == nil:
		return audit.Succeeded
	case apierror.KindOf(failure) == apierror.PermissionDenied, apierror.KindOf(failure) == apierror.Unauthenticated:
		return audit.Refused
	}
	return audit.Failed
}

// logAudit logs the audit record of each request that changes something, that reads something sensitive, or that was refused.
func (s *Server) logAudit(ctx context.Context, rq *request) {
	refused := rq.status == http.StatusUnauthorized || rq.status == http.StatusForbidden
	if !rq.route.changes() && !rq.route.Sensitive && !refused {
		return
	}
	r := s.record(ctx, rq, rq.cause)
	s.logRecord(ctx, r, rq.status)
	for _, o := range rq.audited.revocations {
		r.Operation, r.Object, r.Reason = o.OperationID, objectOf(o.Target), o.Actor.Reason
		s.logRecord(ctx, r, rq.status)
	}
}

// logRecord logs an audit record with the HTTP status of the response.
func (s *Server) logRecord(ctx context.Context, r audit.Record, status int) {
	s.Log.LogAttrs(ctx, slog.LevelInfo, "audit",
		slog.String(logkey.Record, "audit"), slog.String(logkey.Actor, r.Person.Name), slog.String(logkey.ObjectID, r.Person.ObjectID), slog.String(logkey.TenantID, r.Person.TenantID),
		slog.String(logkey.Role, r.Person.Role), slog.String(logkey.Reason, r.Reason), slog.String(logkey.Ticket, r.Ticket), slog.Bool(logkey.Emergency, r.Emergency),
		slog.String(logkey.Action, r.Action), slog.String(logkey.Target, truncate(r.Object.ID)), slog.String(logkey.ClusterUID, r.Object.Cluster),
		slog.String(logkey.Outcome, r.Outcome), slog.Int(logkey.Status, status), slog.String(logkey.OperationID, r.Operation), slog.String(logkey.RequestID, r.Request))
}

// objectInPath returns the kind and the identifier of the object that the path names.
func (rq *request) objectInPath() (kind, id string) {
	for _, name := range []string{"cluster", "shard", "upgrade", "policy", "credential", "operation", "elevation", "session", "recording", "silence", "bundle", "uid"} {
		if value := rq.http.PathValue(name); value != "" {
			return name, value
		}
	}
	return "", ""
}
