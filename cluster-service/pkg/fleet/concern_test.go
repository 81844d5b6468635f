package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/verdicttest"
)

// TestConcernsFollowTheVerdict compares the concern that Cluster Service stores with the table of verdicts.
func TestConcernsFollowTheVerdict(t *testing.T) {
	for reason, c := range verdicttest.Cases() {
		aggregate := ClusterAggregate{Cluster: &Cluster{UID: c.Cluster.GetUid(), ResourceID: c.Cluster.GetResourceId(), Status: c.Cluster.GetStatus(), CreateTime: c.Cluster.GetCreateTime().AsTime()}}
		if c.Cluster.GetDeleteTime() != nil {
			aggregate.Cluster.DeleteTime = c.Cluster.GetDeleteTime().AsTime()
		}
		if c.Pool != nil {
			p := &NodePool{UID: c.Pool.GetUid(), ResourceID: c.Pool.GetResourceId(), Status: c.Pool.GetStatus(), CreateTime: c.Pool.GetCreateTime().AsTime()}
			if c.Pool.GetDeleteTime() != nil {
				p.DeleteTime = c.Pool.GetDeleteTime().AsTime()
			}
			aggregate.Pools = append(aggregate.Pools, p)
		}
		if diff := cmp.Diff(c.Concern, aggregate.Concern()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
}
