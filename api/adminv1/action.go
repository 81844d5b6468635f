package adminv1

import (
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// The actions: the names of the routes that change something, by which the backend knows what to do. The parameters of
// those that are Cluster Service's alone are its request, in protobuf's JSON form, without who asks.
const (
	ActionClusterPause  = "clusters.pause"
	ActionClusterResume = "clusters.resume"
	ActionClusterResize = "clusters.resize"
	ActionClusterRetry  = "clusters.retry"
	ActionClusterForce  = "clusters.force"

	ActionDeletionRetry   = "deletions.retry"
	ActionDeletionRelease = "deletions.release"
	ActionDeletionForce   = "deletions.force"

	ActionUpgradeStart        = "upgrades.start"
	ActionUpgradePause        = "upgrades.pause"
	ActionUpgradeResume       = "upgrades.resume"
	ActionUpgradeAbort        = "upgrades.abort"
	ActionUpgradeAcknowledge  = "upgrades.acknowledge"
	ActionUpgradePolicyApply  = "upgradePolicies.apply"
	ActionUpgradePolicyDelete = "upgradePolicies.delete"

	ActionNodePoolScale = "nodePools.scale"

	ActionCredentialRequest = "credentials.request"
	ActionCredentialRevoke  = "credentials.revoke"

	ActionShardUpdate     = "shards.update"
	ActionShardRegister   = "shards.register"
	ActionShardDrain      = "shards.drain"
	ActionShardDeregister = "shards.deregister"

	ActionPlacementSet = "placement.set"

	ActionARMOperationRetry  = "armOperations.retry"
	ActionARMOperationCancel = "armOperations.cancel"

	ActionOrphanDelete = "orphans.delete"

	ActionDriftReconcile = "drift.reconcile"
	ActionDriftDelete    = "drift.delete"
)

// PauseRequest pauses HyperShift's reconciliation of a cluster and its node pools.
type PauseRequest struct {
	// Duration is one of Go's, as in 2h: up to 168h. What is kept of it is when that ends.
	Duration string `json:"duration"`
}

// ResizeRequest overrides the size of a cluster's control plane.
type ResizeRequest struct {
	// Size is the name of one of the management cluster's sizes; empty takes the override back.
	Size string `json:"size"`
}

// InterventionList is what SREs had Cluster Service do to a cluster.
type InterventionList struct {
	Items []Intervention `json:"items"`
}

// Intervention is one of Cluster Service's.
type Intervention = Message[*clusterservicev1.ClusterAction]

// NodePool is a node pool in ARM and in the fleet.
type NodePool struct {
	// ARM is nil when ARM no longer knows it, ClusterService when it has not reached that.
	ARM            *ARMNodePool   `json:"arm,omitempty"`
	ClusterService *FleetNodePool `json:"clusterService,omitempty"`
}

// NodePoolList is the node pools of a cluster, by name.
type NodePoolList struct {
	Items []NodePool `json:"items"`
}

// ScaleRequest sets the size of a node pool in the customer's place: exactly one field. It is also the parameters of
// ActionNodePoolScale.
type ScaleRequest struct {
	// Replicas is 0 to 200.
	Replicas    *int32                   `json:"replicas,omitempty"`
	AutoScaling *hub.NodePoolAutoScaling `json:"autoScaling,omitempty"`
}

// ScaleResult is the result of ActionNodePoolScale.
type ScaleResult struct {
	// ARMOperationID is the operation of ARM's that brings the pool to its size.
	ARMOperationID string `json:"armOperationId"`
	Generation     int64  `json:"generation"`
}

// CredentialRequest asks for a client certificate of the SREs' class. It is also the parameters of
// ActionCredentialRequest; the credential's uid is the operation's id.
type CredentialRequest struct {
	// CertificateSigningRequest is PEM; its common name begins with system:sre-break-glass: and its only organization is
	// system:masters.
	CertificateSigningRequest string `json:"certificateSigningRequest"`
	// Duration is how long the certificate is valid, one of Go's: 10m to 24h; empty means 1h.
	Duration string `json:"duration,omitempty"`
}

// CredentialList is the credentials of a cluster, without their certificates, and the revocations.
type CredentialList struct {
	Items       []FleetCredential `json:"items"`
	Revocations []FleetRevocation `json:"revocations"`
}

// RevokeRequest revokes all credentials of a class. It is also the parameters of ActionCredentialRevoke; the revocation's
// uid is the operation's id.
type RevokeRequest struct {
	// Class is customer or sre.
	Class string `json:"class"`
}

// BundleList is the bundles of a cluster at Maestro.
type BundleList struct {
	Items []Bundle `json:"items"`
}

// ShardList is the provision shards.
type ShardList struct {
	Items []Message[*clusterservicev1.ProvisionShard] `json:"items"`
}

// ARMOperationList is operations of ARM's, newest first.
type ARMOperationList struct {
	Items []ARMOperation `json:"items"`
}

// Orphan is a bundle at Maestro that no work of Cluster Service's is for.
type Orphan struct {
	ID        string    `json:"id"`
	Consumer  string    `json:"consumer"`
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// DeletedAt is when its deletion was asked for; it is gone when the management cluster has confirmed that.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	// ClusterID is the id below ARM that its label names.
	ClusterID string `json:"clusterId,omitempty"`
	// Objects are what it carries, as in HostedCluster ocm-local-…/name.
	Objects []string `json:"objects"`
}

// OrphanList is the orphans of a region.
type OrphanList struct {
	Items []Orphan `json:"items"`
}
