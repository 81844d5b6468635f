// Package deletiongraph keeps the graph of steps that the deletion of a resource consists of.
//
// Package fleet describes the steps that exist now, from the works and the Azure resources that are left. Merge combines
// them with the stored graph: a step that is no longer described is done, and a step that runs longer than the limit of its
// kind is stuck. The package only knows steps; it never decides what is deleted.
package deletiongraph

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The kinds of steps. The deletion of a work has two steps: Maestro accepts the deletion (the kind with PublishKind), and
// the management cluster confirms that the objects are gone. An external authentication has no work of its own: its steps
// apply the HostedCluster without it.
const (
	NodePool      = "node-pool"
	Credential    = "credential"
	Revocation    = "revocation"
	Rollout       = "rollout"
	HostedCluster = "hosted-cluster"
	Namespaces    = "namespaces"
	ExternalAuth  = "external-auth"
	// AzureResource removes one Azure resource of the cluster.
	AzureResource = "azure-resource"

	// PublishKind is the suffix of the kind, and PublishName the suffix of the name, of the step in which Maestro accepts a
	// deletion.
	PublishKind = "-publish"
	PublishName = "/publish"
)

// order is the order in which the steps of a graph are listed.
var order = []string{NodePool, Credential, Revocation, Rollout, HostedCluster, Namespaces}

// defaults is the time that a step of each kind may run. The limit of a HostedCluster covers the time that HyperShift itself
// waits: ten minutes for machines and ten for cloud resources.
var defaults = map[string]time.Duration{
	NodePool:      20 * time.Minute,
	Credential:    5 * time.Minute,
	Revocation:    5 * time.Minute,
	Rollout:       5 * time.Minute,
	HostedCluster: 25 * time.Minute,
	Namespaces:    10 * time.Minute,
	ExternalAuth:  10 * time.Minute,
	AzureResource: 15 * time.Minute,

	NodePool + PublishKind:      2 * time.Minute,
	Credential + PublishKind:    2 * time.Minute,
	Revocation + PublishKind:    2 * time.Minute,
	Rollout + PublishKind:       2 * time.Minute,
	HostedCluster + PublishKind: 2 * time.Minute,
	Namespaces + PublishKind:    2 * time.Minute,
	ExternalAuth + PublishKind:  2 * time.Minute,
}

// Kinds returns the kinds of steps in alphabetical order.
func Kinds() []string { return slices.Sorted(maps.Keys(defaults)) }

// Limits holds the time after which a running step of each kind counts as stuck. It may be changed while it is used. A nil
// or zero Limits has the defaults.
type Limits struct {
	configured atomic.Pointer[map[string]time.Duration]
}

// NewLimits returns limits with the configured durations, by kind. A kind that is not configured has its default.
func NewLimits(configured map[string]time.Duration) *Limits {
	l := &Limits{}
	l.Set(configured)
	return l
}

// Set replaces the configured durations.
func (l *Limits) Set(configured map[string]time.Duration) {
	configured = maps.Clone(configured)
	l.configured.Store(&configured)
}

// Of returns the limit of a kind.
func (l *Limits) Of(kind string) time.Duration {
	if l != nil {
		if configured := l.configured.Load(); configured != nil {
			if d, ok := (*configured)[kind]; ok {
				return d
			}
		}
	}
	return defaults[kind]
}

// Ended reports whether a step is done or was forced.
func Ended(s *csv1.DeletionStep) bool {
	return s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_DONE || s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_FORCED
}

// Merge returns the graph at a time: the stored graph, which may be nil, brought up to date with the steps that exist now.
// A stored step that does not exist any more is done. A running step waits while a step that it comes after is open.
func Merge(now time.Time, stored *csv1.Deletion, current []*csv1.DeletionStep, limits *Limits) *csv1.Deletion {
	known := map[string]*csv1.DeletionStep{}
	for _, s := range stored.GetSteps() {
		known[s.GetName()] = s
	}
	exists, open := map[string]bool{}, map[string]bool{}
	for _, s := range current {
		exists[s.Name], open[s.Name] = true, !Ended(s)
	}
	var steps []*csv1.DeletionStep
	for _, s := range stored.GetSteps() {
		if !exists[s.GetName()] {
			steps = append(steps, done(now, s))
		}
	}
	for _, s := range current {
		isOpen := func(name string) bool { return open[name] }
		if s.State == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING && slices.ContainsFunc(s.After, isOpen) {
			s.State, s.WaitsFor, s.Attempts, s.LastError = csv1.DeletionStepState_DELETION_STEP_STATE_WAITING, "", 0, ""
		}
		if s.State == csv1.DeletionStepState_DELETION_STEP_STATE_WAITING && s.WaitsFor == "" {
			closed := func(name string) bool { return !open[name] }
			s.WaitsFor = "Waiting for other steps: " + strings.Join(slices.DeleteFunc(slices.Clone(s.After), closed), ", ") + "."
		}
		s.Since = timestamppb.New(now)
		if before := known[s.Name]; before != nil {
			s.Actions = before.Actions
			if before.State == s.State {
				s.Since = before.Since
			}
			// Predecessors that do not exist any more stay in the graph.
			for _, name := range before.After {
				if !slices.Contains(s.After, name) && known[name] != nil {
					s.After = append(s.After, name)
				}
			}
			slices.Sort(s.After)
		}
		if s.State == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
			at := s.Since.AsTime().Add(limits.Of(s.Kind))
			s.StuckTime, s.Stuck = timestamppb.New(at), !now.Before(at)
		}
		steps = append(steps, s)
	}
	position := func(s *csv1.DeletionStep) int {
		if i := slices.Index(order, strings.TrimSuffix(s.Kind, PublishKind)); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(steps, func(a, b *csv1.DeletionStep) int {
		return cmp.Or(cmp.Compare(position(a), position(b)), cmp.Compare(strings.TrimSuffix(a.Name, PublishName), strings.TrimSuffix(b.Name, PublishName)),
			-cmp.Compare(len(a.Name), len(b.Name)))
	})
	return &csv1.Deletion{Steps: steps, Limit: durationpb.New(longest(steps, limits))}
}

// done returns the record of a step that does not exist any more.
func done(now time.Time, s *csv1.DeletionStep) *csv1.DeletionStep {
	if Ended(s) {
		return s
	}
	return &csv1.DeletionStep{Name: s.Name, Kind: s.Kind, Layer: s.Layer, After: s.After, Work: s.Work, Actions: s.Actions,
		State: csv1.DeletionStepState_DELETION_STEP_STATE_DONE, Since: timestamppb.New(now)}
}

// longest returns the time of the longest chain of steps if each of them runs to its limit.
func longest(steps []*csv1.DeletionStep, limits *Limits) time.Duration {
	byName := map[string]*csv1.DeletionStep{}
	for _, s := range steps {
		byName[s.Name] = s
	}
	ends := map[string]time.Duration{}
	var end func(s *csv1.DeletionStep) time.Duration
	end = func(s *csv1.DeletionStep) time.Duration {
		if at, known := ends[s.Name]; known {
			return at
		}
		ends[s.Name] = 0 // a step that comes after itself, which there is not, must not recurse forever
		var begin time.Duration
		for _, name := range s.After {
			if before := byName[name]; before != nil {
				begin = max(begin, end(before))
			}
		}
		ends[s.Name] = begin + limits.Of(s.Kind)
		return ends[s.Name]
	}
	var total time.Duration
	for _, s := range steps {
		total = max(total, end(s))
	}
	return total
}

// Find returns the step with a name and all the graphs that contain it. If two incarnations of a node pool's name have the
// step, Find returns the one that has not ended.
func Find(graphs []*csv1.Deletion, name string) (step *csv1.DeletionStep, in []*csv1.Deletion) {
	for _, g := range graphs {
		for _, s := range g.GetSteps() {
			if s.GetName() == name {
				if step == nil || Ended(step) {
					step = s
				}
				in = append(in, g)
			}
		}
	}
	return step, in
}

// maxActions bounds the recorded actions of a step. The audit log has all of them.
const maxActions = 20

// RecordAction adds an action to a step in all graphs that contain it.
func RecordAction(graphs []*csv1.Deletion, step *csv1.DeletionStep, a *csv1.DeletionStepAction) {
	for _, g := range graphs {
		for _, s := range g.GetSteps() {
			if s.GetName() == step.GetName() && s.GetWork() == step.GetWork() {
				s.Actions = append(s.Actions, a)
				s.Actions = s.Actions[max(0, len(s.Actions)-maxActions):]
			}
		}
	}
}

// Replace replaces a step by a forced one in all graphs that contain it.
func Replace(graphs []*csv1.Deletion, forced *csv1.DeletionStep) {
	for _, g := range graphs {
		for i, s := range g.GetSteps() {
			if s.GetName() == forced.GetName() && s.GetWork() == forced.GetWork() {
				g.Steps[i] = proto.CloneOf(forced)
			}
		}
	}
}

// Job is the part of an aggregate's deletions that is found by time and counted.
type Job struct {
	// Due is when the next running step becomes stuck; zero if none is running.
	Due time.Time
	// Stuck are the kinds of the steps that are stuck, one entry for each step, sorted.
	Stuck []string
}

// JobOf returns the job of some graphs.
func JobOf(graphs []*csv1.Deletion) Job {
	var job Job
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
