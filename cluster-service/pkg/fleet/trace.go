package fleet

import (
	"maps"
	"slices"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
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
	// creates reports that the resource has never reached its desired state.
	creates  bool
	progress []*csv1.LayerProgress
}

func (c *Cluster) request() request {
	s := c.Status
	return request{c.Trace, c.Deleting() || s.GetObservedGeneration() < c.Generation && c.Refused == nil, s.GetObservedGeneration() == 0, s.GetProgress()}
}

func (p *NodePool) request() request {
	s := p.Status
	return request{p.Trace, p.Deleting() || s.GetObservedGeneration() < p.Generation && p.Refused == nil, s.GetObservedGeneration() == 0, s.GetProgress()}
}

// trace returns the reference of the trace of a request in progress, and else an empty text.
func (r request) trace() string {
	if !r.inProgress {
		return ""
	}
	return r.reference
}

// Wait is a time for which a request waited for one state of one layer, or for one condition of one object on the management cluster.
type Wait struct {
	// Trace is the reference of the request's trace.
	Trace                  string
	ClusterUID, ResourceID string
	// Layer and State are what was awaited. For a condition, Layer is the kind of the object and State the type of the condition.
	Layer, State string
	// Work is the name of the work that has the object, and Shard its management cluster; empty for the state of a layer.
	Work, Shard string
	Begin, End  time.Time
}

// EndedWaits returns the waits of requests in progress that end with a change of an aggregate, or because the request ends. They are computed from what the
// layers report, so that a trace shows where the time of a request goes with every runtime of control planes.
func EndedWaits(before, after *ClusterAggregate, now time.Time) []Wait {
	var waits []Wait
	add := func(of Wait, request, next request, work, reported *Work) {
		if of.Trace = request.trace(); of.Trace == "" {
			return
		}
		awaited, begin := awaitedSince(request.progress)
		following, _ := awaitedSince(next.progress)
		if awaited != nil && (!next.inProgress || following.GetLayer() != awaited.GetLayer() || following.GetState() != awaited.GetState()) {
			layer := of
			layer.Layer, layer.State, layer.Begin, layer.End = awaited.GetLayer(), awaited.GetState(), begin, now
			waits = append(waits, layer)
		}
		if work != nil && reported != nil {
			waits = append(waits, conditionWaits(of, request, work, reported)...)
		}
	}
	if c := before.Cluster; c != nil && after.Cluster != nil {
		add(Wait{ClusterUID: c.UID, ResourceID: c.ResourceID}, c.request(), after.Cluster.request(), before.Work(HostedCluster, ""), after.Work(HostedCluster, ""))
	}
	for _, p := range before.Pools {
		if next := after.Pool(p.UID); next != nil {
			add(Wait{ClusterUID: p.ClusterUID, ResourceID: p.ResourceID}, p.request(), next.request(), before.Work(NodePoolWork, p.UID), after.Work(NodePoolWork, p.UID))
		}
	}
	return waits
}

// conditionWaits returns the waits for the conditions of a work's main object that a report completes. The times are those of the management cluster's clock in
// whole seconds: waits of less than a second have no duration, and a wait may seem to begin before its cause. It begins when the condition got its previous
// status, or, for a new object whose condition was not reported before, when the agent applied the object. That of an update does not begin before Maestro has
// accepted the update: the condition may have been false before. No wait ends before it begins.
func conditionWaits(of Wait, r request, before, after *Work) []Wait {
	var waits []Wait
	of.Layer, of.Work, of.Shard = "HostedCluster", after.Name, after.Shard
	if after.Kind == NodePoolWork {
		of.Layer = "NodePool"
	}
	for _, name := range slices.Sorted(maps.Keys(after.Observed.Conditions)) {
		was, is, awaited := before.Observed.Condition(name), after.Observed.Condition(name), feedback.AwaitedStatus(name)
		// A condition without an earlier report was false only for a new object, and one such as UpdatingVersion was not awaited.
		unknown := was.Status == "" && (awaited == "False" || !r.creates)
		if awaited == "" || is.Status != awaited || was.Status == awaited || unknown || is.Since.IsZero() {
			continue
		}
		of.State, of.Begin, of.End = name, was.Since, is.Since
		if was.Status == "" {
			of.Begin = after.Observed.Applied.Since
		}
		if accepted := r.acceptedTime(); of.Begin.Before(accepted) {
			of.Begin = accepted
		}
		if of.Begin.IsZero() || of.Begin.After(of.End) {
			of.Begin = of.End
		}
		waits = append(waits, of)
	}
	return waits
}

// acceptedTime returns when Maestro accepted the content of an update; the zero time for a creation.
func (r request) acceptedTime() time.Time {
	i := slices.IndexFunc(r.progress, func(p *csv1.LayerProgress) bool { return p.GetLayer() == LayerMaestro })
	if r.creates || i < 0 {
		return time.Time{}
	}
	return r.progress[i].GetSince().AsTime()
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
