// Package asyncoperation has what clients learn about an asynchronous operation: the status document that clients poll
// and that notifications contain, and the policy for the URIs in Azure-AsyncNotificationUri.
//
// The frontend accepts only URIs that the policy allows. The backend checks the URI again before each notification, and
// checks each network address that it connects to. A caller must not be able to make the service send requests to
// private addresses.
//
// The package also has the default deadlines of operations. The backend fails an operation that has not ended by its deadline, and
// explanations state the deadline. The backend's flags and a resource's experimental tags can change the deadlines.
package asyncoperation

import (
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Status is ARM's status document of an asynchronous operation.
type Status struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Status    string     `json:"status"`
	StartTime time.Time  `json:"startTime"`
	EndTime   *time.Time `json:"endTime,omitempty"`
	Error     *Error     `json:"error,omitempty"`
}

// Error is an ARM error.
type Error struct {
	Code    string  `json:"code"`
	Message string  `json:"message"`
	Target  string  `json:"target,omitempty"`
	Details []Error `json:"details,omitempty"`
}

// NewStatus returns the status document of an operation.
func NewStatus(operation *database.OperationDocument) Status {
	status := Status{
		ID: "/subscriptions/" + subscriptionOf(operation.ResourceID) + "/providers/" + hub.ProviderNamespace + "/locations/" + operation.Location +
			"/hcpOperationStatuses/" + operation.OperationID,
		Name:      operation.OperationID,
		Status:    string(operation.Status),
		StartTime: operation.StartTime,
		EndTime:   operation.EndTime,
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

// subscriptionOf returns the subscription in an ARM resource ID, in its original casing, or an empty string.
func subscriptionOf(id string) string {
	parsed, err := arm.ParseResourceID(id)
	if err != nil {
		return ""
	}
	return parsed.SubscriptionID
}
