package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) accessRecords() *cobra.Command {
	var limit listLimit
	var forCustomer bool
	c := &cobra.Command{
		Use: "records CLUSTER", Short: "List who had access to a cluster, why, and what was done", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
		Long: `List who had access to a cluster, when, why, by whose approval, with which sessions and credentials, and what was done, newest first: one record for each
elevation that was activated for the cluster, or used for it. What was done is counted from the audit.

With --for-customer, print the records as ARM-shaped JSON that names nobody: customers see aliases.`,
	}
	limit.add(c, 50)
	c.Flags().BoolVar(&forCustomer, "for-customer", false, "print ARM-shaped JSON with aliases in place of names")
	e.addOutputFlag(c)
	return e.readCommand(c, func(ctx context.Context, client *adminclient.Client, args []string) error {
		format := ""
		if forCustomer {
			format = adminv1.AccessFormatARM
		}
		accesses, more, err := client.Accesses(ctx, args[0], format, limit.most)
		if err != nil {
			return err
		}
		e.printTruncated(limit, more)
		if forCustomer {
			return display.Object(e.out, "json", accesses)
		}
		return e.printAs(accesses, func() error {
			var rows [][]string
			for _, a := range accesses {
				rows = append(rows, accessRow(a.Properties))
				if a.Properties.ActivityIncomplete != "" {
					fmt.Fprintf(e.err, "elevation %s: %s\n", a.Name, a.Properties.ActivityIncomplete)
				}
				if a.Properties.ActivityUnconfirmed {
					fmt.Fprintf(e.err, "elevation %s: no checkpoint confirms some of the audit records, which may be forged\n", a.Name)
				}
			}
			return display.Table(e.out, []string{"START", "END", "ENGINEER", "CLASS", "SCOPE", "STATE", "APPROVAL", "TICKET", "REASON", "DONE"}, rows)
		})
	})
}

// accessRow returns the row of an access.
func accessRow(p adminv1.AccessProperties) []string {
	approval := "not required"
	switch {
	case p.Approval != nil:
		approval = cmp.Or(p.Approval.Approver.Name, p.Approval.Approver.Alias)
	case p.Emergency:
		approval = "emergency"
	}
	var done []string
	for _, a := range p.Activity {
		done = append(done, strings.TrimSpace(fmt.Sprintf("%d %s %s", a.Count, a.Verb, a.Resource)))
	}
	return []string{p.StartTime.UTC().Format(time.RFC3339), p.EndTime.UTC().Format(time.RFC3339), cmp.Or(p.Engineer.Name, p.Engineer.Alias), string(p.Class), p.Scope, string(p.State), approval, p.Ticket, p.Reason, strings.Join(done, ", ")}
}
