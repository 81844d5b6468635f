package adminv1

// Drift is one resource of which ARM's documents and the fleet disagree, while no operation is under way that brings them together.
type Drift struct {
	// Difference is Missing, Older or Undeleted, when the fleet lost what it had accepted; Newer, when it holds a generation that
	// ARM's documents do not know; and Orphan, when it holds what they do not have at all.
	Difference string `json:"difference"`
	// Kind is cluster, nodePool or externalAuth.
	Kind       string `json:"kind"`
	ResourceID string `json:"resourceId"`
	UID        string `json:"uid"`
	ClusterUID string `json:"clusterUid"`
	// Promised is the generation that the fleet had accepted, Held the one that it holds; 0 for none.
	Promised int64 `json:"promised"`
	Held     int64 `json:"held"`
	// Proof is what says that the resource was deleted; empty when nothing does.
	Proof string `json:"proof,omitempty"`
	// Mended says that the backend brings it in order by itself, or when it is asked to reconcile.
	Mended bool `json:"mended"`
	// Remedy is what happens to it, or what somebody has to decide.
	Remedy string `json:"remedy"`
}

// DriftList is what differs in a region.
type DriftList struct {
	// Promised and Held are how many resources were compared.
	Promised int     `json:"promised"`
	Held     int     `json:"held"`
	Items    []Drift `json:"items"`
	// More says that there is more than the thousand that are listed.
	More bool `json:"more,omitempty"`
}

// DriftResult is the result of ActionDriftReconcile.
type DriftResult struct {
	Promised int `json:"promised"`
	Held     int `json:"held"`
	// Applied and Deleted are how many resources were sent again, as they are wanted or to be deleted.
	Applied int `json:"applied"`
	Deleted int `json:"deleted"`
	// Concerns are how many are left that somebody has to decide on, by why.
	Concerns map[string]int `json:"concerns"`
}
