package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	strictjson "sigs.k8s.io/json"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// maxBody is the maximum size of a request body in bytes.
const maxBody = 64 << 10

// decodeBody decodes the request body strictly: it rejects unknown fields, fields whose name has another casing, and fields that are
// given twice. The error names the fields. The audit and the caller then agree on what was requested.
func (rq *request) decodeBody(into any) error {
	content, err := io.ReadAll(http.MaxBytesReader(rq.w, rq.http.Body, maxBody))
	if err != nil {
		return apierror.New(apierror.InvalidResource, "The body is larger than %d bytes, or incomplete.", maxBody).WithCause(err)
	}
	rejected, err := strictjson.UnmarshalStrict(content, into)
	if err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return apierror.InvalidFields([]apierror.Violation{{Field: wrong.Field, Message: "Invalid value: must be of type " + wrong.Type.String()}})
		}
		return apierror.New(apierror.Invalid, "The body is not a valid JSON object for this request.").WithCause(err)
	}
	var violations []apierror.Violation
	for _, r := range rejected {
		var field strictjson.FieldError
		if !errors.As(r, &field) {
			return apierror.New(apierror.Invalid, "The body is not a valid JSON object for this request.").WithCause(r)
		}
		path := field.FieldPath()
		field.SetFieldPath("")
		message := "Forbidden: unknown field"
		if strings.HasPrefix(field.Error(), "duplicate field") {
			message = wire.DuplicateMessage
		}
		violations = append(violations, apierror.Violation{Field: path, Message: message})
	}
	return apierror.InvalidFields(violations)
}

// noBody rejects a body on routes without one. An empty object is allowed.
func (rq *request) noBody() error {
	content, err := io.ReadAll(http.MaxBytesReader(rq.w, rq.http.Body, maxBody))
	if text := strings.TrimSpace(string(content)); err != nil || text != "" && text != "{}" {
		return apierror.New(apierror.Invalid, "Invalid body: %s has no body.", rq.route.Name)
	}
	return nil
}

// accept stores the requested action as an admin operation and returns it. The backend executes stored operations.
func (s *Server) accept(ctx context.Context, rq *request, target database.AdminTarget, parameters any) (any, error) {
	document, err := s.newOperation(rq, target, parameters)
	if err != nil {
		return nil, err
	}
	return s.storeOperation(ctx, rq, document, s.Database.NewBatch(database.AdminPartition), nil)
}

// newOperation returns the admin operation of a requested action, with its signed intent.
func (s *Server) newOperation(rq *request, target database.AdminTarget, parameters any) (*database.AdminOperationDocument, error) {
	id, now := rq.operation, time.Now().UTC()
	if id == "" {
		id = uuid.NewString()
	}
	rq.audited.object = objectOf(target)
	if !adminaction.Permits(rq.elevation, rq.route.Name, target.ClusterUID) {
		return nil, apierror.New(apierror.PermissionDenied, "Your elevation %s does not permit this action on this object.", rq.elevation.ElevationID)
	}
	document := database.AdminOperationDocument{
		OperationID: id, SortKey: database.AdminSortKey(now, id), Action: rq.route.Name, Target: target, State: database.AdminAccepted,
		StartTime: now, LastTransitionTime: now, RequestID: rq.id, RequestDigest: rq.digest,
		Actor: database.AdminActor{
			Name: rq.caller.Name, ObjectID: rq.caller.ObjectID, TenantID: rq.caller.TenantID, Role: rq.elevation.Actor.Role,
			ElevationID: rq.elevation.ElevationID, Reason: rq.elevation.Actor.Reason, Ticket: rq.elevation.Actor.Ticket,
		},
	}
	if parameters != nil {
		content, err := json.Marshal(parameters)
		if err != nil {
			return nil, err
		}
		document.Parameters = content
	}
	return &document, s.sign(&document, rq.roles, rq.elevation, now)
}

// storeOperation commits a batch with an admin operation and returns the operation. changed is the elevation that the batch replaces, or nil.
func (s *Server) storeOperation(ctx context.Context, rq *request, document *database.AdminOperationDocument, batch *database.Batch, changed *database.ElevationDocument) (any, error) {
	database.Create(batch, s.Database.AdminOperations(), database.AdminOperationKey(document.OperationID), *document)
	err := batch.Commit(ctx)
	if race, lost := database.AsWriteConflict(err); lost && race.Exists && rq.operation != "" {
		// The same request arrived twice concurrently.
		if before, findErr := s.previousOperation(ctx, rq); before != nil || findErr != nil {
			return before, findErr
		}
	}
	if err != nil {
		return nil, err
	}
	if changed != nil {
		s.Seals.Stored(changed)
	}
	return rq.accepted(document), nil
}

// sign adds to an operation the signed intent that authorizes its execution. roles are those of whoever requested it.
func (s *Server) sign(document *database.AdminOperationDocument, roles []adminv1.Role, elevation *database.ElevationDocument, now time.Time) error {
	names := make([]string, len(roles))
	for i, role := range roles {
		names[i] = string(role)
	}
	asked, err := adminaction.NewIntent(document, names, elevation, now)
	if err != nil {
		return err
	}
	document.Intent, err = s.Intents.Sign(asked)
	return err
}

// accepted returns an operation as the response to the request that created it.
func (rq *request) accepted(o *database.AdminOperationDocument) adminv1.Operation {
	rq.audited.operation, rq.audited.object = o.OperationID, objectOf(o.Target)
	rq.w.Header().Set("Location", adminv1.Root+"/operations/"+o.OperationID)
	return operationResponse(o)
}

func operationResponse(o *database.AdminOperationDocument) adminv1.Operation {
	shown := adminv1.Operation{
		ID: o.OperationID, Action: o.Action, Parameters: o.Parameters, State: adminv1.OperationState(o.State), StartTime: o.StartTime,
		LastTransitionTime: o.LastTransitionTime, EndTime: o.EndTime, Attempts: o.Attempts, Result: o.Result,
		Target: adminv1.Target{Kind: o.Target.Kind, ID: o.Target.ID, ResourceID: o.Target.ResourceID, ClusterUID: o.Target.ClusterUID},
		Actor: adminv1.Actor{
			Name: o.Actor.Name, ObjectID: o.Actor.ObjectID, TenantID: o.Actor.TenantID, Role: adminv1.Role(o.Actor.Role),
			ElevationID: o.Actor.ElevationID, Reason: o.Actor.Reason, Ticket: o.Actor.Ticket,
		},
	}
	if o.Error != nil {
		shown.Error = &adminv1.FailureDetail{Code: o.Error.Code, Message: o.Error.Message, Target: o.Error.Target}
	}
	return shown
}

func (s *Server) listOperations(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	query := rq.http.URL.Query()
	filter := database.AdminFilter{Kinds: []database.Kind{database.AdminOperationKind}, ObjectID: query.Get("actor"), State: query.Get("state")}
	known := []database.AdminOperationState{"", database.AdminAccepted, database.AdminRunning, database.AdminSucceeded, database.AdminFailed}
	if !slices.Contains(known, database.AdminOperationState(filter.State)) {
		return nil, apierror.New(apierror.InvalidParameter, "Unsupported value: '%s': supported values: %s.", filter.State, known[1:]).WithTarget("state")
	}
	if text := query.Get("cluster"); text != "" {
		cluster, err := s.finder.One(ctx, text)
		if err != nil {
			return nil, err
		}
		filter.Target = cluster.UID
	}
	records, next, err := s.Database.AdminRecords(ctx, filter, token, size)
	if err != nil {
		return nil, err
	}
	list := adminv1.OperationList{Items: []adminv1.Operation{}, NextPageToken: next}
	for _, r := range records {
		list.Items = append(list.Items, operationResponse(&r.Operation.Value))
	}
	return list, nil
}

func (s *Server) getOperation(ctx context.Context, rq *request) (any, error) {
	id := rq.http.PathValue("operation")
	item, err := s.Database.AdminOperations().Find(ctx, database.AdminOperationKey(id))
	if err != nil {
		return nil, err
	}
	if item == nil || item.Removed != nil {
		return nil, apierror.New(apierror.NotFound, "Operation '%s' does not exist.", id)
	}
	return operationResponse(&item.Value), nil
}

func (s *Server) listAudit(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	records, next, err := s.Database.AdminRecords(ctx, database.AdminFilter{ObjectID: rq.http.URL.Query().Get("actor")}, token, size)
	if err != nil {
		return nil, err
	}
	list := adminv1.AuditList{Items: []adminv1.AuditEntry{}, NextPageToken: next}
	var credentials []adminv1.ElevationCredentials
	for _, r := range records {
		if r.Elevation != nil {
			shown := elevationResponse(&r.Elevation.Value)
			credentials = append(credentials, shown.Credentials...) // they share the revocations
			list.Items = append(list.Items, adminv1.AuditEntry{Time: shown.RequestTime, Elevation: &shown})
			continue
		}
		shown := operationResponse(&r.Operation.Value)
		list.Items = append(list.Items, adminv1.AuditEntry{Time: shown.StartTime, Operation: &shown})
	}
	s.showRevocations(ctx, credentials, false)
	return list, nil
}

func truncate(text string) string {
	if len(text) > 512 {
		return strings.ToValidUTF8(text[:512], "") + "…"
	}
	return text
}
