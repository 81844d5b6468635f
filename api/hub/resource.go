// Package hub holds hcpmesh's own types of the ARM resources: one of each, whatever api-version a client speaks. Each
// api-version has a package of its own that converts its wire types from and to these; everything behind the frontend
// knows only these. The types hold what the customer asked for; how far it has come stands beside them in the store.
//
// The JSON form is what Cosmos DB keeps. A field may be added; none is ever renamed or given another meaning.
package hub

import (
	"strings"
	"time"
)

// ProviderNamespace is the ARM resource provider.
const ProviderNamespace = "Microsoft.RedHatOpenShift"

// The resource types, in their canonical casing.
const (
	ClusterResourceType      = ProviderNamespace + "/hcpOpenShiftClusters"
	NodePoolResourceType     = ClusterResourceType + "/nodePools"
	ExternalAuthResourceType = ClusterResourceType + "/externalAuths"
	SubscriptionResourceType = "Microsoft.Resources/subscriptions"
)

// ProvisioningState is how the last accepted change of a resource stands.
type ProvisioningState string

// The states that ARM knows.
const (
	Accepted     ProvisioningState = "Accepted"
	Provisioning ProvisioningState = "Provisioning"
	Updating     ProvisioningState = "Updating"
	Deleting     ProvisioningState = "Deleting"
	Succeeded    ProvisioningState = "Succeeded"
	Failed       ProvisioningState = "Failed"
	Canceled     ProvisioningState = "Canceled"
	// AwaitingSecret is an external auth's that works but for a confidential client's secret, which the customer has yet
	// to give.
	AwaitingSecret ProvisioningState = "AwaitingSecret"
)

// Terminal reports whether nothing is under way. AwaitingSecret is not terminal: something still has to happen.
func (s ProvisioningState) Terminal() bool {
	return s == Succeeded || s == Failed || s == Canceled
}

// Resource is what every resource has; location, tags and identity are those of tracked resources only.
type Resource struct {
	// ID is the ARM resource id in the casing of the create request.
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Type       string            `json:"type"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	SystemData *SystemData       `json:"systemData,omitempty"`
	Identity   *Identity         `json:"identity,omitempty"`
}

// SystemData says who made and who last changed a resource; ARM sends it with every write.
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
	// UserAssigned is keyed by the identities' ARM ids as the customer wrote them.
	UserAssigned map[string]UserAssignedIdentity `json:"userAssignedIdentities,omitempty"`
}

// UserAssignedIdentity is filled in by ARM.
type UserAssignedIdentity struct {
	ClientID    string `json:"clientId,omitempty"`
	PrincipalID string `json:"principalId,omitempty"`
}

// Key is the form of an ARM id under which things are compared and stored: ARM ids are case-insensitive.
func Key(id string) string {
	return strings.ToLower(id)
}

// Condition is one aspect of a resource's observed state, in Kubernetes' sense.
type Condition struct {
	Type               string    `json:"type"`
	Status             string    `json:"status"`
	Reason             string    `json:"reason,omitempty"`
	Message            string    `json:"message,omitempty"`
	LastTransitionTime time.Time `json:"lastTransitionTime"`
}

// Visibility says from where an endpoint can be reached.
type Visibility string

// The visibilities.
const (
	Public  Visibility = "Public"
	Private Visibility = "Private"
)

// Version selects a release.
type Version struct {
	// ID is MAJOR.MINOR for a cluster and MAJOR.MINOR.PATCH for a node pool.
	ID           string `json:"id,omitempty"`
	ChannelGroup string `json:"channelGroup,omitempty"`
}
