package roster

import (
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/verdict"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
)

// conditionFalse is the status of a condition that does not hold.
const conditionFalse = "False"

// pool is what monitor knows about one node pool. cluster is the UID of its cluster.
type pool struct {
	cluster string
	nodes   judge.Nodes
}

// poolOf returns a node pool. One that is being deleted wants no nodes, and only one that waits has a problem.
func poolOf(p *clusterservicev1.NodePool) pool {
	known := pool{cluster: p.GetClusterUid()}
	decided := verdict.Of(time.Time{}, verdict.NodePool(p)).State
	if decided == verdict.Deleting {
		return known
	}
	known.nodes.Wanted, known.nodes.Ready = int(p.GetSpec().GetReplicas()), int(p.GetStatus().GetReplicas())
	if scaling := p.GetSpec().GetAutoscaling(); scaling != nil {
		known.nodes.Wanted = int(scaling.GetMin())
	}
	for _, c := range p.GetStatus().GetConditions() {
		report := judge.Condition{Part: judge.Part{Status: c.GetStatus(), Since: since(c, p.GetCreateTime().AsTime())}, Pool: p.GetSpec().GetName(), Message: c.GetMessage()}
		switch {
		case c.GetStatus() != conditionFalse || decided == verdict.Ready:
		case c.GetType() == clusterstatus.AllMachinesReady:
			known.nodes.Machines = report
		case c.GetType() == clusterstatus.AllNodesHealthy:
			known.nodes.Healthy = report
		}
	}
	return known
}

func since(c *clusterservicev1.Condition, created time.Time) time.Time {
	if changed := c.GetLastTransitionTime().AsTime(); changed.After(created) {
		return changed
	}
	return created
}

// nodesOf returns the sum of the nodes of a cluster's pools, with the problem that began first.
func (r *Roster) nodesOf(cluster string) judge.Nodes {
	var all judge.Nodes
	for uid := range r.poolsOf[cluster] {
		n := r.pools[uid].nodes
		all.Wanted += n.Wanted
		all.Ready += n.Ready
		all.Machines = earlier(all.Machines, n.Machines)
		all.Healthy = earlier(all.Healthy, n.Healthy)
	}
	return all
}

func earlier(a, b judge.Condition) judge.Condition {
	switch {
	case b.Status == "":
		return a
	case a.Status == "", b.Since.Before(a.Since), b.Since.Equal(a.Since) && b.Pool < a.Pool:
		return b
	}
	return a
}

// observePool stores a node pool and updates the entry of its cluster.
func (r *Roster) observePool(p *clusterservicev1.NodePool) {
	uid := p.GetUid()
	delete(r.unseen, uid)
	if p.GetStatus().GetPhase() == clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETED {
		r.removePool(uid)
		return
	}
	known := poolOf(p)
	r.pools[uid] = known
	if r.poolsOf[known.cluster] == nil {
		r.poolsOf[known.cluster] = map[string]bool{}
	}
	r.poolsOf[known.cluster][uid] = true
	r.updateNodes(known.cluster)
}

func (r *Roster) removePool(uid string) {
	known, ok := r.pools[uid]
	if !ok {
		return
	}
	delete(r.pools, uid)
	if delete(r.poolsOf[known.cluster], uid); len(r.poolsOf[known.cluster]) == 0 {
		delete(r.poolsOf, known.cluster)
	}
	r.updateNodes(known.cluster)
}

// updateNodes notifies the listener if the nodes of a cluster have changed.
func (r *Roster) updateNodes(cluster string) {
	entry, ok := r.entries[cluster]
	if nodes := r.nodesOf(cluster); ok && entry.Cluster.Nodes != nodes {
		entry.Cluster.Nodes = nodes
		r.entries[cluster] = entry
		r.listener.Set(entry)
	}
}
