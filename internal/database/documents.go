package database

import (
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// ClusterDocument is the desired state and the status of a cluster.
type ClusterDocument struct {
	// UID identifies this incarnation of the resource ID. The create request generates it.
	UID string `json:"uid"`
	// Generation grows by one with every accepted change of the desired state. The first is 1.
	Generation int64 `json:"generation"`
	// Cluster is the desired state of that generation.
	Cluster           hub.Cluster           `json:"cluster"`
	ProvisioningState hub.ProvisioningState `json:"provisioningState"`
	// ActiveOperationID is the operation that will make ProvisioningState terminal, or empty if it is terminal.
	ActiveOperationID string `json:"activeOperationId,omitempty"`
	// RevocationOperationID is the running operation that revokes the cluster's admin credentials, or empty. While it
	// is set, requests for credentials are rejected. The batch that ends the operation clears it.
	RevocationOperationID string `json:"revocationOperationId,omitempty"`
	// TenantID and IdentityURL are from ARM's headers of the create request.
	TenantID    string `json:"tenantId,omitempty"`
	IdentityURL string `json:"identityUrl,omitempty"`
	// QuotaSlot is the slot of the subscription's quota that the cluster holds; nil for a cluster that was created before
	// there were quotas.
	QuotaSlot *int `json:"quotaSlot,omitempty"`
	// Status is the last reported status. Fleet is the progress of Cluster Service.
	Status hub.ClusterStatus `json:"status"`
	Fleet  FleetState        `json:"fleet"`
}

// NodePoolDocument is the desired state and the status of a node pool.
type NodePoolDocument struct {
	UID string `json:"uid"`
	// ClusterUID is the incarnation of the node pool's cluster.
	ClusterUID        string                `json:"clusterUid"`
	Generation        int64                 `json:"generation"`
	NodePool          hub.NodePool          `json:"nodePool"`
	ProvisioningState hub.ProvisioningState `json:"provisioningState"`
	ActiveOperationID string                `json:"activeOperationId,omitempty"`
	Status            hub.NodePoolStatus    `json:"status"`
	Fleet             FleetState            `json:"fleet"`
}

// ExternalAuthDocument is the desired state and the status of an external authentication.
type ExternalAuthDocument struct {
	UID string `json:"uid"`
	// ClusterUID is the incarnation of the external authentication's cluster.
	ClusterUID        string                 `json:"clusterUid"`
	Generation        int64                  `json:"generation"`
	ExternalAuth      hub.ExternalAuth       `json:"externalAuth"`
	ProvisioningState hub.ProvisioningState  `json:"provisioningState"`
	ActiveOperationID string                 `json:"activeOperationId,omitempty"`
	Status            hub.ExternalAuthStatus `json:"status"`
	Fleet             FleetState             `json:"fleet"`
}

// FleetState is the state that Cluster Service last reported.
type FleetState struct {
	// Revision of the report. An older report never overwrites a newer one.
	Revision int64 `json:"revision,omitempty"`
	// AcceptedGeneration is the newest generation that Cluster Service has stored, ObservedGeneration the newest that
	// took full effect.
	AcceptedGeneration int64  `json:"acceptedGeneration,omitempty"`
	ObservedGeneration int64  `json:"observedGeneration,omitempty"`
	Phase              string `json:"phase,omitempty"`
	// Recovery is what Cluster Service needs, in addition to the document, to recreate a lost cluster. It is nil until
	// there is something to keep.
	Recovery *FleetRecovery `json:"recovery,omitempty"`
}

// FleetRecovery holds decisions of Cluster Service about a cluster that do not follow from the document. It is sent to
// Cluster Service with every request.
type FleetRecovery struct {
	// Fingerprint identifies the state of the cluster that the recovery was read for. If the fingerprint of a report
	// differs, the recovery is read again.
	Fingerprint      string    `json:"of"`
	ProvisionShard   string    `json:"provisionShard"`
	ReleaseVersion   string    `json:"releaseVersion"`
	ReleaseImage     string    `json:"releaseImage"`
	BaseDomainPrefix string    `json:"baseDomainPrefix,omitempty"`
	CreateTime       time.Time `json:"createTime"`
	// SigningKey is encrypted by Cluster Service. Only Cluster Service can decrypt it.
	SigningKey []byte `json:"signingKey,omitempty"`
	// SubnetAssociated is set if the service has associated the customer's subnet with its network security group.
	SubnetAssociated bool `json:"subnetAssociated,omitempty"`
}

// OperationRequest is the kind of change that an operation makes.
type OperationRequest string

// The requests.
const (
	CreateRequest OperationRequest = "Create"
	UpdateRequest OperationRequest = "Update"
	DeleteRequest OperationRequest = "Delete"
	// RequestCredentialRequest is about a credential (CredentialKey). The UID of the credential is the operation ID.
	RequestCredentialRequest OperationRequest = "RequestCredential"
	// RevokeCredentialsRequest revokes all credentials of a cluster that were issued before; see RevocationKey.
	RevokeCredentialsRequest OperationRequest = "RevokeCredentials"
)

// OperationDocument is one asynchronous operation. Cosmos DB removes it OperationTTL after its end.
type OperationDocument struct {
	OperationID string           `json:"operationId"`
	Request     OperationRequest `json:"request"`
	// ResourceID, ResourceType and UID identify the resource. Generation is the target of the operation. For
	// credentials and revocations, which have no generations, UID is the cluster's.
	ResourceID   string                `json:"resourceId"`
	ResourceType string                `json:"resourceType"`
	UID          string                `json:"uid"`
	Generation   int64                 `json:"generation"`
	Location     string                `json:"location"`
	Status       hub.ProvisioningState `json:"status"`
	StartTime    time.Time             `json:"startTime"`
	// LastTransitionTime is when Status last changed. EndTime is set with a terminal status.
	LastTransitionTime time.Time       `json:"lastTransitionTime"`
	EndTime            *time.Time      `json:"endTime,omitempty"`
	Error              *OperationError `json:"error,omitempty"`
	// The caller. Only the caller may read the operation. TenantID is the subscription's tenant. ClientTenantID is the
	// caller's tenant; it differs if another organization manages the subscription.
	TenantID       string `json:"tenantId,omitempty"`
	ClientTenantID string `json:"clientTenantId,omitempty"`
	ClientID       string `json:"clientId,omitempty"`
	// Requester names the caller in the audit of credentials. It has 1 to 256 characters.
	Requester     string `json:"requester,omitempty"`
	CorrelationID string `json:"correlationId,omitempty"`
	// TraceParent is the W3C trace context of the request. Spans of the operation continue it.
	TraceParent     string `json:"traceParent,omitempty"`
	NotificationURI string `json:"notificationUri,omitempty"`
	// Notification is the progress of the notification about the operation's end, or nil before the first attempt.
	Notification *NotificationState `json:"notification,omitempty"`
	APIVersion   string             `json:"apiVersion,omitempty"`
	// DeletionNotes are the last failures of deletion steps that took too long.
	DeletionNotes []adminv1.DeletionNote `json:"deletion,omitempty"`
}

// NotificationState is the progress of the notification about an operation's end.
type NotificationState struct {
	// Attempts is the number of started attempts. NextAttempt is the earliest time of the next one.
	Attempts    int       `json:"attempts"`
	NextAttempt time.Time `json:"nextAttempt"`
	// EndTime is when the notification was delivered or abandoned.
	EndTime   *time.Time `json:"endTime,omitempty"`
	Delivered bool       `json:"delivered,omitempty"`
}

// OperationError is the ARM error of a failed or canceled operation.
type OperationError struct {
	Code    string           `json:"code"`
	Message string           `json:"message"`
	Target  string           `json:"target,omitempty"`
	Details []OperationError `json:"details,omitempty"`
	// Cause is the reason in the service's own terms, for example the error of Cluster Service. Only engineers of the
	// service may read it.
	Cause string `json:"cause,omitempty"`
	// Layer is the layer of the service that the resource waited for at the operation's deadline. It is empty for other
	// errors, and if it is not known.
	Layer string `json:"layer,omitempty"`
}

// Diagnosis returns the message followed by the cause, for engineers of the service.
func (e *OperationError) Diagnosis() string {
	if e.Cause == "" {
		return e.Message
	}
	return e.Message + " Cause: " + e.Cause
}

// SubscriptionDocument is a subscription as ARM last described it.
type SubscriptionDocument struct {
	Subscription hub.Subscription `json:"subscription"`
	// EmptiedTime is when the backend found that a Deleted subscription has no clusters left.
	EmptiedTime *time.Time `json:"emptied,omitempty"`
	// ClusterQuota is the quota that an engineer has set; nil means the default of the region.
	ClusterQuota *ClusterQuota `json:"clusterQuota,omitempty"`
}

// ClusterQuota is a decision of an engineer about the quota of a subscription.
type ClusterQuota struct {
	// Clusters is the number of clusters that the subscription may have in the region; nil means the default of the region.
	Clusters *int `json:"clusters,omitempty"`
	// OperationID is the admin operation that has set it, and RequestTime when the engineer requested it. An operation that was
	// requested earlier does not replace it.
	OperationID string    `json:"operationId"`
	RequestTime time.Time `json:"requestTime"`
}

// ReservationDocument reserves a name for one resource of a subscription. Its ID derives from the name, so that two
// writers cannot both create it.
type ReservationDocument struct {
	// Kind is managedResourceGroup, subnet, networkSecurityGroup, externalAuth or clusterQuota.
	Kind string `json:"kind"`
	// Name is the reserved name in lower case.
	Name            string `json:"name"`
	OwnerResourceID string `json:"ownerResourceId"`
	OwnerUID        string `json:"ownerUid"`
}
