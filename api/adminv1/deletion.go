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
	// Deletion has the steps.
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
}

// LeftoverList is what forced deletions left behind.
type LeftoverList struct {
	Items []Message[*clusterservicev1.DeletionLeftover] `json:"items"`
}
