package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) upgradePolicy() *cobra.Command {
	return group("policy", "Manage policies that upgrade clusters to new patch releases", e.policyList(), e.policyShow(), e.policyApply())
}

func (e *environment) policyList() *cobra.Command {
	return view(e, &cobra.Command{Use: "list", Short: "List the upgrade policies"}, adminv1.ReadUpgradePolicies, noQuery, func(list *adminv1.UpgradePolicyList) error {
		return printList(e, list.Items, func(p adminv1.Message[*csv1.UpgradePolicy]) display.Row {
			spec := p.Of.GetSpec()
			return display.Row{{"NAME", p.Of.GetName()}, {"CLUSTERS", policyScope(spec)}, {"SCHEDULE", policySchedule(spec)}, {"MAX CONCURRENT", policyConcurrency(spec)}, {"ACTOR", p.Of.GetActor().GetName()}, {"REASON", p.Of.GetActor().GetReason()}}
		})
	})
}

// policyScope returns which clusters a policy applies to.
func policyScope(s *csv1.UpgradePolicySpec) string {
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

func policySchedule(s *csv1.UpgradePolicySpec) string {
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

func policyConcurrency(s *csv1.UpgradePolicySpec) string {
	if s.GetMaxConcurrent() == 0 {
		return "region limit"
	}
	return strconv.Itoa(int(s.GetMaxConcurrent()))
}

func (e *environment) policyShow() *cobra.Command {
	return view(e, &cobra.Command{Use: "show NAME", Short: "Show the progress of an upgrade policy"}, adminv1.ReadUpgradePolicy, noQuery, asTable(e, func(p *adminv1.Message[*csv1.UpgradePolicy]) error { return e.policyTables(p.Of) }))
}

func (e *environment) policyTables(p *csv1.UpgradePolicy) error {
	s := p.GetStatus()
	state := "closed"
	if s.GetOpen() {
		state = "open"
	}
	if until := s.GetUntil(); until != nil {
		state += ", until " + until.AsTime().Format(time.RFC3339)
	}
	fmt.Fprintf(e.out, "policy %s (%s; %s): %s. %d in progress, %d remaining, %d up to date.\n", p.GetName(), policyScope(p.GetSpec()), policySchedule(p.GetSpec()), state,
		s.GetRunning(), s.GetRemaining(), s.GetUpToDate())
	if len(s.GetLeftOut()) == 0 {
		return nil
	}
	return display.List(e.out, s.GetLeftOut(), func(left *csv1.LeftOutCluster) display.Row {
		return display.Row{{"SKIPPED", shortID(left.GetResourceId())}, {"REASON", left.GetReason()}}
	})
}

func (e *environment) policyApply() *cobra.Command {
	var follow followFlag
	var cluster, cron string
	var minutes int32
	var windows []string
	spec := &csv1.UpgradePolicySpec{}
	c := &cobra.Command{
		Use: "apply NAME", Short: "Create or replace an upgrade policy",
		PreRunE: func(*cobra.Command, []string) error {
			spec.NodePools = followNames[follow]
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
			return nil
		},
	}
	e.requestWith(c, classOf(adminv1.ActionUpgradePolicyApply), func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		if cluster != "" {
			found, err := adminclient.Get(ctx, client, adminv1.ReadCluster, nil, cluster)
			if err != nil {
				return nil, err
			}
			spec.ClusterUid = found.UID
		}
		return client.Act(ctx, adminv1.ActionUpgradePolicyApply, &csv1.ApplyUpgradePolicyRequest{Spec: spec}, args[0])
	}, func(operation *adminv1.Operation) error {
		_, err := fmt.Fprintf(e.out, "upgrade policy %s applied\n", operation.Target.ID)
		return err
	})
	flags := c.Flags()
	flags.StringVar(&cluster, "cluster", "", "apply only to this `cluster`; overrides policies for the region")
	flags.StringSliceVar(&spec.ChannelGroups, "channel-group", nil, "apply only to clusters of these channel `groups`")
	flags.StringSliceVar(&spec.MinorVersions, "minor", nil, "apply only to clusters of these minor `versions`, for example 4.21")
	flags.StringSliceVar(&spec.ProvisionShards, "shard", nil, "apply only to clusters on these provision `shards`")
	flags.StringVar(&cron, "cron", "", "cron `expression` (UTC) of the starts of maintenance windows: minute hour day-of-month month day-of-week")
	flags.Int32Var(&minutes, "cron-minutes", 60, "`minutes` that a window of --cron is open")
	flags.StringArrayVar(&windows, "window", nil, "weekly window as `'DAY,DAY HH:MM MINUTES'`, UTC; repeatable")
	flags.Int32Var(&spec.MaxConcurrent, "max-concurrent", 0, "maximum `number` of concurrent upgrades, 1 to 1000; 0 means the limit of the region")
	flags.BoolVar(&spec.Paused, "paused", false, "start no upgrades")
	return follow.add(c)
}

func parseWindow(text string) (*csv1.WeeklyWindow, error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return nil, fmt.Errorf("--window: %q is not 'DAY,DAY HH:MM MINUTES'", text)
	}
	minutes, err := strconv.ParseInt(fields[2], 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--window: %q is not a number of minutes", fields[2])
	}
	return &csv1.WeeklyWindow{Days: strings.Split(strings.ToUpper(fields[0]), ","), Start: fields[1], Minutes: int32(minutes)}, nil
}
