package database

import (
	"context"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// The types that the operations of admin credentials name. ARM has no such resources: they exist beneath their cluster as
// what an operation works on.
const (
	CredentialResourceType = hub.ClusterResourceType + "/adminCredentials"
	RevocationResourceType = hub.ClusterResourceType + "/credentialRevocations"
)

// CredentialState is how a credential stands.
type CredentialState string

// The states; all but the first are final, but that an issued credential can still be revoked.
const (
	// CredentialPending: asked for, and not issued yet. Its operation is under way.
	CredentialPending CredentialState = "Pending"
	CredentialIssued  CredentialState = "Issued"
	CredentialFailed  CredentialState = "Failed"
	// CredentialCanceled: a revocation came first, or the deletion of the cluster.
	CredentialCanceled CredentialState = "Canceled"
	CredentialRevoked  CredentialState = "Revoked"
)

// MaxPendingCredentials is how many credentials of a cluster may be pending: as many as fit, with their operations, into
// the batch of a revocation.
const MaxPendingCredentials = 40

// CredentialDocument is a request for a client certificate of a cluster's administrator, and how it stands. It holds no
// secret in clear, and neither the certificate: Cluster Service has that. It is removed OperationTTL after its last change
// once it is no longer pending.
type CredentialDocument struct {
	// UID is the credential's at Cluster Service, and the id of the operation that asks for it.
	UID string `json:"uid"`
	// ClusterResourceID and ClusterUID are the cluster that it is for.
	ClusterResourceID string `json:"clusterResourceId"`
	ClusterUID        string `json:"clusterUid"`
	// CertificateSigningRequest is PEM.
	CertificateSigningRequest string `json:"certificateSigningRequest"`
	// SealedPrivateKey is the key of that request where the service made it (api-versions before 2026-09-01-preview): PEM,
	// sealed by the frontend, which alone can open it. It is removed when it is handed out.
	SealedPrivateKey []byte `json:"sealedPrivateKey,omitempty"`
	// KeyHandedOut is set from then on.
	KeyHandedOut bool `json:"keyHandedOut,omitempty"`
	// Requester is who asked: 1 to 256 characters.
	Requester string          `json:"requester"`
	State     CredentialState `json:"state"`
	// ExpirationTime is the certificate's, from when it is issued.
	ExpirationTime *time.Time `json:"expirationTime,omitempty"`
}

// CredentialKey is the key of a credential of a cluster. Its ARM id is what the credential's operation names.
func CredentialKey(cluster Key, uid string) Key {
	return Key{SubscriptionID: cluster.SubscriptionID, ResourceID: cluster.ResourceID + "/adminCredentials/" + uid}
}

// RevocationKey names a revocation of a cluster's credentials, as its operation does; uid is the revocation's at Cluster
// Service and the id of that operation. There is no document of its own: the operation, and the cluster's
// RevocationOperationID while it runs, say it all.
func RevocationKey(cluster Key, uid string) Key {
	return Key{SubscriptionID: cluster.SubscriptionID, ResourceID: cluster.ResourceID + "/credentialRevocations/" + uid}
}

// PendingCredentials are those of a cluster that are pending: at most MaxPendingCredentials, because a request for one
// more is refused, and each is committed with the cluster as it was read.
func (db *DB) PendingCredentials(ctx context.Context, cluster Key) ([]*Item[CredentialDocument], error) {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND STARTSWITH(c.key, @prefix) AND c.properties.state = @state AND NOT IS_DEFINED(c.deletionTimestamp)"
	documents, err := db.queryResources(ctx, azcosmos.NewPartitionKeyString(cluster.SubscriptionID), query, []azcosmos.QueryParameter{
		{Name: "@kind", Value: string(CredentialKind)},
		{Name: "@prefix", Value: strings.ToLower(CredentialKey(cluster, "").ResourceID)},
		{Name: "@state", Value: string(CredentialPending)},
	}, MaxPageSize)
	if err != nil {
		return nil, err
	}
	pending := make([]*Item[CredentialDocument], len(documents))
	for i, document := range documents {
		if pending[i], err = db.credentials.decode(document); err != nil {
			return nil, err
		}
	}
	return pending, nil
}
