package command

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) clusterPause() *cobra.Command {
	var duration string
	c := e.requestAction(&cobra.Command{
		Use: "pause CLUSTER", Short: "Pause the reconciliation of a cluster", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
		Long: `Pause HyperShift's reconciliation of a cluster's control plane and node pools. Running workloads are not affected. The pause
ends automatically, or with 'hcpctl cluster resume'.`,
	}, adminv1.ActionClusterPause, func([]string) any { return adminv1.PauseRequest{Duration: duration} })
	c.Flags().StringVar(&duration, "for", "1h", "`duration` of the pause, at most 168h")
	return c
}

func (e *environment) clusterResume() *cobra.Command {
	return e.requestAction(&cobra.Command{Use: "resume CLUSTER", Short: "Resume the reconciliation of a paused cluster", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet}, adminv1.ActionClusterResume, nil)
}

func (e *environment) clusterRetry() *cobra.Command {
	return e.requestAction(&cobra.Command{
		Use: "retry CLUSTER", Short: "Retry all pending steps of a cluster immediately", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
	}, adminv1.ActionClusterRetry, nil)
}

func (e *environment) clusterForce() *cobra.Command {
	return e.requestAction(&cobra.Command{
		Use: "force CLUSTER STEP", Short: "Stop waiting for a stuck Azure step of a cluster in creation",
		Long: `Stop waiting for a stuck Azure step of a cluster in creation, for example azure/operator-roles. Cluster Service continues to
retry the step in the background.`,
		Args: cobra.ExactArgs(2), ValidArgsFunction: e.completeFleet,
	}, adminv1.ActionClusterForce, func(args []string) any { return &csv1.ForceClusterStepRequest{Step: args[0]} })
}

func (e *environment) clusterAcceptControlPlane() *cobra.Command {
	var uid string
	c := e.requestAction(&cobra.Command{
		Use: "accept-control-plane CLUSTER", Short: "Accept the new control plane of a cluster that lost its own",
		Long: `Accept the new, empty control plane of a cluster whose control plane was removed from its management cluster. The cluster then has
the state that the new control plane warrants. The data of the removed control plane is lost: the customer's objects are gone.
Restore the data or delete the cluster instead, if the customer wants that.`,
		Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
	}, adminv1.ActionClusterAccept, func([]string) any { return &csv1.AcceptControlPlaneRequest{ControlPlaneUid: uid} })
	c.Flags().StringVar(&uid, "control-plane", "", "`UID` of the successor to accept, as explain shows it: of the HostedCluster or, if that is the same, of its namespace; empty accepts the current one")
	return c
}

func (e *environment) clusterSetSize() *cobra.Command {
	var size string
	c := e.requestAction(&cobra.Command{
		Use: "set-size CLUSTER", Short: "Override the size class of a hosted control plane", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
	}, adminv1.ActionClusterSetSize, func([]string) any { return adminv1.SetSizeRequest{Size: size} })
	c.Flags().StringVar(&size, "size", "", "`name` of the size class; empty removes the override")
	return c
}

func (e *environment) operation() *cobra.Command {
	return group("operation", "List admin operations, and retry or cancel ARM operations", e.operationList(), e.operationGet(),
		e.requestAction(&cobra.Command{Use: "retry ARM-OPERATION", Short: "Retry an ARM operation immediately", Args: cobra.ExactArgs(1)}, adminv1.ActionARMOperationRetry, nil),
		e.requestAction(&cobra.Command{Use: "cancel ARM-OPERATION", Short: "Cancel a create or update operation of ARM", Args: cobra.ExactArgs(1)}, adminv1.ActionARMOperationCancel, nil))
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
