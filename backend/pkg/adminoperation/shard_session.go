package adminoperation

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// ender is who ends sessions in their documents.
const ender = "backend"

// completeTokenSession adds the signed intent of an operation to its session for a management cluster or for the service cluster. The session gateway presents
// it to a program there, which verifies it and issues a token.
func (e *Executor) completeTokenSession(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	key := (&database.AccessSessionDocument{SessionID: o.OperationID, Shard: o.Target.ID}).Key()
	session, err := e.db.ChangeAccessSession(ctx, key, func(v *database.AccessSessionDocument) (changed bool, err error) {
		switch {
		case v.State == database.AccessSessionEnded:
			return false, apierror.New(apierror.Conflict, "The session has ended: %s.", v.EndReason)
		case v.Owner != o.Actor:
			return false, apierror.New(apierror.PermissionDenied, "The session belongs to another engineer than the operation.")
		case v.Intent != "":
			return false, nil
		}
		v.Intent, v.Parameters = o.Intent, o.Parameters
		return true, nil
	})
	if err == nil && session == nil {
		err = apierror.New(apierror.NotFound, "The session does not exist any more.")
	}
	return nil, err
}

// endElevation ends what was requested with an elevation that was ended: the credentials of a cluster, or the sessions for a management cluster or for the
// service cluster.
func (e *Executor) endElevation(ctx context.Context, o *database.AdminOperationDocument) (any, error) {
	if !adminv1.HasTokenSessions(o.Target.Kind) {
		return e.revokeCredentials(ctx, o)
	}
	filter := database.AccessSessionFilter{Shard: o.Target.ID, ElevationID: o.Actor.ElevationID, OpenOnly: true}
	return nil, e.db.EachAccessSession(ctx, filter, func(item *database.Item[database.AccessSessionDocument]) error {
		_, err := e.db.ChangeAccessSession(ctx, item.Key, func(v *database.AccessSessionDocument) (bool, error) {
			return v.End(ender, "the elevation was ended", time.Now().UTC()), nil
		})
		return err
	})
}
