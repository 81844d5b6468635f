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

// planRollout has the components of a control plane looked at while an upgrade rolls them out, as soon as that has taken long
// enough. The content of the work never changes, so there is nothing to render for it; it goes when nothing is rolled out.
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
		// One of an earlier step that is on its way out is waited for.
		if t.Work(RolloutWork, u.UID) == nil {
			w := newWork(t, RolloutWork, u.UID, u.UID)
			// What is late of an earlier step's is not of this one's.
			w.ID = WorkID(w.Shard, w.Name, u.UID+"-"+s.GetToVersion())
			t.Works = append(t.Works, w)
		}
	}
}

// followComponents brings a step's components up to date with what is seen of them. What reports no more is left out.
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

// componentState is how a component stands towards a release. Its version changes when its rollout is complete; complete with
// an older version it has not heard of the new one yet.
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

// maxNamed is how many components a message names.
const maxNamed = 3

// componentsMessage says how many components of a step have arrived, and which are waited for: those that roll out, the first
// of them first, or else those that have not begun.
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
