package app_test

import (
	"slices"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// poolRefused matches a node pool whose labels the management cluster permanently refuses.
func poolRefused(p *csv1.NodePool) bool {
	if p.GetStatus().GetPhase() != csv1.NodePoolPhase_NODE_POOL_PHASE_FAILED {
		return false
	}
	return slices.ContainsFunc(p.GetStatus().GetConditions(), func(c *csv1.Condition) bool {
		return c.GetType() == clusterstatus.Applied && c.GetReason() == clusterstatus.ApplyRefused &&
			slices.Equal(clusterstatus.RefusedProperties(c.GetMessage()), []string{"properties.labels"})
	})
}

// TestPermanentRefusalFailsUntilChanged makes the kind NodePool stricter: the pool fails with the ARM property in its creation, and recovers
// with other labels. An update that is refused fails too, and the cluster stays ready.
func TestPermanentRefusalFailsUntilChanged(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.maestro.Refuse(func(object maestrotest.Object) (field, message string) {
		spec, _ := object["spec"].(maestrotest.Object)
		if labels, _ := spec["nodeLabels"].(maestrotest.Object); labels["tier"] == "gold" {
			return "spec.nodeLabels", "spec.nodeLabels: Invalid value: tier must not be gold"
		}
		return "", ""
	})
	service := r.start(nil)
	cluster := applyRequest("c", 1)
	must.Get(service.ApplyCluster(t.Context(), cluster))(t)
	pool := poolRequest(cluster, "workers", 1)
	apply := func(generation int64, tier string) {
		t.Helper()
		pool.Generation, pool.Spec.Labels = generation, map[string]string{"tier": tier}
		must.Get(service.ApplyNodePool(t.Context(), pool))(t)
	}
	apply(1, "gold")
	service.awaitPool(t, pool.Uid, poolRefused)
	apply(2, "silver")
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY && p.GetStatus().GetObservedGeneration() == 2
	})
	apply(3, "gold")
	service.awaitPool(t, pool.Uid, poolRefused)
	service.awaitCluster(t, cluster.Uid, clusterReady(1))
	must.Get(service.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: pool.Uid}))(t)
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED
	})
}
