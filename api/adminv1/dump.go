package adminv1

import (
	"encoding/json"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// The layers of a dump.
const (
	LayerARM            = "arm"
	LayerClusterService = "cluster-service"
	LayerMaestro        = "maestro"
	LayerMonitor        = "monitor"
)

// Dump is what every layer holds of one cluster at one time, without secrets. A layer that could not be read is nil and named in
// Unavailable; a layer that holds nothing is empty.
type Dump struct {
	TakenAt time.Time `json:"takenAt"`
	Cluster Cluster   `json:"cluster"`
	// ARM holds the desired state of the customer and its operations.
	ARM *ARMLayer `json:"arm,omitempty"`
	// ClusterService holds the desired and observed state of the fleet.
	ClusterService *FleetLayer `json:"clusterService,omitempty"`
	// Maestro holds the bundles in transport and their status.
	Maestro *MaestroLayer `json:"maestro,omitempty"`
	// Monitor holds the state of the cluster's API and its journal.
	Monitor *Journal `json:"monitor,omitempty"`
	// Unavailable maps each layer that could not be read to the reason.
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// ARMLayer is the part of a dump from Cosmos DB.
type ARMLayer struct {
	// Cluster is nil if ARM does not have the incarnation: it is deleted, or another incarnation has its name.
	Cluster       *ARMCluster       `json:"cluster,omitempty"`
	NodePools     []ARMNodePool     `json:"nodePools"`
	ExternalAuths []ARMExternalAuth `json:"externalAuths"`
	// Credentials are those of the cluster's administrators, without keys and certificates.
	Credentials []ARMCredential `json:"credentials"`
	// Unknown lists the IDs of children of a kind that this release does not know.
	Unknown []string `json:"unknown,omitempty"`
	// Operations lists the operations on the cluster and its children, newest first. Ended operations are kept for a week.
	Operations []ARMOperation `json:"operations"`
	// Billing is the billing record; nil if there is none.
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

// Pending reports whether the credential is requested and not issued.
func (c ARMCredential) Pending() bool { return c.State == "Pending" }

// ARMBilling is the billing period of a cluster.
type ARMBilling struct {
	CreationTime time.Time  `json:"creationTime"`
	DeletionTime *time.Time `json:"deletionTime,omitempty"`
}

// ARMState holds the fields that the documents of all ARM resources have.
type ARMState struct {
	UID               string                `json:"uid"`
	Generation        int64                 `json:"generation"`
	ProvisioningState hub.ProvisioningState `json:"provisioningState"`
	ActiveOperationID string                `json:"activeOperationId,omitempty"`
	// Fleet is the last report of Cluster Service.
	Fleet ARMFleetState `json:"fleet"`
	// Modified is when the document was last written, in whole seconds.
	Modified time.Time `json:"modified"`
}

// ARMFleetState is the last report of Cluster Service that a document stores.
type ARMFleetState struct {
	Revision           int64  `json:"revision,omitempty"`
	AcceptedGeneration int64  `json:"acceptedGeneration,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	Phase              string `json:"phase,omitempty"`
}

// ARMCluster is the document of a cluster.
type ARMCluster struct {
	ARMState
	RevocationOperationID string            `json:"revocationOperationId,omitempty"`
	Resource              hub.Cluster       `json:"resource"`
	Status                hub.ClusterStatus `json:"status"`
}

// ARMNodePool is the document of a node pool.
type ARMNodePool struct {
	ARMState
	Resource hub.NodePool       `json:"resource"`
	Status   hub.NodePoolStatus `json:"status"`
}

// ARMExternalAuth is the document of an external authentication.
type ARMExternalAuth struct {
	ARMState
	Resource hub.ExternalAuth       `json:"resource"`
	Status   hub.ExternalAuthStatus `json:"status"`
}

// ARMOperation is an asynchronous operation of ARM.
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
	// Deletion holds records of slow deletion steps.
	Deletion []DeletionNote `json:"deletion,omitempty"`
}

// The messages of Cluster Service in a dump.
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

// FleetLayer is the part of a dump from Cluster Service.
type FleetLayer struct {
	// Cluster is nil if Cluster Service does not have the incarnation.
	Cluster       *FleetCluster       `json:"cluster,omitempty"`
	NodePools     []FleetNodePool     `json:"nodePools"`
	ExternalAuths []FleetExternalAuth `json:"externalAuths"`
	// Credentials have no certificates.
	Credentials []FleetCredential `json:"credentials"`
	Revocations []FleetRevocation `json:"revocations"`
	Works       []FleetWork       `json:"works"`
	// Upgrades are in progress, or ended in the last week.
	Upgrades []FleetUpgrade `json:"upgrades"`
	// ProvisionShards are all shards of the region, to show where capacity is.
	ProvisionShards []FleetShard `json:"provisionShards"`
}

// MaestroLayer is the part of a dump from Maestro.
type MaestroLayer struct {
	Bundles []Bundle `json:"bundles"`
	// Ignored are malformed bundles. They are not in Bundles.
	Ignored wire.Ignored `json:"ignored,omitzero"`
}

// Bundle is a Maestro resource bundle: manifests for a management cluster and the status that its agent reported.
type Bundle struct {
	ID string `json:"id"`
	// Name is the name of the work in Cluster Service.
	Name     string `json:"name,omitempty"`
	Consumer string `json:"consumer"`
	// Version is Maestro's version of the content.
	Version   int64      `json:"version"`
	CreatedAt time.Time  `json:"createdAt"`
	UpdatedAt time.Time  `json:"updatedAt"`
	DeletedAt *time.Time `json:"deletedAt,omitempty"`
	// Manifests have no values of Secrets.
	Manifests []json.RawMessage `json:"manifests"`
	// Status is the status in the form of Maestro's REST API: conditions of the bundle, and conditions and feedback of each resource.
	Status json.RawMessage `json:"status,omitempty"`
	// Drift is how the layers below Cluster Service differ from the work, as in Drift.Difference. It is set in lists of works: empty
	// if they do not differ, Unknown if Cluster Service could not be read.
	Drift string `json:"drift,omitempty"`
}
