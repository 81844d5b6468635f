package lifecycle

import (
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/backend/pkg/decision"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

func nodePoolKind(c *Controller) *kind[database.NodePoolDocument] {
	return &kind[database.NodePoolDocument]{
		Controller: c,
		collection: c.db.NodePools(),
		view: func(d *database.NodePoolDocument) view {
			return view{uid: d.UID, generation: d.Generation, generationField: &d.Generation, state: &d.ProvisioningState, operation: &d.ActiveOperationID, fleet: &d.Fleet, limits: decision.LimitsFromExperiments(d.NodePool.Experiments)}
		},
		observe: func(d *database.NodePoolDocument, report *clusterservice.Report) bool {
			changed := !reflect.DeepEqual(d.Status, *report.NodePool)
			d.Status = *report.NodePool
			return changed
		},
		spec: func(d *database.NodePoolDocument) proto.Message {
			request, _ := clusterservice.NodePoolRequest(d) // see clusterKind
			return request.GetSpec()
		},
		apply:  c.clusterService.ApplyNodePool,
		remove: c.clusterService.DeleteNodePool,
		get:    c.clusterService.GetNodePool,
	}
}
