package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/eventqueue"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// revocationOneShot describes the revocation of all credentials of a cluster. The operation ends when Cluster Service
// has observed that the hosted API server rejects the old signer. Until then the cluster refers to the operation, and
// requests for credentials are rejected.
func revocationOneShot(c *Controller) *oneShot {
	return &oneShot{
		Controller: c,
		subject: func(ctx context.Context, operation *database.Item[database.OperationDocument]) (subject, error) {
			o := &operation.Value
			id, _, ok := strings.Cut(o.ResourceID, database.RevocationKey(database.Key{}, "").ResourceID)
			if !ok {
				return nil, fmt.Errorf("parsing the resource ID of a revocation: %q", o.ResourceID)
			}
			key, err := database.ResourceKey(id)
			if err != nil {
				return nil, err
			}
			cluster, err := c.db.Clusters().Find(ctx, key)
			if err != nil || cluster == nil || cluster.Removed != nil || cluster.Value.UID != o.UID || cluster.Value.RevocationOperationID != o.OperationID {
				return nil, err
			}
			return &revocation{c, cluster, operation}, nil
		},
		get: c.clusterService.GetRevocation,
		outcomes: map[string]hub.ProvisioningState{
			clusterservice.StateSucceeded: hub.Succeeded,
			clusterservice.PhaseFailed:    hub.Failed,
			clusterservice.StateCanceled:  hub.Canceled,
		},
	}
}

// revocation is the subject of a revocation.
type revocation struct {
	*Controller
	cluster   *database.Item[database.ClusterDocument]
	operation *database.Item[database.OperationDocument]
}

func (s *revocation) request(ctx context.Context) (clusterservice.Report, error) {
	return s.clusterService.RevokeCredentials(ctx, &s.operation.Value)
}

// revocationBatchSize is how many credentials one batch marks as revoked.
const revocationBatchSize = database.MaxBatchDocuments / 2

// finish marks the issued credentials as revoked, if they are, and allows new requests. There may be more credentials
// than fit into one transaction. They are written first; no credential can be created before the cluster is written.
func (s *revocation) finish(ctx context.Context, batch *database.Batch, status hub.ProvisioningState, _ *clusterservice.Report) error {
	if status == hub.Succeeded {
		earlier := s.db.NewBatch(s.cluster.Key.SubscriptionID)
		err := s.db.Credentials().ForEach(ctx, s.cluster.Key.SubscriptionID, database.CredentialKey(s.cluster.Key, "").ResourceID, func(item *database.Item[database.CredentialDocument]) error {
			if item.Value.State != database.CredentialIssued {
				return nil
			}
			item.Value.State = database.CredentialRevoked
			database.Replace(earlier, item)
			if earlier.Len() < revocationBatchSize {
				return nil
			}
			err := earlier.Commit(ctx)
			earlier = s.db.NewBatch(s.cluster.Key.SubscriptionID)
			return err
		})
		if err != nil {
			return err
		}
		if err := earlier.Commit(ctx); err != nil {
			return err
		}
	}
	s.cluster.Value.RevocationOperationID = ""
	database.Replace(batch, s.cluster)
	return nil
}

// endRevocation cancels the running revocation of a cluster that is being deleted.
func (c *Controller) endRevocation(ctx context.Context, cluster *database.Item[database.ClusterDocument]) error {
	id := cluster.Value.RevocationOperationID
	if id == "" {
		return nil
	}
	operation, err := c.runningOperation(ctx, cluster.Key.SubscriptionID, id)
	if err != nil {
		return err
	}
	batch := c.db.NewBatch(cluster.Key.SubscriptionID)
	cluster.Value.RevocationOperationID = ""
	database.Replace(batch, cluster)
	if operation != nil {
		operation.Value.End(hub.Canceled, &database.OperationError{Code: "Canceled", Message: "The cluster is being deleted."}, time.Now().UTC())
		database.Replace(batch, operation)
	}
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	if operation != nil {
		c.operationEnded(ctx, eventqueue.ResourceOf(operation.Value.ResourceID), operation)
	}
	return nil
}
