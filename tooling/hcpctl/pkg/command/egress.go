package command

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) egress() *cobra.Command {
	c := group("egress", "Show and change which clusters use the egress gateway", group("link", "Show and change the links of the egress gateway", e.egressLinkSet(), e.egressLinkDelete(), e.egressLinkList()))
	c.Long = `Show and change which clusters use the egress gateway. The guide and the runbooks are in docs/operators/egress-gateway.md.`
	return c
}

func (e *environment) egressLinkSet() *cobra.Command {
	request := &adminv1.SetEgressLinkRequest{}
	c := e.requestAndShow(&cobra.Command{
		Use: "set CLUSTER LINK", Short: "Assign a link to a cluster, or replace its hosts", Args: cobra.ExactArgs(2),
		Long: `Assign a link of the egress gateway to a cluster, or replace the hosts of its link. LINK is the link ID of the private endpoint.
The hosts replace those that the link has; connections to hosts that are no longer permitted are closed. A link that was
removed from another cluster is refused for 15 minutes.`,
	}, adminv1.ActionEgressLinkSet, func([]string) any { return request }, func(operation *adminv1.Operation) error {
		_, err := fmt.Fprintf(e.out, "the link is assigned to cluster %s\n", operation.Target.ID)
		return err
	})
	c.Flags().StringArrayVar(&request.Hosts, "host", []string{}, "`name` of a host that the cluster may connect to, beside those of the region; repeatable")
	return c
}

func (e *environment) egressLinkDelete() *cobra.Command {
	return e.requestAndShow(&cobra.Command{
		Use: "delete LINK", Short: "Remove a link from its cluster", Args: cobra.ExactArgs(1),
		Long: `Remove a link of the egress gateway from its cluster. The gateway closes its connections. Delete the private endpoint afterwards.`,
	}, adminv1.ActionEgressLinkDelete, nil, func(operation *adminv1.Operation) error {
		_, err := fmt.Fprintf(e.out, "the link %s is removed\n", operation.Target.ID)
		return err
	})
}

func (e *environment) egressLinkList() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "list", Short: "List the links, with those that were removed within a day", Args: cobra.NoArgs},
		func(ctx context.Context, client *adminclient.Client, _ []string) error {
			links, err := client.EgressLinks(ctx)
			if err != nil {
				return err
			}
			return e.printAs(links, func() error {
				var rows [][]string
				for _, l := range links {
					state := "in use"
					if l.ReusableTime != nil {
						state = "removed, for other clusters from " + l.ReusableTime.Local().Format(time.DateTime)
					}
					rows = append(rows, []string{l.LinkID, l.Cluster.UID, state, strings.Join(l.Hosts, " "), l.OperationID})
				}
				return display.Table(e.out, []string{"LINK", "CLUSTER", "STATE", "HOSTS", "CHANGED BY OPERATION"}, rows)
			})
		})
	e.addOutputFlag(c)
	return c
}
