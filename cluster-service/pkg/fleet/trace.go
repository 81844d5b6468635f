package fleet

import (
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// TraceOf returns the reference of the trace of the request that a work belongs to while the request is in progress; empty if the trace is not
// recorded, and after that: later changes of the works of a resource are in no trace.
func (t *ClusterAggregate) TraceOf(w *Work) string {
	if w.Kind == NodePoolWork {
		if p := t.Pool(w.OwnerUID); p != nil {
			return p.request().trace()
		}
	}
	if t.Cluster == nil {
		return ""
	}
	return t.Cluster.request().trace()
}

// request is the last request for a resource. inProgress reports whether it is not complete.
type request struct {
	reference  string
	inProgress bool
	progress   []*csv1.LayerProgress
}

func (c *Cluster) request() request {
	return request{c.Trace, c.Deleting() || c.Status.GetObservedGeneration() < c.Generation && c.Refused == nil, c.Status.GetProgress()}
}

func (p *NodePool) request() request {
	return request{p.Trace, p.Deleting() || p.Status.GetObservedGeneration() < p.Generation && p.Refused == nil, p.Status.GetProgress()}
}

// trace returns the reference of the trace of a request in progress, and else an empty text.
func (r request) trace() string {
	if !r.inProgress {
		return ""
	}
	return r.reference
}

// Wait is a time for which a request waited for one state of one layer.
type Wait struct {
	// Trace is the reference of the request's trace.
	Trace                  string
	ClusterUID, ResourceID string
	Layer, State           string
	Begin, End             time.Time
}

// EndedWaits returns the waits of requests in progress that end with a change of an aggregate, or because the request ends. Their states are those that the layers report, so
// that a trace shows where the time of a request goes with every runtime of control planes.
func EndedWaits(before, after *ClusterAggregate, now time.Time) []Wait {
	var waits []Wait
	add := func(clusterUID, resourceID string, before, after request) {
		trace := before.trace()
		if trace == "" {
			return
		}
		awaited, begin := awaitedSince(before.progress)
		next, _ := awaitedSince(after.progress)
		if awaited != nil && (!after.inProgress || next.GetLayer() != awaited.GetLayer() || next.GetState() != awaited.GetState()) {
			waits = append(waits, Wait{Trace: trace, ClusterUID: clusterUID, ResourceID: resourceID, Layer: awaited.GetLayer(), State: awaited.GetState(), Begin: begin, End: now})
		}
	}
	if c := before.Cluster; c != nil && after.Cluster != nil {
		add(c.UID, c.ResourceID, c.request(), after.Cluster.request())
	}
	for _, p := range before.Pools {
		if next := after.Pool(p.UID); next != nil {
			add(p.ClusterUID, p.ResourceID, p.request(), next.request())
		}
	}
	return waits
}

// awaitedSince returns the first entry that is not done, and since when it is the first one; nil if all are done.
func awaitedSince(progress []*csv1.LayerProgress) (awaited *csv1.LayerProgress, since time.Time) {
	for _, p := range progress {
		if at := p.GetSince().AsTime(); at.After(since) {
			since = at
		}
		if !clusterstatus.LayerDone(p) {
			return p, since
		}
	}
	return nil, time.Time{}
}
