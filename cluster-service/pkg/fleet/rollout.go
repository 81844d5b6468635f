package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/feedback"
)

// planRollout adds the work that reads the components of a control plane when an upgrade has rolled it out for long enough.
// The content of the work never changes, so it is not rendered. The work is deleted when the rollout ends.
func planRollout(now time.Time, t *ClusterAggregate) {
	if t.Cluster == nil || t.Cluster.Deleting() || t.Cluster.Shard == "" {
		return
	}
	for _, u := range t.ActiveUpgrades() {
		s := u.rollingOut()
		if s == nil || now.Before(s.GetComponentsTime().AsTime()) {
			continue
		}
		s.ComponentsTime = nil
		// The work of an earlier step must be gone first.
		if t.Work(RolloutWork, u.UID) == nil {
			w := newImmutableWork(t, RolloutWork, u.UID, u.UID)
			// With an ID of its own, late reports of an earlier step's work do not count.
			w.ID = WorkID(w.Shard, w.Name, u.UID+"-"+s.GetToVersion())
			t.Works = append(t.Works, w)
		}
	}
}

// followComponents updates the components of a step from the reports. It omits components that are no longer reported.
func followComponents(now time.Time, s *csv1.UpgradeStep, work *Work) {
	var seen map[string]feedback.Component
	if work != nil && !work.Deleting() {
		seen = work.Observed.Components
	}
	since := map[string]*csv1.ComponentProgress{}
	for _, c := range s.GetComponents() {
		since[c.GetName()] = c
	}
	s.Components = nil
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		c := &csv1.ComponentProgress{Name: name, State: componentState(s.GetToVersion(), seen[name]), Version: seen[name].Version, Since: timestamppb.New(now)}
		if seen[name].Rollout.Status != "True" {
			c.Message = seen[name].Rollout.Message
		}
		if before := since[name]; before.GetState() == c.State {
			c.Since = before.GetSince()
		}
		s.Components = append(s.Components, c)
	}
}

// componentState returns the state of a component during the rollout of a release. The version of a component changes when
// its rollout is complete. A complete component with an older version has not started.
func componentState(to string, c feedback.Component) csv1.ComponentState {
	complete := c.Rollout.Status == "True"
	switch {
	case complete && c.Version == to:
		return csv1.ComponentState_COMPONENT_STATE_UPDATED
	case complete, c.Rollout.Status == "", c.Rollout.Reason == feedback.WaitingForDependencies:
		return csv1.ComponentState_COMPONENT_STATE_WAITING
	}
	return csv1.ComponentState_COMPONENT_STATE_ROLLING_OUT
}

// maxNamed is the number of components that a message names.
const maxNamed = 3

// componentsMessage returns how many components of a step are updated, and which ones are awaited: those that roll out,
// longest first, or else those that have not started.
func componentsMessage(s *csv1.UpgradeStep) string {
	of := map[csv1.ComponentState][]*csv1.ComponentProgress{}
	for _, c := range s.GetComponents() {
		of[c.GetState()] = append(of[c.GetState()], c)
	}
	text := fmt.Sprintf("%d of %d components are at %s", len(of[csv1.ComponentState_COMPONENT_STATE_UPDATED]), len(s.GetComponents()), s.GetToVersion())
	awaited := of[csv1.ComponentState_COMPONENT_STATE_ROLLING_OUT]
	if len(awaited) == 0 {
		awaited = of[csv1.ComponentState_COMPONENT_STATE_WAITING]
	}
	if len(awaited) == 0 {
		return text + "."
	}
	slices.SortStableFunc(awaited, func(a, b *csv1.ComponentProgress) int {
		return cmp.Or(a.GetSince().AsTime().Compare(b.GetSince().AsTime()), strings.Compare(a.GetName(), b.GetName()))
	})
	var named []string
	for _, c := range awaited[:min(len(awaited), maxNamed)] {
		named = append(named, c.GetName())
	}
	text += "; waiting for " + strings.Join(named, ", ")
	if more := len(awaited) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + "."
}
