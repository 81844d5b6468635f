package command

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

// access returns the commands for elevations.
func (e *environment) access() *cobra.Command {
	return group("access", "Request, approve, list and end elevations, and open sessions for API servers of clusters", e.accessRequest(),
		e.accessDecision("approve", "Approve the request of another engineer", (*adminclient.Client).ApproveElevation),
		e.accessDecision("deny", "Deny the request of another engineer", (*adminclient.Client).DenyElevation),
		e.accessActivate(), e.accessList(), e.accessShow(), e.accessEnd(), e.accessReview(),
		e.accessOpen(), e.accessRecords(), e.accessSessions(), e.accessClose(), e.accessRecordings(), e.accessRecording(), e.accessToken())
}

func (e *environment) accessRequest() *cobra.Command {
	var asked adminv1.ElevationRequest
	var class string
	var wait bool
	c := &cobra.Command{
		Use: "request --reason TEXT --ticket ID", Short: "Request an elevation for a limited time",
		Long: `Request an elevation for a limited time. Actions require one. The reason and the ticket are recorded with each action.

An elevation is for a class of actions, which includes the classes before it: operate for actions that can be undone, recover for
actions that override a safeguard or cannot be undone, break-glass for full access to API servers. The access policy of the region
states what needs the approval of another engineer. An approved request is activated with --wait or 'hcpctl access activate'.

With --emergency nobody has to approve, and a ticket validator that is away does not matter. An alert pages, and another engineer must review the elevation when it is over.`,
	}
	c.Flags().StringVar(&class, "class", string(adminv1.Operate), "`class` of actions: operate, recover or break-glass")
	oneOf(c, "class", string(adminv1.Operate), string(adminv1.Recover), string(adminv1.BreakGlassAccess))
	c.Flags().StringVar(&asked.Cluster, "cluster", "", "`identifier` of the cluster that it is limited to (default: the whole region)")
	addReason(c, &asked.Reason)
	addTicket(c, &asked.Ticket)
	c.Flags().StringVar(&asked.Duration, "for", "1h", "`duration` from the activation, limited by the access policy")
	c.Flags().BoolVar(&asked.Emergency, "emergency", false, "do not wait for an approval; an alert pages, and another engineer must review it")
	c.Flags().BoolVar(&wait, "wait", false, "wait for the approval, then activate the elevation")
	return answer(e, c, func(ctx context.Context, client *adminclient.Client, _ []string) (*adminv1.Elevation, error) {
		asked.Class = adminv1.AccessClass(class)
		elevation, err := client.Elevate(ctx, asked)
		if err != nil || !wait {
			return elevation, err
		}
		return e.awaitActive(ctx, client, elevation)
	}, e.printElevation)
}

// printElevation prints the state of an elevation in a sentence.
func (e *environment) printElevation(v *adminv1.Elevation) error {
	return e.printAs(v, func() error {
		switch v.State {
		case adminv1.ElevationActive:
			_, err := fmt.Fprintf(e.out, "%s is elevated to %s on %s until %s (elevation %s)\n", v.Name, v.Class, objectOf(v), until(v), v.ID)
			return err
		case adminv1.ElevationRequested:
			e.printWaitsForApproval(v)
		}
		_, err := fmt.Fprintf(e.out, "elevation %s of %s to %s on %s is %s\n", v.ID, v.Name, v.Class, objectOf(v), v.State)
		return err
	})
}

// objectOf returns the object of an elevation.
func objectOf(v *adminv1.Elevation) string {
	if v.Cluster == nil {
		return "the region"
	}
	return "cluster " + v.Cluster.UID
}

// accessDecision returns a command of the second person.
func (e *environment) accessDecision(verb, short string, decide func(client *adminclient.Client, ctx context.Context, id, reason string) (*adminv1.Elevation, error)) *cobra.Command {
	var reason string
	c := &cobra.Command{Use: verb + " ID --reason TEXT", Short: short}
	addReason(c, &reason)
	return answer(e, c, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Elevation, error) {
		return decide(client, ctx, args[0], reason)
	}, e.printElevation)
}

func (e *environment) accessActivate() *cobra.Command {
	return answer(e, &cobra.Command{Use: "activate ID", Short: "Activate your approved request"},
		func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Elevation, error) {
			return client.ActivateElevation(ctx, args[0])
		}, e.printElevation)
}

func (e *environment) accessList() *cobra.Command {
	var all, unreviewed bool
	var state string
	c := history(e, &cobra.Command{Use: "list", Short: "List elevations that are active or wait"}, adminv1.ReadElevations, 100, func() adminclient.Query {
		return adminclient.Query{"open": !all && state == "" && !unreviewed, "state": state, "unreviewed": unreviewed}
	}, func(elevations []adminv1.Elevation) error {
		return printList(e, elevations, func(v adminv1.Elevation) display.Row {
			return display.Row{{"ID", v.ID}, {"STATE", string(v.State)}, {"NAME", v.Name}, {"CLASS", string(v.Class)}, {"OBJECT", objectOf(&v)}, {"UNTIL", lasts(&v).Local().Format(time.DateTime)},
				{"REVOCATION", revocationOf(&v)}, {"TICKET", v.Ticket}, {"REASON", v.Reason}}
		})
	})
	c.Flags().BoolVarP(&all, "all", "A", false, "include elevations that are over")
	c.Flags().StringVar(&state, "state", "", "only those in a `state`: Requested, Approved, Denied, Active or Ended")
	oneOf(c, "state", string(adminv1.ElevationRequested), string(adminv1.ElevationApproved), string(adminv1.ElevationDenied), string(adminv1.ElevationActive), string(adminv1.ElevationEnded))
	c.Flags().BoolVar(&unreviewed, "unreviewed", false, "only emergencies that nobody has reviewed")
	return c
}

// lasts returns the time at which an elevation, or the request for one, ended or expires.
func lasts(v *adminv1.Elevation) time.Time {
	switch {
	case v.EndTime != nil:
		return *v.EndTime
	case v.ExpirationTime != nil:
		return *v.ExpirationTime
	}
	return v.RequestExpirationTime
}

func (e *environment) accessShow() *cobra.Command {
	return view(e, &cobra.Command{Use: "show ID", Short: "Show an elevation"}, adminv1.ReadElevation, noQuery, asTable(e, e.printElevationFields))
}

func (e *environment) printElevationFields(v *adminv1.Elevation) error {
	rows := [][]string{
		{"id", v.ID}, {"state", string(v.State)}, {"engineer", v.Name}, {"class", string(v.Class)}, {"object", objectOf(v)}, {"reason", v.Reason}, {"ticket", v.Ticket},
		{"requested", v.RequestTime.Local().Format(time.DateTime) + " for " + v.Duration}, {"until", lasts(v).Local().Format(time.DateTime)},
	}
	if c := v.TicketCheck; c != nil {
		shown := c.Title
		switch {
		case c.Waived != "":
			shown = "not validated: " + c.Waived
		case c.Link != "":
			shown += " (" + c.Link + ")"
		}
		rows = append(rows, []string{"ticket check", shown})
	}
	if d := v.Decision; d != nil {
		verb := "denied by"
		if d.Approved {
			verb = "approved by"
		}
		rows = append(rows, []string{verb, fmt.Sprintf("%s at %s: %s", d.Name, d.Time.Local().Format(time.DateTime), d.Reason)})
	}
	if v.EndedBy != "" {
		by := v.EndedBy
		if v.EndReason != "" {
			by += ": " + v.EndReason
		}
		rows = append(rows, []string{"ended by", by})
	}
	rows = append(rows, revocationRows(v)...)
	if v.Emergency {
		review := "nobody yet"
		if r := v.Review; r != nil {
			finding := "not justified"
			if r.Justified {
				finding = "justified"
			}
			review = fmt.Sprintf("%s at %s: %s: %s", r.Name, r.Time.Local().Format(time.DateTime), finding, r.Comment)
		}
		rows = append(rows, []string{"emergency, reviewed by", review})
	}
	return display.Table(e.out, []string{"FIELD", "VALUE"}, rows)
}

func (e *environment) accessReview() *cobra.Command {
	var review adminv1.ReviewRequest
	var unjustified bool
	c := answer(e, &cobra.Command{
		Use: "review ID --comment TEXT", Short: "Close the review of an emergency elevation",
		Long: `Close the review of an emergency elevation of another engineer. It must be over. 'hcpctl audit' lists the actions under it.`,
	}, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Elevation, error) {
		return client.ReviewElevation(ctx, args[0], review)
	}, asTable(e, e.printElevationFields))
	c.Flags().BoolVar(&review.Justified, "justified", false, "the emergency was one")
	c.Flags().BoolVar(&unjustified, "unjustified", false, "the request could have waited for an approval")
	c.Flags().StringVar(&review.Comment, "comment", "", "`text` with the conclusion, at least 8 characters")
	_ = c.MarkFlagRequired("comment")
	c.MarkFlagsOneRequired("justified", "unjustified")
	c.MarkFlagsMutuallyExclusive("justified", "unjustified")
	return c
}
