package adminoperation

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// retryDeletion retries all pending steps of the deletion of a cluster, or of deletions in the cluster. The steps on
// the ARM side come first, because they may wait for a retry after an outage of Cluster Service; then Cluster Service
// retries its own. It succeeds if one of the two has steps to retry.
func (e *Executor) retryDeletion(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	rewritten, err := e.rewriteDeletions(ctx, o.Target)
	if err != nil {
		return nil, err
	}
	result := adminv1.DeletionRetryResult{ResourceIDs: rewritten}
	response, err := e.forward(ctx, o)
	if err != nil {
		if kind := apierror.KindOf(err); len(rewritten) > 0 && (kind == apierror.NotFound || kind == apierror.FailedPrecondition) {
			return result, nil
		}
		return nil, err
	}
	if message, ok := response.(adminv1.Message[proto.Message]); ok {
		result.Steps = message.Of.(*clusterservicev1.RetryDeletionResponse).GetSteps()
	}
	return result, nil
}

// rewriteDeletions rewrites the documents of a cluster's running deletions unchanged, so that the change feed brings
// them to their handlers at once. The deletion of a cluster includes its children.
func (e *Executor) rewriteDeletions(ctx context.Context, target database.AdminTarget) ([]string, error) {
	key, err := database.ResourceKey(target.ResourceID)
	if err != nil {
		return nil, adminaction.InvalidParameters(err)
	}
	cluster, err := e.db.Clusters().Find(ctx, key)
	if err != nil || cluster == nil || cluster.Removed != nil || cluster.Value.UID != target.ClusterUID {
		return nil, err
	}
	if d := &cluster.Value; d.ProvisioningState == hub.Deleting {
		return []string{d.Cluster.ID}, rewrite(ctx, e, e.db.Clusters(), key, d.ActiveOperationID)
	}
	var rewritten []string
	err = e.db.Children(ctx, key, func(change database.Change) error {
		switch change.Kind {
		case database.NodePoolKind:
			pool, err := database.DecodeChange(e.db.NodePools(), change)
			if err != nil || pool.Value.ProvisioningState != hub.Deleting {
				return err
			}
			rewritten = append(rewritten, pool.Value.NodePool.ID)
			return rewrite(ctx, e, e.db.NodePools(), change.Key, pool.Value.ActiveOperationID)
		case database.ExternalAuthKind:
			auth, err := database.DecodeChange(e.db.ExternalAuths(), change)
			if err != nil || auth.Value.ProvisioningState != hub.Deleting {
				return err
			}
			rewritten = append(rewritten, auth.Value.ExternalAuth.ID)
			return rewrite(ctx, e, e.db.ExternalAuths(), change.Key, auth.Value.ActiveOperationID)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("rewriting the documents of the deletions: %w", err)
	}
	return rewritten, nil
}

// rewrite writes a resource's document and its operation, unless that has ended, unchanged.
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
