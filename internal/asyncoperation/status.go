// Package asyncoperation is what the world outside is told of an asynchronous operation, and where it may be told: the
// status document that clients poll and that notifications carry, and the policy for the URIs that callers name in
// Azure-AsyncNotificationUri. The frontend only accepts a URI that the policy allows, and the backend asks it again before
// each notification, down to the address that is dialled: a caller must not get the service to speak to what only the
// service can reach.
package asyncoperation

import (
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Status is ARM's status of an asynchronous operation.
type Status struct {
	ID              string     `json:"id"`
	Name            string     `json:"name"`
	Status          string     `json:"status"`
	StartTime       time.Time  `json:"startTime"`
	EndTime         *time.Time `json:"endTime,omitempty"`
	PercentComplete *int       `json:"percentComplete,omitempty"`
	Error           *Error     `json:"error,omitempty"`
}

// Error is an ARM error.
type Error struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Target  string  `json:"target,omitempty"`
	Details []Error `json:"details,omitempty"`
}

// NewStatus is how an operation stands.
func NewStatus(operation *database.OperationDocument) Status {
	status := Status{
		ID: "/subscriptions/" + subscriptionOf(operation.ResourceID) + "/providers/" + hub.ProviderNamespace + "/locations/" + operation.Location +
			"/hcpOperationStatuses/" + operation.OperationID,
		Name:      operation.OperationID,
		Status:    string(operation.Status),
		StartTime: operation.StartTime,
		EndTime:   operation.EndTime,
	}
	if operation.Status == hub.Succeeded {
		complete := 100
		status.PercentComplete = &complete
	}
	if operation.Error != nil {
		e := errorOf(operation.Error)
		status.Error = &e
	}
	return status
}

func errorOf(e *database.OperationError) Error {
	result := Error{Code: e.Code, Message: e.Message, Target: e.Target}
	for i := range e.Details {
		result.Details = append(result.Details, errorOf(&e.Details[i]))
	}
	return result
}

// subscriptionOf is the subscription in an ARM id, in the casing there.
func subscriptionOf(id string) string {
	parts := strings.SplitN(id, "/", 4)
	if len(parts) < 3 {
		return ""
	}
	return parts[2]
}
