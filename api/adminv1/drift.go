package adminv1

import "time"

// Drift is a difference between ARM's documents and the fleet about one resource without an operation in progress.
type Drift struct {
	// Layer is the layer that differs: cluster-service from ARM's documents, or maestro or management-cluster from Cluster Service.
	Layer string `json:"layer"`
	// Difference of a work is one of Refused, Unpublished, Removed, BeingRemoved, Replaced, ApplyRefused, NotApplied and ForeignFields. Otherwise it is Missing, Older or Undeleted if the fleet lost what it had accepted; Newer if it holds a generation that ARM's
	// documents do not have; and Orphan if it holds a resource that they do not have.
	Difference string `json:"difference"`
	// Kind is cluster, nodePool, externalAuth or, below Cluster Service, work.
	Kind       string `json:"kind"`
	ResourceID string `json:"resourceId"`
	UID        string `json:"uid"`
	ClusterUID string `json:"clusterUid"`
	// Desired is the generation that the fleet had accepted, InFleet the one that it holds; 0 means none.
	Desired int64 `json:"desired"`
	InFleet int64 `json:"inFleet"`
	// Proof identifies the record that proves the deletion of the resource; empty if there is none.
	Proof string `json:"proof,omitempty"`
	// AutoRepaired is true if the backend repairs the difference at its next comparison.
	AutoRepaired bool `json:"autoRepaired"`
	// Remedy states what happens next, or what an engineer must decide.
	Remedy string `json:"remedy"`
}

// DriftList lists the differences of a region.
type DriftList struct {
	// Desired and InFleet are the numbers of compared resources.
	Desired int     `json:"desired"`
	InFleet int     `json:"inFleet"`
	Items   []Drift `json:"items"`
	// More is true if there are more than the listed 1000 differences.
	More bool `json:"more,omitempty"`
	// RepairedRemovals are the removals of the last 24 hours that are repaired, newest first, at most 100.
	RepairedRemovals []RepairedRemoval `json:"repairedRemovals"`
}

// RepairedRemoval is the removal of an object from a management cluster by another client than the agent, which applied the object again.
type RepairedRemoval struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// UID is that of the removed object.
	UID   string `json:"uid"`
	Shard string `json:"provisionShard"`
	// ResourceID and ClusterUID are those of the cluster.
	ResourceID string `json:"resourceId"`
	ClusterUID string `json:"clusterUid"`
	// Removed is when the object was removed, AppliedAgain when it existed again.
	Removed      time.Time `json:"removed"`
	AppliedAgain time.Time `json:"appliedAgain"`
}

// DriftResult is the result of ActionDriftReconcile.
type DriftResult struct {
	Desired int `json:"desired"`
	InFleet int `json:"inFleet"`
	// Applied and Deleted are the numbers of desired states and of deletions that were sent again.
	Applied int `json:"applied"`
	Deleted int `json:"deleted"`
	// Findings counts the remaining differences that an engineer must decide, by type.
	Findings map[string]int `json:"findings"`
}
