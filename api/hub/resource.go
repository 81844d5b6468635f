// Package hub holds the version-independent types of the ARM resources. Each api-version has a package that converts its
// wire form to and from these types, and everything behind the frontend uses only them. The properties hold the
// customer's desired state; documents store the reported status beside them.
//
// Cosmos DB stores the JSON form. Fields may be added, but never renamed or given another meaning.
package hub

import (
	"strings"
	"time"
)

// ProviderNamespace is the namespace of the ARM resource provider.
const ProviderNamespace = "Microsoft.RedHatOpenShift"

// The resource types, in their canonical casing.
const (
	ClusterResourceType      = ProviderNamespace + "/hcpOpenShiftClusters"
	NodePoolResourceType     = ClusterResourceType + "/nodePools"
	ExternalAuthResourceType = ClusterResourceType + "/externalAuths"
	SubscriptionResourceType = "Microsoft.Resources/subscriptions"
)

// ProvisioningState is the state of the newest operation of a resource.
type ProvisioningState string

// The provisioning states. Their names are part of the ARM contract.
const (
	Accepted     ProvisioningState = "Accepted"
	Provisioning ProvisioningState = "Provisioning"
	Updating     ProvisioningState = "Updating"
	Deleting     ProvisioningState = "Deleting"
	Succeeded    ProvisioningState = "Succeeded"
	Failed       ProvisioningState = "Failed"
	Canceled     ProvisioningState = "Canceled"
	// AwaitingSecret is the state of an external authentication that is in effect except for a confidential client, whose
	// secret the customer has not provided yet.
	AwaitingSecret ProvisioningState = "AwaitingSecret"
)

// Terminal reports whether no operation is in progress. AwaitingSecret is not terminal.
func (s ProvisioningState) Terminal() bool {
	return s == Succeeded || s == Failed || s == Canceled
}

// Resource holds the fields of every ARM resource. Only tracked resources have a location, tags and an identity.
type Resource struct {
	// ID is the ARM resource ID in the casing of the create request.
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	SystemData *SystemData       `json:"systemData,omitempty"`
	Identity   *Identity         `json:"identity,omitempty"`
	// Experiments holds the experimental tags in effect, with the names of package experiment. The frontend sets it with
	// each change of the resource, and clients never see it. A tag of a subscription without the feature is not in effect.
	Experiments map[string]string `json:"experiments,omitempty"`
}

// SystemData records who created and who last changed a resource. ARM sends it with every write.
type SystemData struct {
	CreatedBy          string     `json:"createdBy,omitempty"`
	CreatedByType      string     `json:"createdByType,omitempty"`
	CreatedAt          *time.Time `json:"createdAt,omitempty"`
	LastModifiedBy     string     `json:"lastModifiedBy,omitempty"`
	LastModifiedByType string     `json:"lastModifiedByType,omitempty"`
	LastModifiedAt     *time.Time `json:"lastModifiedAt,omitempty"`
}

// Identity is the resource's managed identity.
type Identity struct {
	// Type is None, UserAssigned, SystemAssigned or "SystemAssigned,UserAssigned".
	Type        string `json:"type"`
	PrincipalID string `json:"principalId,omitempty"`
	TenantID    string `json:"tenantId,omitempty"`
	// UserAssigned has the ARM IDs of the identities as keys, in the customer's casing.
	UserAssigned map[string]UserAssignedIdentity `json:"userAssignedIdentities,omitempty"`
}

// UserAssignedIdentity holds the IDs of an identity. In a resource they are what a client sent: the frontend compares them
// with ClusterStatus.Identities and does not store them. Documents of early releases contain them, and no response does.
type UserAssignedIdentity struct {
	ClientID    string `json:"clientId,omitempty"`
	PrincipalID string `json:"principalId,omitempty"`
}

// Key returns the form of an ARM ID for comparisons and map keys. ARM IDs are case-insensitive.
func Key(id string) string {
	return strings.ToLower(id)
}

// Condition is one aspect of a resource's observed state, as in Kubernetes.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// Visibility is the network from which an endpoint can be reached.
type Visibility string

// The visibilities. Cluster Service's translation and the tables of the api-versions list every value.
const (
	Public  Visibility = "Public"
	Private Visibility = "Private"
)

// Version selects an OpenShift release.
type Version struct {
	// ID is MAJOR.MINOR for a cluster and MAJOR.MINOR.PATCH for a node pool.
	ID           string `json:"id,omitempty"`
	ChannelGroup string `json:"channelGroup,omitempty"`
}
