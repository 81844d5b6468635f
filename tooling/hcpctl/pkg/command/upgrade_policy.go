package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/fleetclient"
	"github.com/spf13/cobra"
)

func (e *environment) upgradePolicy(f *fleetFlags) *cobra.Command {
	return group("policy", "Have clusters upgraded to new patch releases by themselves",
		e.policyList(f), e.policyShow(f), e.policyApply(f), e.policyDelete(f))
}

func (e *environment) policyList(f *fleetFlags) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the upgrade policies", Args: cobra.NoArgs,
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, _ []string) error {
			list, err := client.ListUpgradePolicies(ctx, &csv1.ListUpgradePoliciesRequest{})
			if err != nil {
				return err
			}
			var rows [][]string
			for _, p := range list.GetPolicies() {
				rows = append(rows, []string{p.GetName(), concerned(p.GetSpec()), when(p.GetSpec()), atOnce(p.GetSpec()), p.GetActor().GetName(), p.GetActor().GetReason()})
			}
			return display.Table(e.out, []string{"NAME", "CLUSTERS", "WHEN", "AT ONCE", "BY", "WHY"}, rows)
		}),
	}
}

// concerned is which clusters a policy is about.
func concerned(s *csv1.UpgradePolicySpec) string {
	if s.GetClusterUid() != "" {
		return s.GetClusterUid()
	}
	var parts []string
	for _, filter := range []struct {
		name string
		list []string
	}{{"group", s.GetChannelGroups()}, {"minor", s.GetMinorVersions()}, {"shard", s.GetProvisionShards()}} {
		if len(filter.list) > 0 {
			parts = append(parts, filter.name+" "+strings.Join(filter.list, ", "))
		}
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, "; ")
}

func when(s *csv1.UpgradePolicySpec) string {
	var text string
	switch schedule := s.GetSchedule(); {
	case schedule == nil:
		text = "always"
	case schedule.GetCron() != "":
		text = fmt.Sprintf("%s for %d min", schedule.GetCron(), schedule.GetCronMinutes())
	default:
		var windows []string
		for _, w := range schedule.GetWeekly() {
			windows = append(windows, fmt.Sprintf("%s %s for %d min", strings.Join(w.GetDays(), ","), w.GetStart(), w.GetMinutes()))
		}
		text = strings.Join(windows, "; ")
	}
	if s.GetPaused() {
		return text + " (paused)"
	}
	return text
}

func atOnce(s *csv1.UpgradePolicySpec) string {
	if s.GetMaxConcurrent() == 0 {
		return "the region's"
	}
	return strconv.Itoa(int(s.GetMaxConcurrent()))
}

func (e *environment) policyShow(f *fleetFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "Show how a policy stands: what runs, what remains, what it leaves alone and why", Args: cobra.ExactArgs(1),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			p, err := client.GetUpgradePolicy(ctx, &csv1.GetUpgradePolicyRequest{Name: args[0]})
			if err != nil {
				return err
			}
			if e.output != "table" {
				return e.showMessage(p)
			}
			s := p.GetStatus()
			state := "begins nothing now"
			if s.GetOpen() {
				state = "open"
			}
			if until := s.GetUntil(); until != nil {
				state += ", until " + until.AsTime().Format(time.RFC3339)
			}
			fmt.Fprintf(e.out, "policy %s (%s; %s): %s. %d under way, %d remain, %d are up to date.\n", p.GetName(), concerned(p.GetSpec()), when(p.GetSpec()), state,
				s.GetRunning(), s.GetRemaining(), s.GetUpToDate())
			if len(s.GetLeftOut()) == 0 {
				return nil
			}
			var rows [][]string
			for _, left := range s.GetLeftOut() {
				rows = append(rows, []string{shortID(left.GetResourceId()), left.GetReason()})
			}
			return display.Table(e.out, []string{"LEFT ALONE", "WHY"}, rows)
		}),
	}
	e.addOutputFlag(c)
	return c
}

func (e *environment) policyApply(f *fleetFlags) *cobra.Command {
	var follow followFlag
	var cluster, cron string
	var minutes int32
	var windows []string
	spec := &csv1.UpgradePolicySpec{}
	c := f.intervening(&cobra.Command{
		Use: "apply NAME", Short: "Store a policy, in the place of the one of that name", Args: cobra.ExactArgs(1),
		Example: "  hcpctl upgrade policy apply patches --max-concurrent 50 --window 'SAT,SUN 01:00 240' --reason 'monthly patches'",
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			spec.NodePools = followNames[follow]
			if cluster != "" {
				found, err := e.findCluster(ctx, client, cluster)
				if err != nil {
					return err
				}
				spec.ClusterUid = found.GetUid()
			}
			if cron != "" || len(windows) > 0 {
				spec.Schedule = &csv1.UpgradeSchedule{Cron: cron}
				if cron != "" {
					spec.Schedule.CronMinutes = minutes
				}
			}
			for _, text := range windows {
				w, err := parseWindow(text)
				if err != nil {
					return err
				}
				spec.Schedule.Weekly = append(spec.Schedule.Weekly, w)
			}
			if _, err := client.ApplyUpgradePolicy(ctx, &csv1.ApplyUpgradePolicyRequest{Name: args[0], Spec: spec, Actor: f.actor()}); err != nil {
				return err
			}
			fmt.Fprintf(e.err, "policy %s is stored\n", args[0])
			return nil
		}),
	})
	flags := c.Flags()
	flags.StringVar(&cluster, "cluster", "", "only this `cluster`; such a policy comes before those for the region")
	flags.StringSliceVar(&spec.ChannelGroups, "channel-group", nil, "only clusters of these channel `groups`")
	flags.StringSliceVar(&spec.MinorVersions, "minor", nil, "only clusters of these minor `versions`, as in 4.21")
	flags.StringSliceVar(&spec.ProvisionShards, "shard", nil, "only clusters on these provision `shards`")
	flags.StringVar(&cron, "cron", "", "a window opens at each time that `expression` matches (UTC): minute hour day-of-month month day-of-week")
	flags.Int32Var(&minutes, "cron-minutes", 60, "how long such a window stays open")
	flags.StringArrayVar(&windows, "window", nil, "a window of each week as `'DAY,DAY HH:MM MINUTES'`, UTC; may be given again")
	flags.Int32Var(&spec.MaxConcurrent, "max-concurrent", 0, "most upgrades by it at once, 1 to 1000; 0 leaves it to the region's limit")
	flags.BoolVar(&spec.Paused, "paused", false, "begin nothing")
	return follow.add(c)
}

func parseWindow(text string) (*csv1.WeeklyWindow, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return nil, fmt.Errorf("--window: %q is not 'DAY,DAY HH:MM MINUTES'", text)
	}
	minutes, err := strconv.ParseInt(fields[2], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--window: %q is no number of minutes", fields[2])
	}
	return &csv1.WeeklyWindow{Days: strings.Split(strings.ToUpper(fields[0]), ","), Start: fields[1], Minutes: int32(minutes)}, nil
}

func (e *environment) policyDelete(f *fleetFlags) *cobra.Command {
	return f.intervening(&cobra.Command{
		Use: "delete NAME", Short: "End a policy; its upgrades that are under way go on", Args: cobra.ExactArgs(1),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			if _, err := client.DeleteUpgradePolicy(ctx, &csv1.DeleteUpgradePolicyRequest{Name: args[0], Actor: f.actor()}); err != nil {
				return err
			}
			fmt.Fprintf(e.err, "policy %s is gone\n", args[0])
			return nil
		}),
	})
}
