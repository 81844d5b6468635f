package database

import (
	"context"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// The resource types in operations of admin credentials. ARM has no such resources; only operations refer to them.
const (
	CredentialResourceType = hub.ClusterResourceType + "/adminCredentials"
	RevocationResourceType = hub.ClusterResourceType + "/credentialRevocations"
)

// CredentialState is the state of an admin credential.
type CredentialState string

// The states. All but Pending are final, except that an issued credential can be revoked.
const (
	// CredentialPending: requested and not yet issued. Its operation is running.
	CredentialPending CredentialState = "Pending"
	CredentialIssued  CredentialState = "Issued"
	CredentialFailed  CredentialState = "Failed"
	// CredentialCanceled: the credentials were revoked, or the cluster deleted, before it was issued.
	CredentialCanceled CredentialState = "Canceled"
	CredentialRevoked  CredentialState = "Revoked"
)

// MaxPendingCredentials is how many credentials of a cluster may be pending. With their operations they fit into the
// batch of a revocation.
const MaxPendingCredentials = 40

// CredentialDocument is a request for a client certificate of a cluster's administrator and its state. It holds no
// secret in clear, and no certificate: Cluster Service stores that. Cosmos DB removes it OperationTTL after the last
// write, unless it is pending.
type CredentialDocument struct {
	// UID is the credential's UID at Cluster Service and the ID of the operation.
	UID string `json:"uid"`
	// ClusterResourceID and ClusterUID identify the cluster.
	ClusterResourceID string `json:"clusterResourceId"`
	ClusterUID        string `json:"clusterUid"`
	// CertificateSigningRequest in PEM form.
	CertificateSigningRequest string `json:"certificateSigningRequest"`
	// SealedPrivateKey is the private key of the request if the service generated it (api-versions before
	// 2026-09-01-preview). It is PEM, encrypted by the frontend, which alone can decrypt it. The frontend removes it
	// when it returns the key.
	SealedPrivateKey []byte `json:"sealedPrivateKey,omitempty"`
	// KeyHandedOut is set after the frontend has returned the key.
	KeyHandedOut bool `json:"keyHandedOut,omitempty"`
	// Requester names the caller. It has 1 to 256 characters.
	Requester string          `json:"requester"`
	State     CredentialState `json:"state"`
	// ExpirationTime of the certificate, set when it is issued.
	ExpirationTime *time.Time `json:"expirationTime,omitempty"`
}

// CredentialKey returns the key of a credential. Its ARM resource ID is the one in the credential's operation.
func CredentialKey(cluster Key, uid string) Key {
	return Key{SubscriptionID: cluster.SubscriptionID, ResourceID: cluster.ResourceID + "/adminCredentials/" + uid}
}

// RevocationKey returns the key in the operation of a revocation. uid is the revocation's UID at Cluster Service and
// the operation ID. A revocation has no document of its own: its state is the operation and the cluster's
// RevocationOperationID.
func RevocationKey(cluster Key, uid string) Key {
	return Key{SubscriptionID: cluster.SubscriptionID, ResourceID: cluster.ResourceID + "/credentialRevocations/" + uid}
}

// PendingCredentials returns the pending credentials of a cluster. There are at most MaxPendingCredentials, because
// each is committed together with the cluster and a further request is rejected.
func (db *DB) PendingCredentials(ctx context.Context, cluster Key) ([]*Item[CredentialDocument], error) {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND STARTSWITH(c.key, @prefix) AND c.properties.state = @state AND NOT IS_DEFINED(c.deletionTimestamp)"
	documents, err := db.queryDocuments(ctx, cluster.SubscriptionID, query, []azcosmos.QueryParameter{
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
