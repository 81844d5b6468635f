package command

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) egress() *cobra.Command {
	c := group("egress", "Show and change which clusters use the egress gateway", group("link", "Show and change the links of the egress gateway", e.egressLinkList()))
	c.Long = `Show and change which clusters use the egress gateway. The guide and the runbooks are in docs/operators/egress-gateway.md.`
	return c
}

func (e *environment) egressLinkList() *cobra.Command {
	return view(e, &cobra.Command{Use: "list", Short: "List the links, with those that were removed within a day"}, adminv1.ReadEgressLinks, noQuery, func(list *adminv1.EgressLinkList) error {
		return printList(e, list.Items, func(l adminv1.EgressLink) display.Row {
			state := "in use"
			if l.ReusableTime != nil {
				state = "removed, for other clusters from " + l.ReusableTime.Local().Format(time.DateTime)
			}
			return display.Row{{"LINK", l.LinkID}, {"CLUSTER", l.Cluster.UID}, {"STATE", state}, {"HOSTS", strings.Join(l.Hosts, " ")}, {"CHANGED BY OPERATION", l.OperationID}}
		})
	})
}
