package adminv1

import (
	"encoding/json"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// The layers of a dump.
const (
	LayerARM            = "arm"
	LayerClusterService = "cluster-service"
	LayerMaestro        = "maestro"
)

// Dump is what every layer knows of one cluster, taken at one moment, with secrets removed. A layer that could not be
// asked is missing, and Unavailable says why; one that was asked and knows nothing is empty.
type Dump struct {
	TakenAt time.Time `json:"takenAt"`
	Cluster Cluster   `json:"cluster"`
	// ARM is what the customer asked for, and how that stands; nil when it could not be read.
	ARM *ARMLayer `json:"arm,omitempty"`
	// ClusterService is what the fleet wants and sees.
	ClusterService *FleetLayer `json:"clusterService,omitempty"`
	// Maestro is what is on its way to the management cluster, and back.
	Maestro *MaestroLayer `json:"maestro,omitempty"`
	// Unavailable maps each layer that could not be read to the reason.
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// ARMLayer is Cosmos DB's part of a dump.
type ARMLayer struct {
	// Cluster is nil when ARM does not know the incarnation: it was deleted, or another one has its name.
	Cluster       *ARMCluster       `json:"cluster,omitempty"`
	NodePools     []ARMNodePool     `json:"nodePools"`
	ExternalAuths []ARMExternalAuth `json:"externalAuths"`
	// Credentials of the cluster's administrators, without keys and certificates.
	Credentials []ARMCredential `json:"credentials"`
	// Unknown are the ids of documents beneath the cluster of a kind that this release does not know.
	Unknown []string `json:"unknown,omitempty"`
	// Operations of the cluster and of what is below it, newest first; ended ones are kept for a week.
	Operations []ARMOperation `json:"operations"`
	// Billing is what is noted for whoever bills; nil when nothing is.
	Billing *ARMBilling `json:"billing,omitempty"`
}

// ARMCredential is the document of a customer's credential.
type ARMCredential struct {
	UID string `json:"uid"`
	// State is Pending, Issued, Failed, Canceled or Revoked.
	State          string     `json:"state"`
	Requester      string     `json:"requester"`
	ExpirationTime *time.Time `json:"expirationTime,omitempty"`
}

// Pending says that it is asked for and not issued.
func (c ARMCredential) Pending() bool { return c.State == "Pending" }

// ARMBilling is the billable life of a cluster.
type ARMBilling struct {
	CreationTime time.Time  `json:"creationTime"`
	DeletionTime *time.Time `json:"deletionTime,omitempty"`
}

// ARMState is what the documents of all ARM resources have.
type ARMState struct {
	UID               string                `json:"uid"`
	Generation        int64                 `json:"generation"`
	ProvisioningState hub.ProvisioningState `json:"provisioningState"`
	ActiveOperationID string                `json:"activeOperationId,omitempty"`
	// Fleet is how far Cluster Service had come by its last report.
	Fleet ARMFleetState `json:"fleet"`
	// Modified is when the document was last written, in whole seconds.
	Modified time.Time `json:"modified"`
}

// ARMFleetState is the last report of Cluster Service that reached a document.
type ARMFleetState struct {
	Revision           int64  `json:"revision,omitempty"`
	AcceptedGeneration int64  `json:"acceptedGeneration,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	Phase              string `json:"phase,omitempty"`
}

// ARMCluster is a cluster's document.
type ARMCluster struct {
	ARMState
	RevocationOperationID string            `json:"revocationOperationId,omitempty"`
	Resource              hub.Cluster       `json:"resource"`
	Status                hub.ClusterStatus `json:"status"`
}

// ARMNodePool is a node pool's document.
type ARMNodePool struct {
	ARMState
	Resource hub.NodePool       `json:"resource"`
	Status   hub.NodePoolStatus `json:"status"`
}

// ARMExternalAuth is an external auth's document.
type ARMExternalAuth struct {
	ARMState
	Resource hub.ExternalAuth       `json:"resource"`
	Status   hub.ExternalAuthStatus `json:"status"`
}

// ARMOperation is an asynchronous operation of ARM's.
type ARMOperation struct {
	OperationID        string                `json:"operationId"`
	Request            string                `json:"request"`
	ResourceID         string                `json:"resourceId"`
	UID                string                `json:"uid"`
	Generation         int64                 `json:"generation,omitempty"`
	Status             hub.ProvisioningState `json:"status"`
	StartTime          time.Time             `json:"startTime"`
	LastTransitionTime time.Time             `json:"lastTransitionTime"`
	EndTime            *time.Time            `json:"endTime,omitempty"`
	Error              *FailureDetail        `json:"error,omitempty"`
	CorrelationID      string                `json:"correlationId,omitempty"`
	// Deletion is what is kept of the steps of a deletion that took too long.
	Deletion []DeletionNote `json:"deletion,omitempty"`
}

// The messages of Cluster Service's that a dump shows.
type (
	FleetCluster      = Message[*clusterservicev1.Cluster]
	FleetNodePool     = Message[*clusterservicev1.NodePool]
	FleetExternalAuth = Message[*clusterservicev1.ExternalAuth]
	FleetCredential   = Message[*clusterservicev1.BreakGlassCredential]
	FleetRevocation   = Message[*clusterservicev1.BreakGlassRevocation]
	FleetWork         = Message[*clusterservicev1.Work]
	FleetUpgrade      = Message[*clusterservicev1.Upgrade]
	FleetShard        = Message[*clusterservicev1.ProvisionShard]
)

// FleetLayer is Cluster Service's part of a dump.
type FleetLayer struct {
	// Cluster is nil when Cluster Service does not know the incarnation.
	Cluster       *FleetCluster       `json:"cluster,omitempty"`
	NodePools     []FleetNodePool     `json:"nodePools"`
	ExternalAuths []FleetExternalAuth `json:"externalAuths"`
	// Credentials are without their certificates.
	Credentials []FleetCredential `json:"credentials"`
	Revocations []FleetRevocation `json:"revocations"`
	Works       []FleetWork       `json:"works"`
	// Upgrades that are under way, and that ended in the last week.
	Upgrades []FleetUpgrade `json:"upgrades"`
	// ProvisionShards are all of the region, to see where there is room.
	ProvisionShards []FleetShard `json:"provisionShards"`
}

// MaestroLayer is Maestro's part of a dump.
type MaestroLayer struct {
	Bundles []Bundle `json:"bundles"`
}

// Bundle is a resource bundle of Maestro's: manifests for a management cluster, and what its agent says of them.
type Bundle struct {
	ID string `json:"id"`
	// Name of the work at Cluster Service.
	Name     string `json:"name,omitempty"`
	Consumer string `json:"consumer"`
	// Version of the content, as Maestro counts.
	Version   int64      `json:"version"`
	CreatedAt time.Time  `json:"createdAt"`
	UpdatedAt time.Time  `json:"updatedAt"`
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	// Manifests with the data of Secrets taken out.
	Manifests []json.RawMessage `json:"manifests"`
	// Status in the published form of Maestro's REST API: conditions of the work and, for each resource, conditions and
	// the values that were asked back.
	Status json.RawMessage `json:"status,omitempty"`
}
