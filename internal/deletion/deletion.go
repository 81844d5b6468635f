// Package deletion describes the deletion of a resource as a list of steps: those on the ARM side, which follow from
// documents in Cosmos DB, and between them the steps that Cluster Service reports. It is pure: it computes the steps
// from what the caller has read. The backend uses it to find stuck steps; admin uses it to show and explain deletions.
package deletion

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The layers of the steps on the ARM side. Cluster Service's own steps name their layers.
const (
	LayerARM            = "arm"
	LayerClusterService = "cluster-service"
)

// The kinds of the steps on the ARM side. A resource has at most one step of each kind. The step's name is its kind,
// with the prefix Facts.NamePrefix.
const (
	// StepChildrenMarked ends when all children of a cluster are shown as being deleted and their operations have
	// ended.
	StepChildrenMarked = "children-marked"
	// StepFleetAccepted ends when Cluster Service has accepted the deletion.
	StepFleetAccepted = "fleet-accepted"
	// StepFleetDeleted ends when Cluster Service has reported that nothing is left of the resource.
	StepFleetDeleted = "fleet-deleted"
	// StepBillingEnded ends when the end of a cluster's billable time is recorded.
	StepBillingEnded = "billing-ended"
	// StepChildrenRemoved ends when the documents of a cluster's children are removed.
	StepChildrenRemoved = "children-removed"
	// StepDocumentsRemoved ends when the links of the egress gateway are removed from a cluster, and when one transaction has
	// removed the resource and its reservations and ended its operation.
	StepDocumentsRemoved = "documents-removed"
)

// StepKinds returns the kinds of the steps on the ARM side, in order.
func StepKinds() []string {
	return []string{StepChildrenMarked, StepFleetAccepted, StepFleetDeleted, StepBillingEnded, StepChildrenRemoved, StepDocumentsRemoved}
}

// StuckAfter is how long a step on the ARM side may run. StepFleetDeleted has this time after the steps of Cluster Service,
// which have limits of their own.
const StuckAfter = 2 * time.Minute

// Facts are the observations from which the steps follow.
type Facts struct {
	// NamePrefix is empty for a cluster. For a node pool or external authentication that is deleted without its cluster
	// it is the prefix of the names of the steps, for example node-pool/np1.
	NamePrefix string
	// StartTime is when the deletion was accepted.
	StartTime time.Time
	// Each field reports whether the step of that name has ended.
	ChildrenMarked, FleetAccepted, FleetDeleted, BillingEnded, ChildrenRemoved, DocumentsRemoved bool
	// FleetAcceptedTime and FleetDeletedTime are when those steps ended, or zero if that is not known.
	FleetAcceptedTime, FleetDeletedTime time.Time
	// Fleet is the deletion as Cluster Service reported it, or nil if there is no report. It is empty if Cluster Service
	// has nothing left to do.
	Fleet *csv1.Deletion
	// Notes are the last failures of steps that took too long.
	Notes []adminv1.DeletionNote
}

// Steps returns all steps in order, with Cluster Service's own steps between those on the ARM side.
func (f Facts) Steps(now time.Time) []*csv1.DeletionStep {
	acceptedAt := latest(f.StartTime, f.FleetAcceptedTime)
	deletedAt := latest(acceptedAt, f.FleetDeletedTime)
	marked := f.step(now, StepChildrenMarked, LayerARM, f.ChildrenMarked, true, f.StartTime, f.StartTime,
		"Waiting for its children to be marked as being deleted, and for their operations to finish.")
	accepted := f.step(now, StepFleetAccepted, LayerClusterService, f.FleetAccepted, true, f.StartTime, acceptedAt,
		"Waiting for Cluster Service to accept the deletion.")
	deleted := f.step(now, StepFleetDeleted, LayerClusterService, f.FleetDeleted, f.FleetAccepted, acceptedAt, deletedAt,
		"Waiting for Cluster Service to report that the deletion is complete.")
	if deleted.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
		setStuck(deleted, f.fleetStuckTime(acceptedAt), now)
	}
	deleted.After = []string{accepted.Name}
	steps := []*csv1.DeletionStep{marked, accepted}
	if f.NamePrefix != "" {
		steps = steps[1:]
	}
	for _, s := range f.Fleet.GetSteps() {
		deleted.After = append(deleted.After, s.GetName())
		if len(s.GetAfter()) == 0 {
			s = proto.CloneOf(s)
			s.After = []string{accepted.Name}
		}
		steps = append(steps, s)
	}
	steps = append(steps, deleted)
	documents := "its document and its reservations"
	if f.NamePrefix == "" {
		documents = "its links of the egress gateway, its document and its reservations"
	}
	removed := f.step(now, StepDocumentsRemoved, LayerARM, f.DocumentsRemoved, f.FleetDeleted && (f.NamePrefix != "" || f.ChildrenRemoved), deletedAt, deletedAt,
		"Waiting for "+documents+" to be removed, and for its operation to finish.")
	removed.After = []string{deleted.Name}
	if f.NamePrefix == "" {
		billed := f.step(now, StepBillingEnded, LayerARM, f.BillingEnded, f.FleetDeleted, deletedAt, deletedAt, "Waiting for the end of its billing to be recorded.")
		billed.After = []string{deleted.Name}
		childrenRemoved := f.step(now, StepChildrenRemoved, LayerARM, f.ChildrenRemoved, f.FleetDeleted && f.BillingEnded && f.ChildrenMarked, deletedAt, deletedAt,
			"Waiting for the documents of its children to be removed.")
		childrenRemoved.After = []string{marked.Name, billed.Name}
		removed.After = []string{childrenRemoved.Name}
		steps = append(steps, billed, childrenRemoved)
	}
	return append(steps, removed)
}

// fleetStuckTime returns when StepFleetDeleted becomes stuck, or zero if that is unknown. It follows from the steps of
// Cluster Service, each of which has its own limit there (deletion.stuckAfter in its configuration). After they have ended
// or should have ended, the report of the end has StuckAfter to arrive. A step that Cluster Service reports as stuck is a
// matter for Cluster Service's alert: the time when it ends is unknown.
func (f Facts) fleetStuckTime(acceptedAt time.Time) time.Time {
	if f.Fleet == nil {
		return time.Time{}
	}
	last := acceptedAt
	for _, s := range f.Fleet.GetSteps() {
		switch {
		case ended(s):
			last = latest(last, s.GetSince().AsTime())
		case s.GetStuck():
			return time.Time{}
		case s.GetStuckTime() != nil:
			last = latest(last, s.GetStuckTime().AsTime())
		}
	}
	return last.Add(StuckAfter)
}

// name returns the name of a step on the ARM side.
func (f Facts) name(kind string) string {
	if f.NamePrefix == "" {
		return kind
	}
	return f.NamePrefix + "/" + kind
}

func ended(s *csv1.DeletionStep) bool {
	return s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_DONE || s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_FORCED
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, func(a, b time.Time) int { return a.Compare(b) })
}

// step returns a step that runs since a time if running is set, or ended at until if done is set.
func (f Facts) step(now time.Time, kind, layer string, done, running bool, since, until time.Time, waitsFor string) *csv1.DeletionStep {
	s := &csv1.DeletionStep{Name: f.name(kind), Kind: kind, Layer: layer, State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING, Since: timestamppb.New(f.StartTime)}
	switch {
	case done:
		s.State, s.Since = csv1.DeletionStepState_DELETION_STEP_STATE_DONE, timestamppb.New(until)
	case running:
		s.State, s.Since, s.WaitsFor = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, timestamppb.New(since), waitsFor
		note := f.note(kind)
		s.Attempts, s.LastError = note.Attempts, note.LastError
		setStuck(s, since.Add(StuckAfter), now)
	}
	return s
}

// setStuck sets the time when a step becomes stuck; zero means never.
func setStuck(s *csv1.DeletionStep, at, now time.Time) {
	s.StuckTime, s.Stuck = nil, false
	if !at.IsZero() {
		s.StuckTime, s.Stuck = timestamppb.New(at), !now.Before(at)
	}
}

func (f Facts) note(kind string) adminv1.DeletionNote {
	for _, note := range f.Notes {
		if note.Kind == kind {
			return note
		}
	}
	return adminv1.DeletionNote{}
}

// RunningSteps returns the running steps on the ARM side.
func (f Facts) RunningSteps(now time.Time) []*csv1.DeletionStep {
	return slices.DeleteFunc(f.Steps(now), func(s *csv1.DeletionStep) bool {
		return s.GetState() != csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING || !IsARMStep(s)
	})
}

// BlockingSteps returns the running steps of a deletion. It leaves out StepFleetDeleted while Cluster Service's own
// steps run, because it only waits for these.
func BlockingSteps(steps []*csv1.DeletionStep) []*csv1.DeletionStep {
	running := slices.DeleteFunc(slices.Clone(steps), func(s *csv1.DeletionStep) bool {
		return s.GetState() != csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
	})
	if slices.ContainsFunc(running, func(s *csv1.DeletionStep) bool { return !IsARMStep(s) }) {
		running = slices.DeleteFunc(running, func(s *csv1.DeletionStep) bool { return s.GetKind() == StepFleetDeleted })
	}
	return running
}

// IsARMStep reports whether a step is on the ARM side.
func IsARMStep(s *csv1.DeletionStep) bool { return slices.Contains(StepKinds(), s.GetKind()) }

// StuckStep returns the kind of the first stuck step on the ARM side, or an empty string, and the time when the next
// running step becomes stuck, or zero.
func (f Facts) StuckStep(now time.Time) (kind string, next time.Time) {
	for _, s := range f.RunningSteps(now) {
		switch at := s.GetStuckTime().AsTime(); {
		case s.GetStuckTime() == nil:
		case s.GetStuck() && kind == "":
			kind = s.GetKind()
		case !s.GetStuck() && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	return kind, next
}
