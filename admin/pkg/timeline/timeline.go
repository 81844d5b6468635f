// Package timeline puts what all layers report of a cluster and its children on one axis of time: operations of the customer, actions and
// reads of SREs, generations, phases, conditions, upgrades, credentials, alerts and outages. Its functions are pure.
package timeline

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// MaxEntries is the length of a timeline. Older entries are omitted.
const MaxEntries = 1000

// Sources are what the layers reported. A layer that could not be read is a key of Dump.Unavailable or of Unavailable.
type Sources struct {
	Dump *adminv1.Dump
	// Changes are those of Cluster Service, newest first.
	Changes []*clusterservicev1.ClusterChange
	// Actions are the actions on the cluster that SREs requested. Effects are the sentences with which Cluster Service recorded what
	// they changed, by ID.
	Actions []adminv1.Operation
	Effects map[string]string
	// Access are the audit records about the cluster.
	Access     []adminv1.AccessRecord
	Components []adminv1.Component
	// Alerts are those that fired within the period.
	Alerts []alerts.Alert
	// Unavailable maps each layer that could not be read, besides those of the dump, to the reason.
	Unavailable map[string]string
}

// Of returns the timeline of a period. Both times are inclusive.
func Of(s Sources, from, to time.Time) *adminv1.Timeline {
	c := collector{cluster: s.Dump.Cluster.ResourceID, now: s.Dump.TakenAt}
	c.addOperations(s.Dump.ARM)
	c.addChanges(s.Changes)
	c.addActions(s.Actions, s.Effects)
	c.addAccess(s.Access)
	c.addFleet(s.Dump.ClusterService)
	c.addJournal(s.Dump.Monitor)
	c.addAlerts(s.Alerts)
	c.addOutages(s.Components, s.Dump.Cluster.ProvisionShard)

	within := slices.DeleteFunc(c.entries, func(e adminv1.TimelineEntry) bool { return e.Time.After(to) || ended(&e).Before(from) })
	slices.SortStableFunc(within, func(a, b adminv1.TimelineEntry) int { return a.Time.Compare(b.Time) })
	omitted := max(0, len(within)-MaxEntries)
	t := &adminv1.Timeline{
		Time: s.Dump.TakenAt, Cluster: s.Dump.Cluster, From: from, To: to, Entries: append([]adminv1.TimelineEntry{}, within[omitted:]...), Omitted: omitted,
		DesiredState: c.differences(s.Changes, from, to), Unavailable: map[string]string{},
	}
	for _, unavailable := range []map[string]string{s.Dump.Unavailable, s.Unavailable} {
		for layer, reason := range unavailable {
			t.Unavailable[layer] = reason
		}
	}
	t.Partial = len(t.Unavailable) > 0
	return t
}

// lasting are the kinds of entries that continue until their EndTime.
var lasting = []adminv1.TimelineKind{
	adminv1.TimelineOperation, adminv1.TimelineAction, adminv1.TimelineUpgrade, adminv1.TimelineUpgradeStep, adminv1.TimelineRevocation, adminv1.TimelineAlert,
	adminv1.TimelineOutage,
}

// ended returns when an entry ended: far in the future for one that continues.
func ended(e *adminv1.TimelineEntry) time.Time {
	switch {
	case e.EndTime != nil:
		return *e.EndTime
	case slices.Contains(lasting, e.Kind):
		return time.Unix(1<<40, 0)
	}
	return e.Time
}

// differences returns how the desired states differ between the two times.
func (c *collector) differences(changes []*clusterservicev1.ClusterChange, from, to time.Time) []adminv1.TimelineDifference {
	found := []adminv1.TimelineDifference{}
	fields := map[string]map[string]*adminv1.FieldDifference{}
	for _, change := range slices.Backward(changes) { // the oldest first
		state, at := change.GetDesiredState(), change.GetTime().AsTime()
		if state == nil || at.After(to) {
			continue
		}
		subject := c.subject(change.GetResourceId())
		i := slices.IndexFunc(found, func(d adminv1.TimelineDifference) bool { return d.Subject == subject })
		if i < 0 {
			i = len(found)
			found, fields[subject] = append(found, adminv1.TimelineDifference{Subject: subject}), map[string]*adminv1.FieldDifference{}
		}
		found[i].ToGeneration = state.GetGeneration()
		if at.Before(from) {
			found[i].FromGeneration = state.GetGeneration()
			continue
		}
		for _, f := range state.GetFields() {
			if fields[subject][f.GetPath()] == nil {
				fields[subject][f.GetPath()] = &adminv1.FieldDifference{Path: f.GetPath(), Before: f.GetBefore()}
			}
			fields[subject][f.GetPath()].After = f.GetAfter()
		}
	}
	for i, d := range found {
		for _, f := range fields[d.Subject] {
			if f.Before != f.After {
				found[i].Fields = append(found[i].Fields, *f)
			}
		}
		slices.SortFunc(found[i].Fields, func(a, b adminv1.FieldDifference) int { return cmp.Compare(a.Path, b.Path) })
	}
	return slices.DeleteFunc(found, func(d adminv1.TimelineDifference) bool { return d.FromGeneration == d.ToGeneration })
}

// collector collects entries.
type collector struct {
	// cluster is the resource ID of the cluster, and now the time at which the layers were read.
	cluster string
	now     time.Time
	entries []adminv1.TimelineEntry
}

// subject returns the path of a resource below the cluster; empty for the cluster itself.
func (c *collector) subject(resourceID string) string {
	if len(resourceID) > len(c.cluster) && strings.EqualFold(resourceID[:len(c.cluster)], c.cluster) {
		return strings.TrimPrefix(resourceID[len(c.cluster):], "/")
	}
	return ""
}
