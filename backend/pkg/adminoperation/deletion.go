package adminoperation

import (
	"context"
	"fmt"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// retryDeletion has every step tried at once that the deletion of a cluster, or those in it, wait for: the steps of the ARM side
// first, for they may wait because Cluster Service is away, and then Cluster Service's own by its call. When only one of the
// two has anything to try, that is enough.
func (e *Executor) retryDeletion(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	woken, err := e.rewriteDeletions(ctx, o.Target)
	if err != nil {
		return nil, err
	}
	result := adminv1.DeletionRetryResult{ResourceIDs: woken}
	answer, err := forward(e.rpc.RetryDeletion)(ctx, o)
	if err != nil {
		if kind := apierror.KindOf(err); len(woken) > 0 && (kind == apierror.NotFound || kind == apierror.FailedPrecondition) {
			return result, nil
		}
		return nil, err
	}
	if message, ok := answer.(adminv1.Message[*clusterservicev1.RetryDeletionResponse]); ok {
		result.Steps = message.Of.GetSteps()
	}
	return result, nil
}

// rewriteDeletions writes the documents of the deletions of a cluster that are under way as they are: whoever follows the change
// feed takes them up anew. What goes with its cluster is the cluster's.
func (e *Executor) rewriteDeletions(ctx context.Context, target database.AdminTarget) ([]string, error) {
	key, err := database.ResourceKey(target.ResourceID)
	if err != nil {
		return nil, invalidParameters(err)
	}
	cluster, err := e.db.Clusters().Find(ctx, key)
	if err != nil || cluster == nil || cluster.Removed != nil || cluster.Value.UID != target.ClusterUID {
		return nil, err
	}
	if d := &cluster.Value; d.ProvisioningState == hub.Deleting {
		return []string{d.Cluster.ID}, rewrite(ctx, e, e.db.Clusters(), key, d.ActiveOperationID)
	}
	var woken []string
	err = e.db.Children(ctx, key, func(change database.Change) error {
		switch change.Kind {
		case database.NodePoolKind:
			pool, err := database.DecodeChange(e.db.NodePools(), change)
			if err != nil || pool.Value.ProvisioningState != hub.Deleting {
				return err
			}
			woken = append(woken, pool.Value.NodePool.ID)
			return rewrite(ctx, e, e.db.NodePools(), change.Key, pool.Value.ActiveOperationID)
		case database.ExternalAuthKind:
			auth, err := database.DecodeChange(e.db.ExternalAuths(), change)
			if err != nil || auth.Value.ProvisioningState != hub.Deleting {
				return err
			}
			woken = append(woken, auth.Value.ExternalAuth.ID)
			return rewrite(ctx, e, e.db.ExternalAuths(), change.Key, auth.Value.ActiveOperationID)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("waking the deletions: %w", err)
	}
	return woken, nil
}

// rewrite writes a resource's document and its operation, where that has not ended, as they are.
func rewrite[D any](ctx context.Context, e *Executor, collection *database.Collection[D], key database.Key, operation string) error {
	return database.Retry(ctx, func(ctx context.Context) error {
		item, err := collection.Find(ctx, key)
		if err != nil || item == nil || item.Removed != nil {
			return err
		}
		batch := e.db.NewBatch(key.SubscriptionID)
		database.Replace(batch, item)
		if operation != "" {
			begun, err := e.db.Operations().Find(ctx, database.OperationKey(key.SubscriptionID, "-", operation))
			if err != nil {
				return err
			}
			if begun != nil && begun.Removed == nil && !begun.Value.Status.Terminal() {
				database.Replace(batch, begun)
			}
		}
		return batch.Commit(ctx)
	})
}
