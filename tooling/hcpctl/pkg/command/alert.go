package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) alert() *cobra.Command {
	c := group("alert", "List and silence the alerts of the region", e.alertList(), e.alertSilence(), e.alertUnsilence())
	c.Long = `List the firing alerts of the region, and silence them for a limited time. docs/operators/alerts.md describes all alerts.`
	return c
}

func (e *environment) alertList() *cobra.Command {
	return view(e, &cobra.Command{Use: "list", Short: "List the firing alerts and the silences",
		Long: `List the firing alerts and the silences. The command fails if admin does not know which alerts fire.`}, adminv1.ReadAlerts, noQuery, func(list *adminv1.AlertList) error {
		if err := e.printAs(list, func() error { return e.alertTables(list) }); err != nil {
			return err
		}
		if reason := list.Unavailable[adminv1.UnavailableAlerts]; reason != "" {
			return errors.New("the firing alerts are unknown: " + reason)
		}
		return nil
	})
}

// alertTables prints the alerts and the silences that are known.
func (e *environment) alertTables(list *adminv1.AlertList) error {
	if list.Alerts != nil {
		if err := e.alertTable(list); err != nil {
			return err
		}
	}
	e.warnIgnored("silences", list.IgnoredSilences.Err())
	if list.MoreSilences {
		fmt.Fprintf(e.err, "warning: only the first %d silences are listed\n", len(list.Silences))
	}
	switch {
	case list.Silences == nil:
		_, err := fmt.Fprintf(e.err, "warning: the silences are unknown: %s\n", list.Unavailable[adminv1.UnavailableSilences])
		return err
	case len(list.Silences) == 0:
		_, err := fmt.Fprintln(e.out, "no silences")
		return err
	}
	return display.List(e.out, list.Silences, func(s adminv1.Silence) display.Row {
		return display.Row{{"SILENCE", s.ID}, {"ALERTS", matcherText(s.Matchers)}, {"STATE", string(s.State)}, {"ENDS", s.EndTime.Format(time.RFC3339)}, {"ENGINEER", s.CreatedBy}, {"COMMENT", s.Comment}}
	})
}

func (e *environment) alertTable(list *adminv1.AlertList) error {
	if len(list.Alerts) == 0 {
		_, err := fmt.Fprintln(e.out, "no alert fires")
		return err
	}
	if err := display.List(e.out, list.Alerts, alertRow); err != nil || !list.More {
		return err
	}
	_, err := fmt.Fprintf(e.out, "only the first %d alerts are listed\n", len(list.Alerts))
	return err
}

func alertRow(a adminv1.Alert) display.Row {
	since := ""
	if a.Since != nil {
		since = a.Since.Format(time.RFC3339)
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(a.Labels)) {
		if name != "severity" {
			labels = append(labels, name+"="+a.Labels[name])
		}
	}
	return display.Row{{"ALERT", a.Name}, {"SEVERITY", a.Severity}, {"SINCE", since}, {"SILENCED", yes(len(a.SilencedBy) > 0)}, {"LABELS", strings.Join(labels, ", ")}}
}

// matcherText returns the matchers of a silence as Alertmanager writes them.
func matcherText(matchers []adminv1.SilenceMatcher) string {
	var list []string
	for _, m := range matchers {
		list = append(list, m.String())
	}
	return strings.Join(list, ", ")
}

func (e *environment) alertSilence() *cobra.Command {
	var asked adminv1.SilenceRequest
	c := answer(e, &cobra.Command{
		Use: "silence ALERT --reason TEXT --ticket ID", Short: "Silence an alert for a limited time",
		Long: `Silence the alerts with a name, and with the labels of --label if there are any. They notify nobody until the silence ends, and are still
listed. It requires the role operator.`,
	}, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Silence, error) {
		asked.Alert = args[0]
		return client.Silence(ctx, asked)
	}, asTable(e, func(silence *adminv1.Silence) error {
		_, err := fmt.Fprintf(e.out, "%s is silenced until %s (silence %s)\n", matcherText(silence.Matchers), silence.EndTime.Format(time.RFC3339), silence.ID)
		return err
	}))
	c.Flags().StringToStringVar(&asked.Labels, "label", nil, "only alerts with this `label`, for example shard=mgmt-1; repeatable")
	c.Flags().StringVar(&asked.Duration, "for", "2h", "`duration` of the silence, 5m to 24h")
	addReason(c, &asked.Reason)
	addTicket(c, &asked.Ticket)
	_ = c.MarkFlagRequired("ticket")
	return c
}

func (e *environment) alertUnsilence() *cobra.Command {
	var asked adminv1.EndSilenceRequest
	c := answer(e, &cobra.Command{Use: "unsilence ID --reason TEXT --ticket ID", Short: "End a silence before its time"},
		func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Silence, error) {
			return client.EndSilence(ctx, args[0], asked)
		}, asTable(e, func(silence *adminv1.Silence) error {
			_, err := fmt.Fprintf(e.out, "silence %s of %s is %s\n", silence.ID, matcherText(silence.Matchers), silence.State)
			return err
		}))
	addReason(c, &asked.Reason)
	addTicket(c, &asked.Ticket)
	_ = c.MarkFlagRequired("ticket")
	return c
}
