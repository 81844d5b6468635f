package lifecycle

import (
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
			return view{uid: d.UID, generation: d.Generation, generationField: &d.Generation, state: &d.ProvisioningState, operation: &d.ActiveOperationID, fleet: &d.Fleet}
		},
		observe: func(d *database.ExternalAuthDocument, report *clusterservice.Report) bool {
			changed := !reflect.DeepEqual(d.Status, *report.ExternalAuth)
			d.Status = *report.ExternalAuth
			return changed
		},
		spec: func(d *database.ExternalAuthDocument) proto.Message {
			request, _ := clusterservice.ExternalAuthRequest(d) // see clusterKind
			return request.GetSpec()
		},
		apply:  c.clusterService.ApplyExternalAuth,
		remove: c.clusterService.DeleteExternalAuth,
		get:    c.clusterService.GetExternalAuth,
		reservations: func(key database.Key, d *database.ExternalAuthDocument) map[database.Key]database.ReservationDocument {
			return database.ExternalAuthReservations(key, d.UID)
		},
	}
}
