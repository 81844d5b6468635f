package adminv1

import (
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// TargetShard is the kind of the target of an action on a provision shard or its management cluster.
const TargetShard = "provisionShard"

// TargetServiceCluster is the kind of the target of an action on the service cluster of the region.
const TargetServiceCluster = "serviceCluster"

// ServiceCluster is the name of the service cluster where a management cluster has the name of its provision shard: in targets, access sessions, recordings and
// audit records. No provision shard can have this name.
const ServiceCluster = "service-cluster"

// TokenSessionTarget returns the kind of the target with a name: that of a provision shard, or ServiceCluster. Sessions with these targets have a token and no
// certificate.
func TokenSessionTarget(name string) string {
	if name == ServiceCluster {
		return TargetServiceCluster
	}
	return TargetShard
}

// HasTokenSessions reports whether TokenSessionTarget returns the kind of a target.
func HasTokenSessions(kind string) bool { return kind == TargetShard || kind == TargetServiceCluster }

// PauseRequest pauses HyperShift's reconciliation of a cluster and its node pools.
type PauseRequest struct {
	// Duration is a Go duration such as 2h, at most 168h. The operation stores the resulting end time.
	Duration string `json:"duration"`
}

// SetSizeRequest overrides the size class of a cluster's hosted control plane.
type SetSizeRequest struct {
	// Size is the name of a size class of the management cluster. Empty removes the override.
	Size string `json:"size"`
}

// ClusterActionList lists the actions that Cluster Service executed on a cluster, newest first.
type ClusterActionList struct {
	Items []ClusterAction `json:"items"`
}

// ClusterAction is an action that Cluster Service executed on a cluster.
type ClusterAction = Message[*clusterservicev1.ClusterAction]

// NodePool is a node pool in ARM and in the fleet.
type NodePool struct {
	// ARM is nil if ARM no longer has the node pool. ClusterService is nil if the node pool has not reached it.
	ARM            *ARMNodePool   `json:"arm,omitempty"`
	ClusterService *FleetNodePool `json:"clusterService,omitempty"`
	// Verdict is the state of the node pool, as that of a cluster. It is empty if the node pool has not reached Cluster Service.
	Verdict string `json:"verdict,omitempty"`
}

// NodePoolList lists the node pools of a cluster by name.
type NodePoolList struct {
	Items []NodePool `json:"items"`
}

// ScaleRequest sets the size of a node pool in the customer's place. Exactly one field is set. It is also the parameters of
// ActionNodePoolScale.
type ScaleRequest struct {
	// Replicas is 0 to 200.
	Replicas    *int32                   `json:"replicas,omitempty"`
	AutoScaling *hub.NodePoolAutoScaling `json:"autoScaling,omitempty"`
}

// ScaleResult is the result of ActionNodePoolScale.
type ScaleResult struct {
	// ARMOperationID is the ARM operation that brings the node pool to its size.
	ARMOperationID string `json:"armOperationId"`
	Generation     int64  `json:"generation"`
}

// CredentialRequest requests a client certificate of class sre. It is also the parameters of ActionCredentialRequest. The
// UID of the credential is the ID of the operation.
type CredentialRequest struct {
	// Level is reader or admin. Empty means reader.
	Level Level `json:"level,omitempty"`
	// CertificateSigningRequest is PEM. Its common name is system:sre-break-glass: and the object ID of the caller, and its only
	// organization is that of the level: system:cluster-readers or system:masters.
	CertificateSigningRequest string `json:"certificateSigningRequest"`
	// Duration is the validity of the certificate, a Go duration of 10m to 15m. The certificate must end before the elevation.
	// Empty means 15m, or less near the end of the elevation. The caller requests another one before it ends.
	Duration string `json:"duration,omitempty"`
}

// CredentialList lists the credentials of a cluster, without their certificates, and the revocations.
type CredentialList struct {
	Items       []FleetCredential `json:"items"`
	Revocations []FleetRevocation `json:"revocations"`
}

// RevokeRequest revokes all credentials of a class. It is also the parameters of ActionCredentialRevoke. The UID of the
// revocation is the ID of the operation.
type RevokeRequest struct {
	// Class is customer or sre.
	Class string `json:"class"`
}

// BundleList lists the Maestro bundles of a cluster.
type BundleList struct {
	Items []Bundle `json:"items"`
	// Ignored are malformed bundles of Maestro. They are not in Items.
	Ignored wire.Ignored `json:"ignored,omitzero"`
}

// ShardList lists the provision shards.
type ShardList struct {
	Items []Message[*clusterservicev1.ProvisionShard] `json:"items"`
}

// ARMOperationList lists ARM operations, newest first.
type ARMOperationList struct {
	Items []ARMOperation `json:"items"`
}

// Orphan is a Maestro bundle that belongs to no ManifestWork of Cluster Service.
type Orphan struct {
	ID        string    `json:"id"`
	Consumer  string    `json:"consumer"`
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
	// DeletedAt is when the deletion was requested. Maestro removes the bundle once the agent confirms the deletion.
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	// ClusterID is the cluster ID in its label.
	ClusterID string `json:"clusterId,omitempty"`
	// Objects are the objects in the bundle, for example HostedCluster ocm-local-…/name.
	Objects []string `json:"objects"`
}

// OrphanList lists the orphans of a region.
type OrphanList struct {
	Items []Orphan `json:"items"`
	// Ignored are malformed bundles of Maestro. They are not in Items, also if they are orphans.
	Ignored wire.Ignored `json:"ignored,omitzero"`
}
