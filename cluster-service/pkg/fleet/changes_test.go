package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// describe returns the changes between two states as lines.
func describe(t *testing.T, before, after *fleet.ClusterAggregate, now time.Time) (lines []string) {
	t.Helper()
	for _, c := range fleet.Changes(before, after, now) {
		if !c.GetTime().AsTime().Equal(now) {
			t.Errorf("%v is not of %s", c, now)
		}
		name := c.GetResourceId()[strings.LastIndexByte(c.GetResourceId(), '/')+1:]
		switch of := c.GetChange().(type) {
		case *csv1.ClusterChange_DesiredState:
			line := fmt.Sprintf("%s generation %d", name, of.DesiredState.GetGeneration())
			for _, f := range of.DesiredState.GetFields() {
				line += fmt.Sprintf(" %s: %s -> %s", f.GetPath(), f.GetBefore(), f.GetAfter())
			}
			lines = append(lines, line)
		case *csv1.ClusterChange_Phase:
			lines = append(lines, fmt.Sprintf("%s phase %s -> %s", name, of.Phase.GetBefore(), of.Phase.GetAfter()))
		case *csv1.ClusterChange_Condition:
			lines = append(lines, fmt.Sprintf("%s %s %s -> %s %s", name, of.Condition.GetCondition().GetType(), of.Condition.GetBefore(),
				of.Condition.GetCondition().GetStatus(), of.Condition.GetCondition().GetReason()))
		}
	}
	return lines
}

// TestChanges checks what is recorded of a new cluster, of changes of all kinds of its resources, and of nothing.
func TestChanges(t *testing.T) {
	now := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	created := &fleet.ClusterAggregate{Cluster: &fleet.Cluster{UID: "1", ResourceID: "/x/c", Generation: 1,
		Spec:   &csv1.ClusterSpec{Name: "c", Version: &csv1.Version{Id: "4.20.1"}, ImageDigestMirrors: []*csv1.ImageDigestMirror{{Source: "a"}}},
		Status: &csv1.ClusterStatus{Phase: csv1.ClusterPhase_CLUSTER_PHASE_PENDING, Conditions: []*csv1.Condition{{Type: "Placed", Status: "False", Reason: "Waiting"}}}}}
	want := []string{"c generation 1", "c phase  -> CLUSTER_PHASE_PENDING", "c Placed  -> False Waiting"}
	if diff := cmp.Diff(want, describe(t, &fleet.ClusterAggregate{}, created, now)); diff != "" {
		t.Errorf("a new cluster, -want +got:\n%s", diff)
	}

	changed := created.Clone()
	changed.Cluster.Generation = 3
	changed.Cluster.Spec.Version.Id = "4.20.2"
	changed.Cluster.Spec.ImageDigestMirrors = nil
	changed.Cluster.Status.Conditions = []*csv1.Condition{{Type: "Placed", Status: "True", Reason: "Placed"}}
	changed.Pools = []*fleet.NodePool{{UID: "2", ResourceID: "/x/c/nodePools/np", Generation: 1, Spec: &csv1.NodePoolSpec{}, Status: &csv1.NodePoolStatus{Phase: csv1.NodePoolPhase_NODE_POOL_PHASE_READY}}}
	want = []string{
		`c generation 3 imageDigestMirrors: [{"source":"a"}] ->  version.id: "4.20.1" -> "4.20.2"`,
		"c Placed False -> True Placed",
		"np generation 1", "np phase  -> NODE_POOL_PHASE_READY",
	}
	if diff := cmp.Diff(want, describe(t, created, changed, now)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	quiet := changed.Clone()
	quiet.Cluster.Status.Conditions[0].Message = "Another sentence."
	quiet.Cluster.Status.ObservedGeneration = 3
	if got := describe(t, changed, quiet, now); got != nil {
		t.Errorf("the changes of a message are %v", got)
	}
}

// TestChangesOfLongValues checks that long values are cut.
func TestChangesOfLongValues(t *testing.T) {
	before := &fleet.ClusterAggregate{Cluster: &fleet.Cluster{Generation: 1, Spec: &csv1.ClusterSpec{}, Status: &csv1.ClusterStatus{}}}
	after := before.Clone()
	after.Cluster.Generation, after.Cluster.Spec = 2, &csv1.ClusterSpec{Name: strings.Repeat("ü", 3000)}
	field := fleet.Changes(before, after, time.Now())[0].GetDesiredState().GetFields()[0]
	if got := []rune(field.GetAfter()); len(got) != 2049 || got[2048] != '…' || field.GetBefore() != "" {
		t.Errorf("the value has %d characters: %s", len(got), field.GetAfter())
	}
	if !proto.Equal(before.Cluster.Spec, &csv1.ClusterSpec{}) {
		t.Error("Changes modified its arguments")
	}
}
