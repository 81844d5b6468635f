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

func (e *environment) operation() *cobra.Command {
	return group("operation", "List admin operations, and retry or cancel ARM operations", e.operationList(), e.operationGet())
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
	c := e.readCommand(&cobra.Command{Use: "list", Short: "List admin operations, newest first", Args: cobra.NoArgs},
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
	c.Flags().StringVar(&cluster, "cluster", "", "`identifier` of a cluster; lists only its operations")
	c.Flags().StringVar(&state, "state", "", "`state` of the operations to list: Accepted, Running, Succeeded or Failed")
	oneOf(c, "state", string(adminv1.Accepted), string(adminv1.Running), string(adminv1.Succeeded), string(adminv1.Failed))
	limit.add(c, 100)
	e.addOutputFlag(c)
	return c
}

func (e *environment) operationGet() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "get ID", Short: "Show an admin operation", Args: cobra.ExactArgs(1)},
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
