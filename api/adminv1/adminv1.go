// Package adminv1 is the wire form of admin's REST API, version /admin/v1: what SREs and their tools read and send. The
// service and its clients share these types; the OpenAPI document is made of them. A field may be added; none is ever
// renamed or given another meaning. Nothing in here ever holds a secret: what admin shows is cleaned before it is sent.
package adminv1

import "time"

// Root is the path that all routes are below.
const Root = "/admin/v1"

// IdempotencyKey is the header by which a request that changes something may be sent again when its answer was lost: with the key
// that the caller made for it, it is the operation that it was the first time, and not another one. The key is 1 to 128
// printable characters of ASCII, and stands for one caller's one request.
const IdempotencyKey = "Idempotency-Key"

// Failure is the body of every answer that is an error.
type Failure struct {
	Error FailureDetail `json:"error"`
}

// FailureDetail says what was wrong.
type FailureDetail struct {
	// Code is a word for programs, as in NotFound.
	Code string `json:"code"`
	// Message is a sentence for people.
	Message string `json:"message"`
	// Target is the field, parameter or resource that it is about.
	Target string `json:"target,omitempty"`
	// Details are the single wrong fields.
	Details []FailureDetail `json:"details,omitempty"`
	// RequestID finds the request in the logs.
	RequestID string `json:"requestId,omitempty"`
}

// Role is what somebody may do. Each includes those before it.
type Role string

// The roles.
const (
	Reader     Role = "reader"
	Operator   Role = "operator"
	BreakGlass Role = "break-glass"
)

// Identity is who a caller is to admin.
type Identity struct {
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	TenantID string `json:"tenantId"`
	// Roles that the caller's groups give. Reading needs no more; to change something the caller elevates to one of them.
	Roles []Role `json:"roles"`
}

// Cluster is a cluster in one line.
type Cluster struct {
	// UID of this incarnation.
	UID            string `json:"uid"`
	ResourceID     string `json:"resourceId"`
	Name           string `json:"name"`
	SubscriptionID string `json:"subscriptionId"`
	Location       string `json:"location,omitempty"`
	// ProvisioningState is ARM's; empty in a listing of the fleet, and for a cluster that ARM no longer knows.
	ProvisioningState string `json:"provisioningState,omitempty"`
	// Phase is Cluster Service's, as in Ready; empty for a cluster that has not reached it.
	Phase string `json:"phase,omitempty"`
	// ClusterID is the id below ARM, from which all names there derive; Namespace is where its HostedCluster stands.
	ClusterID      string     `json:"clusterId,omitempty"`
	Namespace      string     `json:"namespace,omitempty"`
	ProvisionShard string     `json:"provisionShard,omitempty"`
	Version        string     `json:"version,omitempty"`
	APIURL         string     `json:"apiUrl,omitempty"`
	CreateTime     *time.Time `json:"createTime,omitempty"`
	DeleteTime     *time.Time `json:"deleteTime,omitempty"`
}

// ClusterList is a page of clusters.
type ClusterList struct {
	Items []Cluster `json:"items"`
	// NextPageToken gets the next page; empty on the last one.
	NextPageToken string `json:"nextPageToken,omitempty"`
}
