package command

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) accessRecords() *cobra.Command {
	var forCustomer bool
	c := history(e, &cobra.Command{
		Use: "records CLUSTER", Short: "List who had access to a cluster, why, and what was done",
		Long: `List who had access to a cluster, when, why, by whose approval, with which sessions and credentials, and what was done, newest first: one record for each
elevation that was activated for the cluster, or used for it. What was done is counted from the audit.

With --for-customer, print the records as ARM-shaped JSON that names nobody: customers see aliases.`,
	}, adminv1.ReadAccesses, 50, func() adminclient.Query {
		if forCustomer {
			return adminclient.Query{"format": adminv1.AccessFormatARM}
		}
		return nil
	}, func(accesses []adminv1.Access) error {
		if forCustomer {
			return display.Object(e.out, "json", accesses)
		}
		return e.printAs(accesses, func() error {
			for _, a := range accesses {
				if a.Properties.ActivityIncomplete != "" {
					fmt.Fprintf(e.err, "elevation %s: %s\n", a.Name, a.Properties.ActivityIncomplete)
				}
				if a.Properties.ActivityUnconfirmed {
					fmt.Fprintf(e.err, "elevation %s: no checkpoint confirms some of the audit records, which may be forged\n", a.Name)
				}
			}
			return display.List(e.out, accesses, accessRow)
		})
	})
	c.Flags().BoolVar(&forCustomer, "for-customer", false, "print ARM-shaped JSON with aliases in place of names")
	return c
}

// accessRow returns the row of an access.
func accessRow(a adminv1.Access) display.Row {
	p := a.Properties
	approval := "not required"
	switch {
	case p.Approval != nil:
		approval = cmp.Or(p.Approval.Approver.Name, p.Approval.Approver.Alias)
	case p.Emergency:
		approval = "emergency"
	}
	var done []string
	for _, activity := range p.Activity {
		done = append(done, strings.TrimSpace(fmt.Sprintf("%d %s %s", activity.Count, activity.Verb, activity.Resource)))
	}
	return display.Row{{"START", p.StartTime.UTC().Format(time.RFC3339)}, {"END", p.EndTime.UTC().Format(time.RFC3339)}, {"ENGINEER", cmp.Or(p.Engineer.Name, p.Engineer.Alias)}, {"CLASS", string(p.Class)},
		{"SCOPE", p.Scope}, {"STATE", string(p.State)}, {"APPROVAL", approval}, {"TICKET", p.Ticket}, {"REASON", p.Reason}, {"DONE", strings.Join(done, ", ")}}
}
