package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// elevate is the command that comes before every other by which an SRE changes something.
func (e *environment) elevate() *cobra.Command {
	var asked adminv1.ElevationRequest
	var role string
	c := &cobra.Command{
		Use: "elevate --reason TEXT --ticket ID", Short: "Take a role for a while, to change something as an SRE", Args: cobra.NoArgs,
		Long: `Take a role for a while, to change something as an SRE. The role must be one that your groups give; the reason and the ticket
are written down with everything that you do under it. 'hcpctl elevation list' shows what is active, 'hcpctl elevation end' ends it.`,
		PreRunE: func(*cobra.Command, []string) error {
			if asked.Reason == "" || asked.Ticket == "" {
				return errors.New("--reason and --ticket are required")
			}
			return nil
		},
	}
	c.Flags().StringVar(&role, "role", string(adminv1.Operator), "`role`: operator or break-glass")
	c.Flags().StringVar(&asked.Reason, "reason", "", "`text` that says why, at least 8 characters")
	c.Flags().StringVar(&asked.Ticket, "ticket", "", "`id` of the incident or change")
	c.Flags().StringVar(&asked.Duration, "for", "1h", "how long: a `duration` of at most 8h")
	e.addOutputFlag(c)
	return e.readCommand(c, func(ctx context.Context, client *adminclient.Client, _ []string) error {
		asked.Role = adminv1.Role(role)
		elevation, err := client.Elevate(ctx, asked)
		if err != nil {
			return err
		}
		return e.printAs(elevation, func() error {
			_, err := fmt.Fprintf(e.out, "%s has the role %s until %s (elevation %s)\n", elevation.Name, elevation.Role, elevation.ExpirationTime.Local().Format(time.TimeOnly), elevation.ID)
			return err
		})
	})
}

func (e *environment) elevation() *cobra.Command {
	return group("elevation", "See and end the roles that SREs have taken", e.elevationList(), e.elevationEnd())
}

func (e *environment) elevationList() *cobra.Command {
	var all bool
	var limit listLimit
	c := e.readCommand(&cobra.Command{Use: "list", Short: "List the elevations that are active", Args: cobra.NoArgs},
		func(ctx context.Context, client *adminclient.Client, _ []string) error {
			elevations, more, err := client.Elevations(ctx, !all, limit.most)
			if err != nil {
				return err
			}
			e.printTruncated(limit, more)
			return e.printAs(elevations, func() error {
				var rows [][]string
				for _, v := range elevations {
					until := v.ExpirationTime
					if v.EndTime != nil {
						until = *v.EndTime
					}
					rows = append(rows, []string{v.ID, v.Name, string(v.Role), until.Local().Format(time.DateTime), v.Ticket, v.Reason})
				}
				return display.Table(e.out, []string{"ID", "NAME", "ROLE", "UNTIL", "TICKET", "REASON"}, rows)
			})
		})
	c.Flags().BoolVarP(&all, "all", "A", false, "those that have ended, too")
	limit.add(c, 100)
	e.addOutputFlag(c)
	return c
}

func (e *environment) elevationEnd() *cobra.Command {
	return e.readCommand(&cobra.Command{Use: "end ID…", Short: "End elevations", Args: cobra.MinimumNArgs(1)},
		func(ctx context.Context, client *adminclient.Client, ids []string) error {
			for _, id := range ids {
				if _, err := client.EndElevation(ctx, id); err != nil {
					return err
				}
				fmt.Fprintf(e.err, "the elevation %s has ended\n", id)
			}
			return nil
		})
}

func (e *environment) whoami() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "whoami", Short: "Show who you are to admin, and which roles your groups give", Args: cobra.NoArgs},
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
				_, err := fmt.Fprintf(e.out, "%s may be %s\n", me.Name, strings.Join(roles, ", "))
				return err
			})
		})
	e.addOutputFlag(c)
	return c
}
