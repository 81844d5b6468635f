package deletion

import (
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// Graph is the deletion of one resource with the steps of all layers that could be read. The deletion of a cluster
// includes its children.
type Graph struct {
	// Kind is KindCluster, KindNodePool or KindExternalAuth.
	Kind                        string
	ResourceID, UID, ClusterUID string
	// StartTime is when the deletion was requested.
	StartTime time.Time
	// OperationID is the ARM operation of the deletion, or empty if it is unknown or has ended before the deletion.
	OperationID string
	// Done reports whether all steps have ended.
	Done  bool
	Steps []*csv1.DeletionStep
}

// The kinds of resources that have a Graph.
const (
	KindCluster      = "cluster"
	KindNodePool     = "nodePool"
	KindExternalAuth = "externalAuth"
)

// Graphs returns the deletions in a dump: that of the cluster, even after its end, or the running ones of its node
// pools and external authentications.
func Graphs(dump *adminv1.Dump) []Graph {
	src := source{dump}
	if graph := src.cluster(); graph != nil {
		return []Graph{*graph}
	}
	return src.parts()
}

// source derives Facts from a dump.
type source struct{ *adminv1.Dump }

// part is what ARM's documents and Cluster Service store about one resource.
type part struct {
	// document is nil if ARM has no document of the incarnation, or ARM's layer could not be read. known reports
	// whether Cluster Service has the resource; phase, deleted and graph are Cluster Service's.
	document *adminv1.ARMState
	known    bool
	deleted  time.Time
	phase    string
	graph    *csv1.Deletion
}

func (src source) cluster() *Graph {
	p := part{}
	if src.ARM != nil && src.ARM.Cluster != nil {
		p.document = &src.ARM.Cluster.ARMState
	}
	if src.ClusterService != nil && src.ClusterService.Cluster != nil {
		c := src.ClusterService.Cluster.Of
		p.known, p.phase, p.graph = true, strings.TrimPrefix(c.GetStatus().GetPhase().String(), "CLUSTER_PHASE_"), c.GetStatus().GetDeletion()
		if c.GetDeleteTime() != nil {
			p.deleted = c.GetDeleteTime().AsTime()
		}
	}
	graph := Graph{Kind: KindCluster, ResourceID: src.Cluster.ResourceID, UID: src.Cluster.UID, ClusterUID: src.Cluster.UID}
	f, deleting := src.facts(p, &graph)
	if !deleting {
		return nil
	}
	if src.ARM == nil {
		graph.Steps = p.graph.GetSteps()
		return &graph
	}
	f.ChildrenMarked, f.ChildrenRemoved, f.BillingEnded = true, true, f.DocumentsRemoved
	for _, pool := range src.ARM.NodePools {
		f.ChildrenMarked, f.ChildrenRemoved = f.ChildrenMarked && pool.ProvisioningState == hub.Deleting, false
	}
	for _, auth := range src.ARM.ExternalAuths {
		f.ChildrenMarked, f.ChildrenRemoved = f.ChildrenMarked && auth.ProvisioningState == hub.Deleting, false
	}
	for _, credential := range src.ARM.Credentials {
		f.ChildrenMarked, f.ChildrenRemoved = f.ChildrenMarked && !credential.Pending(), false
	}
	if len(src.ARM.Unknown) > 0 {
		f.ChildrenMarked, f.ChildrenRemoved = false, false
	}
	if c := src.ARM.Cluster; c != nil {
		f.ChildrenMarked = f.ChildrenMarked && c.RevocationOperationID == ""
		f.BillingEnded = src.ARM.Billing != nil && src.ARM.Billing.DeletionTime != nil
	}
	// The last transaction removes the children together with the cluster, not earlier.
	f.ChildrenRemoved = f.ChildrenRemoved && f.BillingEnded
	graph.finish(f, src.TakenAt)
	return &graph
}

func (src source) parts() []Graph {
	var graphs []Graph
	add := func(kind, word, id, uid string, p part) {
		graph := Graph{Kind: kind, ResourceID: id, UID: uid, ClusterUID: src.Cluster.UID}
		f, deleting := src.facts(p, &graph)
		if !deleting || f.FleetDeleted && (f.DocumentsRemoved || src.ARM == nil) {
			return
		}
		if src.ARM == nil {
			graph.Steps = p.graph.GetSteps()
		} else {
			f.NamePrefix = word + "/" + id[strings.LastIndexByte(id, '/')+1:]
			graph.finish(f, src.TakenAt)
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
	if src.ARM != nil {
		for i := range src.ARM.NodePools {
			pool := &src.ARM.NodePools[i]
			at(pools, named{KindNodePool, "node-pool", pool.Resource.ID, pool.UID}).document = &pool.ARMState
		}
		for i := range src.ARM.ExternalAuths {
			auth := &src.ARM.ExternalAuths[i]
			at(auths, named{KindExternalAuth, "external-auth", auth.Resource.ID, auth.UID}).document = &auth.ARMState
		}
	}
	if src.ClusterService != nil {
		for _, m := range src.ClusterService.NodePools {
			p := at(pools, named{KindNodePool, "node-pool", m.Of.GetResourceId(), m.Of.GetUid()})
			p.known, p.graph = true, m.Of.GetStatus().GetDeletion()
			p.phase = strings.TrimPrefix(m.Of.GetStatus().GetPhase().String(), "NODE_POOL_PHASE_")
			if m.Of.GetDeleteTime() != nil {
				p.deleted = m.Of.GetDeleteTime().AsTime()
			}
		}
		for _, m := range src.ClusterService.ExternalAuths {
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

// facts returns the facts that all kinds share. deleting is false for a resource that is not being deleted and never
// was.
func (src source) facts(p part, graph *Graph) (f Facts, deleting bool) {
	operation := src.operation(graph)
	underway := operation != nil && !operation.Status.Terminal()
	if p.deleted.IsZero() && !underway && (p.document == nil || p.document.ProvisioningState != hub.Deleting) {
		return f, false
	}
	if f.Fleet = p.graph; p.known && f.Fleet == nil {
		f.Fleet = &csv1.Deletion{}
	}
	f.FleetAcceptedTime = p.deleted
	// A repeated deletion continues with the progress of the previous one.
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
	// A resource that Cluster Service does not have was never sent or is already deleted. If the document shows the
	// phase Deleting, Cluster Service had accepted the deletion.
	f.FleetAccepted = !p.deleted.IsZero() || p.document != nil && p.document.Fleet.Phase == "Deleting"
	f.FleetDeleted = p.phase == "DELETED" || src.ClusterService != nil && !p.known && f.FleetAccepted
	for _, s := range p.graph.GetSteps() {
		if f.FleetDeleted {
			f.FleetDeletedTime = latest(f.FleetDeletedTime, s.GetSince().AsTime())
		}
	}
	if f.DocumentsRemoved = src.ARM != nil && p.document == nil; f.DocumentsRemoved && (operation == nil || operation.Status == hub.Succeeded) {
		f.FleetAccepted = true
		f.FleetDeleted = f.FleetDeleted || !p.known && src.ClusterService != nil
	}
	return f, true
}

// operation returns the newest ARM operation that deletes the incarnation, or nil.
func (src source) operation(graph *Graph) *adminv1.ARMOperation {
	if src.ARM == nil {
		return nil
	}
	var newest *adminv1.ARMOperation
	for i := range src.ARM.Operations {
		o := &src.ARM.Operations[i]
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
