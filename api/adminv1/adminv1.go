// Package adminv1 holds the wire types of admin's REST API, version /admin/v1. The service and its clients share them, and the
// OpenAPI document is derived from them. Fields may be added; existing fields are never renamed or redefined. No type holds a
// secret: admin removes secrets before it sends a response.
package adminv1

import "time"

// Root is the common prefix of all paths.
const Root = "/admin/v1"

// IntentKeysPath is the path of the JSON Web Key Set of the keys with which admin signs what engineers ask for. It needs no token.
const IntentKeysPath = Root + "/intent-keys"

// IdempotencyKey is the header that makes a request repeatable after a lost response: requests of one caller with the same key
// create one operation. The key has 1 to 128 printable ASCII characters and identifies one request.
const IdempotencyKey = "Idempotency-Key"

// Failure is the body of every error response.
type Failure struct {
	Error FailureDetail `json:"error"`
}

// FailureDetail describes an error.
type FailureDetail struct {
	// Code is a stable code for programs, for example NotFound.
	Code string `json:"code"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// Target is the field, parameter or resource with the error.
	Target string `json:"target,omitempty"`
	// Details lists the invalid fields if there are several.
	Details []FailureDetail `json:"details,omitempty"`
	// RequestID identifies the request in the logs.
	RequestID string `json:"requestId,omitempty"`
}

// Role is a level of access. Each role includes those before it.
type Role string

// The roles.
const (
	Reader     Role = "reader"
	Operator   Role = "operator"
	BreakGlass Role = "break-glass"
)

// Identity describes a caller.
type Identity struct {
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	TenantID string `json:"tenantId"`
	// Roles are given by the groups of the caller. Reads require a role; actions also require an elevation to one.
	Roles []Role `json:"roles"`
}

// Cluster is the summary of a cluster.
type Cluster struct {
	// UID identifies this incarnation.
	UID            string `json:"uid"`
	ResourceID     string `json:"resourceId"`
	Name           string `json:"name"`
	SubscriptionID string `json:"subscriptionId"`
	Location       string `json:"location,omitempty"`
	// ProvisioningState comes from ARM. It is empty in lists of the fleet, and for a cluster that ARM no longer has.
	ProvisioningState string `json:"provisioningState,omitempty"`
	// Phase comes from Cluster Service, for example Ready. It is empty for a cluster that has not reached it.
	Phase string `json:"phase,omitempty"`
	// Verdict is the state of the cluster with its node pools and external authentications: Ready if nothing is awaited, Waiting if the phase
	// is Ready and something is, Paused, or the phase. It is empty for a cluster that has not reached Cluster Service.
	Verdict string `json:"verdict,omitempty"`
	// ClusterID is part of all names on the management cluster. Namespace holds the HostedCluster.
	ClusterID      string     `json:"clusterId,omitempty"`
	Namespace      string     `json:"namespace,omitempty"`
	ProvisionShard string     `json:"provisionShard,omitempty"`
	Version        string     `json:"version,omitempty"`
	APIURL         string     `json:"apiUrl,omitempty"`
	CreateTime     *time.Time `json:"createTime,omitempty"`
	DeleteTime     *time.Time `json:"deleteTime,omitempty"`
	// Concern is what the cluster, or else one of its children, waits for; absent if nothing.
	Concern *ClusterConcern `json:"concern,omitempty"`
}

// ClusterList is a page of clusters.
type ClusterList struct {
	Items []Cluster `json:"items"`
	// NextPageToken requests the next page; empty on the last page.
	NextPageToken string `json:"nextPageToken,omitempty"`
}
