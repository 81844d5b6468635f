package explanation

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// TestHeartbeatDistinguishesIdlenessFromSilence explains a cluster that waits for its agent.
func TestHeartbeatDistinguishesIdlenessFromSilence(t *testing.T) {
	for name, tc := range map[string]struct {
		age  time.Duration
		want string
	}{"Fresh": {15 * time.Second, "The agent runs"}, "Old": {5 * time.Minute, "The agent is away"}} {
		f := beingCreated(2*time.Minute, installing(2*time.Minute, layer("maestro", "Published", "", time.Minute), layer("management-cluster", "Waiting", "", time.Minute)), func(f *facts) {
			f.shards = []*csv1.ProvisionShard{{Name: "mgmt-1", LastHeartbeatTime: stamp(tc.age)}}
		})
		item := f.explain().Items[0]
		i := slices.IndexFunc(item.Evidence, func(s adminv1.Sentence) bool { return s.Code == adminv1.SentenceHeartbeat })
		if i < 0 || !strings.HasPrefix(item.Evidence[i].Text, tc.want) || !item.Evidence[i].Time.Equal(ago(tc.age)) {
			t.Errorf("%s: %+v", name, item.Evidence)
		}
	}
}
