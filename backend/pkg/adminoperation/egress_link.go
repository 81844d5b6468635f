package adminoperation

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// setEgressLink assigns a link of the egress gateway to a cluster, or changes its hosts. A repetition after a crash has no second effect. A cluster
// that is being deleted gets no link: its deletion removes the links that it finds, and may not find this one. So the cluster is read again after
// the assignment, which is withdrawn if the deletion has begun.
func (e *Executor) setEgressLink(ctx context.Context, o *database.AdminOperationDocument, p adminv1.EgressLinkParameters) (any, error) {
	id, err := database.ParseEgressLinkID(p.LinkID)
	if err != nil {
		return nil, err
	}
	refused := e.takesEgressLinks(ctx, o.Target)
	if refused == nil {
		_, err := e.db.AssignEgressLink(ctx, id, database.EgressLinkDocument{ClusterUID: o.Target.ClusterUID, ResourceID: o.Target.ResourceID, Hosts: p.Hosts,
			OperationID: o.OperationID, RequestTime: o.StartTime, Intent: o.Intent}, time.Now().UTC())
		if err != nil {
			return nil, err
		}
		refused = e.takesEgressLinks(ctx, o.Target)
	}
	if refused != nil && apierror.KindOf(refused) == apierror.Conflict {
		// This operation may have assigned the link before a crash.
		if err := e.db.WithdrawEgressLink(ctx, id, o.OperationID, time.Now().UTC()); err != nil {
			return nil, err
		}
	}
	return nil, refused
}

// takesEgressLinks returns an error of the kind Conflict if a cluster is being deleted or is gone.
func (e *Executor) takesEgressLinks(ctx context.Context, target database.AdminTarget) error {
	key, err := database.ResourceKey(target.ResourceID)
	if err != nil {
		return adminaction.InvalidParameters(err)
	}
	cluster, err := e.db.Clusters().Find(ctx, key)
	switch {
	case err != nil:
		return err
	case cluster == nil || cluster.Removed != nil || cluster.Value.UID != target.ClusterUID:
		return apierror.New(apierror.Conflict, "The cluster %s does not exist any more. It cannot have links of the egress gateway.", target.ResourceID)
	case cluster.Value.ProvisioningState == hub.Deleting:
		return apierror.New(apierror.Conflict, "The cluster %s is being deleted. It cannot get links of the egress gateway, and its links are removed with it.", target.ResourceID)
	}
	return nil
}

// deleteEgressLink removes a link of the egress gateway from the cluster that it had when the engineer requested it.
func (e *Executor) deleteEgressLink(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	id, err := database.ParseEgressLinkID(o.Target.ID)
	if err != nil {
		return nil, err
	}
	if o.Target.ClusterUID == "" {
		return nil, apierror.New(apierror.NotFound, "The link %d belonged to no cluster when its removal was requested.", id)
	}
	_, err = e.db.RemoveEgressLink(ctx, id, o.Target.ClusterUID, o.OperationID, o.StartTime, time.Now().UTC())
	return nil, err
}
