package fleet

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
)

// AddUnknownPool adds a node pool that the database does not have and whose deletion is requested. It was never stored, or the database lost it.
// If the cluster is placed, Maestro may have the bundle of the pool, so the pool has a work without content, whose deletion removes the bundle.
// Otherwise, or if another pool has its name, the pool is a tombstone.
func (t *ClusterAggregate) AddUnknownPool(now time.Time, uid, clusterUID, resourceID string) *NodePool {
	p := &NodePool{UID: uid, ClusterUID: clusterUID, ResourceID: resourceID, Spec: &csv1.NodePoolSpec{Name: path.Base(resourceID)}, CreateTime: now, Status: &csv1.NodePoolStatus{}}
	replaced := slices.ContainsFunc(t.Pools, func(other *NodePool) bool { return !other.Gone() && strings.EqualFold(other.ResourceID, resourceID) })
	if c := t.Cluster; c != nil && c.Shard != "" && !c.Gone() && !replaced {
		t.Works = append(t.Works, newWork(t, NodePoolWork, uid, p.Spec.GetName()))
	} else {
		p.DeleteTime, p.GoneTime, p.Status.Phase = now, now, csv1.NodePoolPhase_NODE_POOL_PHASE_DELETED
	}
	t.Pools = append(t.Pools, p)
	return p
}

// stepKinds maps the kinds of works to kinds of steps, in the order in which works are deleted.
var stepKinds = []struct {
	work WorkKind
	step string
}{
	{NodePoolWork, deletiongraph.NodePool}, {CredentialWork, deletiongraph.Credential}, {RevocationWork, deletiongraph.Revocation}, {RolloutWork, deletiongraph.Rollout},
	{HostedCluster, deletiongraph.HostedCluster}, {Namespaces, deletiongraph.Namespaces},
}

// stepOf returns the kind and the name of the step that removes a work.
func (t *ClusterAggregate) stepOf(w *Work) (kind, name string) {
	for _, k := range stepKinds {
		if k.work == w.Kind {
			kind = k.step
		}
	}
	switch w.Kind {
	case NodePoolWork:
		// The name comes from the work, because the pool may be unknown.
		_, pool, _ := strings.Cut(w.Name, "-")
		return kind, kind + "/" + pool
	case CredentialWork, RevocationWork, RolloutWork:
		return kind, kind + "/" + w.OwnerUID
	}
	return kind, kind
}

// describeDeletions updates the graphs of all deletions of an aggregate, and the conditions that follow from them.
func (r Region) describeDeletions(now time.Time, t *ClusterAggregate) {
	if c := t.Cluster; c != nil && c.Deleting() {
		c.Status.Deletion = deletiongraph.Merge(now, c.Status.Deletion, append(t.removals(t.Works), t.azureRemovals()...), r.StepLimits)
		c.Status.Conditions = withStuck(c.Status.Conditions, now, c.Generation, c.Status.Deletion)
	}
	for _, p := range t.Pools {
		if !p.Deleting() || p.Gone() && p.Status.GetDeletion() == nil {
			continue
		}
		var works []*Work
		if w := t.Work(NodePoolWork, p.UID); w != nil {
			works = append(works, w)
		}
		p.Status.Deletion = deletiongraph.Merge(now, p.Status.Deletion, t.removals(works), r.StepLimits)
		p.Status.Conditions = withStuck(p.Status.Conditions, now, p.Generation, p.Status.Deletion)
	}
	for _, a := range t.ExternalAuths {
		if !a.Deleting() || a.Gone() && a.Status.GetDeletion() == nil {
			continue
		}
		a.Status.Deletion = deletiongraph.Merge(now, a.Status.Deletion, t.authRemoval(a), r.StepLimits)
		a.Status.Conditions = withStuck(a.Status.Conditions, now, a.Generation, a.Status.Deletion)
	}
}

// removals returns the current steps that remove works.
func (t *ClusterAggregate) removals(works []*Work) []*csv1.DeletionStep {
	works = slices.Clone(works)
	position := func(w *Work) int {
		return slices.IndexFunc(stepKinds, func(k struct {
			work WorkKind
			step string
		}) bool {
			return k.work == w.Kind
		})
	}
	slices.SortStableFunc(works, func(a, b *Work) int {
		return cmp.Or(cmp.Compare(position(a), position(b)), cmp.Compare(a.Name, b.Name))
	})
	var steps []*csv1.DeletionStep
	var before, removed []string
	for _, w := range works {
		kind, name := t.stepOf(w)
		after := slices.Clone(before)
		switch w.Kind {
		case HostedCluster:
		case Namespaces:
			after = removed
		default:
			// These works are published one after the other in any order.
			after = nil
		}
		steps = append(steps, publishRemoval(w, kind, name, after), confirmRemoval(w, kind, name))
		before, removed = append(before, name+deletiongraph.PublishName), append(removed, name)
	}
	return steps
}

func publishRemoval(w *Work, kind, name string, after []string) *csv1.DeletionStep {
	s := &csv1.DeletionStep{Name: name + deletiongraph.PublishName, Kind: kind + deletiongraph.PublishKind, Layer: LayerMaestro, After: after, Work: w.ID}
	switch {
	case !w.Deleting():
		s.State = csv1.DeletionStepState_DELETION_STEP_STATE_WAITING
	case w.DeletePublished:
		s.State = csv1.DeletionStepState_DELETION_STEP_STATE_DONE
	default:
		s.State = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
		s.WaitsFor = fmt.Sprintf("Waiting for Maestro to accept the deletion of work %s on %s.", w.Name, w.Shard)
		s.Attempts, s.LastError = w.Attempts, w.Error
	}
	return s
}

func confirmRemoval(w *Work, kind, name string) *csv1.DeletionStep {
	s := &csv1.DeletionStep{Name: name, Kind: kind, Layer: LayerManagementCluster, After: []string{name + deletiongraph.PublishName}, Work: w.ID,
		State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING}
	if !w.Deleting() || !w.DeletePublished {
		return s
	}
	s.State = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
	s.WaitsFor = fmt.Sprintf("Waiting for the agent of %s to confirm the deletion of all objects of work %s.", w.Shard, w.Name)
	if remaining := w.Observed.Remaining(); remaining != "" {
		s.WaitsFor += " It reports: " + remaining
	}
	s.Attempts, s.LastError = w.DeleteRequests, w.Error
	if trouble := w.Observed.RemovalTrouble(); s.LastError == "" && trouble != "" {
		s.LastError = trouble
	}
	s.Finalizers = w.Observed.Finalizers
	return s
}

// authRemoval returns the steps that remove an external authentication: the HostedCluster is applied without it, or is
// deleted.
func (t *ClusterAggregate) authRemoval(a *ExternalAuth) []*csv1.DeletionStep {
	work := t.Work(HostedCluster, "")
	if a.Gone() || work == nil {
		return nil
	}
	name := deletiongraph.ExternalAuth + "/" + strings.ToLower(a.Spec.GetName())
	publish := &csv1.DeletionStep{Name: name + deletiongraph.PublishName, Kind: deletiongraph.ExternalAuth + deletiongraph.PublishKind, Layer: LayerMaestro, Work: work.ID,
		State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, WaitsFor: "Waiting for Maestro to accept the HostedCluster without the external authentication.",
		Attempts: work.Attempts, LastError: work.Error}
	remove := &csv1.DeletionStep{Name: name, Kind: deletiongraph.ExternalAuth, Layer: LayerManagementCluster, Work: work.ID, After: []string{publish.Name},
		State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING}
	switch {
	case t.Cluster.Deleting():
		remove.After = []string{deletiongraph.HostedCluster}
		return []*csv1.DeletionStep{remove}
	case work.Published >= work.Desired:
		publish.State, publish.WaitsFor, publish.Attempts, publish.LastError = csv1.DeletionStepState_DELETION_STEP_STATE_DONE, "", 0, ""
		remove.State = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
		remove.WaitsFor = fmt.Sprintf("Waiting for the agent of %s to apply the HostedCluster without the external authentication.", work.Shard)
		if work.Observed.Applied.Status == "False" {
			remove.LastError = work.Observed.Applied.Message
		}
	}
	return []*csv1.DeletionStep{publish, remove}
}

// DeletionStuck is the condition that reports a stuck step.
const DeletionStuck = "DeletionStuck"

func withStuck(conditions []*csv1.Condition, now time.Time, generation int64, d *csv1.Deletion) []*csv1.Condition {
	stuck := condition{DeletionStuck, "False", "AsExpected", "No step of the deletion exceeds its time limit."}
	for _, s := range d.GetSteps() {
		if s.GetStuck() {
			stuck = condition{DeletionStuck, "True", camelCase(s.GetKind()), fmt.Sprintf("Step %s has been stuck since %s and running since %s. %s", s.GetName(),
				s.GetStuckTime().AsTime().Format(time.RFC3339), s.GetSince().AsTime().Format(time.RFC3339), s.GetWaitsFor())}
			break
		}
	}
	set := setConditions(conditions, now, generation, stuck)
	others := slices.DeleteFunc(slices.Clone(conditions), func(c *csv1.Condition) bool { return c.GetType() == DeletionStuck })
	return append(others, set...)
}

func camelCase(kind string) string {
	var text strings.Builder
	for word := range strings.SplitSeq(kind, "-") {
		text.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return text.String()
}

// DeletionJob returns the job of the aggregate's deletions. The graph of a deleted cluster includes its node pools.
func (t *ClusterAggregate) DeletionJob() deletiongraph.Job {
	var graphs []*csv1.Deletion
	whole := t.Cluster != nil && t.Cluster.Deleting()
	if whole {
		graphs = append(graphs, t.Cluster.Status.GetDeletion())
	}
	for _, p := range t.Pools {
		if !whole {
			graphs = append(graphs, p.Status.GetDeletion())
		}
	}
	for _, a := range t.ExternalAuths {
		graphs = append(graphs, a.Status.GetDeletion())
	}
	return deletiongraph.JobOf(graphs)
}
