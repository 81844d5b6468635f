package adminoperation

import (
	"context"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// reconcile compares the whole region and repairs what can be repaired. A repetition continues.
func (e *Executor) reconcile(ctx context.Context, _ *database.AdminOperationDocument) (any, error) {
	done, err := e.reconciler.ReconcileAll(ctx)
	if err != nil {
		return nil, apierror.New(apierror.Unavailable, "The comparison is not complete: some resources could not be compared or sent.").WithCause(err)
	}
	result := adminv1.DriftResult{Desired: done.Desired, InFleet: done.Fleet, Applied: done.Applied, Deleted: done.Deleted, Findings: map[string]int{}}
	for finding, count := range done.Findings {
		result.Findings[string(finding)] = count
	}
	return result, nil
}

// deleteDrift makes Cluster Service delete a resource that Cosmos DB does not have.
func (e *Executor) deleteDrift(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	key, err := database.ResourceKey(o.Target.ResourceID)
	if err != nil {
		return nil, adminaction.InvalidParameters(err)
	}
	kind := database.Kind(o.Target.Kind)
	exists, err := reconciliation.Exists(ctx, e.db, reconciliation.Drift{Kind: kind, Key: key, UID: o.Target.ID})
	switch {
	case err != nil:
		return nil, err
	case exists:
		return nil, apierror.New(apierror.Conflict, "The resource exists in ARM. Delete it there.")
	}
	return nil, reconciliation.DeleteFromFleet(ctx, e.rpc, kind, o.Target.ResourceID, o.Target.ID, o.Target.ClusterUID)
}
