package delivery

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// TestHeartbeatsOfDeregisteredShardsAreNotExported is a regression test: the last heartbeat of a deregistered shard stayed in the
// metrics until a restart, so that its agent seemed to be silent.
func TestHeartbeatsOfDeregisteredShardsAreNotExported(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	first, second := store.Shard{Name: "mgmt-1", LastHeartbeat: time.Unix(5, 0)}, store.Shard{Name: "mgmt-2", LastHeartbeat: time.Unix(7, 0)}
	m.showShards([]store.Shard{first, second, {Name: "mgmt-3"}})
	if n := testutil.CollectAndCount(m.heartbeats); n != 2 {
		t.Errorf("%d shards are exported, want those with a heartbeat", n)
	}
	first.Deregistered = true
	m.showShards([]store.Shard{first, second})
	if n := testutil.CollectAndCount(m.heartbeats); n != 1 || testutil.ToFloat64(m.heartbeats.WithLabelValues("mgmt-2")) != 7 {
		t.Errorf("%d shards are exported after the deregistration of mgmt-1, want mgmt-2", n)
	}
}

func TestShardsAreExported(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	capacity := int32(60)
	full := store.Shard{Name: "mgmt-1", Base: store.Offer{Capacity: &capacity}, Clusters: 60, Configured: true, Cordoned: true}
	m.showShards([]store.Shard{full, {Name: "mgmt-2"}})
	for name, c := range map[string]struct {
		gauge prometheus.Gauge
		want  float64
	}{
		"capacity": {m.capacity.WithLabelValues("mgmt-1"), 60},
		"clusters": {m.clusters.WithLabelValues("mgmt-1"), 60},
		"cordoned": {m.states.WithLabelValues("mgmt-1", "Cordoned"), 1},
		"active":   {m.states.WithLabelValues("mgmt-1", "Active"), 0},
	} {
		if got := testutil.ToFloat64(c.gauge); got != c.want {
			t.Errorf("%s: %v is exported, want %v", name, got, c.want)
		}
	}
	m.showShards([]store.Shard{full, {Name: "mgmt-2", Deregistered: true}})
	for name, series := range map[string]*prometheus.GaugeVec{"capacity": m.capacity, "clusters": m.clusters} {
		if n := testutil.CollectAndCount(series); n != 1 {
			t.Errorf("%s: %d shards are exported after mgmt-2 was deregistered, want one", name, n)
		}
	}
	if n := testutil.CollectAndCount(m.states); n != 4 {
		t.Errorf("%d states are exported after mgmt-2 was deregistered, want those of mgmt-1", n)
	}
}
