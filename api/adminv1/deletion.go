package adminv1

import (
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Deletion is one resource that is being deleted, or was.
type Deletion struct {
	// Kind is cluster, nodePool or externalAuth.
	Kind       string `json:"kind"`
	ResourceID string `json:"resourceId"`
	UID        string `json:"uid"`
	ClusterUID string `json:"clusterUid"`
	// DeleteTime is when its deletion was asked for.
	DeleteTime time.Time `json:"deleteTime"`
	// OperationID is ARM's operation that ends with it, and Over says that nothing is left to be waited for: both are told where
	// one cluster is asked for.
	OperationID string `json:"operationId,omitempty"`
	Over        bool   `json:"over,omitempty"`
	// Deletion has the steps: where one cluster is asked for those of the ARM side as well.
	Deletion Message[*clusterservicev1.Deletion] `json:"deletion"`
}

// DeletionList is what is being deleted in a region.
type DeletionList struct {
	Items []Deletion `json:"items"`
}

// ClusterDeletion is the deletion of a cluster as the only item; while the cluster stays, those of what is in it.
type ClusterDeletion struct {
	Cluster Cluster    `json:"cluster"`
	Items   []Deletion `json:"items"`
	// Unavailable are the layers that could not be asked, arm or cluster-service, with why; their steps are missing.
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// LeftoverList is what forced deletions left behind.
type LeftoverList struct {
	Items []Message[*clusterservicev1.DeletionLeftover] `json:"items"`
}
