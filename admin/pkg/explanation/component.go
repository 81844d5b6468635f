package explanation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// rollout returns how far a control plane is with the release of its upgrade, and which component it waits for.
func (s *subject) rollout() []adminv1.Sentence {
	var sentences []adminv1.Sentence
	for _, step := range s.activeUpgrade().GetStatus().GetSteps() {
		if step.GetState() == csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING && step.GetMessage() != "" {
			sentences = append(sentences, sentence(adminv1.SentenceUpgradeStep, step.GetMessage()))
		}
	}
	c := s.component()
	if c == nil {
		return sentences
	}
	activity := "has been waiting to start"
	if c.GetState() == csv1.ComponentState_COMPONENT_STATE_ROLLING_OUT {
		activity = "has been rolling out"
	}
	since := asTime(c.GetSince())
	text := fmt.Sprintf("Its component %s %s %s", c.GetName(), activity, s.since(since))
	for _, reported := range quoted(adminv1.SentenceComponent, text+" and reports", c.GetMessage(), "") {
		reported.Time = since
		return append(sentences, reported)
	}
	return append(sentences, sentenceAt(adminv1.SentenceComponent, text+".", since))
}

// component returns the component that the rollout of a control plane waits for: the one that has been rolling out longest,
// or that has waited longest if none is rolling out. It returns nil if all components are updated or none is known.
func (s *subject) component() *csv1.ComponentProgress {
	var awaited []*csv1.ComponentProgress
	for _, step := range s.activeUpgrade().GetStatus().GetSteps() {
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
		// ROLLING_OUT comes after WAITING in the enumeration.
		return cmp.Or(cmp.Compare(b.GetState(), a.GetState()), asTime(a.GetSince()).Compare(asTime(b.GetSince())), cmp.Compare(a.GetName(), b.GetName()))
	})
}
