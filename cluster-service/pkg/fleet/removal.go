package fleet

import (
	"cmp"
	"slices"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// maxRemovals is the number of removals in the history of a cluster.
const maxRemovals = 20

// The kinds of the objects that hold the identity of a control plane.
const (
	kindHostedCluster = "HostedCluster"
	kindNamespace     = "Namespace"
)

// recordRemovals adds the reported removals to the history of the cluster. Reports may be repeated, and an agent that restarts no
// longer reports earlier removals.
func recordRemovals(t *ClusterAggregate) {
	c := t.Cluster
	if c == nil || c.Deleting() || c.Status == nil {
		return
	}
	for _, w := range t.Works {
		if w.Deleting() {
			continue
		}
		for i := range w.Observed.Removals {
			c.recordRemoval(w.Shard, &w.Observed.Removals[i])
		}
	}
}

// recordRemoval adds one removal, or updates its entry.
func (c *Cluster) recordRemoval(shard string, r *feedback.Removal) {
	list := c.Status.GetRemovals()
	i := slices.IndexFunc(list, func(e *csv1.ObjectRemoval) bool { return sameRemoval(e, r.Kind, r.Namespace, r.Name, r.UID) })
	if i < 0 {
		list = append(list, &csv1.ObjectRemoval{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, Uid: r.UID, ProvisionShard: shard})
		i = len(list) - 1
	}
	list[i].Reason, list[i].RemoveTime = r.Reason, timestamp(r.Time)
	if !r.Ongoing() {
		list[i].AppliedAgainTime = timestamp(r.AppliedAgain)
	}
	slices.SortStableFunc(list, func(a, b *csv1.ObjectRemoval) int {
		return b.GetRemoveTime().AsTime().Compare(a.GetRemoveTime().AsTime())
	})
	c.Status.Removals = list[:min(len(list), maxRemovals)]
}

// recordNamespace adds the removal of the control-plane namespace to the history, or updates its entry. No agent reports it, because
// HyperShift creates the namespace. It does not apply to a HostedCluster that is removed itself: then HyperShift deletes the namespace.
func (c *Cluster) recordNamespace(now time.Time, found presence, seen *feedback.Namespace) {
	if !found.gone() || seen.Name == "" {
		return
	}
	cp := c.Status.GetControlPlane()
	// The last namespace that existed: the accepted one, or one that took its place meanwhile.
	last := cmp.Or(cp.GetReplacementNamespaceUid(), cp.GetNamespaceUid())
	r := feedback.Removal{Kind: kindNamespace, Name: seen.Name, UID: last, Reason: maestroapi.RemovedDeleted, Time: now}
	switch found {
	case beingRemoved:
		r.UID, r.Reason, r.Time = seen.UID, maestroapi.RemovedBeingDeleted, seen.DeleteTime
	case replaced:
		again := now
		if !seen.CreateTime.IsZero() {
			again = seen.CreateTime
		}
		open := false
		for _, e := range c.Status.GetRemovals() {
			if e.GetKind() == r.Kind && e.GetName() == r.Name && e.GetAppliedAgainTime() == nil {
				e.AppliedAgainTime, open = timestamp(again), true
			}
		}
		if open || last == seen.UID {
			return
		}
		// The time of the removal is unknown; the creation of the successor is the latest possible one.
		r.Reason, r.Time, r.AppliedAgain = maestroapi.RemovedReplaced, again, again
	}
	for _, e := range c.Status.GetRemovals() {
		if !sameRemoval(e, r.Kind, r.Namespace, r.Name, r.UID) {
			continue
		}
		if e.GetAppliedAgainTime() != nil {
			return // its end is recorded
		}
		r.Time = e.GetRemoveTime().AsTime()
	}
	c.recordRemoval(c.Shard, &r)
}

// NewRemovals returns the entries of a cluster's history of removals that known does not contain.
func NewRemovals(known []*csv1.ObjectRemoval, c *Cluster) []*csv1.ObjectRemoval {
	if c == nil {
		return nil
	}
	var added []*csv1.ObjectRemoval
	for _, r := range c.Status.GetRemovals() {
		if !slices.ContainsFunc(known, func(k *csv1.ObjectRemoval) bool {
			return sameRemoval(k, r.GetKind(), r.GetNamespace(), r.GetName(), r.GetUid())
		}) {
			added = append(added, r)
		}
	}
	return added
}

// Removals returns the cluster's history of removals; nil for a nil cluster.
func (c *Cluster) Removals() []*csv1.ObjectRemoval {
	if c == nil {
		return nil
	}
	return c.Status.GetRemovals()
}

// sameRemoval reports whether an entry is about an object. The UID distinguishes the removals of objects of the same name.
func sameRemoval(e *csv1.ObjectRemoval, kind, namespace, name, uid string) bool {
	return e.GetKind() == kind && e.GetNamespace() == namespace && e.GetName() == name && e.GetUid() == uid
}

// missingPool returns the state of a node pool whose NodePool does not exist: it has no nodes, and no condition of the removed
// object holds.
func missingPool(seen *feedback.Observed) *feedback.Observed {
	const reason, message = "Removed", "The node pool was removed from the management cluster."
	missing := *seen
	missing.Conditions = map[string]feedback.Condition{feedback.Ready: {Status: "False", Reason: reason, Message: message}}
	for _, name := range []string{feedback.AllMachines, feedback.AllNodes, feedback.UpdatingVersion, feedback.UpdatingConfig, feedback.VersionSkew} {
		missing.Conditions[name] = feedback.Condition{Status: "Unknown", Reason: reason, Message: message}
	}
	return &missing
}
