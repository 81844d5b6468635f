package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// newOperation returns the document of an operation that a request starts.
func (s *Server) newOperation(rq *request, id string, kind database.OperationRequest, resource *hub.Resource, uid string, generation int64, now time.Time) database.OperationDocument {
	return database.OperationDocument{
		OperationID:        id,
		Request:            kind,
		ResourceID:         resource.ID,
		ResourceType:       resource.Type,
		UID:                uid,
		Generation:         generation,
		Location:           s.Location,
		Status:             initialState(kind),
		StartTime:          now,
		LastTransitionTime: now,
		TenantID:           rq.tenantID,
		ClientTenantID:     rq.clientTenantID,
		ClientID:           rq.clientID,
		CorrelationID:      rq.correlationID,
		NotificationURI:    s.notificationURI(rq),
		TraceParent:        tracing.ReferenceTo(rq.span),
		APIVersion:         rq.apiVersion(),
	}
}

func (rq *request) apiVersion() string {
	if rq.version == nil {
		return ""
	}
	return rq.version.Name
}

// initialState returns the provisioning state of the resource, and the status of the operation, when a request is
// accepted.
func initialState(kind database.OperationRequest) hub.ProvisioningState {
	if kind == database.DeleteRequest {
		return hub.Deleting
	}
	return hub.Accepted
}

// The bounds of Retry-After in asynchronous responses. It is one tenth of the operation's age: clients poll short
// operations often and long ones rarely.
const (
	minRetryAfter = time.Second
	maxRetryAfter = 15 * time.Second
)

func retryAfterOf(age time.Duration) time.Duration {
	return min(max(age/10, minRetryAfter), maxRetryAfter)
}

// operationURL returns the absolute URL of an operation's status or result.
func (s *Server) operationURL(rq *request, resource, id string) string {
	u := rq.base()
	u.Path = "/subscriptions/" + rq.param(subscriptionParam) + provider + "/locations/" + s.Location + "/" + resource + "/" + id
	u.RawQuery = "api-version=" + url.QueryEscape(rq.apiVersion())
	return u.String()
}

// notificationURI returns the URI that ARM wants to be notified at when the operation ends. It is empty if there is
// none or the policy does not allow it. In that case the response does not confirm notifications, and ARM polls.
func (s *Server) notificationURI(rq *request) string {
	text := rq.http.Header.Get(asyncoperation.HeaderNotificationURI)
	if text == "" || !rq.writes() {
		return ""
	}
	uri, err := s.Notifications.ParseURI(text)
	if err != nil {
		s.Log.Info("ignoring a notification URI that the policy does not allow", logkey.CorrelationID, rq.correlationID, logkey.Error, err)
		return ""
	}
	return uri.String()
}

// setOperationHeaders sets the headers that lead the client to the accepted operation.
func (s *Server) setOperationHeaders(rq *request, operationID string, location bool) {
	rq.operationID = operationID
	header := rq.w.Header()
	header.Set(armheader.AsyncOperation, s.operationURL(rq, "hcpOperationStatuses", operationID))
	if location {
		header.Set("Location", s.operationURL(rq, "hcpOperationResults", operationID))
	}
	apierror.SetRetryAfter(header, minRetryAfter)
	if s.notificationURI(rq) != "" {
		header.Set(asyncoperation.HeaderNotification, asyncoperation.NotificationEnabled)
	}
}

// isStarterOf reports whether the caller started an operation. It compares the caller's own tenant only if both
// requests have it.
func (rq *request) isStarterOf(operation *database.OperationDocument) bool {
	if rq.clientTenantID != "" && operation.ClientTenantID != "" && !strings.EqualFold(rq.clientTenantID, operation.ClientTenantID) {
		return false
	}
	return strings.EqualFold(operation.TenantID, rq.tenantID) && strings.EqualFold(operation.ClientID, rq.clientID)
}

// operation returns the operation in the path if the caller started it: only that tenant and client may see it.
func (s *Server) operation(ctx context.Context, rq *request) (*database.OperationDocument, error) {
	id := rq.param(operationParam)
	notFound := apierror.New(apierror.ResourceNotFound, "The operation '%s' was not found.", id)
	if !validation.IsUUID(id) {
		return nil, apierror.New(apierror.ResourceNotFound, "The operation was not found.")
	}
	if s.Rules.Location(rq.param(locationParam)) != s.Location {
		return nil, notFound
	}
	item, err := s.Database.Operations().Find(ctx, database.OperationKey(rq.param(subscriptionParam), s.Location, id))
	if err != nil {
		return nil, err
	}
	if live(item) == nil || !rq.isStarterOf(&item.Value) {
		return nil, notFound
	}
	rq.adopt(item.Value.ResourceID)
	rq.operationID, rq.resourceID = item.Value.OperationID, item.Value.ResourceID
	return &item.Value, nil
}

func (s *Server) getOperationStatus(ctx context.Context, rq *request) error {
	operation, err := s.operation(ctx, rq)
	if err != nil {
		return err
	}
	if !operation.Status.Terminal() {
		apierror.SetRetryAfter(rq.w.Header(), retryAfterOf(s.Now().Sub(operation.StartTime)))
	}
	return rq.w.json(http.StatusOK, rq.operationStatus(operation))
}

// operationStatus returns the status document of an operation. The targets of its error are paths of the request's version.
func (rq *request) operationStatus(operation *database.OperationDocument) asyncoperation.Status {
	status := asyncoperation.NewStatus(operation)
	if status.Error != nil {
		rq.convertTargets(operation.ResourceType, status.Error)
	}
	return status
}

func (rq *request) convertTargets(resourceType string, e *asyncoperation.Error) {
	if path, ok := rq.version.Path(resourceType, e.Target); ok {
		e.Target = path
	}
	for i := range e.Details {
		rq.convertTargets(resourceType, &e.Details[i])
	}
}

// getOperationResult responds as a synchronous request would have. The result of a failed operation has status 500, as in
// the published service: ARM reads results of successful operations only. The body contains the operation's error.
func (s *Server) getOperationResult(ctx context.Context, rq *request) error {
	operation, err := s.operation(ctx, rq)
	if err != nil {
		return err
	}
	switch operation.Status {
	case hub.Succeeded:
		return s.writeResult(ctx, rq, operation)
	case hub.Failed, hub.Canceled:
		failure := rq.operationStatus(operation).Error
		if failure == nil {
			failure = &asyncoperation.Error{Code: string(operation.Status), Message: "The operation did not succeed."}
		}
		if failure.Target == "" && len(failure.Details) == 0 {
			failure.Target = rq.target()
		}
		rq.w.Header().Set(armheader.ErrorCode, failure.Code)
		return rq.w.json(http.StatusInternalServerError, struct {
			Error *asyncoperation.Error `json:"error"`
		}{failure})
	}
	rq.w.Header().Set("Location", s.operationURL(rq, "hcpOperationResults", operation.OperationID))
	apierror.SetRetryAfter(rq.w.Header(), retryAfterOf(s.Now().Sub(operation.StartTime)))
	rq.w.WriteHeader(http.StatusAccepted)
	return nil
}

// results returns the writers of the results of successful operations, by resource type.
func results() map[string]resultWriter {
	return map[string]resultWriter{
		hub.ClusterResourceType:      result(clusterType{}),
		hub.NodePoolResourceType:     result(nodePoolType{}),
		hub.ExternalAuthResourceType: result(externalAuthType{}),
	}
}

func (s *Server) writeResult(ctx context.Context, rq *request, operation *database.OperationDocument) error {
	switch operation.Request {
	case database.DeleteRequest, database.RevokeCredentialsRequest:
		rq.w.WriteHeader(http.StatusNoContent)
		return nil
	case database.RequestCredentialRequest:
		return s.showCredential(ctx, rq, operation)
	}
	status := http.StatusOK
	if operation.Request == database.CreateRequest {
		status = http.StatusCreated
	}
	key, err := database.ResourceKey(operation.ResourceID)
	if err != nil {
		return err
	}
	show, ok := s.results[operation.ResourceType]
	if !ok {
		return fmt.Errorf("writing the result of operation %s: unknown resource type %q", operation.OperationID, operation.ResourceType)
	}
	return show(s, ctx, rq, status, key, operation.UID)
}
