package command

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

// timelineOptions are the flags of the command timeline.
type timelineOptions struct {
	period
	kinds        []string
	desiredState bool
}

func (e *environment) timeline() *cobra.Command {
	var o timelineOptions
	c := &cobra.Command{
		Use: "timeline CLUSTER", Short: "Show what happened to a cluster, from all layers in order of time",
		Long: `Show what happened to a cluster and its children, from all layers in order of time: operations of the customer, actions and
audited reads of SREs, generations with the fields that they change, phases and conditions, upgrades, credentials and
revocations, what monitor saw of the API, alerts that fired, and components of the region that are away.

With --desired-state show only how the desired states differ between the beginning and the end of the period.

Cluster Service keeps changes and monitor keeps transitions for 14 days; operations and upgrades are kept for a week. A region
without Prometheus has no alerts.`,
		PreRunE: func(*cobra.Command, []string) error { return o.check(time.Now()) },
	}
	o.addFlags(c, "14 days ago")
	c.Flags().StringSliceVar(&o.kinds, "kind", nil, "only entries of these `kinds`, for example Action,Condition")
	c.Flags().BoolVar(&o.desiredState, "desired-state", false, "only the differences between the desired states")
	return view(e, c, adminv1.ReadTimeline, func() adminclient.Query { return adminclient.Query{"from": o.from, "to": o.to} }, func(t *adminv1.Timeline) error {
		if len(o.kinds) > 0 {
			t.Entries = slices.DeleteFunc(t.Entries, func(entry adminv1.TimelineEntry) bool {
				return !slices.Contains(o.kinds, string(entry.Kind))
			})
		}
		return e.printAs(t, func() error {
			for _, layer := range slices.Sorted(maps.Keys(t.Unavailable)) {
				fmt.Fprintf(e.err, "warning: the layer %s is missing: %s\n", layer, t.Unavailable[layer])
			}
			if o.desiredState {
				return e.printDifferences(t)
			}
			return e.printTimeline(t)
		})
	})
}

// check returns an error for invalid flags. Otherwise it sets the times of the period.
func (o *timelineOptions) check(now time.Time) error {
	for _, kind := range o.kinds {
		if !slices.Contains(adminv1.TimelineKinds(), adminv1.TimelineKind(kind)) {
			return fmt.Errorf("--kind: %q is not one of %v", kind, adminv1.TimelineKinds())
		}
	}
	return o.period.check(now)
}

// printTimeline prints the entries of a timeline as a table.
func (e *environment) printTimeline(t *adminv1.Timeline) error {
	if t.Omitted > 0 {
		fmt.Fprintf(e.err, "warning: %d older entries are omitted; set --to to an earlier time to see them\n", t.Omitted)
	}
	return display.List(e.out, t.Entries, func(entry adminv1.TimelineEntry) display.Row {
		return display.Row{{"TIME", entry.Time.UTC().Format(time.RFC3339)}, {"LAYER", entry.Layer}, {"KIND", string(entry.Kind)}, {"SUBJECT", cmp.Or(entry.Subject, "cluster")}, {"BY", requestedBy(entry)}, {"WHAT", entry.Summary}}
	})
}

// requestedBy returns the person of an entry with the ticket, or else with the reason.
func requestedBy(entry adminv1.TimelineEntry) string {
	if why := cmp.Or(entry.Ticket, entry.Reason); why != "" && entry.Person != "" {
		return fmt.Sprintf("%s (%s)", entry.Person, why)
	}
	return entry.Person
}

// printDifferences prints how the desired states differ between the beginning and the end of a timeline.
func (e *environment) printDifferences(t *adminv1.Timeline) error {
	var rows [][]string
	for _, d := range t.DesiredState {
		subject, generations := cmp.Or(d.Subject, "cluster"), fmt.Sprintf("%d → %d", d.FromGeneration, d.ToGeneration)
		if d.FromGeneration == 0 {
			generations = fmt.Sprintf("new → %d", d.ToGeneration)
		}
		if len(d.Fields) == 0 {
			rows = append(rows, []string{subject, generations, "", "", ""})
		}
		for _, f := range d.Fields {
			rows = append(rows, []string{subject, generations, f.Path, f.Before, f.After})
		}
	}
	return display.Table(e.out, []string{"SUBJECT", "GENERATION", "FIELD", "BEFORE", "AFTER"}, rows)
}
