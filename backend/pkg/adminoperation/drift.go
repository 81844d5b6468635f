package adminoperation

import (
	"context"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// reconcile compares all that was promised with all that the fleet holds, and mends what can be mended. Made again, it finds what
// is left to do.
func (e *Executor) reconcile(ctx context.Context, _ *database.AdminOperationDocument) (any, error) {
	done, err := e.reconciler.ReconcileAll(ctx)
	if err != nil {
		return nil, apierror.New(apierror.Unavailable, "Not all of it could be compared and sent yet.").WithCause(err)
	}
	result := adminv1.DriftResult{Promised: done.Desired, Held: done.Fleet, Applied: done.Applied, Deleted: done.Deleted, Concerns: map[string]int{}}
	for concern, count := range done.Findings {
		result.Concerns[string(concern)] = count
	}
	return result, nil
}

// deleteDrift has Cluster Service delete what Cosmos DB does not have.
func (e *Executor) deleteDrift(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	key, err := database.ResourceKey(o.Target.ResourceID)
	if err != nil {
		return nil, invalidParameters(err)
	}
	kind := database.Kind(o.Target.Kind)
	there, err := reconciliation.Exists(ctx, e.db, reconciliation.Drift{Kind: kind, Key: key, UID: o.Target.ID})
	switch {
	case err != nil:
		return nil, err
	case there:
		return nil, apierror.New(apierror.Conflict, "ARM has the resource: it is deleted there.")
	}
	return nil, reconciliation.DeleteFromFleet(ctx, e.rpc, kind, o.Target.ResourceID, o.Target.ID, o.Target.ClusterUID)
}
