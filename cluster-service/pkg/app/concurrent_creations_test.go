package app_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

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
