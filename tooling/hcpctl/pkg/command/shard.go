package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
)

func (e *environment) shard() *cobra.Command {
	c := group("shard", "Manage provision shards and the placement of clusters",
		e.shardList(), e.shardShow(), e.shardCordon(), e.shardUncordon(), e.shardSet(), e.shardPlan(), e.shardExplain(), e.shardPlace())
	c.Long = `Manage provision shards, which are the management clusters of the region, and the placement of clusters. The runbook is
docs/operators/shards.md.`
	return c
}

func (e *environment) shardList() *cobra.Command {
	return view(e, &cobra.Command{Use: "list", Short: "List the provision shards"}, adminv1.ReadShards, noQuery, func(list *adminv1.ShardList) error {
		return e.printAs(list.Items, func() error { return e.shardTable(adminv1.Contents(list.Items)...) })
	})
}

func (e *environment) shardTable(shards ...*csv1.ProvisionShard) error {
	return display.List(e.out, shards, func(s *csv1.ProvisionShard) display.Row {
		return display.Row{{"NAME", s.GetName()}, {"STATE", shardState(s)}, {"CLUSTERS", fmt.Sprintf("%d/%d", s.GetClusters(), s.GetCapacity())}, {"FREE", fmt.Sprint(s.GetHeadroom())},
			{"ZONES", strings.Join(s.GetZones(), ",")}, {"SIZE CLASSES", strings.Join(s.GetSizeClasses(), ",")}, {"LABELS", labelList(s.GetLabels())}, {"AGENT", agentState(s, time.Now())}}
	})
}

func shardState(s *csv1.ProvisionShard) string {
	return shardStateName(s.GetState())
}

func shardStateName(s csv1.ProvisionShardState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "PROVISION_SHARD_STATE_"))
}

func agentState(s *csv1.ProvisionShard, now time.Time) string {
	state := "never reported"
	if s.GetLastHeardTime() != nil {
		state = "reported " + now.Sub(s.GetLastHeardTime().AsTime()).Round(time.Second).String() + " ago"
	}
	if s.GetLastHeartbeatTime() != nil {
		state += ", alive " + now.Sub(s.GetLastHeartbeatTime().AsTime()).Round(time.Second).String() + " ago"
	}
	if s.GetAgentSilent() {
		state += ", unresponsive since " + formatTime(s.GetUnansweredSince())
	}
	return state
}

func labelList(labels map[string]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, key+"="+labels[key])
	}
	return strings.Join(list, ",")
}

func (e *environment) shardShow() *cobra.Command {
	var expected string
	c := e.readCommand(&cobra.Command{Use: "show NAME", Short: "Show the load, capacity and history of a provision shard"}, func(ctx context.Context, client *adminclient.Client, args []string) error {
		report, err := adminclient.Get(ctx, client, adminv1.ReadShard, nil, args[0])
		var refused *adminclient.Error
		if expected == deregistered && errors.As(err, &refused) && refused.NotFound() {
			_, err = fmt.Fprintf(e.out, "There is no provision shard %s.\n", args[0])
			return err
		}
		if err != nil {
			return err
		}
		if err := e.printAs(report, func() error { return e.shardReport(report.Of) }); err != nil {
			return err
		}
		if s := report.Of.GetProvisionShard(); expected != "" && shardState(s) != expected {
			return fmt.Errorf("provision shard %s is %s (%d of %d places used); it is expected to be %s", s.GetName(), shardState(s), s.GetClusters(), s.GetCapacity(), expected)
		}
		return nil
	})
	e.addOutputFlag(c)
	c.Flags().StringVar(&expected, "expect-state", "", "fail unless the shard has this `state`: "+strings.Join(shardStates(), ", ")+". A shard that does not exist is "+deregistered)
	oneOf(c, "expect-state", shardStates()...)
	return c
}

// deregistered is the state of a shard that Cluster Service does not show any more.
var deregistered = shardStateName(csv1.ProvisionShardState_PROVISION_SHARD_STATE_DEREGISTERED)

// shardStates returns the names of the states of provision shards.
func shardStates() []string {
	var states []string
	for number := range csv1.ProvisionShardState_name {
		if state := csv1.ProvisionShardState(number); state != csv1.ProvisionShardState_PROVISION_SHARD_STATE_UNSPECIFIED {
			states = append(states, shardStateName(state))
		}
	}
	slices.Sort(states)
	return states
}

func (e *environment) shardReport(report *csv1.ProvisionShardReport) error {
	s := report.GetProvisionShard()
	if err := e.shardTable(s); err != nil {
		return err
	}
	if a := s.GetStateActor(); a != nil {
		fmt.Fprintf(e.out, "\n%s since %s by %s: %s\n", shardState(s), formatTime(s.GetStateTime()), a.GetName(), reasonOf(a))
	}
	if len(s.GetOverridden()) > 0 {
		fmt.Fprintf(e.out, "overridden by operators: %s\n", strings.Join(s.GetOverridden(), ", "))
	}
	fmt.Fprintf(e.out, "clusters in deletion: %d; nodes: %d/%d; unconfirmed works: %d; clusters of the region that wait for placement: %d\n\n",
		report.GetDeletingClusters(), report.GetNodes(), report.GetWantedNodes(), report.GetUnansweredWorks(), report.GetWaitingClusters())
	if err := display.List(e.out, report.GetSizeClasses(), func(c *csv1.SizeClassUsage) display.Row {
		accepted := "no"
		if c.GetAccepted() {
			accepted = "yes"
		}
		return display.Row{{"SIZE CLASS", c.GetSizeClass()}, {"ACCEPTED", accepted}, {"CLUSTERS", fmt.Sprint(c.GetClusters())}, {"NODES", fmt.Sprintf("%d/%d", c.GetNodes(), c.GetWantedNodes())}}
	}); err != nil || len(report.GetHistory()) == 0 {
		return err
	}
	fmt.Fprintln(e.out)
	return display.List(e.out, report.GetHistory(), func(h *csv1.ProvisionShardChange) display.Row {
		return display.Row{{"TIME", formatTime(h.GetTime())}, {"ACTION", h.GetAction()}, {"CHANGES", strings.Join(h.GetChanges(), "; ")}, {"ACTOR", h.GetActor().GetName()}, {"REASON", reasonOf(h.GetActor())}}
	})
}

func reasonOf(a *csv1.Actor) string {
	if a.GetTicket() == "" {
		return a.GetReason()
	}
	return a.GetReason() + " (" + a.GetTicket() + ")"
}

// printShard prints the shard that was changed.
func (e *environment) printShard(shard *csv1.ProvisionShard) error { return e.shardTable(shard) }

func (e *environment) shardCordon() *cobra.Command {
	var acceptNoRoom bool
	c := e.updateShard("cordon NAME", "Mark a provision shard as unschedulable", func(_ *cobra.Command, r *csv1.UpdateProvisionShardRequest) {
		r.Cordoned, r.AcceptNoRoom = proto.Bool(true), acceptNoRoom
	})
	c.Flags().BoolVar(&acceptNoRoom, "accept-no-room", false, "cordon it even if no other shard accepts clusters")
	return c
}

func (e *environment) shardUncordon() *cobra.Command {
	return e.updateShard("uncordon NAME", "Mark a provision shard as schedulable and end its drain", func(_ *cobra.Command, r *csv1.UpdateProvisionShardRequest) {
		r.Cordoned = proto.Bool(false)
	})
}

func (e *environment) shardSet() *cobra.Command {
	var capacity int32
	var zones, classes, configured []string
	var labels map[string]string
	c := e.updateShard("set NAME", "Override the capacity, zones, size classes or labels of a provision shard", func(c *cobra.Command, r *csv1.UpdateProvisionShardRequest) {
		setChanged(c, map[string]func(){
			"capacity":     func() { r.Capacity = &capacity },
			"zones":        func() { r.Zones = &csv1.Names{Values: zones} },
			"size-classes": func() { r.SizeClasses = &csv1.Names{Values: classes} },
			"labels":       func() { r.Labels = &csv1.Labels{Values: labels} },
		})
		for _, field := range configured {
			r.UseConfigured = append(r.UseConfigured, strings.ReplaceAll(field, "-", "_"))
		}
	})
	flags := c.Flags()
	flags.Int32Var(&capacity, "capacity", 0, "maximum number of `clusters`; a lower number than it holds moves none")
	flags.StringSliceVar(&zones, "zones", nil, "availability `zones` of the shard")
	flags.StringSliceVar(&classes, "size-classes", nil, "accepted size `classes`; empty means all")
	flags.StringToStringVar(&labels, "labels", nil, "all `labels`, for example stage=prod")
	flags.StringSliceVar(&configured, "use-configured", nil, "`fields` to reset to the shards file: capacity, zones, size-classes, labels")
	c.MarkFlagsOneRequired("capacity", "zones", "size-classes", "labels", "use-configured")
	return c
}

// updateShard returns a command that updates a shard and prints it.
func (e *environment) updateShard(use, short string, fill func(*cobra.Command, *csv1.UpdateProvisionShardRequest)) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short}
	return e.requestAndShow(c, adminv1.ActionShardUpdate, func() any {
		request := &csv1.UpdateProvisionShardRequest{}
		fill(c, request)
		return request
	}, func(operation *adminv1.Operation) error { return printResult(e, operation, e.printShard) })
}

func (e *environment) shardPlan() *cobra.Command {
	return view(e, &cobra.Command{Use: "plan NAME", Short: "Show where the clusters of a provision shard would go"}, adminv1.ReadDrainPlan, noQuery,
		asTable(e, func(plan *adminv1.Message[*csv1.DrainPlan]) error { return e.drainPlan(plan.Of) }))
}

func (e *environment) drainPlan(plan *csv1.DrainPlan) error {
	name := plan.GetProvisionShard().GetName()
	fmt.Fprintf(e.out, "%s is %s.\n", name, shardState(plan.GetProvisionShard()))
	if len(plan.GetMoves())+len(plan.GetBlocked()) > 0 {
		fmt.Fprintf(e.out, "No cluster moves by itself: hcpmesh cannot move clusters yet. They stay on %s until they are deleted; the plan shows where they would fit.\n", name)
	}
	for _, line := range plan.GetSentences() {
		fmt.Fprintln(e.out, line)
	}
	var rows [][]string
	row := func(c *csv1.DrainCluster, to, about string) {
		rows = append(rows, []string{shortID(c.GetResourceId()), c.GetSizeClass(), fmt.Sprint(c.GetWantedNodes()), to, about})
	}
	for _, m := range plan.GetMoves() {
		row(m.GetCluster(), m.GetProvisionShard(), "")
	}
	for _, b := range plan.GetBlocked() {
		row(b.GetCluster(), "", b.GetMessage())
	}
	for _, l := range plan.GetLeaving() {
		row(l, "", "in deletion")
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(e.out)
	return display.Table(e.out, []string{"CLUSTER", "SIZE CLASS", "NODES", "TO", ""}, rows)
}

func (e *environment) shardExplain() *cobra.Command {
	return view(e, &cobra.Command{Use: "explain CLUSTER", Short: "Explain the placement of a cluster"}, adminv1.ReadPlacement, noQuery, asTable(e, func(explained *adminv1.Message[*csv1.PlacementExplanation]) error { return e.placement(explained.Of) }))
}

// placement prints the decision that placed a cluster, or the current decision for a cluster that waits.
func (e *environment) placement(explained *csv1.PlacementExplanation) error {
	for _, line := range explained.GetSentences() {
		fmt.Fprintln(e.out, line)
	}
	decision := explained.GetNow()
	if explained.GetProvisionShard() != "" && len(explained.GetDecisions()) > 0 {
		decision = explained.GetDecisions()[0]
	}
	if len(decision.GetVerdicts()) == 0 {
		return nil
	}
	fmt.Fprintln(e.out)
	return display.List(e.out, decision.GetVerdicts(), func(v *csv1.PlacementVerdict) display.Row {
		rank, score := "", ""
		if v.GetRank() > 0 {
			rank, score = fmt.Sprint(v.GetRank()), fmt.Sprint(v.GetScore())
		}
		var obstacles []string
		for _, o := range v.GetObstacles() {
			obstacles = append(obstacles, o.GetMessage())
		}
		return display.Row{{"RANK", rank}, {"SHARD", v.GetProvisionShard()}, {"CLUSTERS", fmt.Sprintf("%d/%d", v.GetClusters(), v.GetCapacity())}, {"SCORE", score}, {"OBSTACLES", strings.Join(obstacles, "; ")}}
	})
}

func (e *environment) shardPlace() *cobra.Command {
	var strategy string
	var none bool
	policy := &csv1.PlacementPolicy{}
	c := e.requestAndShow(&cobra.Command{
		Use: "place CLUSTER", Short: "Set placement rules for a cluster",
		Long: `Set placement rules for a cluster, which override those of the region. A waiting cluster is placed by the new rules
immediately; a placed cluster stays, and drain plans follow the new rules. The command replaces all rules of the cluster;
--none removes them.`,
		PreRunE: func(*cobra.Command, []string) error {
			switch strategy {
			case "":
			case "spread":
				policy.Strategy = csv1.PlacementStrategy_PLACEMENT_STRATEGY_SPREAD
			case "pack":
				policy.Strategy = csv1.PlacementStrategy_PLACEMENT_STRATEGY_PACK
			default:
				return fmt.Errorf("--strategy: %q is not one of spread, pack", strategy)
			}
			return nil
		},
	}, adminv1.ActionPlacementSet, func() any {
		if none {
			return &csv1.SetPlacementPolicyRequest{}
		}
		return &csv1.SetPlacementPolicyRequest{Policy: policy}
	}, func(operation *adminv1.Operation) error { return printResult(e, operation, e.placement) })
	flags := c.Flags()
	flags.BoolVar(&none, "none", false, "remove the rules of the cluster")
	flags.StringVar(&strategy, "strategy", "", "placement `strategy`: spread or pack")
	flags.StringSliceVar(&policy.Zones, "zones", nil, "required availability `zones` of the shard")
	flags.Int32Var(&policy.MinimumZones, "minimum-zones", 0, "minimum `number` of availability zones of the shard")
	flags.StringToStringVar(&policy.Labels, "labels", nil, "required `labels` of the shard, for example stage=prod")
	flags.StringVar(&policy.SizeClass, "size-class", "", "size `class`, instead of the one that follows from its nodes")
	flags.StringVar(&policy.ProvisionShard, "only", "", "the only `shard` that may hold the cluster")
	flags.StringSliceVar(&policy.Avoid, "avoid", nil, "`shards` that may not hold the cluster")
	c.MarkFlagsOneRequired("none", "strategy", "zones", "minimum-zones", "labels", "size-class", "only", "avoid")
	for _, rule := range []string{"strategy", "zones", "minimum-zones", "labels", "size-class", "only", "avoid"} {
		c.MarkFlagsMutuallyExclusive("none", rule)
	}
	return c
}
