package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/spf13/cobra"
)

func (e *environment) whoami() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "whoami", Short: "Show your identity and the roles that your groups give", Args: cobra.NoArgs},
		func(ctx context.Context, client *adminclient.Client, _ []string) error {
			me, err := client.Me(ctx)
			if err != nil {
				return err
			}
			return e.printAs(me, func() error {
				roles := make([]string, len(me.Roles))
				for i, role := range me.Roles {
					roles[i] = string(role)
				}
				_, err := fmt.Fprintf(e.out, "%s has the roles %s\n", me.Name, strings.Join(roles, ", "))
				return err
			})
		})
	e.addOutputFlag(c)
	return c
}
