// Package verdict decides in which state a cluster or a node pool is, and what it waits for. Cluster Service lists waiting clusters with it,
// admin explains them, the portal and hcpctl show its state, and monitor expects no nodes that it does not expect. No other code decides
// from a phase whether something is ready: the phase of a cluster stays Ready while its node pools wait for nodes.
//
// The functions are pure. They decide from what Cluster Service reports: whether the API answers is monitor's verdict.
package verdict

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// The states that are not the name of a phase. All others are, for example Installing.
const (
	// Ready means that nothing is awaited.
	Ready = "Ready"
	// Waiting means that the phase is Ready, and that the resource or one of its children waits for something.
	Waiting = "Waiting"
	// Paused means that the phase is Ready, and that an SRE has paused the cluster.
	Paused = "Paused"
	// Deleting means that the deletion was requested.
	Deleting = "Deleting"
)

// The layers of concerns that are not layers of progress.
const (
	// LayerDeletion is the layer of a resource in deletion. The state is the kind of its first running step.
	LayerDeletion = "deletion"
	// LayerClusterService is the layer of a resource that is not ready although no layer reports what is awaited. The state is the phase.
	LayerClusterService = "cluster-service"
)

// Resource is what Cluster Service reports about a cluster or one of its children, as far as the verdict depends on it.
type Resource struct {
	// ID is the ARM resource ID.
	ID string
	// Phase is the PhaseName of the phase, for example AWAITING_SECRET.
	Phase            string
	Created, Deleted time.Time
	Progress         []*csv1.LayerProgress
	Deletion         *csv1.Deletion
	// PausedUntil is when the pause ends that an SRE requested; zero without a pause.
	PausedUntil time.Time
}

// Concern states what a resource that is not in its desired state waits for. The zero Concern means that it waits for nothing.
type Concern struct {
	// SubjectID is the ARM resource ID of the resource or of the child that waits.
	SubjectID string
	// Layer and State identify the awaited progress entry, or the deletion, or the phase.
	Layer, State string
	// Since is when the wait began; for a deletion, when it was requested.
	Since time.Time
}

// Verdict is the state of a resource with its children.
type Verdict struct {
	State   string
	Concern Concern
}

// Of returns the verdict of a resource at a time. The concern is that of the resource, or else the oldest one of its children.
func Of(now time.Time, r Resource, children ...Resource) Verdict {
	return verdictWith(now, r, ConcernOf(r, children...))
}

// OfCluster returns the verdict of a cluster that Cluster Service returned with its concern, which is that of a child if the cluster has none.
func OfCluster(now time.Time, c *csv1.Cluster) Verdict {
	r := Cluster(c)
	concern := ConcernOf(r)
	if reported := c.GetConcern(); reported != nil {
		concern = Concern{reported.GetSubjectResourceId(), reported.GetLayer(), reported.GetState(), timeOf(reported.GetSince())}
	}
	return verdictWith(now, r, concern)
}

// ConcernOf returns the concern of a resource, or else the oldest one of its children.
func ConcernOf(r Resource, children ...Resource) Concern {
	concern := ownConcern(r)
	if concern.Layer != "" {
		return concern
	}
	for _, child := range children {
		if c := ownConcern(child); c.Layer != "" && (concern.Layer == "" || c.Since.Before(concern.Since)) {
			concern = c
		}
	}
	return concern
}

func ownConcern(r Resource) Concern {
	if r.Phase == "DELETED" {
		return Concern{}
	}
	if !r.Deleted.IsZero() {
		concern := Concern{r.ID, LayerDeletion, Deleting, r.Deleted}
		for _, step := range r.Deletion.GetSteps() {
			if step.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
				concern.State = step.GetKind()
				break
			}
		}
		return concern
	}
	if entry := clusterstatus.AwaitedLayer(r.Progress); entry != nil {
		return Concern{r.ID, entry.GetLayer(), entry.GetState(), timeOf(entry.GetSince())}
	}
	if phaseState(r.Phase) == Ready {
		return Concern{}
	}
	since := r.Created
	for _, entry := range r.Progress {
		if at := timeOf(entry.GetSince()); at.After(since) {
			since = at
		}
	}
	return Concern{r.ID, LayerClusterService, r.Phase, since}
}

// verdictWith returns the verdict of a resource with a concern.
func verdictWith(now time.Time, r Resource, concern Concern) Verdict {
	v := Verdict{State: phaseState(r.Phase), Concern: concern}
	switch {
	case concern.Layer == LayerDeletion && concern.SubjectID == r.ID:
		v.State = Deleting
	case v.State != Ready:
	case now.Before(r.PausedUntil):
		v.State = Paused
	case concern.Layer != "":
		v.State = Waiting
	}
	return v
}

// PhaseName returns the last part of the name of a phase: AWAITING_SECRET of EXTERNAL_AUTH_PHASE_AWAITING_SECRET. A phase that this release
// does not know has a number as its name.
func PhaseName(phase fmt.Stringer) string {
	_, name, known := strings.Cut(phase.String(), "_PHASE_")
	if !known {
		return phase.String()
	}
	return name
}

// phaseState returns the state with the name of a phase: AwaitingSecret for AWAITING_SECRET.
func phaseState(phase string) string {
	var state strings.Builder
	for word := range strings.SplitSeq(phase, "_") {
		state.WriteString(word[:min(len(word), 1)] + strings.ToLower(word[min(len(word), 1):]))
	}
	return state.String()
}

// Cluster returns a cluster without its children.
func Cluster(c *csv1.Cluster) Resource {
	return resource(c, c.GetStatus(), c.GetStatus().GetPhase(), timeOf(c.GetOverrides().GetPause().GetUntil()))
}

// NodePool returns a node pool.
func NodePool(p *csv1.NodePool) Resource {
	return resource(p, p.GetStatus(), p.GetStatus().GetPhase(), time.Time{})
}

// ExternalAuth returns an external authentication.
func ExternalAuth(a *csv1.ExternalAuth) Resource {
	return resource(a, a.GetStatus(), a.GetStatus().GetPhase(), time.Time{})
}

type identity interface {
	GetResourceId() string
	GetCreateTime() *timestamppb.Timestamp
	GetDeleteTime() *timestamppb.Timestamp
}

type status interface {
	GetProgress() []*csv1.LayerProgress
	GetDeletion() *csv1.Deletion
}

func resource(of identity, s status, phase fmt.Stringer, pausedUntil time.Time) Resource {
	return Resource{ID: of.GetResourceId(), Phase: PhaseName(phase), Created: timeOf(of.GetCreateTime()), Deleted: timeOf(of.GetDeleteTime()),
		Progress: s.GetProgress(), Deletion: s.GetDeletion(), PausedUntil: pausedUntil}
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
