package fleet

import (
	"errors"
	"fmt"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// A HostedCluster that another client removes takes the data of its control plane with it. The agent applies it again, and
// HyperShift then builds a new, empty control plane, which becomes available like any other. So the identity of the
// HostedCluster, its UID, decides whether the control plane of an installed cluster is the customer's. Until an SRE decides
// otherwise, a cluster with another HostedCluster is in phase LOST and never available.

// The reasons of a lost control plane, which conditions, operations and the progress have.
const (
	ControlPlaneBeingRemoved = "ControlPlaneBeingRemoved"
	ControlPlaneRemoved      = "ControlPlaneRemoved"
	ControlPlaneReplaced     = "ControlPlaneReplaced"
)

// lostControlPlane is the state of a control plane that is not the customer's; the zero value means that it is.
type lostControlPlane struct{ reason, message string }

func (l lostControlPlane) none() bool { return l.reason == "" }

// identify compares the reported HostedCluster with the one that holds the cluster's data, and stores what it finds in the
// status. It does nothing without a report about the HostedCluster.
func identify(now time.Time, t *ClusterAggregate, seen *feedback.Observed) lostControlPlane {
	s := t.Cluster.Status
	cp := s.ControlPlane
	installed := s.ObservedGeneration > 0
	if cp == nil || cp.Uid == "" || !installed {
		if seen.UID != "" {
			s.ControlPlane = &csv1.ControlPlaneIdentity{Uid: seen.UID}
		}
		return lostControlPlane{}
	}
	removal := seen.Removal(kindHostedCluster)
	lose := func(replacement string) {
		cp.ReplacementUid = replacement
		if cp.LostTime == nil {
			cp.LostTime = timestamp(now)
			if removal != nil && removal.UID == cp.Uid {
				cp.LostTime = timestamp(removal.Time)
			}
		}
	}
	switch {
	case seen.UID != "" && seen.UID != cp.Uid:
		lose(seen.UID)
		if removal == nil || removal.UID != cp.Uid {
			// The agent restarted, or is one that does not report removals.
			t.Cluster.recordReplacement(now, cp.Uid)
		}
	case removal != nil && removal.Ongoing() && removal.UID == cp.Uid, seen.Missing, namespaceRemoved(t):
		lose("")
	case seen.UID == cp.Uid:
		cp.LostTime, cp.ReplacementUid = nil, ""
	}
	if cp.LostTime == nil {
		return lostControlPlane{}
	}
	at := cp.LostTime.AsTime().UTC().Format(time.RFC3339)
	switch {
	case cp.ReplacementUid != "":
		return lostControlPlane{ControlPlaneReplaced, "The control plane was removed at " + at + " and was rebuilt without its data. Support must decide how the cluster continues."}
	case !seen.Missing && (namespaceRemoved(t) || removal != nil && removal.Reason == maestroapi.RemovedBeingDeleted):
		return lostControlPlane{ControlPlaneBeingRemoved, "The control plane is being removed since " + at + ", although nobody requested the deletion of the cluster. Support must decide how the cluster continues."}
	}
	return lostControlPlane{ControlPlaneRemoved, "The control plane was removed at " + at + ", although nobody requested the deletion of the cluster. Support must decide how the cluster continues."}
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
	return fmt.Sprintf("the control plane is now HostedCluster %s", e.UID)
}

// AcceptControlPlane makes the HostedCluster that took the place of a removed one the control plane of the cluster. uid is its
// expected UID; empty accepts any.
func (c *Cluster) AcceptControlPlane(now time.Time, uid string, actor *csv1.Actor) error {
	cp := c.Status.GetControlPlane()
	switch {
	case cp.GetLostTime() == nil:
		return ErrNotLost
	case cp.GetReplacementUid() == "":
		return ErrControlPlaneMissing
	case uid != "" && uid != cp.GetReplacementUid():
		return &ControlPlaneChangedError{cp.GetReplacementUid()}
	}
	c.Status.ControlPlane = &csv1.ControlPlaneIdentity{Uid: cp.GetReplacementUid(), AcceptedBy: actor, AcceptTime: timestamp(now)}
	return nil
}
