package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// A HostedCluster that another client removes takes the data of its control plane with it. The agent applies it again, and
// HyperShift then builds a new, empty control plane, which becomes available like any other. The same happens below a HostedCluster
// that stays, if another client removes the namespace of the control plane. So two identities decide whether the control plane of
// an installed cluster is the customer's: the UIDs of the HostedCluster and of the control-plane namespace. Until an SRE decides
// otherwise, a cluster with another one of either is in phase LOST and never available.

// The reasons of a lost control plane, which conditions, operations and the progress have.
const (
	ControlPlaneBeingRemoved = "ControlPlaneBeingRemoved"
	ControlPlaneRemoved      = "ControlPlaneRemoved"
	ControlPlaneReplaced     = "ControlPlaneReplaced"
)

// lostControlPlane is the state of a control plane that is not the customer's; the zero value means that it is.
type lostControlPlane struct{ reason, message string }

func (l lostControlPlane) none() bool { return l.reason == "" }

// presence is what the reports prove about an object with a known identity.
type presence int

const (
	// unproven: nothing was reported about the object.
	unproven presence = iota
	same
	beingRemoved
	removed
	replaced
)

func (p presence) gone() bool { return p == beingRemoved || p == removed || p == replaced }

// hostedClusterPresence compares the reported HostedCluster with the one that holds the cluster's data.
func (t *ClusterAggregate) hostedClusterPresence(cp *csv1.ControlPlaneIdentity, seen *feedback.Observed) presence {
	removal := seen.Removal(kindHostedCluster)
	if removal != nil && (!removal.Ongoing() || removal.UID != cp.GetUid()) {
		removal = nil
	}
	switch {
	case seen.UID != "" && seen.UID != cp.GetUid():
		return replaced
	case seen.Missing:
		return removed
	case removal != nil && removal.Reason == maestroapi.RemovedBeingDeleted, namespaceRemoved(t):
		return beingRemoved
	case removal != nil:
		return removed
	case seen.UID != "":
		return same
	}
	return unproven
}

// namespacePresence compares the reported control-plane namespace with the one that holds the cluster's data. Without a known
// identity only a deletion in progress proves something.
func namespacePresence(cp *csv1.ControlPlaneIdentity, seen *feedback.Namespace) presence {
	switch {
	case seen.BeingDeleted():
		return beingRemoved
	case cp.GetNamespaceUid() == "":
		return unproven
	case seen.Missing:
		return removed
	case seen.UID == "":
		return unproven
	case seen.UID != cp.GetNamespaceUid():
		return replaced
	}
	return same
}

// identify compares the reported HostedCluster and control-plane namespace with those that hold the cluster's data, and stores what
// it finds in the status. It does nothing without a report about them.
func identify(now time.Time, t *ClusterAggregate, seen *feedback.Observed) lostControlPlane {
	s := t.Cluster.Status
	cp := s.ControlPlane
	if installed := s.ObservedGeneration > 0; cp.GetUid() == "" || !installed {
		if seen.UID != "" {
			s.ControlPlane = &csv1.ControlPlaneIdentity{Uid: seen.UID, NamespaceUid: seen.Namespace.UID}
		}
		return lostControlPlane{}
	}
	hosted := t.hostedClusterPresence(cp, seen)
	if cp.NamespaceUid == "" && hosted == same && cp.LostTime == nil {
		// A release that did not read the namespace stored the cluster, or the namespace was reported after the cluster was ready.
		cp.NamespaceUid = seen.Namespace.UID
	}
	namespace := namespacePresence(cp, &seen.Namespace)
	if hosted == same {
		t.Cluster.recordNamespace(now, namespace, &seen.Namespace)
	}
	if cp.LostTime == nil && (hosted.gone() || namespace.gone()) {
		cp.LostTime = timestamp(lostTime(now, cp, hosted, namespace, seen))
	}
	switch hosted {
	case replaced:
		cp.ReplacementUid = seen.UID
		if removal := seen.Removal(kindHostedCluster); removal == nil || removal.UID != cp.Uid {
			// The agent restarted, or is one that does not report removals.
			t.Cluster.recordReplacement(now, cp.Uid)
		}
	case same, beingRemoved, removed:
		cp.ReplacementUid = ""
	}
	switch namespace {
	case replaced:
		cp.ReplacementNamespaceUid = seen.Namespace.UID
	case same, beingRemoved, removed:
		cp.ReplacementNamespaceUid = ""
	}
	if hosted == same && !namespace.gone() && (namespace == same || cp.NamespaceUid == "") {
		cp.LostTime = nil
	}
	return describeLost(cp, hosted, namespace)
}

// lostTime returns the time of the removal; the latest possible one if it was not reported.
func lostTime(now time.Time, cp *csv1.ControlPlaneIdentity, hosted, namespace presence, seen *feedback.Observed) time.Time {
	removal := seen.Removal(kindHostedCluster)
	switch {
	case hosted.gone() && removal != nil && removal.UID == cp.GetUid():
		return removal.Time
	case hosted.gone():
		return now
	case namespace == beingRemoved:
		return seen.Namespace.DeleteTime
	case namespace == replaced && !seen.Namespace.CreateTime.IsZero():
		return seen.Namespace.CreateTime
	}
	return now
}

// describeLost returns the state of a control plane; the zero value unless it is lost.
func describeLost(cp *csv1.ControlPlaneIdentity, hosted, namespace presence) lostControlPlane {
	if cp.GetLostTime() == nil {
		return lostControlPlane{}
	}
	const decide = " Support must decide how the cluster continues."
	at := cp.GetLostTime().AsTime().UTC().Format(time.RFC3339)
	switch reasonOf(cp, hosted, namespace) {
	case ControlPlaneBeingRemoved:
		return lostControlPlane{ControlPlaneBeingRemoved, "The control plane is being removed since " + at + ", although nobody requested the deletion of the cluster." + decide}
	case ControlPlaneReplaced:
		return lostControlPlane{ControlPlaneReplaced, "The control plane was removed at " + at + " and was rebuilt without its data." + decide}
	default:
		return lostControlPlane{ControlPlaneRemoved, "The control plane was removed at " + at + ", although nobody requested the deletion of the cluster." + decide}
	}
}

// reasonOf returns the reason of a lost control plane. It is replaced only when the HostedCluster and the namespace both exist.
func reasonOf(cp *csv1.ControlPlaneIdentity, hosted, namespace presence) string {
	switch {
	case hosted == beingRemoved, namespace == beingRemoved && hosted != removed:
		return ControlPlaneBeingRemoved
	case hosted == removed, namespace == removed:
		return ControlPlaneRemoved
	case cp.GetReplacementUid() != "", cp.GetReplacementNamespaceUid() != "":
		return ControlPlaneReplaced
	}
	return ControlPlaneRemoved
}

// lostReason returns the reason of the cluster's lost control plane; empty unless the cluster is in phase LOST.
func (t *ClusterAggregate) lostReason() string {
	if t.Cluster.Status.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_LOST {
		return ""
	}
	cp, seen := t.Cluster.Status.GetControlPlane(), &feedback.Observed{}
	if work := t.Work(HostedCluster, ""); work != nil {
		seen = &work.Observed
	}
	return reasonOf(cp, t.hostedClusterPresence(cp, seen), namespacePresence(cp, &seen.Namespace))
}

// namespaceRemoved reports whether another client deletes the namespace of the HostedCluster. The namespace controller deletes the
// HostedCluster some seconds later, and nothing can stop it.
func namespaceRemoved(t *ClusterAggregate) bool {
	work := t.Work(Namespaces, "")
	return work != nil && !work.Deleting() && (work.Observed.Missing || work.Observed.BeingRemoved())
}

// recordReplacement records the removal of a HostedCluster that was only noticed by the identity of its successor.
func (c *Cluster) recordReplacement(now time.Time, uid string) {
	for _, r := range c.Status.GetRemovals() {
		if r.GetUid() == uid {
			return
		}
	}
	c.recordRemoval(c.Shard, &feedback.Removal{Kind: kindHostedCluster, Name: HostedClusterName(c), UID: uid, Reason: maestroapi.RemovedReplaced, Time: now, AppliedAgain: now})
}

// conditions returns the conditions of a cluster whose control plane is lost. No report of the HostedCluster can make it available.
func (l lostControlPlane) conditions(seen *feedback.Observed) []condition {
	return []condition{{feedback.Available, "False", l.reason, l.message}, observedCondition(feedback.Progressing, seen),
		{feedback.Degraded, "True", l.reason, l.message}}
}

// Errors of AcceptControlPlane.
var (
	ErrNotLost             = errors.New("the control plane is the one of the installed cluster")
	ErrControlPlaneMissing = errors.New("the control plane does not exist again yet")
)

// ControlPlaneChangedError is returned if the control plane is not the one that the SRE accepted.
type ControlPlaneChangedError struct{ UID string }

// Error implements error.
func (e *ControlPlaneChangedError) Error() string {
	return fmt.Sprintf("the control plane is now the one with UID %s", e.UID)
}

// AcceptControlPlane makes the control plane that took the place of a removed one the control plane of the cluster. uid is its
// expected UID, that of the HostedCluster or, if the HostedCluster is the same, of the control-plane namespace; empty accepts any.
func (t *ClusterAggregate) AcceptControlPlane(now time.Time, uid string, actor *csv1.Actor) error {
	cp := t.Cluster.Status.GetControlPlane()
	if cp.GetLostTime() == nil {
		return ErrNotLost
	}
	if t.lostReason() != ControlPlaneReplaced {
		return ErrControlPlaneMissing
	}
	if successor := cmp.Or(cp.GetReplacementUid(), cp.GetReplacementNamespaceUid()); uid != "" && uid != successor {
		return &ControlPlaneChangedError{successor}
	}
	t.Cluster.Status.ControlPlane = &csv1.ControlPlaneIdentity{Uid: cmp.Or(cp.GetReplacementUid(), cp.GetUid()),
		NamespaceUid: cmp.Or(cp.GetReplacementNamespaceUid(), t.Work(HostedCluster, "").namespaceUID()), AcceptedBy: actor, AcceptTime: timestamp(now)}
	return nil
}

// namespaceUID returns the UID of the reported control-plane namespace; empty for a nil work.
func (w *Work) namespaceUID() string {
	if w == nil {
		return ""
	}
	return w.Observed.Namespace.UID
}
