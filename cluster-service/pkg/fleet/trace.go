package fleet

import (
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/layerprogress"
)

// TraceOf returns the reference of the trace of the request that a work belongs to while the request is in progress; empty if the trace is not
// recorded, and after that: later changes of the works of a resource are in no trace.
func (t *ClusterAggregate) TraceOf(w *Work) string {
	if w.Kind == NodePoolWork {
		if p := t.Pool(w.OwnerUID); p != nil {
			return p.traceInProgress()
		}
	}
	return t.Cluster.traceInProgress()
}

// inProgress reports whether the last request for the cluster is not complete.
func (c *Cluster) inProgress() bool {
	return c.Deleting() || c.Status.GetObservedGeneration() < c.Generation
}

func (c *Cluster) traceInProgress() string {
	if c == nil || !c.inProgress() {
		return ""
	}
	return c.Trace
}

// inProgress reports whether the last request for the node pool is not complete.
func (p *NodePool) inProgress() bool {
	return p.Deleting() || p.Status.GetObservedGeneration() < p.Generation
}

func (p *NodePool) traceInProgress() string {
	if !p.inProgress() {
		return ""
	}
	return p.Trace
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
	add := func(trace, clusterUID, resourceID string, before, after []*csv1.LayerProgress, ended bool) {
		if trace == "" {
			return
		}
		awaited, begin := awaitedSince(before)
		next, _ := awaitedSince(after)
		if awaited != nil && (ended || next.GetLayer() != awaited.GetLayer() || next.GetState() != awaited.GetState()) {
			waits = append(waits, Wait{Trace: trace, ClusterUID: clusterUID, ResourceID: resourceID, Layer: awaited.GetLayer(), State: awaited.GetState(), Begin: begin, End: now})
		}
	}
	if c := before.Cluster; c != nil && after.Cluster != nil {
		add(c.traceInProgress(), c.UID, c.ResourceID, c.Status.GetProgress(), after.Cluster.Status.GetProgress(), !after.Cluster.inProgress())
	}
	for _, p := range before.Pools {
		if next := after.Pool(p.UID); next != nil {
			add(p.traceInProgress(), p.ClusterUID, p.ResourceID, p.Status.GetProgress(), next.Status.GetProgress(), !next.inProgress())
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
		if !layerprogress.Done(p) {
			return p, since
		}
	}
	return nil, time.Time{}
}
