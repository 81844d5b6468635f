package adminv1

import (
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The actions: the names of the routes that change something, by which the backend knows what to do.
const (
	ActionClusterPause  = "clusters.pause"
	ActionClusterResume = "clusters.resume"
	ActionClusterResize = "clusters.resize"
	ActionClusterRetry  = "clusters.retry"
)

// PauseRequest pauses HyperShift's reconciliation of a cluster and its node pools.
type PauseRequest struct {
	// Duration is one of Go's, as in 2h: up to 168h. What is kept of it is when that ends.
	Duration string `json:"duration"`
}

// PauseParameters are those of ActionClusterPause.
type PauseParameters struct {
	Until time.Time `json:"until"`
}

// ResizeRequest overrides the size of a cluster's control plane. It is also the parameters of ActionClusterResize.
type ResizeRequest struct {
	// Size is the name of one of the management cluster's sizes; empty takes the override back.
	Size string `json:"size"`
}

// Effect is the result of what is done at Cluster Service.
type Effect struct {
	// Effect is what was changed, in a sentence.
	Effect string `json:"effect"`
}

// InterventionList is what SREs had Cluster Service do to a cluster.
type InterventionList struct {
	Items []Intervention `json:"items"`
}

// Intervention is one of Cluster Service's.
type Intervention = Message[*clusterservicev1.Intervention]
