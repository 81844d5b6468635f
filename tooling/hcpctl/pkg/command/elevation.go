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

// elevate returns the command that creates an elevation.
func (e *environment) elevate() *cobra.Command {
	var asked adminv1.ElevationRequest
	var role string
	c := &cobra.Command{
		Use: "elevate --reason TEXT --ticket ID", Short: "Elevate to a role for a limited time", Args: cobra.NoArgs,
		Long: `Elevate to a role for a limited time. Actions require an elevation; the role must be one that your groups give. The reason and
the ticket are recorded with each action. 'hcpctl elevation list' lists active elevations, 'hcpctl elevation end' ends one.`,
		PreRunE: func(*cobra.Command, []string) error {
			if asked.Reason == "" || asked.Ticket == "" {
				return errors.New("--reason and --ticket are required")
			}
			return nil
		},
	}
	c.Flags().StringVar(&role, "role", string(adminv1.Operator), "`role` to elevate to: operator or break-glass")
	c.Flags().StringVar(&asked.Reason, "reason", "", "`text` with the reason, at least 8 characters")
	c.Flags().StringVar(&asked.Ticket, "ticket", "", "`ID` of the incident or change")
	c.Flags().StringVar(&asked.Duration, "for", "1h", "`duration` of the elevation, at most 8h")
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
	return group("elevation", "List and end elevations", e.elevationList(), e.elevationEnd())
}

func (e *environment) elevationList() *cobra.Command {
	var all bool
	var limit listLimit
	c := e.readCommand(&cobra.Command{Use: "list", Short: "List active elevations", Args: cobra.NoArgs},
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
	c.Flags().BoolVarP(&all, "all", "A", false, "include elevations that have ended")
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
				fmt.Fprintf(e.err, "elevation %s ended\n", id)
			}
			return nil
		})
}

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
