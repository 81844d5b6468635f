package adminv1

import (
	"encoding/json"
	"time"
)

// ElevationRequest asks for a role for a while.
type ElevationRequest struct {
	Role Role `json:"role"`
	// Reason in words, 8 to 1024 characters; everything that is done under the elevation carries it.
	Reason string `json:"reason"`
	// Ticket is the incident or change that it belongs to, 1 to 128 characters.
	Ticket string `json:"ticket"`
	// Duration is one of Go's, as in 30m: 1m to 8h.
	Duration string `json:"duration"`
}

// Elevation lets whoever made it do what needs its role, until it expires or is ended.
type Elevation struct {
	ID             string     `json:"id"`
	Name           string     `json:"name"`
	ObjectID       string     `json:"objectId"`
	Role           Role       `json:"role"`
	Reason         string     `json:"reason"`
	Ticket         string     `json:"ticket"`
	StartTime      time.Time  `json:"startTime"`
	ExpirationTime time.Time  `json:"expirationTime"`
	EndTime        *time.Time `json:"endTime,omitempty"`
	EndedBy        string     `json:"endedBy,omitempty"`
	// Active is whether it gave its role when this was answered.
	Active bool `json:"active"`
}

// ElevationList is a page of elevations, newest first.
type ElevationList struct {
	Items         []Elevation `json:"items"`
	NextPageToken string      `json:"nextPageToken,omitempty"`
}

// Actor is who did something, and why.
type Actor struct {
	Name        string `json:"name"`
	ObjectID    string `json:"objectId"`
	TenantID    string `json:"tenantId,omitempty"`
	Role        Role   `json:"role"`
	ElevationID string `json:"elevationId,omitempty"`
	Reason      string `json:"reason"`
	Ticket      string `json:"ticket,omitempty"`
}

// Target is what something was done to.
type Target struct {
	// Kind is cluster, nodePool, credential, provisionShard, operation or bundle; ID its uid or name.
	Kind       string `json:"kind"`
	ID         string `json:"id"`
	ResourceID string `json:"resourceId,omitempty"`
	ClusterUID string `json:"clusterUid,omitempty"`
}

// OperationState is how an operation stands: Accepted, Running, Succeeded or Failed.
type OperationState string

// The states.
const (
	Accepted  OperationState = "Accepted"
	Running   OperationState = "Running"
	Succeeded OperationState = "Succeeded"
	Failed    OperationState = "Failed"
)

// Terminal reports whether nothing more happens.
func (s OperationState) Terminal() bool { return s == Succeeded || s == Failed }

// Operation is something that an SRE asked for. It is written down before it is accepted, and executed by the backend.
type Operation struct {
	ID string `json:"id"`
	// Action is the name of the route that it came by.
	Action             string          `json:"action"`
	Target             Target          `json:"target"`
	Parameters         json.RawMessage `json:"parameters,omitempty"`
	Actor              Actor           `json:"actor"`
	State              OperationState  `json:"state"`
	StartTime          time.Time       `json:"startTime"`
	LastTransitionTime time.Time       `json:"lastTransitionTime"`
	EndTime            *time.Time      `json:"endTime,omitempty"`
	Attempts           int32           `json:"attempts,omitempty"`
	// Result says what was done, in the form of the action; Error why it was not.
	Result json.RawMessage `json:"result,omitempty"`
	Error  *FailureDetail  `json:"error,omitempty"`
}

// OperationList is a page of operations, newest first.
type OperationList struct {
	Items         []Operation `json:"items"`
	NextPageToken string      `json:"nextPageToken,omitempty"`
}

// AuditEntry is one thing that an SRE did: exactly one field is set besides the time.
type AuditEntry struct {
	Time      time.Time  `json:"time"`
	Operation *Operation `json:"operation,omitempty"`
	Elevation *Elevation `json:"elevation,omitempty"`
}

// AuditList is a page of what SREs did, newest first.
type AuditList struct {
	Items         []AuditEntry `json:"items"`
	NextPageToken string       `json:"nextPageToken,omitempty"`
}
