package app_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// updating changes the version of a pool whose nodes are blocked, and waits until the nodes are being replaced.
func (i *instance) updating(t *testing.T, cluster *csv1.ApplyClusterRequest, name, version string) *csv1.ApplyNodePoolRequest {
	t.Helper()
	pool := poolRequest(cluster, name, 2)
	pool.Generation, pool.Spec.Version = 2, &csv1.Version{Id: version}
	i.applyPool(t, pool, poolInState("UpdatingVersion", 1))
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
	service.startUpgrade(t, request, upgradeIs(request.Uid, controlPlane))
	t.Run("a version during an upgrade of the control plane", func(t *testing.T) {
		early := poolRequest(cluster, "early", 2)
		early.Generation, early.Spec.Version = 2, &csv1.Version{Id: "4.20.16"}
		if _, err := service.ApplyNodePool(ctx, early); err == nil || !strings.Contains(err.Error(), "nodes must not be newer than their control plane, which runs 4.20.8") {
			t.Errorf("pool version newer than the control plane: %v", err)
		}
	})
	r.continueUpgrades()
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
		service.applyPool(t, labelled, func(p *csv1.NodePool) bool { return p.GetGeneration() == 3 && poolInState("UpdatingVersion", 1)(p) })
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
		service.deletePool(t, deleted, poolGone)
	})
	stuck := service.updating(t, cluster, "stuck", "4.20.16")
	t.Run("the pool's deletion while a node does not drain", func(t *testing.T) {
		r.maestro.Hold(id + "-stuck")
		service.deletePool(t, stuck, func(p *csv1.NodePool) bool {
			return stepOf(p.GetStatus().GetDeletion(), "node-pool/stuck").GetState() == running
		})
		r.maestro.Release(id + "-stuck")
		service.awaitPool(t, stuck.Uid, poolGone)
	})
	r.continueUpgrades()
	service.awaitPool(t, scaled.Uid, poolDone(4, "4.20.16", 5))
	service.awaitPool(t, labelled.Uid, poolDone(3, "4.20.16", 2))

	r.hypershift.HoldUpgrades(true)
	last := service.updating(t, cluster, "last", "4.20.16")
	t.Run("the cluster's deletion", func(t *testing.T) {
		service.remove(t, cluster.Uid)
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

// TestConcurrentCreations creates a fleet at once. No cluster may get stuck. The test prints figures.
func TestConcurrentCreations(t *testing.T) {
	t.Parallel()
	clusters := nightly.Choose(40, 500)
	_, service := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 500}, config.Shard{Name: "mgmt-2", Capacity: 500}).run()
	ctx, cancel := eventually.Context(t)
	defer cancel()
	stream := must.Get(service.Watch(ctx, &csv1.WatchRequest{}))(t)
	begun := time.Now()
	var mu sync.Mutex
	var answers []time.Duration
	var group sync.WaitGroup
	for i := range clusters {
		group.Go(func() {
			start := time.Now()
			if _, err := service.ApplyCluster(ctx, applyRequest(fmt.Sprintf("c%d", i), 1)); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, time.Since(start))
		})
	}
	ready, changes := map[string]bool{}, 0
	for len(ready) < clusters {
		response, err := stream.Recv()
		if err != nil {
			t.Fatalf("%d of %d are ready: %v", len(ready), clusters, err)
		}
		changes++
		if c := response.GetCluster(); clusterReady(1)(c) {
			ready[c.GetUid()] = true
		}
	}
	group.Wait()
	slices.Sort(answers)
	t.Logf("%d clusters: applied after %v (slowest; median %v), all ready after %v, %d changes watched", clusters, answers[len(answers)-1], answers[len(answers)/2], time.Since(begun), changes)
	shards := must.Get(service.ListProvisionShards(ctx, &csv1.ListProvisionShardsRequest{}))(t)
	for _, shard := range shards.GetProvisionShards() {
		if int(shard.GetClusters()) != clusters/2 {
			t.Errorf("shard %s holds %d clusters, want half of them", shard.GetName(), shard.GetClusters())
		}
	}
}
