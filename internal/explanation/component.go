package explanation

import (
	"cmp"
	"fmt"
	"slices"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// rollout says how far a control plane is with the release that an upgrade gave it, and what it says itself of which of its
// components has been at it longest.
func (s *subject) rollout() []string {
	var list []string
	for _, step := range s.moving().GetStatus().GetSteps() {
		if step.GetState() == csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING && step.GetMessage() != "" {
			list = append(list, step.GetMessage())
		}
	}
	c := s.component()
	if c == nil {
		return list
	}
	has := "has been waiting to begin"
	if c.GetState() == csv1.ComponentState_COMPONENT_STATE_ROLLING_OUT {
		has = "has been rolling out"
	}
	text := fmt.Sprintf("Its %s %s %s", c.GetName(), has, s.since(when(c.GetSince())))
	if c.GetMessage() != "" {
		text += ", and says " + quote(c.GetMessage())
	}
	return append(list, text+".")
}

// component is what the rollout of a control plane waits for: of its components the one that has rolled out for longest, or that
// has waited longest where none rolls out; nil when all have arrived, or nothing is known of them.
func (s *subject) component() *csv1.ComponentProgress {
	var awaited []*csv1.ComponentProgress
	for _, step := range s.moving().GetStatus().GetSteps() {
		for _, c := range step.GetComponents() {
			if c.GetState() == csv1.ComponentState_COMPONENT_STATE_ROLLING_OUT || c.GetState() == csv1.ComponentState_COMPONENT_STATE_WAITING {
				awaited = append(awaited, c)
			}
		}
	}
	if len(awaited) == 0 {
		return nil
	}
	return slices.MinFunc(awaited, func(a, b *csv1.ComponentProgress) int {
		// Rolling out comes after waiting in the enumeration.
		return cmp.Or(cmp.Compare(b.GetState(), a.GetState()), when(a.GetSince()).Compare(when(b.GetSince())), cmp.Compare(a.GetName(), b.GetName()))
	})
}
