package adminv1

import "time"

// ClusterStatus is the progress of a cluster in each layer, and its conditions, as Cluster Service reports them.
type ClusterStatus struct {
	// Time is when the status was read.
	Time    time.Time `json:"time"`
	Cluster Cluster   `json:"cluster"`
	// Generation is the newest desired state in Cluster Service, and ObservedGeneration the newest one that has taken full effect. Both are 0
	// for a cluster that has not reached Cluster Service.
	Generation         int64 `json:"generation"`
	ObservedGeneration int64 `json:"observedGeneration"`
	// Layers are the layers that the cluster has reached, outermost first.
	Layers     []LayerStatus     `json:"layers"`
	Conditions []ConditionStatus `json:"conditions"`
}

// LayerStatus is the progress of a cluster in one layer.
type LayerStatus struct {
	// Layer is placement, azure, maestro, management-cluster, control-plane, node-pool or upgrade.
	Layer string `json:"layer"`
	// State is a short word in CamelCase, and Message what the layer waits for, a sentence. Done is true for a final state.
	State   string    `json:"state"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Done    bool      `json:"done"`
}

// ConditionStatus is one aspect of the state of a cluster, as in Kubernetes.
type ConditionStatus struct {
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status             string    `json:"status"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
}
