package command

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// clusterStatus returns the command that shows the layers and the conditions of a cluster.
func (e *environment) clusterStatus() *cobra.Command {
	return view(e, &cobra.Command{Use: "status CLUSTER", Short: "Show the progress of a cluster in each layer, and its conditions"}, adminv1.ReadClusterStatus, noQuery, asTable(e, func(shown *adminv1.ClusterStatus) error {
		if err := display.List(e.out, shown.Layers, func(l adminv1.LayerStatus) display.Row {
			return display.Row{{"LAYER", l.Layer}, {"STATE", l.State}, {"DONE", strconv.FormatBool(l.Done)}, {"SINCE", sinceText(l.Since)}, {"MESSAGE", l.Message}}
		}); err != nil {
			return err
		}
		fmt.Fprintln(e.out)
		return display.List(e.out, shown.Conditions, func(c adminv1.ConditionStatus) display.Row {
			return display.Row{{"CONDITION", c.Type}, {"STATUS", c.Status}, {"REASON", c.Reason}, {"SINCE", sinceText(c.LastTransitionTime)}, {"MESSAGE", c.Message}}
		})
	}))
}

// sinceText returns a time in UTC; empty for none.
func sinceText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
