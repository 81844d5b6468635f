package command

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// clusterStatus returns the command that shows the layers and the conditions of a cluster.
func (e *environment) clusterStatus() *cobra.Command {
	c := &cobra.Command{
		Use: "status CLUSTER", Short: "Show the progress of a cluster in each layer, and its conditions", Args: cobra.ExactArgs(1),
		ValidArgsFunction: e.completeFleet,
	}
	e.addOutputFlag(c)
	return e.readCommand(c, func(ctx context.Context, client *adminclient.Client, args []string) error {
		shown, err := client.ClusterStatus(ctx, args[0])
		if err != nil {
			return err
		}
		return e.printAs(shown, func() error {
			var layers, conditions [][]string
			for _, l := range shown.Layers {
				layers = append(layers, []string{l.Layer, l.State, strconv.FormatBool(l.Done), sinceText(l.Since), l.Message})
			}
			for _, condition := range shown.Conditions {
				conditions = append(conditions, []string{condition.Type, condition.Status, condition.Reason, sinceText(condition.LastTransitionTime), condition.Message})
			}
			if err := display.Table(e.out, []string{"LAYER", "STATE", "DONE", "SINCE", "MESSAGE"}, layers); err != nil {
				return err
			}
			fmt.Fprintln(e.out)
			return display.Table(e.out, []string{"CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"}, conditions)
		})
	})
}

// sinceText returns a time in UTC; empty for none.
func sinceText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
