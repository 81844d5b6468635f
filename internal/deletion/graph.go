package deletion

import (
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// Graph is the deletion of a resource with the steps of all layers that could be asked. What goes with a cluster is in the
// cluster's.
type Graph struct {
	// Kind is cluster, nodePool or externalAuth.
	Kind                        string
	ResourceID, UID, ClusterUID string
	// StartTime is when it was asked for.
	StartTime time.Time
	// OperationID is ARM's operation that ends with it; empty when that has ended without it, or is not known.
	OperationID string
	// Done says that nothing is left to be waited for.
	Done  bool
	Steps []*csv1.DeletionStep
}

// The kinds of a Graph.
const (
	KindCluster      = "cluster"
	KindNodePool     = "nodePool"
	KindExternalAuth = "externalAuth"
)

// Graphs are the deletions that a dump shows: the cluster's, also when it is over, or those of its parts that are under way.
func Graphs(dump *adminv1.Dump) []Graph {
	t := taken{dump}
	if graph := t.cluster(); graph != nil {
		return []Graph{*graph}
	}
	return t.parts()
}

// taken are the facts of a dump.
type taken struct{ *adminv1.Dump }

// part is what ARM's documents and Cluster Service have in common about a resource.
type part struct {
	// document is nil when ARM has none of the incarnation, or could not be asked; fleet says how far Cluster Service is.
	document *adminv1.ARMState
	known    bool
	deleted  time.Time
	phase    string
	graph    *csv1.Deletion
}

func (t taken) cluster() *Graph {
	p := part{}
	if t.ARM != nil && t.ARM.Cluster != nil {
		p.document = &t.ARM.Cluster.ARMState
	}
	if t.ClusterService != nil && t.ClusterService.Cluster != nil {
		c := t.ClusterService.Cluster.Of
		p.known, p.phase, p.graph = true, strings.TrimPrefix(c.GetStatus().GetPhase().String(), "CLUSTER_PHASE_"), c.GetStatus().GetDeletion()
		if c.GetDeleteTime() != nil {
			p.deleted = c.GetDeleteTime().AsTime()
		}
	}
	graph := Graph{Kind: KindCluster, ResourceID: t.Cluster.ResourceID, UID: t.Cluster.UID, ClusterUID: t.Cluster.UID}
	f, going := t.facts(p, &graph)
	if !going {
		return nil
	}
	if t.ARM == nil {
		graph.Steps = p.graph.GetSteps()
		return &graph
	}
	f.ChildrenMarked, f.ChildrenRemoved, f.BillingEnded = true, true, f.DocumentsRemoved
	for _, pool := range t.ARM.NodePools {
		f.ChildrenMarked, f.ChildrenRemoved = f.ChildrenMarked && pool.ProvisioningState == hub.Deleting, false
	}
	for _, auth := range t.ARM.ExternalAuths {
		f.ChildrenMarked, f.ChildrenRemoved = f.ChildrenMarked && auth.ProvisioningState == hub.Deleting, false
	}
	for _, credential := range t.ARM.Credentials {
		f.ChildrenMarked, f.ChildrenRemoved = f.ChildrenMarked && !credential.Pending(), false
	}
	if len(t.ARM.Unknown) > 0 {
		f.ChildrenMarked, f.ChildrenRemoved = false, false
	}
	if c := t.ARM.Cluster; c != nil {
		f.ChildrenMarked = f.ChildrenMarked && c.RevocationOperationID == ""
		f.BillingEnded = t.ARM.Billing != nil && t.ARM.Billing.DeletionTime != nil
	}
	// What the last batch removes is not removed before the cluster is.
	f.ChildrenRemoved = f.ChildrenRemoved && f.BillingEnded
	graph.finish(f, t.TakenAt)
	return &graph
}

func (t taken) parts() []Graph {
	var graphs []Graph
	add := func(kind, word, id, uid string, p part) {
		graph := Graph{Kind: kind, ResourceID: id, UID: uid, ClusterUID: t.Cluster.UID}
		f, going := t.facts(p, &graph)
		if !going || f.FleetDeleted && (f.DocumentsRemoved || t.ARM == nil) {
			return
		}
		if t.ARM == nil {
			graph.Steps = p.graph.GetSteps()
		} else {
			f.NamePrefix = word + "/" + id[strings.LastIndexByte(id, '/')+1:]
			graph.finish(f, t.TakenAt)
		}
		graphs = append(graphs, graph)
	}
	pools, auths := map[string]*part{}, map[string]*part{}
	type named struct{ kind, word, id, uid string }
	var order []named
	at := func(of map[string]*part, n named) *part {
		if of[n.uid] == nil {
			of[n.uid] = &part{}
			order = append(order, n)
		}
		return of[n.uid]
	}
	if t.ARM != nil {
		for i := range t.ARM.NodePools {
			pool := &t.ARM.NodePools[i]
			at(pools, named{KindNodePool, "node-pool", pool.Resource.ID, pool.UID}).document = &pool.ARMState
		}
		for i := range t.ARM.ExternalAuths {
			auth := &t.ARM.ExternalAuths[i]
			at(auths, named{KindExternalAuth, "external-auth", auth.Resource.ID, auth.UID}).document = &auth.ARMState
		}
	}
	if t.ClusterService != nil {
		for _, m := range t.ClusterService.NodePools {
			p := at(pools, named{KindNodePool, "node-pool", m.Of.GetResourceId(), m.Of.GetUid()})
			p.known, p.graph = true, m.Of.GetStatus().GetDeletion()
			p.phase = strings.TrimPrefix(m.Of.GetStatus().GetPhase().String(), "NODE_POOL_PHASE_")
			if m.Of.GetDeleteTime() != nil {
				p.deleted = m.Of.GetDeleteTime().AsTime()
			}
		}
		for _, m := range t.ClusterService.ExternalAuths {
			p := at(auths, named{KindExternalAuth, "external-auth", m.Of.GetResourceId(), m.Of.GetUid()})
			p.known, p.graph = true, m.Of.GetStatus().GetDeletion()
			p.phase = strings.TrimPrefix(m.Of.GetStatus().GetPhase().String(), "EXTERNAL_AUTH_PHASE_")
			if m.Of.GetDeleteTime() != nil {
				p.deleted = m.Of.GetDeleteTime().AsTime()
			}
		}
	}
	for _, n := range order {
		of := pools
		if n.kind == KindExternalAuth {
			of = auths
		}
		add(n.kind, n.word, n.id, n.uid, *of[n.uid])
	}
	return graphs
}

// facts are those that all kinds share; going is false for what is not being deleted, and never was.
func (t taken) facts(p part, graph *Graph) (f Facts, going bool) {
	operation := t.operation(graph)
	underway := operation != nil && !operation.Status.Terminal()
	if p.deleted.IsZero() && !underway && (p.document == nil || p.document.ProvisioningState != hub.Deleting) {
		return f, false
	}
	f.Fleet = p.graph
	f.FleetAcceptedTime = p.deleted
	// A deletion that ARM accepted anew goes on with what the one before has done.
	if f.StartTime = p.deleted; operation != nil {
		f.StartTime, f.Notes = operation.StartTime, operation.Deletion
	}
	if f.StartTime.IsZero() && p.document != nil {
		f.StartTime = p.document.Modified
	}
	if underway {
		graph.OperationID = operation.OperationID
	}
	graph.StartTime = f.StartTime
	// What Cluster Service does not know it never had, or no longer: then it was asked, for it forgets nothing else.
	f.FleetAccepted = !p.deleted.IsZero() || p.document != nil && p.document.Fleet.Phase == "Deleting"
	f.FleetDeleted = p.phase == "DELETED" || t.ClusterService != nil && !p.known && f.FleetAccepted
	for _, s := range p.graph.GetSteps() {
		if f.FleetDeleted {
			f.FleetDeletedTime = latest(f.FleetDeletedTime, s.GetSince().AsTime())
		}
	}
	if f.DocumentsRemoved = t.ARM != nil && p.document == nil; f.DocumentsRemoved && (operation == nil || operation.Status == hub.Succeeded) {
		f.FleetAccepted = true
		f.FleetDeleted = f.FleetDeleted || !p.known && t.ClusterService != nil
	}
	return f, true
}

// operation is ARM's newest that deletes the incarnation; nil when none is kept.
func (t taken) operation(graph *Graph) *adminv1.ARMOperation {
	if t.ARM == nil {
		return nil
	}
	var newest *adminv1.ARMOperation
	for i := range t.ARM.Operations {
		o := &t.ARM.Operations[i]
		if o.Request == "Delete" && o.UID == graph.UID && strings.EqualFold(o.ResourceID, graph.ResourceID) && (newest == nil || o.StartTime.After(newest.StartTime)) {
			newest = o
		}
	}
	return newest
}

func (g *Graph) finish(f Facts, now time.Time) {
	g.Steps = f.Steps(now)
	g.Done = true
	for _, s := range g.Steps {
		g.Done = g.Done && ended(s)
	}
}
