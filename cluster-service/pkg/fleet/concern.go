package fleet

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/layerprogress"
)

// LayerDeletion is the layer of the concern of a resource in deletion. It is not a layer of progress.
const LayerDeletion = "deletion"

// Concern states what a cluster aggregate that is not in its desired state waits for. The zero Concern means that it waits for
// nothing.
type Concern struct {
	// SubjectID is the ARM resource ID of the cluster or of the child that waits.
	SubjectID string
	// Layer and State identify the awaited progress entry, or the deletion and the kind of its first running step.
	Layer, State string
	// Since is when the wait began; for a deletion, when it was requested.
	Since time.Time
}

// Concern returns what the cluster waits for, or else the oldest concern of its node pools and external authentications.
func (t *ClusterAggregate) Concern() Concern {
	c := t.Cluster
	if c == nil || c.Gone() {
		return Concern{}
	}
	s := c.Status
	if own := concernOf(c.ResourceID, c.CreateTime, c.DeleteTime, s.GetPhase().String(), s.GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_READY, s.GetProgress(), s.GetDeletion()); own.Layer != "" {
		return own
	}
	oldest := Concern{}
	add := func(found Concern) {
		if found.Layer != "" && (oldest.Layer == "" || found.Since.Before(oldest.Since)) {
			oldest = found
		}
	}
	for _, p := range t.Pools {
		if s := p.Status; p.GoneTime.IsZero() {
			add(concernOf(p.ResourceID, p.CreateTime, p.DeleteTime, s.GetPhase().String(), s.GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY, s.GetProgress(), s.GetDeletion()))
		}
	}
	for _, a := range t.ExternalAuths {
		if s := a.Status; a.GoneTime.IsZero() {
			add(concernOf(a.ResourceID, a.CreateTime, a.DeleteTime, s.GetPhase().String(), s.GetPhase() == csv1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY, s.GetProgress(), s.GetDeletion()))
		}
	}
	return oldest
}

// concernOf returns the concern of one resource.
func concernOf(id string, created, deleted time.Time, phase string, ready bool, progress []*csv1.LayerProgress, deletion *csv1.Deletion) Concern {
	if !deleted.IsZero() {
		concern := Concern{id, LayerDeletion, "Deleting", deleted}
		for _, step := range deletion.GetSteps() {
			if step.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
				concern.State = step.GetKind()
				break
			}
		}
		return concern
	}
	if entry := layerprogress.Awaited(progress); entry != nil {
		return Concern{id, entry.GetLayer(), entry.GetState(), timeOf(entry.GetSince())}
	}
	if ready {
		return Concern{}
	}
	since := created
	for _, entry := range progress {
		if at := timeOf(entry.GetSince()); at.After(since) {
			since = at
		}
	}
	if _, name, known := strings.Cut(phase, "_PHASE_"); known {
		phase = name
	}
	return Concern{id, "cluster-service", phase, since}
}

func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
