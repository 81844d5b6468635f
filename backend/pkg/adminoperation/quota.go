package adminoperation

import (
	"context"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// setQuota stores the quota of a subscription, which the frontend reads with each creation. An operation that is repeated after
// a crash does not replace the quota of a later request.
func (e *Executor) setQuota(ctx context.Context, o *database.AdminOperationDocument, p adminv1.SetQuotaRequest) (any, error) {
	err := database.Retry(ctx, func(ctx context.Context) error {
		item, err := e.db.Subscriptions().Find(ctx, database.SubscriptionKey(o.Target.ID))
		switch {
		case err != nil:
			return err
		case item == nil || item.Removed != nil:
			return apierror.New(apierror.NotFound, "The subscription is not registered in the region.")
		}
		set := item.Value.ClusterQuota
		switch {
		case set != nil && set.OperationID == o.OperationID:
			return nil // an earlier attempt has stored it
		case set != nil && set.RequestTime.After(o.StartTime):
			return apierror.New(apierror.Conflict, "The operation %s, which was requested later, has set the quota.", set.OperationID)
		}
		item.Value.ClusterQuota = &database.ClusterQuota{Clusters: p.Clusters, OperationID: o.OperationID, RequestTime: o.StartTime}
		batch := e.db.NewBatch(item.Key.SubscriptionID)
		database.Replace(batch, item)
		return batch.Commit(ctx)
	})
	return nil, err
}
