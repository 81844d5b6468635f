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
	"github.com/hcpmesh/hcpmesh/frontend/pkg/armid"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// newOperation makes the document of an operation that a request starts.
func (s *Server) newOperation(rq *request, id string, kind database.OperationRequest, resource *hub.Resource, uid string, generation int64, now time.Time) database.OperationDocument {
	return database.OperationDocument{
		OperationID:        id,
		Request:            kind,
		ResourceID:         resource.ID,
		ResourceType:       resource.Type,
		UID:                uid,
		Generation:         generation,
		Location:           s.Location,
		Status:             firstState(kind),
		StartTime:          now,
		LastTransitionTime: now,
		TenantID:           rq.tenantID,
		ClientTenantID:     rq.clientTenantID,
		ClientID:           rq.clientID,
		CorrelationID:      rq.correlationID,
		NotificationURI:    s.notificationURI(rq),
		TraceParent:        rq.traceParent,
		APIVersion:         rq.apiVersion(),
	}
}

func (rq *request) apiVersion() string {
	if rq.version == nil {
		return ""
	}
	return rq.version.Name
}

// firstState is the provisioning state of a resource, and the status of the operation, at the moment that a request is
// accepted.
func firstState(kind database.OperationRequest) hub.ProvisioningState {
	switch kind {
	case database.UpdateRequest:
		return hub.Updating
	case database.DeleteRequest:
		return hub.Deleting
	}
	return hub.Accepted
}

// The bounds of Retry-After on asynchronous answers: one tenth of the operation's age, so that short operations are
// followed closely and long ones are left in peace.
const (
	leastPollAfter = time.Second
	mostPollAfter  = 15 * time.Second
)

func pollAfter(age time.Duration) time.Duration {
	return min(max(age/10, leastPollAfter), mostPollAfter)
}

// operationURL is the absolute URL of an operation's status or result.
func (s *Server) operationURL(rq *request, resource, id string) string {
	u := rq.base()
	u.Path = "/subscriptions/" + rq.param(subscriptionParam) + provider + "/locations/" + s.Location + "/" + resource + "/" + id
	u.RawQuery = "api-version=" + url.QueryEscape(rq.apiVersion())
	return u.String()
}

// notificationURI is where the caller wants to be told that its operation has ended; empty when it does not, or when the
// policy does not allow it. Then the answer does not say that notifications are enabled, and the caller polls.
func (s *Server) notificationURI(rq *request) string {
	text := rq.http.Header.Get(asyncoperation.HeaderNotificationURI)
	if text == "" || !rq.writes() {
		return ""
	}
	uri, err := s.Notifications.ParseURI(text)
	if err != nil {
		s.Log.Info("a notification URI is not allowed", "correlation_id", rq.correlationID, "error", err)
		return ""
	}
	return uri.String()
}

// follow tells the client where to follow the operation that was accepted.
func (s *Server) follow(rq *request, operationID string, location bool) {
	rq.operationID = operationID
	header := rq.w.Header()
	header.Set(armheader.AsyncOperation, s.operationURL(rq, "hcpOperationStatuses", operationID))
	if location {
		header.Set("Location", s.operationURL(rq, "hcpOperationResults", operationID))
	}
	setRetryAfter(header, leastPollAfter)
	if s.notificationURI(rq) != "" {
		header.Set(asyncoperation.HeaderNotification, asyncoperation.NotificationEnabled)
	}
}

// started reports whether the caller is the one who started an operation. Where the caller's own tenant is not known of both
// requests, the others decide.
func (rq *request) started(operation *database.OperationDocument) bool {
	if rq.clientTenantID != "" && operation.ClientTenantID != "" && !strings.EqualFold(rq.clientTenantID, operation.ClientTenantID) {
		return false
	}
	return strings.EqualFold(operation.TenantID, rq.tenantID) && strings.EqualFold(operation.ClientID, rq.clientID)
}

// operation finds the operation in the path, if the caller may see it: the tenant and the client that started it.
func (s *Server) operation(ctx context.Context, rq *request) (*database.OperationDocument, error) {
	id := rq.param(operationParam)
	missing := apierror.New(apierror.ResourceNotFound, "The operation '%s' was not found.", id)
	if !armid.IsUUID(id) {
		return nil, apierror.New(apierror.ResourceNotFound, "The operation was not found.")
	}
	if !strings.EqualFold(rq.param(locationParam), s.Location) {
		return nil, missing
	}
	item, err := s.Database.Operations().Find(ctx, database.OperationKey(rq.param(subscriptionParam), s.Location, id))
	if err != nil {
		return nil, err
	}
	if live(item) == nil || !rq.started(&item.Value) {
		return nil, missing
	}
	rq.operationID, rq.resourceID = item.Value.OperationID, item.Value.ResourceID
	return &item.Value, nil
}

func (s *Server) getOperationStatus(ctx context.Context, rq *request) error {
	operation, err := s.operation(ctx, rq)
	if err != nil {
		return err
	}
	if !operation.Status.Terminal() {
		setRetryAfter(rq.w.Header(), pollAfter(s.Now().Sub(operation.StartTime)))
	}
	return rq.w.json(http.StatusOK, asyncoperation.NewStatus(operation))
}

func operationError(e *database.OperationError) *errorDetail {
	if e == nil {
		return nil
	}
	detail := &errorDetail{Code: e.Code, Message: e.Message, Target: e.Target}
	for i := range e.Details {
		detail.Details = append(detail.Details, *operationError(&e.Details[i]))
	}
	return detail
}

// getOperationResult answers as the operation's request would have, had it waited.
func (s *Server) getOperationResult(ctx context.Context, rq *request) error {
	operation, err := s.operation(ctx, rq)
	if err != nil {
		return err
	}
	switch operation.Status {
	case hub.Succeeded:
		return s.writeResult(ctx, rq, operation)
	case hub.Failed, hub.Canceled:
		detail := operationError(operation.Error)
		if detail == nil {
			detail = &errorDetail{Code: string(operation.Status), Message: "The operation did not succeed."}
		}
		if detail.Target == "" && len(detail.Details) == 0 {
			detail.Target = rq.target()
		}
		rq.w.Header().Set(armheader.ErrorCode, detail.Code)
		return rq.w.json(http.StatusConflict, errorBody{*detail})
	}
	s.follow(rq, operation.OperationID, true)
	setRetryAfter(rq.w.Header(), pollAfter(s.Now().Sub(operation.StartTime)))
	rq.w.WriteHeader(http.StatusAccepted)
	return nil
}

// results are, by resource type, what an operation that has succeeded is answered with.
func results() map[string]answer {
	return map[string]answer{
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
		return fmt.Errorf("the operation %s is of the unknown resource type %q", operation.OperationID, operation.ResourceType)
	}
	return show(s, ctx, rq, status, key, operation.UID)
}
