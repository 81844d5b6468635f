package fleet

import (
	"slices"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// maxRemovals is the number of removals in the history of a cluster.
const maxRemovals = 20

// kindHostedCluster is the kind of the object that holds the identity of a control plane.
const kindHostedCluster = "HostedCluster"

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
