package lifecycle

import (
	"context"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

func externalAuthKind(c *Controller) *kind[database.ExternalAuthDocument] {
	return &kind[database.ExternalAuthDocument]{
		Controller: c,
		collection: c.db.ExternalAuths(),
		view: func(d *database.ExternalAuthDocument) view {
			return view{uid: d.UID, generation: d.Generation, raise: &d.Generation, state: &d.ProvisioningState, operation: &d.ActiveOperationID, fleet: &d.Fleet}
		},
		observe: func(d *database.ExternalAuthDocument, report *clusterservice.Report) bool {
			changed := !reflect.DeepEqual(d.Status, *report.ExternalAuth)
			d.Status = *report.ExternalAuth
			return changed
		},
		wanted: func(d *database.ExternalAuthDocument) proto.Message {
			return clusterservice.ExternalAuthRequest(d).GetSpec()
		},
		apply: func(ctx context.Context, d *database.ExternalAuthDocument) (clusterservice.Report, error) {
			answer, err := c.clusterService.ApplyExternalAuth(ctx, d)
			return clusterservice.ExternalAuthReport(answer), err
		},
		remove: func(ctx context.Context, d *database.ExternalAuthDocument) (clusterservice.Report, error) {
			answer, err := c.clusterService.DeleteExternalAuth(ctx, d)
			return clusterservice.ExternalAuthReport(answer), err
		},
		get: func(ctx context.Context, uid string) (clusterservice.Report, error) {
			answer, err := c.clusterService.GetExternalAuth(ctx, uid)
			return clusterservice.ExternalAuthReport(answer), err
		},
		reservations: func(key database.Key, d *database.ExternalAuthDocument) map[database.Key]database.ReservationDocument {
			return database.ExternalAuthReservations(key, d.UID)
		},
	}
}
