package hub

import "time"

// NodePool is the ARM resource hcpOpenShiftClusters/nodePools.
type NodePool struct {
	Resource
	Properties NodePoolProperties `json:"properties"`
}

// NodePoolProperties holds the properties of a node pool that the customer sets.
type NodePoolProperties struct {
	Version  Version          `json:"version"`
	Platform NodePoolPlatform `json:"platform"`
	// Replicas applies if AutoScaling is nil; they exclude each other.
	Replicas    int32                `json:"replicas,omitempty"`
	AutoScaling *NodePoolAutoScaling `json:"autoScaling,omitempty"`
	AutoRepair  bool                 `json:"autoRepair"`
	Labels      []Label              `json:"labels,omitempty"`
	Taints      []Taint              `json:"taints,omitempty"`
	// NodeDrainTimeoutMinutes overrides the value of the cluster; nil means that of the cluster.
	NodeDrainTimeoutMinutes *int32 `json:"nodeDrainTimeoutMinutes,omitempty"`
}

// NodePoolPlatform configures the virtual machines.
type NodePoolPlatform struct {
	SubnetID               string `json:"subnetId,omitempty"`
	VMSize                 string `json:"vmSize,omitempty"`
	EnableEncryptionAtHost bool   `json:"enableEncryptionAtHost,omitempty"`
	AvailabilityZone       string `json:"availabilityZone,omitempty"`
	OSDisk                 OSDisk `json:"osDisk"`
}

// OSDisk configures the disk that a node boots from.
type OSDisk struct {
	SizeGiB                int32  `json:"sizeGiB,omitempty"`
	DiskStorageAccountType string `json:"diskStorageAccountType,omitempty"`
	EncryptionSetID        string `json:"encryptionSetId,omitempty"`
	// DiskType is Managed or Ephemeral.
	DiskType string `json:"diskType,omitempty"`
}

// NodePoolAutoScaling bounds the number of nodes.
type NodePoolAutoScaling struct {
	Min int32 `json:"min"`
	Max int32 `json:"max"`
}

// Label is a label of every node of the pool.
type Label struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// Taint is a taint of every node of the pool: it repels pods without a matching toleration.
type Taint struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
	// Effect is NoSchedule, PreferNoSchedule or NoExecute.
	Effect string `json:"effect"`
}

// NodePoolStatus holds the values that the service reports for a node pool.
type NodePoolStatus struct {
	Conditions []Condition `json:"conditions,omitempty"`
	Replicas   int32       `json:"replicas,omitempty"`
	Version    string      `json:"version,omitempty"`
	Progress   []Progress  `json:"progress,omitempty"`
}

// Progress is the state of a resource in one layer of the service.
type Progress struct {
	Layer   string    `json:"layer"`
	State   string    `json:"state"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since"`
}
