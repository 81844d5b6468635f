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
	m.showHeartbeats([]store.Shard{first, second, {Name: "mgmt-3"}})
	if n := testutil.CollectAndCount(m.heartbeats); n != 2 {
		t.Errorf("%d shards are exported, want those with a heartbeat", n)
	}
	m.showHeartbeats([]store.Shard{second})
	if n := testutil.CollectAndCount(m.heartbeats); n != 1 || testutil.ToFloat64(m.heartbeats.WithLabelValues("mgmt-2")) != 7 {
		t.Errorf("%d shards are exported after the deregistration of mgmt-1, want mgmt-2", n)
	}
}
