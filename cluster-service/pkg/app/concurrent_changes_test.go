package app_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// updating changes the version of a pool whose nodes are blocked, and waits until the nodes are being replaced.
func (i *instance) updating(t *testing.T, cluster *csv1.ApplyClusterRequest, name, version string) *csv1.ApplyNodePoolRequest {
	t.Helper()
	pool := poolRequest(cluster, name, 2)
	pool.Generation, pool.Spec.Version = 2, &csv1.Version{Id: version}
	must.Get(i.ApplyNodePool(t.Context(), pool))(t)
	i.awaitPool(t, pool.Uid, poolInState("UpdatingVersion", 1))
	return pool
}

// poolInState returns a condition: a state of the nodes and the observed generation.
func poolInState(state string, observed int64) func(*csv1.NodePool) bool {
	return func(p *csv1.NodePool) bool {
		return p.GetStatus().GetObservedGeneration() == observed && slices.ContainsFunc(p.GetStatus().GetProgress(), func(l *csv1.LayerProgress) bool {
			return l.GetLayer() == "node-pool" && l.GetState() == state
		})
	}
}

func poolDone(generation int64, version string, replicas int32) func(*csv1.NodePool) bool {
	return func(p *csv1.NodePool) bool {
		return poolAt(version)(p) && p.GetStatus().GetObservedGeneration() == generation && p.GetStatus().GetReplicas() == replicas
	}
}

func poolGone(p *csv1.NodePool) bool {
	return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED
}

// TestConcurrentNodePoolChanges checks what happens to a pool during another change, as docs/operators/node-pools.md
// describes.
func TestConcurrentNodePoolChanges(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster := service.installed(t, "meanwhile", "4.20.8", "scaled", "labelled", "deleted", "stuck", "early", "last")
	id := service.awaitCluster(t, cluster.Uid, clusterReady(1)).GetStatus().GetClusterId()

	// During an upgrade of the control plane.
	r.hypershift.HoldUpgrades(true)
	request := startRequest(cluster, "4.20.16", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)
	must.Get(service.StartUpgrade(ctx, request))(t)
	service.awaitUpgrade(t, upgradeIs(request.Uid, controlPlane))
	t.Run("a version during an upgrade of the control plane", func(t *testing.T) {
		early := poolRequest(cluster, "early", 2)
		early.Generation, early.Spec.Version = 2, &csv1.Version{Id: "4.20.16"}
		if _, err := service.ApplyNodePool(ctx, early); err == nil || !strings.Contains(err.Error(), "nodes must not be newer than their control plane, which runs 4.20.8") {
			t.Errorf("pool version newer than the control plane: %v", err)
		}
	})
	r.hypershift.HoldUpgrades(false)
	r.maestro.Touch()
	service.awaitUpgrade(t, upgradeIs(request.Uid, completed))

	// During a replacement of the nodes.
	r.hypershift.HoldUpgrades(true)
	scaled := service.updating(t, cluster, "scaled", "4.20.16")
	t.Run("a scale, and the newest of two changes wins", func(t *testing.T) {
		before := poolRequest(cluster, "scaled", 9)
		before.Generation, before.Spec.Version = 3, scaled.Spec.Version
		scaled.Generation, scaled.Spec.Size = 4, &csv1.NodePoolSpec_Replicas{Replicas: 5}
		for _, change := range []*csv1.ApplyNodePoolRequest{before, scaled, before} {
			must.Get(service.ApplyNodePool(ctx, change))(t)
		}
		// The scale is applied at once, but is in effect only together with the version.
		p := service.awaitPool(t, scaled.Uid, func(p *csv1.NodePool) bool { return p.GetStatus().GetReplicas() == 5 })
		if p.GetStatus().GetObservedGeneration() != 1 || p.GetStatus().GetVersion() != "4.20.8" {
			t.Errorf("status during the replacement of the nodes is %v", p.GetStatus())
		}
	})
	labelled := service.updating(t, cluster, "labelled", "4.20.16")
	t.Run("labels and taints", func(t *testing.T) {
		labelled.Generation, labelled.Spec.Labels = 3, map[string]string{"tier": "front"}
		labelled.Spec.Taints = []*csv1.Taint{{Key: "dedicated", Value: "front", Effect: "NoSchedule"}}
		must.Get(service.ApplyNodePool(ctx, labelled))(t)
		service.awaitPool(t, labelled.Uid, func(p *csv1.NodePool) bool { return p.GetGeneration() == 3 && poolInState("UpdatingVersion", 1)(p) })
		// The management cluster receives them during the replacement of the nodes.
		carries := func() bool {
			for _, held := range r.maestro.Resources() {
				var object struct {
					Spec struct {
						NodeLabels map[string]string
						Taints     []struct{ Key string }
					}
				}
				if held.Name == id+"-labelled" && json.Unmarshal(held.Manifests[0], &object) == nil {
					return object.Spec.NodeLabels["tier"] == "front" && len(object.Spec.Taints) == 1
				}
			}
			return false
		}
		awaitCondition(t, "the management cluster to receive labels and taints", carries)
	})
	deleted := service.updating(t, cluster, "deleted", "4.20.16")
	t.Run("the pool's deletion", func(t *testing.T) {
		must.Get(service.DeleteNodePool(ctx, &csv1.DeleteNodePoolRequest{Uid: deleted.Uid}))(t)
		service.awaitPool(t, deleted.Uid, poolGone)
	})
	stuck := service.updating(t, cluster, "stuck", "4.20.16")
	t.Run("the pool's deletion while a node does not drain", func(t *testing.T) {
		r.maestro.Hold(id + "-stuck")
		must.Get(service.DeleteNodePool(ctx, &csv1.DeleteNodePoolRequest{Uid: stuck.Uid}))(t)
		service.awaitPool(t, stuck.Uid, func(p *csv1.NodePool) bool {
			return stepOf(p.GetStatus().GetDeletion(), "node-pool/stuck").GetState() == running
		})
		r.maestro.Release(id + "-stuck")
		service.awaitPool(t, stuck.Uid, poolGone)
	})
	r.hypershift.HoldUpgrades(false)
	r.maestro.Touch()
	service.awaitPool(t, scaled.Uid, poolDone(4, "4.20.16", 5))
	service.awaitPool(t, labelled.Uid, poolDone(3, "4.20.16", 2))

	r.hypershift.HoldUpgrades(true)
	last := service.updating(t, cluster, "last", "4.20.16")
	t.Run("the cluster's deletion", func(t *testing.T) {
		must.Get(service.DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: cluster.Uid}))(t)
		service.awaitPool(t, last.Uid, poolGone)
		service.awaitCluster(t, cluster.Uid, clusterDeleted)
		r.onlyWorks(id)
	})
	for _, name := range []string{"deleted", "stuck", "last"} {
		history := r.maestro.History()
		if gone := slices.Index(history, "gone "+id+"-"+name); gone < 0 || slices.Contains(history[gone:], "create "+id+"-"+name) {
			t.Errorf("node pool %s was not deleted, or was recreated: %v", name, history)
		}
	}
	r.nothingWasWrong(t)
}
