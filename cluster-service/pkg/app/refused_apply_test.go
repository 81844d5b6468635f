package app_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// poolRefused matches a node pool whose labels the management cluster permanently refuses.
func poolRefused(p *csv1.NodePool) bool {
	applied := conditionOf(p.GetStatus().GetConditions(), clusterstatus.Applied)
	return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_FAILED && applied.GetReason() == clusterstatus.ApplyRefused &&
		slices.Equal(clusterstatus.RefusedProperties(applied.GetMessage()), []string{"properties.labels"})
}

// refuseGold is a stricter kind NodePool.
func refuseGold(object maestrotest.Object) (field, message string) {
	spec, _ := object["spec"].(maestrotest.Object)
	if labels, _ := spec["nodeLabels"].(maestrotest.Object); labels["tier"] == "gold" {
		return "spec.nodeLabels", "spec.nodeLabels: Invalid value: tier must not be gold"
	}
	return "", ""
}

// TestPermanentRefusalFailsUntilChanged makes the kind NodePool stricter: the pool fails with the ARM property in its creation, and recovers
// with other labels. An update that is refused fails too, and the cluster stays ready. The node pool then has the labels before.
func TestPermanentRefusalFailsUntilChanged(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.maestro.Refuse(refuseGold)
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
	// The management cluster has the accepted labels again, and the API has the requested ones.
	r.awaitWork(t, service, cluster.Uid, pool.Uid, `"tier":"silver"`, `"tier":"gold"`)
	p := must.Get(service.GetNodePool(t.Context(), &csv1.GetNodePoolRequest{Uid: pool.Uid}))(t)
	if !poolRefused(p) || p.GetStatus().GetObservedGeneration() != 2 || p.GetSpec().GetLabels()["tier"] != "gold" {
		t.Errorf("the node pool is %v", p)
	}
	apply(4, "gold") // another request is tried again
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool { return poolRefused(p) && p.GetGeneration() == 4 })
	apply(5, "bronze")
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool { return poolReady(p) && p.GetStatus().GetObservedGeneration() == 5 })
	service.deletePool(t, pool, poolGone)
}

// awaitWork waits until a work is applied with a text and without another one, and the list of drifts has its refused generation.
func (r *region) awaitWork(t *testing.T, service *instance, clusterUID, ownerUID, has, hasNot string) {
	t.Helper()
	untilDone(t, func(ctx context.Context) error {
		listed, err := service.ListWorks(ctx, &csv1.ListWorksRequest{Drifting: true})
		if err != nil {
			return err
		}
		for _, w := range listed.GetWorks() {
			if w.GetClusterUid() != clusterUID || w.GetOwnerUid() != ownerUID || !w.GetCarried() || w.GetDrift() != clusterstatus.DriftApplyRefused {
				continue
			}
			text := fmt.Sprintf("%s", r.maestro.Resources()[w.GetId()].Manifests)
			if strings.Contains(text, has) && !strings.Contains(text, hasNot) {
				return nil
			}
		}
		return fmt.Errorf("works with drift: %v", listed.GetWorks())
	})
}

// TestRefusedExternalAuthDoesNotBlockCluster: an external authentication whose creation is refused is removed from the HostedCluster with its certificate
// authority, also if Cluster Service restarts, and later changes of the cluster and of the external authentication take effect.
func TestRefusedExternalAuthDoesNotBlockCluster(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.hypershift.ProvideSecrets(true)
	r.maestro.Refuse(func(object maestrotest.Object) (field, message string) {
		if text, _ := json.Marshal(object); object["kind"] == "HostedCluster" && strings.Contains(string(text), "bad-claim") {
			return "spec.configuration.authentication.oidcProviders[0].claimMappings.username.claim", "spec.configuration.authentication: Invalid value"
		}
		return "", ""
	})
	service := r.start(nil)
	cluster, _ := service.createReady(t, "c")
	auth := authRequest(cluster, "entra", 1)
	auth.Spec.Issuer.CertificateAuthority = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	auth.Spec.ClaimMappings.Username.Claim = "bad-claim"
	refused := service.applyAuth(t, auth, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED, 0)
	if !slices.ContainsFunc(refused.GetStatus().GetConditions(), func(c *csv1.Condition) bool {
		return c.GetReason() == clusterstatus.ApplyRefused && slices.Equal(clusterstatus.RefusedProperties(c.GetMessage()), []string{"properties.claim.mappings.username.claim"})
	}) {
		t.Errorf("the conditions are %v", refused.GetStatus().GetConditions())
	}
	r.awaitWork(t, service, cluster.Uid, "", "HostedCluster", "ca-bundle.crt")
	service.stop()
	service = r.start(nil)
	cluster.Generation = 2
	cluster.Spec.Api.AuthorizedCidrs = []string{"10.9.0.0/16"}
	service.applyUntilReady(t, cluster)
	service.awaitAuth(t, auth.Uid, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED, 0)
	auth.Generation, auth.Spec.ClaimMappings.Username.Claim = 2, "email"
	service.applyAuth(t, auth, csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, 2)
}

// TestSweepRefusedUpdate crashes Cluster Service at every external write, and at pairs of them, of an update of a node pool that is refused.
func TestSweepRefusedUpdate(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.play()
	r.maestro.Refuse(refuseGold)
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		steady := r.start(nil)
		cluster, _ := steady.createReady(t, fmt.Sprintf("f%d", d.Seed()))
		pool := steady.createReadyPool(t, cluster, "np1", 1)
		steady.stop()
		m := r.crashingInstance(d)
		pool.Generation, pool.Spec.Labels = 2, map[string]string{"tier": "gold"}
		call(t, m, csv1.ClusterServiceClient.ApplyNodePool, pool, nil)
		p := call(t, m, csv1.ClusterServiceClient.GetNodePool, &csv1.GetNodePoolRequest{Uid: pool.Uid}, poolRefused)
		m.stop()
		service := r.start(nil)
		r.awaitWork(t, service, cluster.Uid, pool.Uid, "NodePool", `"tier":"gold"`)
		service.stop()
		return []string{p.GetSpec().GetLabels()["tier"], fmt.Sprint(p.GetStatus().GetObservedGeneration()), fmt.Sprint(r.endOf(t, cluster.Uid))}
	})
}
