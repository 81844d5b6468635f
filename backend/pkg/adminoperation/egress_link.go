package adminoperation

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// setEgressLink assigns a link of the egress gateway to a cluster, or changes its hosts. A repetition after a crash has no second effect.
func (e *Executor) setEgressLink(ctx context.Context, o *database.AdminOperationDocument, p adminv1.EgressLinkParameters) (any, error) {
	id, err := database.ParseEgressLinkID(p.LinkID)
	if err != nil {
		return nil, err
	}
	_, err = e.db.AssignEgressLink(ctx, id, database.EgressLinkDocument{ClusterUID: o.Target.ClusterUID, ResourceID: o.Target.ResourceID, Hosts: p.Hosts,
		OperationID: o.OperationID, RequestTime: o.StartTime}, time.Now().UTC())
	return nil, err
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
