package app_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	azurearm "github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// TestMissingQuotaIsExplainedAndHeals creates a node pool without the quota that its nodes need. Cluster Service has the rights that it has in a
// region. The node pool states what is missing, the cluster is ready nevertheless, and the condition becomes True without another request when the
// quota is raised.
func TestMissingQuotaIsExplainedAndHeals(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{Seed: serviceRights()})
	quota := func(limit int64) {
		must.Do(t, r.azure.SetComputeLimits(azurearm.ComputeLimits{Subscription: customerSubscription, Quotas: map[string]azurearm.ComputeQuota{"cores": {Limit: limit}}}))
	}
	quota(10)
	var hasQuota atomic.Bool
	r.runManagementClustersWith(func(object maestrotest.Object) {
		if object["kind"] == "NodePool" && !hasQuota.Load() {
			object["status"].(maestrotest.Object)["replicas"] = float64(0)
		}
	})
	service := r.start(nil)
	request := r.azureRequest("c")
	must.Get(service.ApplyCluster(t.Context(), request))(t)
	service.awaitCluster(t, request.Uid, clusterReady(1))
	pool := poolRequest(request, "np", 3)
	must.Get(service.ApplyNodePool(t.Context(), pool))(t)
	condition := func(status string) func(p *csv1.NodePool) bool {
		return func(p *csv1.NodePool) bool {
			for _, c := range p.GetStatus().GetConditions() {
				if c.GetType() == clusterstatus.RequirementsValid {
					return c.GetStatus() == status
				}
			}
			return false
		}
	}
	unmet := service.awaitPool(t, pool.Uid, condition("False"))
	entry := clusterstatus.AwaitedLayer(unmet.GetStatus().GetProgress())
	if entry.GetState() != clusterstatus.StateRequirementsUnmet || !strings.HasPrefix(entry.GetMessage(), "properties.platform.vmSize: the missing nodes (3 of the size Standard_D8s_v3) need 24 cores") {
		t.Errorf("the node pool waits for %v", entry)
	}
	if entry := must.Get(service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: request.Uid}))(t); entry.GetConcern().GetSubjectResourceId() != pool.ResourceId || entry.GetStatus().GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_READY {
		t.Errorf("the cluster is %s and waits for %v", entry.GetStatus().GetPhase(), entry.GetConcern())
	}
	must.Do(t, service.measures(1, "cluster_service_azure_capacity_requests_total", "quotas", "200"))
	quota(1000)
	r.clock.advance(5 * time.Minute)
	service.awaitPool(t, pool.Uid, condition("True"))
	hasQuota.Store(true)
	r.maestro.Touch()
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool { return poolReady(p) && condition("True")(p) })
}
