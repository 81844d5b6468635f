package adminv1

import (
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Deletion is the deletion of one resource, in progress or complete.
type Deletion struct {
	// Kind is cluster, nodePool or externalAuth.
	Kind       string `json:"kind"`
	ResourceID string `json:"resourceId"`
	UID        string `json:"uid"`
	ClusterUID string `json:"clusterUid"`
	// DeleteTime is when the deletion was requested.
	DeleteTime time.Time `json:"deleteTime"`
	// OperationID is the ARM operation of the deletion. Over is true if the deletion is complete.
	OperationID string `json:"operationId,omitempty"`
	Over        bool   `json:"over,omitempty"`
	// Deletion holds the steps in ARM and in Cluster Service.
	Deletion Message[*clusterservicev1.Deletion] `json:"deletion"`
}

// DeletionRetryResult is the result of ActionDeletionRetry.
type DeletionRetryResult struct {
	// Steps lists the retried steps of Cluster Service.
	Steps []string `json:"steps,omitempty"`
	// ResourceIDs lists the resources whose steps in ARM the backend retries.
	ResourceIDs []string `json:"resourceIds,omitempty"`
}

// DeletionList lists the deletions in progress in a region, oldest first.
type DeletionList struct {
	Items []Deletion `json:"items"`
	// Unavailable maps the layers that could not be read to the reason.
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// ClusterDeletion holds the deletion of a cluster as its only item, or else the deletions of its children.
type ClusterDeletion struct {
	Cluster Cluster    `json:"cluster"`
	Items   []Deletion `json:"items"`
	// Unavailable maps the layers that could not be read, arm or cluster-service, to the reason. Their steps are missing.
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// LeftoverList lists objects that forced deletions left behind.
type LeftoverList struct {
	Items []Message[*clusterservicev1.DeletionLeftover] `json:"items"`
}

// AzureOrphanList lists the resources in Azure that belong to no cluster.
type AzureOrphanList struct {
	Items []Message[*clusterservicev1.AzureOrphan] `json:"items"`
}
