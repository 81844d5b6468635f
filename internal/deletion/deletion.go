// Package deletion is how the removal of a resource stands as a whole: the steps of the ARM side, which follow from what is
// stored in Cosmos DB, around those that Cluster Service reports. It is a pure function of what the caller has read: the
// backend asks it which step is stuck, whoever explains a deletion to people asks it for all steps.
package deletion

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// The layers of the steps of the ARM side; those of Cluster Service are in its own steps.
const (
	LayerARM            = "arm"
	LayerClusterService = "cluster-service"
)

// The kinds of steps of the ARM side. There is one of each, and its name is its kind.
const (
	// Told is that everything beneath a cluster shows that it goes with it, and its operations are ended.
	Told = "beneath-told"
	// Asked is that Cluster Service has taken the deletion.
	Asked = "fleet-asked"
	// Gone is that Cluster Service says that nothing is left.
	Gone = "fleet-gone"
	// Removed is that the resource, its reservations and its operation are ended in Cosmos DB, and its life is billed.
	Removed = "documents-removed"
)

// Kinds are all of them, in order.
func Kinds() []string { return []string{Told, Asked, Gone, Removed} }

// stuckAfter is how long a step of each kind may run. What Cluster Service does is its own to watch; the whole of it may
// take as long as its steps together.
var stuckAfter = map[string]time.Duration{Told: 2 * time.Minute, Asked: 2 * time.Minute, Gone: time.Hour, Removed: 2 * time.Minute}

// Facts are what is known of a deletion.
type Facts struct {
	// Began is when the deletion was accepted.
	Began time.Time
	// Told says that what is beneath was told, Asked that Cluster Service has taken the deletion, Gone that it has nothing
	// left, Removed that the documents are gone.
	Told, Asked, Gone, Removed bool
	// Since is when the newest of these came to be true, as far as it is known; zero means when the deletion began.
	Since time.Time
	// Fleet is what Cluster Service reported; nil when nothing was.
	Fleet *csv1.Deletion
}

// Steps are all steps, in the order in which they are taken, with Cluster Service's own in their place.
func (f Facts) Steps(now time.Time) []*csv1.DeletionStep {
	steps := []*csv1.DeletionStep{
		f.step(now, Told, LayerARM, f.Told, true, "Waiting for the resources beneath it to be shown as being deleted, and for their operations to be ended."),
		f.step(now, Asked, LayerClusterService, f.Asked, true, "Waiting for Cluster Service to take the deletion."),
	}
	for _, s := range f.Fleet.GetSteps() {
		if len(s.GetAfter()) == 0 {
			s = &csv1.DeletionStep{Name: s.Name, Kind: s.Kind, Layer: s.Layer, State: s.State, Since: s.Since, After: []string{Asked}, WaitsFor: s.WaitsFor,
				Attempts: s.Attempts, LastError: s.LastError, StuckTime: s.StuckTime, Stuck: s.Stuck, Finalizers: s.Finalizers, Force: s.Force,
				Interventions: s.Interventions, Work: s.Work}
		}
		steps = append(steps, s)
	}
	gone := f.step(now, Gone, LayerClusterService, f.Gone, f.Asked, "Waiting for Cluster Service to say that nothing is left.")
	gone.After = []string{Asked}
	for _, s := range f.Fleet.GetSteps() {
		gone.After = append(gone.After, s.GetName())
	}
	removed := f.step(now, Removed, LayerARM, f.Removed, f.Gone && f.Told, "Waiting for its documents to be removed and its life to be billed.")
	removed.After = []string{Told, Gone}
	return append(steps, gone, removed)
}

func (f Facts) step(now time.Time, kind, layer string, done, begun bool, waitsFor string) *csv1.DeletionStep {
	since := f.Began
	if begun && kind != Told && kind != Asked && !f.Since.IsZero() {
		since = f.Since
	}
	s := &csv1.DeletionStep{Name: kind, Kind: kind, Layer: layer, State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING, Since: timestamppb.New(f.Began)}
	switch {
	case done:
		s.State = csv1.DeletionStepState_DELETION_STEP_STATE_DONE
	case begun:
		s.State, s.Since, s.WaitsFor = csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, timestamppb.New(since), waitsFor
		at := since.Add(stuckAfter[kind])
		s.StuckTime, s.Stuck = timestamppb.New(at), !now.Before(at)
	}
	return s
}

// Stuck finds the first step of the ARM side that is stuck, empty when none is, and says when the next would be; zero when
// none will.
func (f Facts) Stuck(now time.Time) (kind string, next time.Time) {
	for _, s := range f.Steps(now) {
		if s.GetState() != csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING || !slices.Contains(Kinds(), s.GetKind()) {
			continue
		}
		switch at := s.GetStuckTime().AsTime(); {
		case s.GetStuck() && kind == "":
			kind = s.GetKind()
		case !s.GetStuck() && (next.IsZero() || at.Before(next)):
			next = at
		}
	}
	return kind, next
}
