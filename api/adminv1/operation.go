package adminv1

import (
	"encoding/json"
	"time"
)

// Actor is the person who requested an action, with the reason.
type Actor struct {
	Name        string `json:"name"`
	ObjectID    string `json:"objectId"`
	TenantID    string `json:"tenantId,omitempty"`
	Role        Role   `json:"role"`
	ElevationID string `json:"elevationId,omitempty"`
	Reason      string `json:"reason"`
	Ticket      string `json:"ticket,omitempty"`
}

// Target is the object of an action.
type Target struct {
	// Kind is cluster, nodePool, credential, provisionShard, operation or bundle. ID is its UID or name.
	Kind       string `json:"kind"`
	ID         string `json:"id"`
	ResourceID string `json:"resourceId,omitempty"`
	ClusterUID string `json:"clusterUid,omitempty"`
}

// OperationState is the state of an admin operation.
type OperationState string

// The states.
const (
	Accepted  OperationState = "Accepted"
	Running   OperationState = "Running"
	Succeeded OperationState = "Succeeded"
	Failed    OperationState = "Failed"
)

// Terminal reports whether the operation has ended.
func (s OperationState) Terminal() bool { return s == Succeeded || s == Failed }

// Operation is an admin operation: the stored record of one requested action. The backend executes it.
type Operation struct {
	ID string `json:"id"`
	// Action is one of the constants that begin with Action.
	Action             string          `json:"action"`
	Target             Target          `json:"target"`
	Parameters         json.RawMessage `json:"parameters,omitempty"`
	Actor              Actor           `json:"actor"`
	State              OperationState  `json:"state"`
	StartTime          time.Time       `json:"startTime"`
	LastTransitionTime time.Time       `json:"lastTransitionTime"`
	EndTime            *time.Time      `json:"endTime,omitempty"`
	Attempts           int32           `json:"attempts,omitempty"`
	// Result describes the effect in the form of the action. Error is the reason of a failure.
	Result json.RawMessage `json:"result,omitempty"`
	Error  *FailureDetail  `json:"error,omitempty"`
}

// OperationList is a page of operations, newest first.
type OperationList struct {
	Items         []Operation `json:"items"`
	NextPageToken string      `json:"nextPageToken,omitempty"`
}

// AuditEntry is an audit record. Exactly one field besides the time is set.
type AuditEntry struct {
	Time      time.Time  `json:"time"`
	Operation *Operation `json:"operation,omitempty"`
	Elevation *Elevation `json:"elevation,omitempty"`
}

// AuditList is a page of audit records, newest first.
type AuditList struct {
	Items         []AuditEntry `json:"items"`
	NextPageToken string       `json:"nextPageToken,omitempty"`
}
