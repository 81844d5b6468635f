package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// resourceCounts returns the values of the gauge.
func resourceCounts(t *testing.T, p *process.Process) map[string]int {
	t.Helper()
	families := must.Get(p.Metrics.Gather())(t)
	counts := map[string]int{}
	for _, family := range families {
		if family.GetName() != "backend_resources" {
			continue
		}
		for _, m := range family.GetMetric() {
			counts[m.GetLabel()[0].GetValue()+" "+m.GetLabel()[1].GetValue()] = int(m.GetGauge().GetValue())
		}
	}
	return counts
}

// TestResourceCounts: the gauge counts resources that existed before the backend and new ones.
func TestResourceCounts(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.seedClusters(subscription, 7)
	// A cluster that Cluster Service has not accepted stays Accepted; otherwise it would soon be Provisioning.
	r.refuse(status.Error(codes.Unavailable, "not now"))
	ctx, cancel := context.WithCancel(t.Context())
	p := process.New("backend", slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.workAs(ctx, p, r.cosmos.Open(t), r.connection, "backend-0")
	}()
	t.Cleanup(func() { cancel(); <-done })
	shows := func(want map[string]int) {
		t.Helper()
		r.eventually("the resource counts", func() string { return cmp.Diff(want, resourceCounts(t, p)) })
	}
	shows(map[string]int{"cluster Succeeded": 7})

	operations := []database.Key{r.createCluster(clusterKey("00000000-0000-0000-0000-0000000000bb", "a"))}
	operations = append(operations, r.createPool(clusterKey(subscription, "c00000"), "np"))
	shows(map[string]int{"cluster Succeeded": 7, "cluster Accepted": 1, "nodePool Accepted": 1})
	r.refuse(nil)
	for _, operation := range operations {
		r.ends(operation, hub.Succeeded)
	}
	shows(map[string]int{"cluster Succeeded": 8, "nodePool Succeeded": 1})
	for i := range 3 {
		operations = append(operations, r.change(clusterKey(subscription, fmt.Sprintf("c%05d", i)), database.DeleteRequest))
	}
	for _, operation := range operations {
		r.ends(operation, hub.Succeeded)
	}
	shows(map[string]int{"cluster Succeeded": 5})
}
