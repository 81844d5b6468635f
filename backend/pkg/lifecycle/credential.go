package lifecycle

import (
	"context"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// credentialOneShot describes the request of a credential. The operation ends when the credential is issued. A
// revocation that is requested before cancels it, in Cosmos DB by the frontend's batch and at Cluster Service.
func credentialOneShot(c *Controller) *oneShot {
	return &oneShot{
		Controller: c,
		subject: func(ctx context.Context, operation *database.Item[database.OperationDocument]) (subject, error) {
			key, err := database.ResourceKey(operation.Value.ResourceID)
			if err != nil {
				return nil, err
			}
			item, err := c.db.Credentials().Find(ctx, key)
			if err != nil || item == nil || item.Removed != nil || item.Value.State != database.CredentialPending {
				return nil, err
			}
			return &credential{c, item}, nil
		},
		get: c.clusterService.GetCredentialReport,
		outcomes: map[string]hub.ProvisioningState{
			clusterservice.StateIssued:   hub.Succeeded,
			clusterservice.PhaseFailed:   hub.Failed,
			clusterservice.StateCanceled: hub.Canceled,
			// The credential was issued, and the report of that was missed. It is no longer valid.
			clusterservice.StateAwaitingRevocation: hub.Canceled,
			clusterservice.StateRevoked:            hub.Canceled,
			clusterservice.StateExpired:            hub.Canceled,
		},
	}
}

// credential is the subject of a credential request.
type credential struct {
	*Controller
	item *database.Item[database.CredentialDocument]
}

func (s *credential) request(ctx context.Context) (clusterservice.Report, error) {
	return s.clusterService.ApplyCredential(ctx, &s.item.Value)
}

func (s *credential) finish(_ context.Context, batch *database.Batch, status hub.ProvisioningState, report *clusterservice.Report) error {
	switch d := &s.item.Value; status {
	case hub.Succeeded:
		d.State, d.ExpirationTime = database.CredentialIssued, report.Expiration
	case hub.Canceled:
		d.State = database.CredentialCanceled
	default:
		d.State = database.CredentialFailed
	}
	database.Replace(batch, s.item)
	return nil
}

// credentialChild returns a credential as a child of its cluster.
func (c *Controller) credentialChild(ctx context.Context, change database.Change) (child, error) {
	item, err := database.DecodeChange(c.db.Credentials(), change)
	if err != nil {
		return child{}, err
	}
	credential := child{key: item.Key, documents: 1, remove: func(batch *database.Batch) { database.Remove(batch, item) }}
	if item.Value.State != database.CredentialPending {
		return credential, nil
	}
	credential.markDeleting = func(batch *database.Batch) {
		item.Value.State = database.CredentialCanceled
		database.Replace(batch, item)
	}
	credential.operation, err = c.runningOperation(ctx, item.Key.SubscriptionID, item.Value.UID)
	return credential, err
}
