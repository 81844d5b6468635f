package adminv1

import "time"

// EgressLink assigns a private endpoint of the egress gateway to a cluster.
type EgressLink struct {
	// LinkID is the link ID of the private endpoint, in decimal form.
	LinkID string `json:"linkId"`
	// Generation grows whenever the link is assigned to a cluster after a removal.
	Generation int64         `json:"generation"`
	Cluster    EgressCluster `json:"cluster"`
	Hosts      []string      `json:"hosts"`
	// OperationID is the admin operation that changed the link last, and RequestTime when it was requested.
	OperationID string    `json:"operationId"`
	RequestTime time.Time `json:"requestTime"`
	// RemovedTime is when the link was removed. ReusableTime is from when on another cluster can have it.
	RemovedTime  *time.Time `json:"removedTime,omitempty"`
	ReusableTime *time.Time `json:"reusableTime,omitempty"`
}

// EgressCluster is the cluster of a link.
type EgressCluster struct {
	UID        string `json:"uid"`
	ResourceID string `json:"resourceId"`
}

// EgressLinkList lists links by their IDs, with those that were removed within a day.
type EgressLinkList struct {
	Items []EgressLink `json:"items"`
}

// SetEgressLinkRequest assigns a link to the cluster in the path, or changes its hosts.
type SetEgressLinkRequest struct {
	// Hosts are the names of hosts that the cluster may connect to, beside those of the region; at most 200.
	Hosts []string `json:"hosts"`
}

// EgressLinkParameters are the parameters of ActionEgressLinkSet.
type EgressLinkParameters struct {
	LinkID string `json:"linkId"`
	// Hosts are sorted, in canonical form.
	Hosts []string `json:"hosts"`
}
