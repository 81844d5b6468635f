package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// finishOperations does the backend's work: it makes every active operation and its resource terminal in one batch, and
// removes deleted resources with their children.
func (h *harness) finishOperations(ctx context.Context) error {
	return h.db.ActiveOperations(ctx, func(found *database.Item[database.OperationDocument]) error { return h.finishFound(ctx, found) })
}

// finishOperationsOf is finishOperations for one subscription. It reads only the partition of the subscription.
func (h *harness) finishOperationsOf(ctx context.Context, subscription string) error {
	return h.db.Operations().ForEach(ctx, subscription, "", func(found *database.Item[database.OperationDocument]) error { return h.finishFound(ctx, found) })
}

func (h *harness) finishFound(ctx context.Context, found *database.Item[database.OperationDocument]) error {
	if found.Value.Status.Terminal() {
		return nil
	}
	err := database.Retry(ctx, func(ctx context.Context) error { return h.finish(ctx, found.Key) })
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// finishAndRemoveOperations finishes the subscription's operations and removes all operations and credentials.
// Otherwise each input of a fuzz target would be slower than the previous one.
func (y *testSubscription) finishAndRemoveOperations() {
	y.t.Helper()
	ctx := context.Background()
	must.Do(y.t, y.finishOperationsOf(ctx, y.subscription))
	for _, operation := range all(y, y.db.Operations()) {
		if operation.Value.Status.Terminal() {
			removed(y, operation)
		}
	}
	for _, credential := range all(y, y.db.Credentials()) {
		removed(y, credential)
	}
}

func removed[D any](y *testSubscription, item *database.Item[D]) {
	y.t.Helper()
	batch := y.db.NewBatch(y.subscription)
	database.Remove(batch, item)
	must.Do(y.t, batch.Commit(context.Background()))
}

func (h *harness) finish(ctx context.Context, key database.Key) error {
	operation, err := h.db.Operations().Find(ctx, key)
	if err != nil || operation == nil || operation.Value.Status.Terminal() {
		return err
	}
	return h.finishOperation(ctx, operation)
}

func (h *harness) finishOperation(ctx context.Context, operation *database.Item[database.OperationDocument]) error {
	resource, err := database.ResourceKey(operation.Value.ResourceID)
	if err != nil {
		return err
	}
	if operation.Value.Status == hub.AwaitingSecret {
		return nil
	}
	operation.Value.End(hub.Succeeded, nil, time.Now().UTC())
	batch := h.db.NewBatch(resource.SubscriptionID)
	database.Replace(batch, operation)
	deletion := operation.Value.Request == database.DeleteRequest
	switch operation.Value.ResourceType {
	case hub.ClusterResourceType:
		err = h.finishCluster(ctx, batch, resource, deletion)
	case hub.NodePoolResourceType:
		err = finishChild(ctx, batch, h.db.NodePools(), resource, deletion, func(d *database.NodePoolDocument) {
			d.ProvisioningState, d.ActiveOperationID = hub.Succeeded, ""
		})
	case hub.ExternalAuthResourceType:
		err = h.finishExternalAuth(ctx, batch, resource, operation)
	case database.CredentialResourceType:
		err = h.finishCredential(ctx, batch, resource)
	case database.RevocationResourceType:
		err = h.finishRevocation(ctx, batch, operation)
	default:
		err = fmt.Errorf("unknown operation type %s", operation.Value.ResourceType)
	}
	if err != nil {
		return err
	}
	return batch.Commit(ctx)
}

func finishChild[D any](ctx context.Context, batch *database.Batch, in *database.Collection[D], key database.Key, deletion bool, succeed func(*D)) error {
	item, err := in.Find(ctx, key)
	switch {
	case err != nil:
		return err
	case deletion && (item == nil || item.Removed != nil):
		return nil // it was deleted with its cluster
	case deletion:
		database.Remove(batch, item)
		return nil
	}
	succeed(&item.Value)
	database.Replace(batch, item)
	return nil
}

// finishCredential issues a credential.
func (h *harness) finishCredential(ctx context.Context, batch *database.Batch, key database.Key) error {
	item, err := h.db.Credentials().Get(ctx, key)
	if err != nil {
		return err
	}
	report, err := h.rpc.ApplyCredential(ctx, &item.Value)
	if err != nil {
		return err
	}
	item.Value.State, item.Value.ExpirationTime = database.CredentialIssued, report.Expiration
	database.Replace(batch, item)
	return nil
}

// finishRevocation revokes the issued credentials and allows new requests.
func (h *harness) finishRevocation(ctx context.Context, batch *database.Batch, operation *database.Item[database.OperationDocument]) error {
	if _, err := h.rpc.RevokeCredentials(ctx, &operation.Value); err != nil {
		return err
	}
	clusterID, _, _ := strings.Cut(operation.Value.ResourceID, "/credentialRevocations/")
	cluster, err := h.db.Clusters().Get(ctx, database.Key{SubscriptionID: operation.Key.SubscriptionID, ResourceID: clusterID})
	if err != nil {
		return err
	}
	cluster.Value.RevocationOperationID = ""
	database.Replace(batch, cluster)
	return h.db.Credentials().ForEach(ctx, operation.Key.SubscriptionID, clusterID+"/", func(item *database.Item[database.CredentialDocument]) error {
		if item.Value.State == database.CredentialIssued {
			item.Value.State = database.CredentialRevoked
			database.Replace(batch, item)
		}
		return nil
	})
}

// finishExternalAuth leaves an external authentication with a confidential client, and its operation, waiting for the
// secret.
func (h *harness) finishExternalAuth(ctx context.Context, batch *database.Batch, key database.Key, operation *database.Item[database.OperationDocument]) error {
	deletion := operation.Value.Request == database.DeleteRequest
	if deletion {
		if err := h.release(ctx, batch, database.ExternalAuthReservations(key, "")); err != nil {
			return err
		}
	}
	return finishChild(ctx, batch, h.db.ExternalAuths(), key, deletion, func(d *database.ExternalAuthDocument) {
		for _, client := range d.ExternalAuth.Properties.Clients {
			if client.Type == "Confidential" {
				d.ProvisioningState = hub.AwaitingSecret
				operation.Value.Status, operation.Value.EndTime = hub.AwaitingSecret, nil
				return
			}
		}
		d.ProvisioningState, d.ActiveOperationID = hub.Succeeded, ""
	})
}

func (h *harness) finishCluster(ctx context.Context, batch *database.Batch, key database.Key, deletion bool) error {
	cluster, err := h.db.Clusters().Get(ctx, key)
	if err != nil {
		return err
	}
	if !deletion {
		cluster.Value.ProvisioningState, cluster.Value.ActiveOperationID = hub.Succeeded, ""
		cluster.Value.Status.APIURL = "https://api." + cluster.Value.Cluster.Properties.DNS.BaseDomainPrefix + ".example:443"
		cluster.Value.Status.BaseDomain = "example"
		cluster.Value.Status.ActiveVersions = []string{cluster.Value.Cluster.Properties.Version.ID + ".8"}
		cluster.Value.Status.Identities = readIdentities(cluster.Value.Cluster.Identity)
		database.Replace(batch, cluster)
		return nil
	}
	database.Remove(batch, cluster)
	if err := h.release(ctx, batch, database.ClusterReservations(key, &cluster.Value)); err != nil {
		return err
	}
	err = h.db.NodePools().ForEach(ctx, key.SubscriptionID, key.ResourceID+"/", func(pool *database.Item[database.NodePoolDocument]) error {
		database.Remove(batch, pool)
		return nil
	})
	if err != nil {
		return err
	}
	return h.db.ExternalAuths().ForEach(ctx, key.SubscriptionID, key.ResourceID+"/", func(auth *database.Item[database.ExternalAuthDocument]) error {
		database.Remove(batch, auth)
		return h.release(ctx, batch, database.ExternalAuthReservations(auth.Key, auth.Value.UID))
	})
}

// readIdentities returns IDs as Cluster Service reads them from Azure.
func readIdentities(identity *hub.Identity) map[string]hub.UserAssignedIdentity {
	if identity == nil {
		return nil
	}
	read := map[string]hub.UserAssignedIdentity{}
	for id := range identity.UserAssigned {
		key := hub.Key(id)
		read[key] = hub.UserAssignedIdentity{ClientID: uuid.NewSHA1(uuid.NameSpaceURL, []byte("client "+key)).String(),
			PrincipalID: uuid.NewSHA1(uuid.NameSpaceURL, []byte("principal "+key)).String()}
	}
	return read
}

// release removes reservations.
func (h *harness) release(ctx context.Context, batch *database.Batch, reservations map[database.Key]database.ReservationDocument) error {
	for reserved := range reservations {
		reservation, err := h.db.Reservations().Find(ctx, reserved)
		if err != nil {
			return err
		}
		if reservation == nil || reservation.Removed != nil {
			continue
		}
		database.Remove(batch, reservation)
	}
	return nil
}
