package command

import (
	"cmp"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// componentTable lists the components of a control plane that have not arrived at the release that it rolls out: those that roll
// out, the first of them first, and those that wait for them. How many have is in the step's message.
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
		// Rolling out comes after waiting in the enumeration.
		return cmp.Or(cmp.Compare(b.GetState(), a.GetState()), a.GetSince().AsTime().Compare(b.GetSince().AsTime()), strings.Compare(a.GetName(), b.GetName()))
	})
	var rows [][]string
	for _, c := range awaited {
		rows = append(rows, []string{c.GetName(), enumWord(c.GetState(), "COMPONENT_STATE_"), c.GetVersion(), c.GetSince().AsTime().Format(time.RFC3339), c.GetMessage()})
	}
	return display.Table(e.out, []string{"COMPONENT", "STATE", "RUNS", "SINCE", ""}, rows)
}
