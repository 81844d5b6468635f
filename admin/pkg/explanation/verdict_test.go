package explanation

import (
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/verdicttest"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
)

// TestExplanationsFollowTheVerdict compares explanations with the table of verdicts: a cluster is explained as ready if and only if its
// verdict is Ready.
func TestExplanationsFollowTheVerdict(t *testing.T) {
	for reason, c := range verdicttest.Cases() {
		f := &facts{now: verdicttest.Now, target: adminv1.Cluster{ResourceID: verdicttest.ClusterID}, name: "demo", cluster: c.Cluster, records: []record{newRecord(verdicttest.ClusterID, 1, "Succeeded")}}
		if c.Pool != nil {
			f.nodePools, f.records = []*csv1.NodePool{c.Pool}, append(f.records, newRecord(verdicttest.PoolID, 1, "Succeeded"))
		}
		items := f.explain().Items
		ready := slices.ContainsFunc(items, func(i adminv1.ExplanationItem) bool { return i.Code == adminv1.ExplanationReady })
		if ready != (c.Want == verdict.Ready) {
			t.Errorf("%s: the verdict is %s, the explanation: %s", reason, c.Want, items[0].Summary.Text)
		}
	}
}
