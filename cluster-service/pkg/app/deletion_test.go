package app_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	waiting = csv1.DeletionStepState_DELETION_STEP_STATE_WAITING
	running = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
	done    = csv1.DeletionStepState_DELETION_STEP_STATE_DONE
	forced  = csv1.DeletionStepState_DELETION_STEP_STATE_FORCED
)

func operator(reason string) *csv1.Actor {
	return &csv1.Actor{Name: "ada@example.com", Reason: reason, Ticket: "INC-1"}
}

// states returns the steps of a deletion graph as `name: state`.
func states(d *csv1.Deletion) []string {
	var list []string
	for _, s := range d.GetSteps() {
		list = append(list, s.GetName()+": "+strings.ToLower(strings.TrimPrefix(s.GetState().String(), "DELETION_STEP_STATE_")))
	}
	return list
}

func stepOf(d *csv1.Deletion, name string) *csv1.DeletionStep {
	for _, s := range d.GetSteps() {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

func stepIs(name string, state csv1.DeletionStepState, stuck bool) func(*csv1.Cluster) bool {
	return func(c *csv1.Cluster) bool {
		s := stepOf(c.GetStatus().GetDeletion(), name)
		return s.GetState() == state && s.GetStuck() == stuck
	}
}

func (i *instance) remove(t *testing.T, uid string) {
	t.Helper()
	must.Get(i.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: uid}))(t)
}

// removed deletes a cluster and returns its tombstone.
func (i *instance) removed(t *testing.T, uid string) *csv1.Cluster {
	t.Helper()
	i.remove(t, uid)
	return i.awaitCluster(t, uid, clusterDeleted)
}

func stuckCondition(c *csv1.Cluster) *csv1.Condition {
	return conditionOf(c.GetStatus().GetConditions(), fleet.DeletionStuck)
}

// TestDeletionGraph checks the graph at each step of a deletion.
func TestDeletionGraph(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster, ready := service.createReady(t, "c")
	id := ready.GetStatus().GetClusterId()
	pool := service.createReadyPool(t, cluster, "np1", 2)
	held := []string{id + "-np1", id, id + "-00-namespaces"}
	for _, name := range held {
		r.maestro.Hold(name)
	}
	service.remove(t, cluster.Uid)
	tests := []struct {
		letGo  string
		step   string
		states []string
	}{
		{"", "hosted-cluster", []string{"node-pool/np1/publish: done", "node-pool/np1: running", "hosted-cluster/publish: done", "hosted-cluster: running",
			"namespaces/publish: waiting", "namespaces: waiting"}},
		{held[0], "hosted-cluster", []string{"node-pool/np1/publish: done", "node-pool/np1: done", "hosted-cluster/publish: done", "hosted-cluster: running",
			"namespaces/publish: waiting", "namespaces: waiting"}},
		{held[1], "namespaces", []string{"node-pool/np1/publish: done", "node-pool/np1: done", "hosted-cluster/publish: done", "hosted-cluster: done",
			"namespaces/publish: done", "namespaces: running"}},
		{held[2], "", []string{"node-pool/np1/publish: done", "node-pool/np1: done", "hosted-cluster/publish: done", "hosted-cluster: done",
			"namespaces/publish: done", "namespaces: done"}},
	}
	for _, tc := range tests {
		if tc.letGo != "" {
			r.maestro.Release(tc.letGo)
		}
		c := service.awaitCluster(t, cluster.Uid, func(c *csv1.Cluster) bool { return slices.Equal(states(c.GetStatus().GetDeletion()), tc.states) })
		for _, s := range c.GetStatus().GetDeletion().GetSteps() {
			if ended := deletiongraph.Ended(s); ended != (s.GetWaitsFor() == "") || s.GetSince() == nil || s.GetWork() == "" || s.GetStuck() {
				t.Errorf("after the removal of %q: step %v", tc.letGo, s)
			}
		}
	}
	c := service.awaitCluster(t, cluster.Uid, clusterDeleted)
	if got := stepOf(c.GetStatus().GetDeletion(), "namespaces/publish").GetAfter(); !slices.Equal(got, []string{"hosted-cluster", "node-pool/np1"}) {
		t.Errorf("the namespaces are removed after %v", got)
	}
	p := must.Get(service.GetNodePool(t.Context(), &csv1.GetNodePoolRequest{Uid: pool.Uid}))(t)
	if diff := cmp.Diff([]string{"node-pool/np1/publish: done", "node-pool/np1: done"}, states(p.GetStatus().GetDeletion())); diff != "" {
		t.Errorf("graph of the node pool: %s", diff)
	}
}

// beyondLimits is longer than the limit of every step of a deletion.
const beyondLimits = time.Hour

// TestStuckStepIsReported delays a step beyond its limit. The condition and the metric report it until the step ends.
func TestStuckStepIsReported(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster, ready := service.createReady(t, "c")
	id := ready.GetStatus().GetClusterId()
	r.maestro.Hold(id)
	service.remove(t, cluster.Uid)
	service.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, false))
	r.clock.advance(beyondLimits)
	c := service.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, true))
	if stuck := stuckCondition(c); stuck.GetStatus() != "True" || stuck.GetReason() != "HostedCluster" || !strings.Contains(stuck.GetMessage(), "all objects of work "+id) {
		t.Errorf("condition is %v", stuck)
	}
	untilDone(t, func(context.Context) error {
		return service.measures(1, "cluster_service_deletion_step_stuck", "hosted-cluster")
	})
	r.maestro.Release(id)
	c = service.awaitCluster(t, cluster.Uid, clusterDeleted)
	if stuck := stuckCondition(c); stuck.GetStatus() != "False" {
		t.Errorf("condition is %v", stuck)
	}
	untilDone(t, func(context.Context) error {
		return service.measures(0, "cluster_service_deletion_step_stuck", "hosted-cluster")
	})
}

// TestStuckLimitChangesWhileRunning lowers the limit of a step that is running, and raises it again.
func TestStuckLimitChangesWhileRunning(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster, ready := service.createReady(t, "c")
	r.maestro.Hold(ready.GetStatus().GetClusterId())
	service.remove(t, cluster.Uid)
	c := service.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, false))
	// The longest chain: publishing and deleting the HostedCluster, then the namespaces.
	if got := c.GetStatus().GetDeletion().GetLimit().AsDuration(); got != 2*time.Minute+25*time.Minute+2*time.Minute+10*time.Minute {
		t.Errorf("the limit of the whole deletion is %s, want 39m", got)
	}
	settings := config.Default()
	settings.Deletion.StuckAfter = map[string]metav1.Duration{"hosted-cluster": {Duration: time.Millisecond}}
	service.change(render.Settings{Config: settings, PullSecret: []byte(`{"auths":{}}`), ShardKeys: r.shardKeys()})
	service.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, true))
	settings = config.Default()
	service.change(render.Settings{Config: settings, PullSecret: []byte(`{"auths":{}}`), ShardKeys: r.shardKeys()})
	service.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, false))
}

// TestForcedStepsLeaveLeftovers ends a deletion whose last steps are never confirmed. Leftovers are stored, their
// deletion is requested repeatedly, and they are marked as gone when it is confirmed.
func TestForcedStepsLeaveLeftovers(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster, ready := service.createReady(t, "c")
	id := ready.GetStatus().GetClusterId()
	service.createReadyPool(t, cluster, "np1", 2)
	for _, name := range []string{id, id + "-np1"} {
		r.maestro.Hold(name)
	}
	service.remove(t, cluster.Uid)
	service.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, false))
	service.awaitCluster(t, cluster.Uid, stepIs("node-pool/np1", running, false))
	r.clock.advance(beyondLimits)
	service.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, true))
	service.awaitCluster(t, cluster.Uid, stepIs("node-pool/np1", running, true))

	force := func(step string) (*csv1.DeletionStep, error) {
		return service.ForceDeletionStep(t.Context(), &csv1.ForceDeletionStepRequest{ClusterUid: cluster.Uid, Step: step, Actor: operator("the node is gone")})
	}
	refusals := map[string]struct {
		reason string
		step   string
		code   codes.Code
		says   string
	}{
		"NodePoolsFirst": {"an agent that has the pool's work would make the pool again", "hosted-cluster", codes.FailedPrecondition, "Force those steps first"},
		"Waiting":        {"a step that has not begun holds nobody up", "namespaces", codes.FailedPrecondition, "waits for other steps"},
		"Ended":          {"nothing is forced twice", "hosted-cluster/publish", codes.FailedPrecondition, "has ended"},
		"Unknown":        {"the message names the steps there are", "nonsense", codes.NotFound, "Running steps: "},
	}
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			if _, err := force(tc.step); status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: got %v, want %s with %q", tc.reason, err, tc.code, tc.says)
			}
		})
	}
	for _, step := range []string{"node-pool/np1", "hosted-cluster"} {
		s := must.Get(force(step))(t)
		if s.GetState() != forced || s.GetForce().GetActor().GetTicket() != "INC-1" || !strings.Contains(s.GetForce().GetLeftBehind(), "May be left: ") {
			t.Errorf("forced step is %v", s)
		}
	}
	// The deletion of the namespaces removes their content, which the in-memory Maestro does not simulate.
	r.maestro.Release(id)
	r.maestro.Release(id + "-np1")
	r.clock.advance(beyondLimits) // the deletion of the leftovers is due again
	c := service.awaitCluster(t, cluster.Uid, clusterDeleted)
	if got := stepOf(c.GetStatus().GetDeletion(), "hosted-cluster"); got.GetState() != forced {
		t.Errorf("tombstone is %v", got)
	}
	untilDone(t, func(ctx context.Context) error {
		open, err := service.ListDeletionLeftovers(ctx, &csv1.ListDeletionLeftoversRequest{})
		if err == nil && len(open.GetLeftovers()) > 0 {
			err = fmt.Errorf("leftovers %v", open.GetLeftovers())
		}
		return err
	})
	all := must.Get(service.ListDeletionLeftovers(t.Context(), &csv1.ListDeletionLeftoversRequest{ClusterUid: cluster.Uid, Gone: true}))(t)
	var works []string
	for _, l := range all.GetLeftovers() {
		works = append(works, l.GetWork()+" by "+l.GetForce().GetActor().GetName())
		if l.GetGoneTime() == nil {
			t.Errorf("leftover %v has not gone", l)
		}
	}
	slices.Sort(works)
	if diff := cmp.Diff([]string{id + " by ada@example.com", id + "-np1 by ada@example.com"}, works); diff != "" {
		t.Errorf("leftovers: %s", diff)
	}
	if held := r.maestro.Resources(); len(held) > 0 {
		t.Errorf("Maestro still holds %v", held)
	}
}

// TestForceIsRejected checks that a step cannot be forced too early, or if that would harm another resource.
func TestForceIsRejected(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster, ready := service.createReady(t, "c")
	id := ready.GetStatus().GetClusterId()
	pool := service.createReadyPool(t, cluster, "np1", 2)
	r.maestro.Hold(id + "-np1")
	service.deletePool(t, pool, func(p *csv1.NodePool) bool {
		return stepOf(p.GetStatus().GetDeletion(), "node-pool/np1").GetState() == running
	})
	request := &csv1.ForceDeletionStepRequest{ClusterUid: cluster.Uid, Step: "node-pool/np1", Actor: operator("why not")}
	if _, err := service.ForceDeletionStep(t.Context(), request); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "a new node pool of the same name") {
		t.Errorf("node pool of a cluster that is not being deleted: %v", err)
	}
	r.maestro.Hold(id)
	service.remove(t, cluster.Uid)
	service.awaitCluster(t, cluster.Uid, stepIs("node-pool/np1", running, false))
	if _, err := service.ForceDeletionStep(t.Context(), request); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "may be forced from ") {
		t.Errorf("step that is not stuck: %v", err)
	}
	request.Actor = &csv1.Actor{Name: "ada@example.com"}
	if _, err := service.ForceDeletionStep(t.Context(), request); status.Code(err) != codes.InvalidArgument {
		t.Errorf("without a reason: %v", err)
	}
	request = &csv1.ForceDeletionStepRequest{ClusterUid: "2c1f5a10-0000-4000-8000-000000000000", Step: "namespaces", Actor: operator("why not")}
	if _, err := service.ForceDeletionStep(t.Context(), request); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown cluster: %v", err)
	}
	if _, err := service.RetryDeletion(t.Context(), &csv1.RetryDeletionRequest{ClusterUid: cluster.Uid}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("retry without an actor: %v", err)
	}
}

// TestReleasedFinalizersReachTheAgent releases a finalizer through the agent. Finalizers of controllers that still have
// work to do are rejected.
func TestReleasedFinalizersReachTheAgent(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster, ready := service.createReady(t, "c")
	id := ready.GetStatus().GetClusterId()
	r.maestro.Hold(id, "gone.example.com/hook")
	service.remove(t, cluster.Uid)
	service.awaitCluster(t, cluster.Uid, stepIs("hosted-cluster", running, false))
	request := &csv1.ReleaseDeletionFinalizersRequest{ClusterUid: cluster.Uid, Step: "hosted-cluster", Finalizers: []string{"hypershift.openshift.io/finalizer"}, Actor: operator("in the way")}
	if _, err := service.ReleaseDeletionFinalizers(t.Context(), request); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "still has resources to remove") {
		t.Errorf("HyperShift's own finalizer: %v", err)
	}
	request.Finalizers = []string{"not a finalizer,"}
	if _, err := service.ReleaseDeletionFinalizers(t.Context(), request); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a malformed finalizer: %v", err)
	}
	request.Finalizers = []string{"gone.example.com/hook"}
	step := must.Get(service.ReleaseDeletionFinalizers(t.Context(), request))(t)
	if got := step.GetActions(); len(got) != 1 || got[0].GetActor().GetReason() != "in the way" || !slices.Equal(got[0].GetReleasedFinalizers(), request.Finalizers) {
		t.Errorf("recorded actions are %v", got)
	}
	c := service.awaitCluster(t, cluster.Uid, clusterDeleted)
	if got := stepOf(c.GetStatus().GetDeletion(), "hosted-cluster"); got.GetState() != done || len(got.GetActions()) != 1 {
		t.Errorf("tombstone is %v", got)
	}
}

// TestRetryDeletion retries at once a deletion with a lost response, in spite of its long pause.
func TestRetryDeletion(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	cluster, ready := service.createReady(t, "c")
	id := ready.GetStatus().GetClusterId()
	r.maestro.Hold(id)
	service.remove(t, cluster.Uid)
	service.awaitCluster(t, cluster.Uid, func(c *csv1.Cluster) bool {
		return stepOf(c.GetStatus().GetDeletion(), "hosted-cluster").GetAttempts() == 1
	})
	answered := must.Get(service.RetryDeletion(t.Context(), &csv1.RetryDeletionRequest{ClusterUid: cluster.Uid, Actor: operator("impatient")}))(t)
	if !slices.Equal(answered.GetSteps(), []string{"hosted-cluster"}) {
		t.Errorf("retried steps are %v", answered.GetSteps())
	}
	service.awaitCluster(t, cluster.Uid, func(c *csv1.Cluster) bool {
		return stepOf(c.GetStatus().GetDeletion(), "hosted-cluster").GetAttempts() == 2
	})
	r.maestro.Release(id)
	service.awaitCluster(t, cluster.Uid, clusterDeleted)
	if _, err := service.RetryDeletion(t.Context(), &csv1.RetryDeletionRequest{ClusterUid: cluster.Uid, Actor: operator("impatient")}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("retry of a completed deletion: %v", err)
	}
}
