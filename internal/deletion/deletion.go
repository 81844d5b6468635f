// Package deletion is how the removal of a resource stands as a whole: the steps of the ARM side, which follow from what is
// stored in Cosmos DB, around those that Cluster Service reports. It is a pure function of what the caller has read: the
// backend asks it which step is stuck, and whoever shows or explains a deletion to people asks it for all steps.
package deletion

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The layers of the steps of the ARM side; those of Cluster Service are in its own steps.
const (
	LayerARM            = "arm"
	LayerClusterService = "cluster-service"
)

// The kinds of steps of the ARM side. A resource has one of each at most; its name is its kind, after the part's.
const (
	// StepChildrenMarked is that everything beneath a cluster shows that it goes with it, and its operations are ended.
	StepChildrenMarked = "children-marked"
	// StepFleetAccepted is that Cluster Service has taken the deletion.
	StepFleetAccepted = "fleet-accepted"
	// StepFleetDeleted is that Cluster Service says that nothing is left.
	StepFleetDeleted = "fleet-deleted"
	// StepBillingEnded is that the end of a cluster's life is noted for whoever bills.
	StepBillingEnded = "billing-ended"
	// StepChildrenRemoved is that the documents of what is beneath a cluster are removed.
	StepChildrenRemoved = "children-removed"
	// StepDocumentsRemoved is that the resource, its reservations (of the managed resource group's name, the subnet, …) and its operation
	// are ended in Cosmos DB, all at once.
	StepDocumentsRemoved = "documents-removed"
)

// StepKinds are all of them, in order.
func StepKinds() []string {
	return []string{StepChildrenMarked, StepFleetAccepted, StepFleetDeleted, StepBillingEnded, StepChildrenRemoved, StepDocumentsRemoved}
}

// StuckAfter is how long a step of a kind may run. What Cluster Service does is its own to watch; the whole of it may take
// as long as its steps together.
func StuckAfter(kind string) time.Duration {
	if kind == StepFleetDeleted {
		return time.Hour
	}
	return 2 * time.Minute
}

// Facts are what is known of a deletion.
type Facts struct {
	// NamePrefix is empty for a cluster, and the beginning of the names of the steps for a part of one that is deleted without it, as
	// in node-pool/np1.
	NamePrefix string
	// StartTime is when the deletion was accepted.
	StartTime time.Time
	// ChildrenMarked says that what is beneath was told, Asked that Cluster Service has taken the deletion, Gone that it has nothing
	// left, Billed that the end is noted, Emptied that the documents beneath are gone, Removed that the resource's own are.
	ChildrenMarked, FleetAccepted, FleetDeleted, BillingEnded, ChildrenRemoved, DocumentsRemoved bool
	// FleetAcceptedTime and GoneAt are when these came to be true, as far as that is known; zero means when the deletion began.
	FleetAcceptedTime, FleetDeletedTime time.Time
	// Fleet is what Cluster Service reported; nil when nothing was.
	Fleet *csv1.Deletion
	// Notes are kept of steps that took too long.
	Notes []adminv1.DeletionNote
}

// Steps are all steps, in the order in which they are taken, with Cluster Service's own in their place.
func (f Facts) Steps(now time.Time) []*csv1.DeletionStep {
	beyond := latest(f.StartTime, f.FleetAcceptedTime, f.FleetDeletedTime)
	told := f.step(now, StepChildrenMarked, LayerARM, f.ChildrenMarked, true, f.StartTime, f.StartTime, "Waiting for the resources beneath it to be shown as being deleted, and for their operations to be ended.")
	asked := f.step(now, StepFleetAccepted, LayerClusterService, f.FleetAccepted, true, f.StartTime, latest(f.StartTime, f.FleetAcceptedTime), "Waiting for Cluster Service to take the deletion.")
	gone := f.step(now, StepFleetDeleted, LayerClusterService, f.FleetDeleted, f.FleetAccepted, latest(f.StartTime, f.FleetAcceptedTime), beyond, "Waiting for Cluster Service to say that nothing is left.")
	gone.After = []string{asked.Name}
	told.Name, asked.Name, gone.Name = f.name(StepChildrenMarked), f.name(StepFleetAccepted), f.name(StepFleetDeleted)
	steps := []*csv1.DeletionStep{told, asked}
	if f.NamePrefix != "" {
		steps = steps[1:]
	}
	for _, s := range f.Fleet.GetSteps() {
		gone.After = append(gone.After, s.GetName())
		if len(s.GetAfter()) == 0 {
			s = proto.CloneOf(s)
			s.After = []string{asked.Name}
		}
		steps = append(steps, s)
	}
	steps = append(steps, gone)
	removed := f.step(now, StepDocumentsRemoved, LayerARM, f.DocumentsRemoved, f.FleetDeleted && (f.NamePrefix != "" || f.ChildrenRemoved), beyond, beyond,
		"Waiting for its document to be removed, its reserved names to be free, and its operation to be ended.")
	removed.After = []string{gone.Name}
	if f.NamePrefix == "" {
		billed := f.step(now, StepBillingEnded, LayerARM, f.BillingEnded, f.FleetDeleted, beyond, beyond, "Waiting for the end of its life to be noted for billing.")
		billed.After = []string{gone.Name}
		emptied := f.step(now, StepChildrenRemoved, LayerARM, f.ChildrenRemoved, f.FleetDeleted && f.BillingEnded && f.ChildrenMarked, beyond, beyond,
			"Waiting for the documents of what was beneath it to be removed.")
		emptied.After = []string{told.Name, billed.Name}
		removed.After = []string{emptied.Name}
		steps = append(steps, billed, emptied)
	}
	return append(steps, removed)
}

// name of a step of the ARM side.
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

// step of a kind that began to run at a time, if it has begun, or ended at one.
func (f Facts) step(now time.Time, kind, layer string, done, begun bool, since, until time.Time, waitsFor string) *csv1.DeletionStep {
	s := &csv1.DeletionStep{Name: f.name(kind), Kind: kind, Layer: layer, State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING, Since: timestamppb.New(f.StartTime)}
	switch {
	case done:
		s.State, s.Since = csv1.DeletionStepState_DELETION_STEP_STATE_DONE, timestamppb.New(until)
	case begun:
		s.State, s.Since, s.WaitsFor = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, timestamppb.New(since), waitsFor
		note := f.note(kind)
		s.Attempts, s.LastError = note.Attempts, note.LastError
		at := since.Add(StuckAfter(kind))
		s.StuckTime, s.Stuck = timestamppb.New(at), !now.Before(at)
	}
	return s
}

func (f Facts) note(kind string) adminv1.DeletionNote {
	for _, note := range f.Notes {
		if note.Kind == kind {
			return note
		}
	}
	return adminv1.DeletionNote{}
}

// RunningSteps are the steps of the ARM side that are under way.
func (f Facts) RunningSteps(now time.Time) []*csv1.DeletionStep {
	return slices.DeleteFunc(f.Steps(now), func(s *csv1.DeletionStep) bool {
		return s.GetState() != csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING || !IsARMStep(s)
	})
}

// BlockingSteps are the steps of a deletion that are under way, without what only sums others of them up: Cluster Service says that
// nothing is left when its own steps have ended.
func BlockingSteps(steps []*csv1.DeletionStep) []*csv1.DeletionStep {
	running := slices.DeleteFunc(slices.Clone(steps), func(s *csv1.DeletionStep) bool {
		return s.GetState() != csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING
	})
	if slices.ContainsFunc(running, func(s *csv1.DeletionStep) bool { return !IsARMStep(s) }) {
		running = slices.DeleteFunc(running, func(s *csv1.DeletionStep) bool { return s.GetKind() == StepFleetDeleted })
	}
	return running
}

// IsARMStep says whether a step is one of the ARM side.
func IsARMStep(s *csv1.DeletionStep) bool { return slices.Contains(StepKinds(), s.GetKind()) }

// StuckStep finds the first step of the ARM side that is stuck, empty when none is, and says when the next would be; zero when
// none will.
func (f Facts) StuckStep(now time.Time) (kind string, next time.Time) {
	for _, s := range f.RunningSteps(now) {
		switch at := s.GetStuckTime().AsTime(); {
		case s.GetStuck() && kind == "":
			kind = s.GetKind()
		case !s.GetStuck() && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	return kind, next
}
