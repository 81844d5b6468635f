package command

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) clusterPause() *cobra.Command {
	var duration string
	c := e.requestAction(&cobra.Command{
		Use: "pause CLUSTER", Short: "Have a cluster's reconciliation paused for a while, as an SRE", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
		Long: `Have HyperShift leave a cluster's control plane and node pools alone for a while. What runs keeps running. The pause ends by
itself, or with 'hcpctl cluster resume'.`,
	}, adminv1.Operator, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		return client.Act(ctx, args[0], "pause", adminv1.PauseRequest{Duration: duration})
	})
	c.Flags().StringVar(&duration, "for", "1h", "how long: a `duration` of at most 168h")
	return c
}

func (e *environment) clusterResume() *cobra.Command {
	return e.requestAction(&cobra.Command{Use: "resume CLUSTER", Short: "End a pause, as an SRE", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet}, adminv1.Operator,
		func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
			return client.Act(ctx, args[0], "resume", nil)
		})
}

func (e *environment) clusterRetry() *cobra.Command {
	return e.requestAction(&cobra.Command{
		Use: "retry CLUSTER", Short: "Have everything begun anew that a cluster waits for, as an SRE", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
	}, adminv1.Operator, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		return client.Act(ctx, args[0], "retry", nil)
	})
}

func (e *environment) clusterForce() *cobra.Command {
	return e.requestAction(&cobra.Command{
		Use: "force CLUSTER STEP", Short: "Have a cluster that is being created wait no longer for a step in Azure that is stuck, as in azure/operator-roles (role break-glass)",
		Args: cobra.ExactArgs(2), ValidArgsFunction: e.completeFleet,
	}, adminv1.BreakGlass, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		return client.ForceClusterStep(ctx, args[0], args[1])
	})
}

func (e *environment) clusterSetSize() *cobra.Command {
	var size string
	c := e.requestAction(&cobra.Command{
		Use: "set-size CLUSTER", Short: "Override the size class of a cluster's control plane, as an SRE", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
	}, adminv1.Operator, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		return client.Act(ctx, args[0], "set-size", adminv1.SetSizeRequest{Size: size})
	})
	c.Flags().StringVar(&size, "size", "", "`name` of a size; empty takes the override back")
	return c
}

// operations and audit are the record of what SREs did.
func (e *environment) operation() *cobra.Command {
	return group("operation", "See what SREs had done, and help operations of ARM's", e.operationList(), e.operationGet(),
		e.armOperation("retry", adminv1.Operator, "Have the backend take an operation of ARM's up again at once"),
		e.armOperation("cancel", adminv1.BreakGlass, "End a create or an update of ARM's as Canceled (role break-glass)"))
}

func (e *environment) armOperation(verb string, role adminv1.Role, short string) *cobra.Command {
	return e.requestAction(&cobra.Command{Use: verb + " ARM-OPERATION", Short: short, Args: cobra.ExactArgs(1)}, role,
		func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
			return client.ActOnARMOperation(ctx, args[0], verb)
		})
}

var operationHeader = []string{"TIME", "STATE", "ACTION", "TARGET", "ACTOR", "TICKET", "REASON", "ID"}

func operationRow(o *adminv1.Operation) []string {
	target := o.Target.ID
	if o.Target.ResourceID != "" {
		target = shortID(o.Target.ResourceID)
	}
	return []string{o.StartTime.Local().Format(time.DateTime), string(o.State), o.Action, target, o.Actor.Name, o.Actor.Ticket, o.Actor.Reason, o.ID}
}

func (e *environment) operationList() *cobra.Command {
	var cluster, state string
	var limit listLimit
	c := e.readCommand(&cobra.Command{Use: "list", Short: "List what SREs had done, newest first", Args: cobra.NoArgs},
		func(ctx context.Context, client *adminclient.Client, _ []string) error {
			operations, more, err := client.Operations(ctx, cluster, state, limit.most)
			if err != nil {
				return err
			}
			e.printTruncated(limit, more)
			return e.printAs(operations, func() error {
				var rows [][]string
				for _, o := range operations {
					rows = append(rows, operationRow(&o))
				}
				return display.Table(e.out, operationHeader, rows)
			})
		})
	c.Flags().StringVar(&cluster, "cluster", "", "only those of this `cluster`, named by anything that finds it")
	c.Flags().StringVar(&state, "state", "", "only those in this `state`: Accepted, Running, Succeeded or Failed")
	limit.add(c, 100)
	e.addOutputFlag(c)
	return c
}

func (e *environment) operationGet() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "get ID", Short: "Show one operation of an SRE", Args: cobra.ExactArgs(1)},
		func(ctx context.Context, client *adminclient.Client, args []string) error {
			o, err := client.Operation(ctx, args[0])
			if err != nil {
				return err
			}
			return e.printAs(o, func() error {
				if err := display.Table(e.out, operationHeader, [][]string{operationRow(o)}); err != nil || o.Error == nil {
					return err
				}
				_, err := fmt.Fprintln(e.out, "  "+o.Error.Message)
				return err
			})
		})
	e.addOutputFlag(c)
	return c
}

func (e *environment) audit() *cobra.Command {
	var limit listLimit
	c := e.readCommand(&cobra.Command{Use: "audit", Short: "Show what SREs did, newest first: who, what, to what, and why", Args: cobra.NoArgs},
		func(ctx context.Context, client *adminclient.Client, _ []string) error {
			entries, more, err := client.Audit(ctx, limit.most)
			if err != nil {
				return err
			}
			e.printTruncated(limit, more)
			return e.printAs(entries, func() error {
				var rows [][]string
				for _, entry := range entries {
					if v := entry.Elevation; v != nil {
						rows = append(rows, []string{entry.Time.Local().Format(time.DateTime), "", "elevate", string(v.Role), v.Name, v.Ticket, v.Reason, v.ID})
						continue
					}
					rows = append(rows, operationRow(entry.Operation))
				}
				return display.Table(e.out, operationHeader, rows)
			})
		})
	limit.add(c, 50)
	e.addOutputFlag(c)
	return c
}
