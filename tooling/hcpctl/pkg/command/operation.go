package command

import (
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

func operationRow(o adminv1.Operation) display.Row {
	target := o.Target.ID
	if o.Target.ResourceID != "" {
		target = shortID(o.Target.ResourceID)
	}
	return display.Row{{"TIME", o.StartTime.Local().Format(time.DateTime)}, {"STATE", string(o.State)}, {"ACTION", o.Action}, {"TARGET", target}, {"ACTOR", o.Actor.Name},
		{"TICKET", o.Actor.Ticket}, {"REASON", o.Actor.Reason}, {"ID", o.ID}}
}

func (e *environment) operationList() *cobra.Command {
	var cluster, state string
	c := history(e, &cobra.Command{Use: "list", Short: "List admin operations, newest first"}, adminv1.ReadOperations, 100, func() adminclient.Query {
		return adminclient.Query{"cluster": cluster, "state": state}
	}, func(operations []adminv1.Operation) error { return printList(e, operations, operationRow) })
	c.Flags().StringVar(&cluster, "cluster", "", "`identifier` of a cluster; lists only its operations")
	c.Flags().StringVar(&state, "state", "", "`state` of the operations to list: Accepted, Running, Succeeded or Failed")
	oneOf(c, "state", string(adminv1.Accepted), string(adminv1.Running), string(adminv1.Succeeded), string(adminv1.Failed))
	return c
}

func (e *environment) operationGet() *cobra.Command {
	return view(e, &cobra.Command{Use: "get ID", Short: "Show an admin operation"}, adminv1.ReadOperation, noQuery, asTable(e, func(o *adminv1.Operation) error {
		if err := display.List(e.out, []adminv1.Operation{*o}, operationRow); err != nil || o.Error == nil {
			return err
		}
		_, err := fmt.Fprintln(e.out, "  "+o.Error.Message)
		return err
	}))
}
