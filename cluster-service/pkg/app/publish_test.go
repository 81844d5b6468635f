package app_test

import (
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestPublishFailsWhileDeleted covers a regression: a work whose publish failed and that was marked for deletion
// meanwhile terminated the process. It must be deleted.
func TestPublishFailsWhileDeleted(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster := service.installed(t, "c", "4.20.16")
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.maestro.Fault(func(action string, resource *maestrotest.Resource) (before, after error) {
		if action != "create" || !strings.HasPrefix(resource.Name, fleet.ClusterID(cluster.Uid)+"-a") {
			return nil, nil
		}
		once.Do(func() { close(asked) })
		<-answer
		return status.Error(codes.Unavailable, "no"), nil
	})
	pool := poolRequest(cluster, "a", 2)
	must.Get(service.ApplyNodePool(t.Context(), pool))(t)
	<-asked
	must.Get(service.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: pool.Uid}))(t)
	close(answer)
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED
	})
}
