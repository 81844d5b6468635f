package command

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) egress() *cobra.Command {
	c := group("egress", "Show and change which clusters use the egress gateway", group("link", "Show and change the links of the egress gateway", e.egressLinkList()))
	c.Long = `Show and change which clusters use the egress gateway. The guide and the runbooks are in docs/operators/egress-gateway.md.`
	return c
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
