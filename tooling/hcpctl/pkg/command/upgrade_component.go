package command

import (
	"cmp"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// componentTable prints the components of a control plane that are not at the new release: those that roll out, oldest first,
// then those that wait. The message of the step has the number of updated components.
func (e *environment) componentTable(steps []*csv1.UpgradeStep) error {
	var awaited []*csv1.ComponentProgress
	for _, s := range steps {
		for _, c := range s.GetComponents() {
			if c.GetState() != csv1.ComponentState_COMPONENT_STATE_UPDATED {
				awaited = append(awaited, c)
			}
		}
	}
	if len(awaited) == 0 {
		return nil
	}
	slices.SortFunc(awaited, func(a, b *csv1.ComponentProgress) int {
		// ROLLING_OUT comes after WAITING in the enumeration.
		return cmp.Or(cmp.Compare(b.GetState(), a.GetState()), a.GetSince().AsTime().Compare(b.GetSince().AsTime()), strings.Compare(a.GetName(), b.GetName()))
	})
	return display.List(e.out, awaited, func(c *csv1.ComponentProgress) display.Row {
		return display.Row{{"COMPONENT", c.GetName()}, {"STATE", enumWord(c.GetState(), "COMPONENT_STATE_")}, {"VERSION", c.GetVersion()}, {"SINCE", c.GetSince().AsTime().Format(time.RFC3339)}, {"MESSAGE", c.GetMessage()}}
	})
}
