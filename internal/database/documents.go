package database

import (
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// ClusterDocument is a cluster as the customer asked for it and how that stands.
type ClusterDocument struct {
	// UID names this incarnation of the resource id: a UUID made by the create request.
	UID string `json:"uid"`
	// Generation grows by one with every accepted change of the desired state; the first is 1.
	Generation int64 `json:"generation"`
	// Cluster is the desired state of that generation.
	Cluster           hub.Cluster           `json:"cluster"`
	ProvisioningState hub.ProvisioningState `json:"provisioningState"`
	// ActiveOperationID is the operation that will make ProvisioningState terminal; empty when it is.
	ActiveOperationID string `json:"activeOperationId,omitempty"`
	// RevocationOperationID is the operation that revokes the cluster's admin credentials, while it runs: no credential can
	// be asked for. The batch that ends that operation clears it.
	RevocationOperationID string `json:"revocationOperationId,omitempty"`
	// TenantID and IdentityURL are what ARM said when the cluster was created.
	TenantID    string `json:"tenantId,omitempty"`
	IdentityURL string `json:"identityUrl,omitempty"`
	// Status is what was last seen of the cluster, and Fleet how far Cluster Service has come.
	Status hub.ClusterStatus `json:"status"`
	Fleet  FleetState        `json:"fleet"`
}

// NodePoolDocument is a node pool as the customer asked for it and how that stands.
type NodePoolDocument struct {
	UID string `json:"uid"`
	// ClusterUID is the incarnation of the cluster that the pool belongs to.
	ClusterUID        string                `json:"clusterUid"`
	Generation        int64                 `json:"generation"`
	NodePool          hub.NodePool          `json:"nodePool"`
	ProvisioningState hub.ProvisioningState `json:"provisioningState"`
	ActiveOperationID string                `json:"activeOperationId,omitempty"`
	Status            hub.NodePoolStatus    `json:"status"`
	Fleet             FleetState            `json:"fleet"`
}

// ExternalAuthDocument is an external auth as the customer asked for it and how that stands.
type ExternalAuthDocument struct {
	UID string `json:"uid"`
	// ClusterUID is the incarnation of the cluster that the external auth belongs to.
	ClusterUID        string                 `json:"clusterUid"`
	Generation        int64                  `json:"generation"`
	ExternalAuth      hub.ExternalAuth       `json:"externalAuth"`
	ProvisioningState hub.ProvisioningState  `json:"provisioningState"`
	ActiveOperationID string                 `json:"activeOperationId,omitempty"`
	Status            hub.ExternalAuthStatus `json:"status"`
	Fleet             FleetState             `json:"fleet"`
}

// FleetState is the resource as Cluster Service last reported it.
type FleetState struct {
	// Revision of the report; an older report never overwrites a newer one.
	Revision int64 `json:"revision,omitempty"`
	// AcceptedGeneration is the newest generation that Cluster Service has stored, ObservedGeneration the newest that
	// took full effect.
	AcceptedGeneration int64  `json:"acceptedGeneration,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	Phase              string `json:"phase,omitempty"`
	// Recovery is what Cluster Service needs besides the document should it lose the cluster; nil until it has something.
	Recovery *FleetRecovery `json:"recovery,omitempty"`
}

// FleetRecovery is what a cluster has in the fleet that follows from no document. It goes back to Cluster Service with every
// request.
type FleetRecovery struct {
	// Fingerprint says of which state of the cluster it is: another one has it read again.
	Fingerprint      string    `json:"of"`
	ProvisionShard   string    `json:"provisionShard"`
	ReleaseVersion   string    `json:"releaseVersion"`
	ReleaseImage     string    `json:"releaseImage"`
	BaseDomainPrefix string    `json:"baseDomainPrefix,omitempty"`
	CreateTime       time.Time `json:"createTime"`
	// SigningKey is sealed by Cluster Service, which alone can open it.
	SigningKey []byte `json:"signingKey,omitempty"`
	// SubnetAssociated says that the association of the customer's subnet with its network security group is the service's.
	SubnetAssociated bool `json:"subnetAssociated,omitempty"`
}

// OperationRequest is what an operation does to its resource.
type OperationRequest string

// The requests.
const (
	CreateRequest OperationRequest = "Create"
	UpdateRequest OperationRequest = "Update"
	DeleteRequest OperationRequest = "Delete"
	// RequestCredentialRequest works on a credential (CredentialKey), whose uid is the operation's id.
	RequestCredentialRequest OperationRequest = "RequestCredential"
	// RevokeCredentialsRequest revokes all credentials of a cluster that were issued before; see RevocationKey.
	RevokeCredentialsRequest OperationRequest = "RevokeCredentials"
)

// OperationDocument is one asynchronous operation. It is removed OperationTTL after its end.
type OperationDocument struct {
	OperationID string           `json:"operationId"`
	Request     OperationRequest `json:"request"`
	// ResourceID, ResourceType and UID name the resource that it works on, Generation what it works towards. For
	// credentials and their revocation, which have no generations, the UID is the cluster's.
	ResourceID   string                `json:"resourceId"`
	ResourceType string                `json:"resourceType"`
	UID          string                `json:"uid"`
	Generation   int64                 `json:"generation"`
	Location     string                `json:"location"`
	Status       hub.ProvisioningState `json:"status"`
	StartTime    time.Time             `json:"startTime"`
	// LastTransitionTime is when Status last changed; EndTime is set with a terminal one.
	LastTransitionTime time.Time       `json:"lastTransitionTime"`
	EndTime            *time.Time      `json:"endTime,omitempty"`
	Error              *OperationError `json:"error,omitempty"`
	// The caller, who alone may see the operation: the subscription's tenant, the caller's own, which is another one where
	// somebody else manages the subscription, and the caller.
	TenantID       string `json:"tenantId,omitempty"`
	ClientTenantID string `json:"clientTenantId,omitempty"`
	ClientID       string `json:"clientId,omitempty"`
	// Requester names the caller for the record of what is done with credentials: 1 to 256 characters.
	Requester     string `json:"requester,omitempty"`
	CorrelationID string `json:"correlationId,omitempty"`
	// TraceParent is the W3C trace context of the request, for what works on the operation to link to.
	TraceParent     string `json:"traceParent,omitempty"`
	NotificationURI string `json:"notificationUri,omitempty"`
	// Notification is how the notification of the operation's end stands, from its first attempt on.
	Notification *NotificationState `json:"notification,omitempty"`
	APIVersion   string             `json:"apiVersion,omitempty"`
	// DeletionNotes is what is kept of the steps of a deletion that took too long; the stored form is that in which it is shown.
	DeletionNotes []adminv1.DeletionNote `json:"deletion,omitempty"`
}

// NotificationState is how far the notification of an operation's end has come.
type NotificationState struct {
	// Attempts that have been begun, and when the next one may be.
	Attempts    int       `json:"attempts"`
	NextAttempt time.Time `json:"nextAttempt"`
	// EndTime is when it was delivered, or given up.
	EndTime   *time.Time `json:"endTime,omitempty"`
	Delivered bool       `json:"delivered,omitempty"`
}

// OperationError is an ARM error as an operation ends with it.
type OperationError struct {
	Code    string           `json:"code"`
	Message string           `json:"message"`
	Target  string           `json:"target,omitempty"`
	Details []OperationError `json:"details,omitempty"`
}

// SubscriptionDocument is a subscription as ARM last described it.
type SubscriptionDocument struct {
	Subscription hub.Subscription `json:"subscription"`
	// EmptiedTime is when the backend found that a Deleted subscription has no cluster left.
	EmptiedTime *time.Time `json:"emptied,omitempty"`
}

// ReservationDocument keeps a name for one resource of a subscription: its id derives from what is reserved, so that
// two writers cannot both create it.
type ReservationDocument struct {
	// Kind is managedResourceGroup, subnet or networkSecurityGroup.
	Kind string `json:"kind"`
	// Name is what is reserved, in lower case.
	Name            string `json:"name"`
	OwnerResourceID string `json:"ownerResourceId"`
	OwnerUID        string `json:"ownerUid"`
}
