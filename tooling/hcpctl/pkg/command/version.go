package command

import (
	"context"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) version() *cobra.Command {
	offered := kind{
		noun: "version", names: []string{"NAME"},
		list: func(ctx context.Context, client *armclient.Client, _ []string) ([]armclient.Resource, error) {
			location, err := e.location()
			if err != nil {
				return nil, err
			}
			return client.Versions(ctx, location)
		},
		row: func(r armclient.Resource) display.Row {
			return display.Row{{"VERSION", field(r, "name")}, {"CHANNEL GROUP", field(r, "properties", "channelGroup")}, {"ENABLED", field(r, "properties", "enabled")}, {"END OF LIFE", field(r, "properties", "endOfLifeTimestamp")}}
		},
	}
	c := group("version", "List OpenShift versions", e.list(offered, "List the OpenShift versions that the region offers"))
	e.addARMFlags(c)
	return c
}
