package adminv1

import "time"

// RegionExplanation states which components of a region are away since when, how many clusters are affected, what the clusters that
// are not in their desired state wait for, and what they have in common.
type RegionExplanation struct {
	// Time is when the facts were read. Ages in texts are relative to it.
	Time time.Time `json:"time"`
	// Items has at least one element: the outages, then the concerns of clusters. Its subjects are `the region` or a shard.
	Items []ExplanationItem `json:"items"`
	// Components are all components that admin observes.
	Components []Component `json:"components"`
	// Clusters is the number of clusters, those in deletion included; NotReady counts those that are not in their desired state. Both
	// are zero if Cluster Service could not be read.
	Clusters int `json:"clusters"`
	NotReady int `json:"notReady"`
	// Concerns counts the clusters that are not in their desired state, the largest group first.
	Concerns []ConcernGroup `json:"concerns"`
	// Partial is true if a layer could not be read. Unavailable maps each such layer to the reason.
	Partial     bool              `json:"partial"`
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// ConcernGroup counts clusters with the same concern.
type ConcernGroup struct {
	Layer          string `json:"layer"`
	State          string `json:"state"`
	ProvisionShard string `json:"provisionShard,omitempty"`
	Version        string `json:"version,omitempty"`
	Clusters       int    `json:"clusters"`
	// OldestSince is when the oldest of the waits began.
	OldestSince time.Time `json:"oldestSince"`
}

// ClusterConcern states what a cluster that is not in its desired state waits for.
type ClusterConcern struct {
	// SubjectID is the ARM resource ID of the cluster or of the child that waits.
	SubjectID string `json:"subjectId"`
	// Layer and State identify the progress entry or the deletion step that is awaited.
	Layer string    `json:"layer"`
	State string    `json:"state"`
	Since time.Time `json:"since"`
}

// Text returns the explanation as plain text, like that of a cluster.
func (e *RegionExplanation) Text() string {
	return (&Explanation{Items: e.Items, Unavailable: e.Unavailable}).Text()
}
