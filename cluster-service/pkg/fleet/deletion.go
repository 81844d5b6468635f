package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The kinds of steps of a deletion. The removal of each work is two steps: Maestro takes the deletion, and the management
// cluster confirms that all of it is gone. An external auth has no work of its own: its steps are about the HostedCluster
// without it.
const (
	StepNodePool      = "node-pool"
	StepCredential    = "credential"
	StepRevocation    = "revocation"
	StepRollout       = "rollout"
	StepHostedCluster = "hosted-cluster"
	StepNamespaces    = "namespaces"
	StepExternalAuth  = "external-auth"
	// StepAzure removes one of the cluster's Azure resources.
	StepAzure = "azure-resource"
	// publishing is behind the kind of a removal the kind of the step in which Maestro takes it.
	publishing = "-publish"
	// publishStep is the same for names of steps.
	publishStep = "/publish"
)

// stuckAfter is how long a step of each kind may run. A HostedCluster's covers what HyperShift waits for by itself: ten
// minutes for machines and ten for cloud resources.
var stuckAfter = map[string]time.Duration{
	StepNodePool:      20 * time.Minute,
	StepCredential:    5 * time.Minute,
	StepRevocation:    5 * time.Minute,
	StepRollout:       5 * time.Minute,
	StepHostedCluster: 25 * time.Minute,
	StepNamespaces:    10 * time.Minute,
	StepExternalAuth:  10 * time.Minute,
	StepAzure:         15 * time.Minute,

	StepNodePool + publishing:      2 * time.Minute,
	StepCredential + publishing:    2 * time.Minute,
	StepRevocation + publishing:    2 * time.Minute,
	StepRollout + publishing:       2 * time.Minute,
	StepHostedCluster + publishing: 2 * time.Minute,
	StepNamespaces + publishing:    2 * time.Minute,
	StepExternalAuth + publishing:  2 * time.Minute,
}

// StepKinds are the kinds of steps, in order of their names.
func StepKinds() []string { return slices.Sorted(maps.Keys(stuckAfter)) }

// stuckAfter is how long a step of a kind may run before it is stuck.
func (r Region) stuckAfter(kind string) time.Duration {
	if d, ok := r.StuckAfter[kind]; ok {
		return d
	}
	return stuckAfter[kind]
}

// Ended says that nobody waits for a step any more.
func Ended(s *csv1.DeletionStep) bool {
	return s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_DONE || s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_FORCED
}

// stepKinds maps the kinds of works to those of steps, in the order in which works go.
var stepKinds = []struct {
	work WorkKind
	step string
}{
	{NodePoolWork, StepNodePool}, {CredentialWork, StepCredential}, {RevocationWork, StepRevocation}, {RolloutWork, StepRollout},
	{HostedCluster, StepHostedCluster}, {Namespaces, StepNamespaces},
}

// stepOf names the step that removes a work.
func (t *ClusterAggregate) stepOf(w *Work) (kind, name string) {
	for _, k := range stepKinds {
		if k.work == w.Kind {
			kind = k.step
		}
	}
	switch w.Kind {
	case NodePoolWork:
		// The pool's name in the work's, so that it is known when the pool is not.
		_, pool, _ := strings.Cut(w.Name, "-")
		return kind, kind + "/" + pool
	case CredentialWork, RevocationWork, RolloutWork:
		return kind, kind + "/" + w.OwnerUID
	}
	return kind, kind
}

// describeDeletions brings the graphs of all deletions of a tenancy up to date, and the conditions that follow from them.
func (r Region) describeDeletions(now time.Time, t *ClusterAggregate) {
	if c := t.Cluster; c != nil && c.Deleting() {
		c.Status.Deletion = r.graph(now, c.Status.Deletion, append(t.removals(t.Works), t.azureRemovals()...))
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
		p.Status.Deletion = r.graph(now, p.Status.Deletion, t.removals(works))
		p.Status.Conditions = withStuck(p.Status.Conditions, now, p.Generation, p.Status.Deletion)
	}
	for _, a := range t.ExternalAuths {
		if !a.Deleting() || a.Gone() && a.Status.GetDeletion() == nil {
			continue
		}
		a.Status.Deletion = r.graph(now, a.Status.Deletion, t.authRemoval(a))
		a.Status.Conditions = withStuck(a.Status.Conditions, now, a.Generation, a.Status.Deletion)
	}
}

// removals are the steps that remove works, as they stand.
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
			// They are published one after the other; any of them may be the first.
			after = nil
		}
		steps = append(steps, publishRemoval(w, kind, name, after), confirmRemoval(w, kind, name))
		before, removed = append(before, name+publishStep), append(removed, name)
	}
	return steps
}

func publishRemoval(w *Work, kind, name string, after []string) *csv1.DeletionStep {
	s := &csv1.DeletionStep{Name: name + publishStep, Kind: kind + publishing, Layer: LayerMaestro, After: after, Work: w.ID}
	switch {
	case !w.Deleting():
		s.State = csv1.DeletionStepState_DELETION_STEP_STATE_WAITING
	case w.DeletePublished:
		s.State = csv1.DeletionStepState_DELETION_STEP_STATE_DONE
	default:
		s.State = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
		s.WaitsFor = fmt.Sprintf("Waiting for Maestro to take the deletion of work %s on %s.", w.Name, w.Shard)
		s.Attempts, s.LastError = w.Attempts, w.Error
	}
	return s
}

func confirmRemoval(w *Work, kind, name string) *csv1.DeletionStep {
	s := &csv1.DeletionStep{Name: name, Kind: kind, Layer: LayerManagementCluster, After: []string{name + publishStep}, Work: w.ID,
		State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING}
	if !w.Deleting() || !w.DeletePublished {
		return s
	}
	s.State = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
	s.WaitsFor = fmt.Sprintf("Waiting for the agent of %s to confirm that everything of work %s is gone.", w.Shard, w.Name)
	if remaining := w.Observed.Remaining(); remaining != "" {
		s.WaitsFor += " It reports: " + remaining
	}
	s.Attempts, s.LastError = w.DeleteAsks, w.Error
	if trouble := w.Observed.RemovalTrouble(); s.LastError == "" && trouble != "" {
		s.LastError = trouble
	}
	s.Finalizers = w.Observed.Finalizers
	return s
}

// authRemoval are the steps that remove an external auth: the HostedCluster is applied without it, or goes itself.
func (t *ClusterAggregate) authRemoval(a *ExternalAuth) []*csv1.DeletionStep {
	work := t.Work(HostedCluster, "")
	if a.Gone() || work == nil {
		return nil
	}
	name := StepExternalAuth + "/" + strings.ToLower(a.Spec.GetName())
	publish := &csv1.DeletionStep{Name: name + publishStep, Kind: StepExternalAuth + publishing, Layer: LayerMaestro, Work: work.ID,
		State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, WaitsFor: "Waiting for Maestro to take the HostedCluster without it.",
		Attempts: work.Attempts, LastError: work.Error}
	remove := &csv1.DeletionStep{Name: name, Kind: StepExternalAuth, Layer: LayerManagementCluster, Work: work.ID, After: []string{publish.Name},
		State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING}
	switch {
	case t.Cluster.Deleting():
		remove.After = []string{StepHostedCluster}
		return []*csv1.DeletionStep{remove}
	case work.Published >= work.Desired:
		publish.State, publish.WaitsFor, publish.Attempts, publish.LastError = csv1.DeletionStepState_DELETION_STEP_STATE_DONE, "", 0, ""
		remove.State = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
		remove.WaitsFor = fmt.Sprintf("Waiting for %s to carry the HostedCluster without it.", work.Shard)
		if work.Observed.Applied.Status == "False" {
			remove.LastError = work.Observed.Applied.Message
		}
	}
	return []*csv1.DeletionStep{publish, remove}
}

// graph brings a graph up to date. A step that is not among those that stand any more has ended.
func (r Region) graph(now time.Time, old *csv1.Deletion, current []*csv1.DeletionStep) *csv1.Deletion {
	known := map[string]*csv1.DeletionStep{}
	for _, s := range old.GetSteps() {
		known[s.GetName()] = s
	}
	open := map[string]bool{}
	for _, s := range current {
		open[s.Name] = !Ended(s)
	}
	var steps []*csv1.DeletionStep
	for _, s := range old.GetSteps() {
		if slices.ContainsFunc(current, func(c *csv1.DeletionStep) bool { return c.Name == s.GetName() }) {
			continue
		}
		steps = append(steps, ended(now, s))
	}
	for _, s := range current {
		if s.State == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING && slices.ContainsFunc(s.After, func(name string) bool { return open[name] }) {
			s.State, s.WaitsFor, s.Attempts, s.LastError = csv1.DeletionStepState_DELETION_STEP_STATE_WAITING, "", 0, ""
		}
		if s.State == csv1.DeletionStepState_DELETION_STEP_STATE_WAITING && s.WaitsFor == "" {
			s.WaitsFor = "Waiting for other steps: " + strings.Join(stillOpen(s.After, open), ", ") + "."
		}
		s.Since = timestamp(now)
		if before := known[s.Name]; before != nil {
			s.Actions = before.Actions
			if before.State == s.State {
				s.Since = before.Since
			}
			// Steps that were there before others came to be are not forgotten.
			for _, name := range before.After {
				if !slices.Contains(s.After, name) && known[name] != nil {
					s.After = append(s.After, name)
				}
			}
			slices.Sort(s.After)
		}
		if s.State == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
			at := s.Since.AsTime().Add(r.stuckAfter(s.Kind))
			s.StuckTime, s.Stuck = timestamp(at), !now.Before(at)
		}
		steps = append(steps, s)
	}
	order := func(s *csv1.DeletionStep) int {
		kind := strings.TrimSuffix(s.Kind, publishing)
		for i, k := range stepKinds {
			if k.step == kind {
				return i
			}
		}
		return len(stepKinds)
	}
	slices.SortStableFunc(steps, func(a, b *csv1.DeletionStep) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(strings.TrimSuffix(a.Name, publishStep), strings.TrimSuffix(b.Name, publishStep)),
			-cmp.Compare(len(a.Name), len(b.Name)))
	})
	return &csv1.Deletion{Steps: steps}
}

func stillOpen(names []string, open map[string]bool) []string {
	var list []string
	for _, name := range names {
		if open[name] {
			list = append(list, name)
		}
	}
	return list
}

// ended is a step whose work is no longer there.
func ended(now time.Time, s *csv1.DeletionStep) *csv1.DeletionStep {
	if Ended(s) {
		return s
	}
	return &csv1.DeletionStep{Name: s.Name, Kind: s.Kind, Layer: s.Layer, After: s.After, Work: s.Work, Actions: s.Actions,
		State: csv1.DeletionStepState_DELETION_STEP_STATE_DONE, Since: timestamp(now)}
}

// DeletionStuck is the condition that says that a step runs longer than it should.
const DeletionStuck = "DeletionStuck"

func withStuck(conditions []*csv1.Condition, now time.Time, generation int64, d *csv1.Deletion) []*csv1.Condition {
	stuck := condition{DeletionStuck, "False", "AsExpected", "No step of the deletion takes longer than it should."}
	for _, s := range d.GetSteps() {
		if s.GetStuck() {
			stuck = condition{DeletionStuck, "True", camelCase(s.GetKind()), fmt.Sprintf("Step %s is stuck since %s, running since %s. %s", s.GetName(),
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

// DeletionJob is what of a tenancy's deletions is looked for by time, and counted.
type DeletionJob struct {
	// Due is when the next step will be stuck; zero when none will.
	Due time.Time
	// Stuck are the kinds of the steps that are stuck, one entry each, sorted.
	Stuck []string
}

// DeletionJob of the tenancy. A pool that goes with its cluster is part of the cluster's deletion.
func (t *ClusterAggregate) DeletionJob() DeletionJob {
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
	var job DeletionJob
	for _, g := range graphs {
		for _, s := range g.GetSteps() {
			switch {
			case s.GetStuck():
				job.Stuck = append(job.Stuck, s.GetKind())
			case s.GetStuckTime() != nil && (job.Due.IsZero() || s.GetStuckTime().AsTime().Before(job.Due)):
				job.Due = s.GetStuckTime().AsTime()
			}
		}
	}
	slices.Sort(job.Stuck)
	return job
}
