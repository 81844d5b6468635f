package app_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// controlPlaneState returns the state of the control plane layer of a cluster.
func controlPlaneState(c *csv1.Cluster) string {
	for _, progress := range c.GetStatus().GetProgress() {
		if progress.GetLayer() == "control-plane" {
			return progress.GetState()
		}
	}
	return ""
}

// TestKeyRotationCompletesAfterReencryption checks that a new key version is in effect only after all data is encrypted
// with it. Until then the customer must not disable the previous version.
func TestKeyRotationCompletesAfterReencryption(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	request := applyRequest("encrypted", 1)
	request.Spec.Etcd = &csv1.Etcd{KmsKey: &csv1.KmsKey{VaultName: "vault", KeyName: "key", KeyVersion: "v1", VaultVisibility: csv1.Visibility_VISIBILITY_PUBLIC}}
	service.applyUntilReady(t, request)

	r.hypershift.Hold(true)
	request.Generation, request.Spec.Etcd.KmsKey.KeyVersion = 2, "v2"
	rotating := service.applyCluster(t, request, func(c *csv1.Cluster) bool { return controlPlaneState(c) == "ReEncryptionInProgress" })
	if s := rotating.GetStatus(); s.GetObservedGeneration() != 1 || s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_UPDATING {
		t.Errorf("during the rotation: %v", s)
	}
	r.continueSigning()
	service.awaitCluster(t, request.Uid, clusterReady(2))

	r.hypershift.RejectKeys(true)
	request.Generation, request.Spec.Etcd.KmsKey.KeyVersion = 3, "v3"
	service.applyCluster(t, request, func(c *csv1.Cluster) bool { return controlPlaneState(c) == "EncryptionKeyInvalid" && keyRejected(c) })
	r.hypershift.RejectKeys(false)
	r.maestro.Touch()
	service.awaitCluster(t, request.Uid, func(c *csv1.Cluster) bool { return clusterReady(3)(c) && !keyRejected(c) })
}

// keyRejected reports whether a cluster has the condition from which the backend names the customer's key.
func keyRejected(c *csv1.Cluster) bool {
	return statusOf(c, clusterstatus.EncryptionKeyUsable) == "False"
}

// TestNodePoolVersionRules checks that a rejection names the rule and the allowed versions.
func TestNodePoolVersionRules(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	request, _ := service.createReady(t, "skewed")
	pool := poolRequest(request, "np", 1)
	pool.Spec.Version = &csv1.Version{Id: "4.22.2"}
	refused := func(want ...string) {
		t.Helper()
		_, err := service.ApplyNodePool(t.Context(), pool)
		text := status.Convert(err).String()
		for _, detail := range status.Convert(err).Details() {
			text += " " + detail.(interface{ String() string }).String()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Fatalf("%s", text)
		}
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%s does not contain %q", text, w)
			}
		}
	}
	refused("must not be newer than their control plane, which runs 4.21.4", "allowed: 4.21.4")
	pool.Spec.Version.Id = "4.20.16"
	service.applyPool(t, pool, func(p *csv1.NodePool) bool { return p.GetStatus().GetVersion() == "4.20.16" })
	pool.Generation, pool.Spec.Version.Id = 2, "4.20.15"
	refused("cannot go back from 4.20.16", "allowed: 4.21.4, 4.21.1, 4.20")
	// Nodes whose upgrade does not make progress can return to the version that they run, and to no other.
	r.hypershift.HoldUpgrades(true)
	pool.Spec.Version.Id = "4.21.4"
	must.Get(service.ApplyNodePool(t.Context(), pool))(t)
	pool.Generation, pool.Spec.Version.Id = 3, "4.21.1"
	refused("cannot go back from 4.21.4", "allowed: 4.21.4")
	pool.Spec.Version.Id = "4.20.16"
	service.applyPool(t, pool, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetVersion() == "4.20.16" && p.GetStatus().GetObservedGeneration() == 3
	})
	r.hypershift.HoldUpgrades(false)
	pool.Generation, pool.Spec.Version.Id = 4, "4.21.4"
	service.applyPool(t, pool, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetVersion() == "4.21.4" && p.GetStatus().GetObservedGeneration() == 4
	})
}

// TestReturnToEarlierContent checks that a node pool does not report a generation before the management cluster has it. The content of the
// generation equals that of the last report, and Maestro still has what was desired in between.
func TestReturnToEarlierContent(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 100}).run()
	request, _ := service.createReady(t, "undecided")
	pool := poolRequest(request, "np", 1)
	replicas := pool.Spec.GetReplicas()
	apply := func(generation int64, replicas int32) {
		t.Helper()
		pool.Generation, pool.Spec.Size = generation, &csv1.NodePoolSpec_Replicas{Replicas: replicas}
		must.Get(service.ApplyNodePool(t.Context(), pool))(t)
	}
	observes := func(generation int64) func(*csv1.NodePool) bool {
		return func(p *csv1.NodePool) bool { return p.GetStatus().GetObservedGeneration() == generation }
	}
	published := func(p *csv1.NodePool) bool {
		return slices.ContainsFunc(p.GetStatus().GetProgress(), func(l *csv1.LayerProgress) bool {
			return l.GetLayer() == fleet.LayerMaestro && l.GetState() == "Published"
		})
	}
	apply(1, replicas)
	service.awaitPool(t, pool.Uid, observes(1))
	r.maestro.Silence("mgmt-1", true)
	apply(2, replicas+1)
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool { return p.GetGeneration() == 2 && published(p) })
	apply(3, replicas)
	if p := service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool { return p.GetGeneration() == 3 && published(p) }); p.GetStatus().GetObservedGeneration() != 1 {
		t.Errorf("generation %d is reported; the agent has reported nothing since generation 1", p.GetStatus().GetObservedGeneration())
	}
	r.maestro.Silence("mgmt-1", false)
	service.awaitPool(t, pool.Uid, observes(3))
}

// TestConcurrentNodePoolUpdates checks that the pools of a cluster do not wait for each other and that no change is
// lost.
func TestConcurrentNodePoolUpdates(t *testing.T) {
	t.Parallel()
	_, service := newRegion(t).run()
	request := applyRequest("two", 1)
	must.Get(service.ApplyCluster(t.Context(), request))(t)
	pools := []*csv1.ApplyNodePoolRequest{poolRequest(request, "one", 1), poolRequest(request, "two", 1)}
	failed := make(chan error, len(pools))
	for _, pool := range pools {
		go func() {
			var err error
			for generation := int64(1); generation <= 10 && err == nil; generation++ {
				pool.Generation, pool.Spec.Size = generation, &csv1.NodePoolSpec_Replicas{Replicas: int32(generation)}
				_, err = service.ApplyNodePool(t.Context(), pool)
			}
			failed <- err
		}()
	}
	for range pools {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	for _, pool := range pools {
		service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool {
			return p.GetStatus().GetObservedGeneration() == 10 && p.GetStatus().GetReplicas() == 10
		})
	}
}
