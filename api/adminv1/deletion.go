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
	// OperationID is ARM's operation that ends with it, and Over says that nothing is left to be waited for.
	OperationID string `json:"operationId,omitempty"`
	Over        bool   `json:"over,omitempty"`
	// Deletion has the steps, those of the ARM side around Cluster Service's.
	Deletion Message[*clusterservicev1.Deletion] `json:"deletion"`
}

// DeletionRetryResult is the result of ActionDeletionRetry.
type DeletionRetryResult struct {
	// Steps of Cluster Service's that were begun anew.
	Steps []string `json:"steps,omitempty"`
	// ResourceIDs of what the backend was told to take up again: the steps of the ARM side are tried with that.
	ResourceIDs []string `json:"resourceIds,omitempty"`
}

// DeletionList is what is being deleted in a region, oldest first.
type DeletionList struct {
	Items []Deletion `json:"items"`
	// Unavailable are the layers that could not be asked, as in ClusterDeletion.
	Unavailable map[string]string `json:"unavailable,omitempty"`
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
