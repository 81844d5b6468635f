package dump

import (
	"context"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// arm reads the layer in Cosmos DB.
func (t *Collector) arm(ctx context.Context, cluster adminv1.Cluster) (*adminv1.ARMLayer, error) {
	key, err := database.ResourceKey(cluster.ResourceID)
	if err != nil {
		return nil, err
	}
	layer := &adminv1.ARMLayer{NodePools: []adminv1.ARMNodePool{}, ExternalAuths: []adminv1.ARMExternalAuth{}, Credentials: []adminv1.ARMCredential{}, Operations: []adminv1.ARMOperation{}}
	item, err := t.db.Clusters().Find(ctx, key)
	if err != nil {
		return nil, err
	}
	if item != nil && item.Removed == nil && item.Value.UID == cluster.UID {
		d := &item.Value
		layer.Cluster = &adminv1.ARMCluster{
			ARMState: armState(item, d.UID, d.Generation, d.ProvisioningState, d.ActiveOperationID, d.Fleet),
			Resource: d.Cluster, Status: d.Status, RevocationOperationID: d.RevocationOperationID,
		}
	}
	err = t.db.Children(ctx, key, func(change database.Change) error {
		switch change.Kind {
		case database.NodePoolKind:
			pool, err := database.DecodeChange(t.db.NodePools(), change)
			if err != nil || pool.Value.ClusterUID != cluster.UID {
				return err
			}
			d := &pool.Value
			layer.NodePools = append(layer.NodePools, adminv1.ARMNodePool{
				ARMState: armState(pool, d.UID, d.Generation, d.ProvisioningState, d.ActiveOperationID, d.Fleet), Resource: d.NodePool, Status: d.Status,
			})
		case database.ExternalAuthKind:
			auth, err := database.DecodeChange(t.db.ExternalAuths(), change)
			if err != nil || auth.Value.ClusterUID != cluster.UID {
				return err
			}
			d := &auth.Value
			layer.ExternalAuths = append(layer.ExternalAuths, adminv1.ARMExternalAuth{
				ARMState: armState(auth, d.UID, d.Generation, d.ProvisioningState, d.ActiveOperationID, d.Fleet), Resource: d.ExternalAuth, Status: d.Status,
			})
		case database.CredentialKind:
			credential, err := database.DecodeChange(t.db.Credentials(), change)
			if err != nil || credential.Value.ClusterUID != cluster.UID {
				return err
			}
			d := &credential.Value
			layer.Credentials = append(layer.Credentials, adminv1.ARMCredential{UID: d.UID, State: string(d.State), Requester: d.Requester, ExpirationTime: d.ExpirationTime})
		default:
			layer.Unknown = append(layer.Unknown, change.Key.ResourceID)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(layer.NodePools, func(a, b adminv1.ARMNodePool) int { return compareIDs(a.Resource.ID, b.Resource.ID) })
	slices.SortFunc(layer.ExternalAuths, func(a, b adminv1.ARMExternalAuth) int { return compareIDs(a.Resource.ID, b.Resource.ID) })
	if layer.Operations, err = t.Operations(ctx, key); err != nil {
		return nil, err
	}
	billing, err := t.db.Billing(ctx, key.SubscriptionID, cluster.UID)
	if err != nil {
		return nil, err
	}
	if billing != nil {
		layer.Billing = &adminv1.ARMBilling{CreationTime: billing.CreationTime, DeletionTime: billing.DeletionTime}
	}
	return layer, nil
}

func compareIDs(a, b string) int { return strings.Compare(hub.Key(a), hub.Key(b)) }

// Operations returns the ARM operations of a resource and its children, newest first.
func (t *Collector) Operations(ctx context.Context, key database.Key) ([]adminv1.ARMOperation, error) {
	operations := []adminv1.ARMOperation{}
	err := t.db.ResourceOperations(ctx, key, func(item *database.Item[database.OperationDocument]) error {
		operations = append(operations, ARMOperation(&item.Value))
		return nil
	})
	slices.SortFunc(operations, func(a, b adminv1.ARMOperation) int { return b.StartTime.Compare(a.StartTime) })
	return operations, err
}

// ARMOperation converts a stored operation to the form of admin's API.
func ARMOperation(o *database.OperationDocument) adminv1.ARMOperation {
	return adminv1.ARMOperation{
		OperationID: o.OperationID, Request: string(o.Request), ResourceID: o.ResourceID, UID: o.UID, Generation: o.Generation, Status: o.Status,
		StartTime: o.StartTime, LastTransitionTime: o.LastTransitionTime, EndTime: o.EndTime, Error: failureDetail(o.Error), CorrelationID: o.CorrelationID,
		Deletion: o.DeletionNotes,
	}
}

func failureDetail(e *database.OperationError) *adminv1.FailureDetail {
	if e == nil {
		return nil
	}
	detail := &adminv1.FailureDetail{Code: e.Code, Message: e.Diagnosis(), Target: e.Target}
	for _, inner := range e.Details {
		detail.Details = append(detail.Details, *failureDetail(&inner))
	}
	return detail
}

func armState[T any](item *database.Item[T], uid string, generation int64, state hub.ProvisioningState, operation string, fleet database.FleetState) adminv1.ARMState {
	return adminv1.ARMState{
		UID: uid, Generation: generation, ProvisioningState: state, ActiveOperationID: operation, Modified: item.Modified,
		Fleet: adminv1.ARMFleetState{
			Revision: fleet.Revision, AcceptedGeneration: fleet.AcceptedGeneration, ObservedGeneration: fleet.ObservedGeneration, Phase: fleet.Phase,
		},
	}
}
