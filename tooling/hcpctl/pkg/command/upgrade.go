package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/fleetclient"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (e *environment) upgrade() *cobra.Command {
	var f fleetFlags
	c := group("upgrade", "Upgrade clusters: see the plan, begin, hold, give up, and have policies do it",
		e.upgradePlan(&f), e.upgradeStart(&f), e.upgradeStatus(&f), e.upgradeList(&f), e.upgradePause(&f), e.upgradeResume(&f), e.upgradeAbort(&f), e.upgradeAck(&f),
		e.upgradePolicy(&f))
	c.Long = `Upgrade clusters. CLUSTER is a name in --resource-group, an ARM resource id, or a uid. What is possible when is in
docs/operators/upgrades.md.`
	e.addFleetFlags(c, &f)
	return c
}

// followFlag is which node pools follow their control plane.
type followFlag string

var followNames = map[followFlag]csv1.NodePoolFollow{
	"none": csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE, "unpinned": csv1.NodePoolFollow_NODE_POOL_FOLLOW_UNPINNED, "all": csv1.NodePoolFollow_NODE_POOL_FOLLOW_ALL,
}

// String is the flag's value.
func (v *followFlag) String() string { return string(*v) }

// Type is what help calls it.
func (v *followFlag) Type() string { return "which" }

// Set checks it.
func (v *followFlag) Set(text string) error {
	if _, known := followNames[followFlag(text)]; !known {
		return errors.New("must be none, unpinned or all")
	}
	*v = followFlag(text)
	return nil
}

func (v *followFlag) add(c *cobra.Command) *cobra.Command {
	*v = "none"
	c.Flags().Var(v, "node-pools", "node pools that follow the control plane, one after the other: none, unpinned (those without a version of their own) or all")
	return c
}

func (e *environment) upgradePlan(f *fleetFlags) *cobra.Command {
	var follow followFlag
	c := &cobra.Command{
		Use: "plan CLUSTER [VERSION]", Short: "Show what an upgrade would do, what it would wait for, and what would be allowed", Args: cobra.RangeArgs(1, 2),
		Long: "Show what an upgrade would do. Without VERSION it is the newest release of the cluster's minor version that is recommended to it.",
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			cluster, err := e.findCluster(ctx, client, args[0])
			if err != nil {
				return err
			}
			request := &csv1.PlanUpgradeRequest{ClusterUid: cluster.GetUid(), NodePools: followNames[follow]}
			if len(args) == 2 {
				request.Version = args[1]
			}
			plan, err := client.PlanUpgrade(ctx, request)
			if err != nil {
				return err
			}
			if e.output != "table" {
				return e.showMessage(plan)
			}
			return e.planTables(cluster, plan)
		}),
	}
	e.addOutputFlag(c)
	return follow.add(c)
}

// showMessage writes a message in the API's own form.
func (e *environment) showMessage(m proto.Message) error {
	text, err := protojson.Marshal(m)
	if err != nil {
		return err
	}
	return display.Object(e.out, e.output, rawJSON(text))
}

func (e *environment) planTables(cluster *csv1.Cluster, plan *csv1.UpgradePlan) error {
	fmt.Fprintf(e.out, "cluster %s: %s to %s\n", shortID(cluster.GetResourceId()), plan.GetFromVersion(), plan.GetToVersion())
	for _, r := range plan.GetRefusals() {
		fmt.Fprintf(e.out, "refused (%s): %s\n", r.GetRule(), r.GetMessage())
	}
	if len(plan.GetSteps()) > 0 {
		if err := e.stepTable(plan.GetSteps()); err != nil {
			return err
		}
	}
	if len(plan.GetGates()) > 0 {
		if err := e.gateTable(plan.GetGates()); err != nil {
			return err
		}
	}
	var rows [][]string
	for _, t := range plan.GetTargets() {
		rows = append(rows, []string{t.GetVersion(), strings.Join(t.GetPath(), ", "), strings.Join(t.GetRisks(), ", ")})
	}
	if len(rows) == 0 {
		fmt.Fprintln(e.out, "nothing newer can be reached")
		return nil
	}
	return display.Table(e.out, []string{"POSSIBLE", "BY WAY OF", "RISKS"}, rows)
}

func word(enum fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(enum.String(), prefix), "_", "-"))
}

func (e *environment) stepTable(steps []*csv1.UpgradeStep) error {
	var rows [][]string
	for i, s := range steps {
		what := "control plane"
		if s.GetNodePool() != "" {
			what = "node pool " + s.GetNodePool()
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), what, s.GetFromVersion(), s.GetToVersion(), word(s.GetState(), "UPGRADE_STEP_STATE_"), s.GetMessage()})
	}
	return display.Table(e.out, []string{"STEP", "OF", "FROM", "TO", "STATE", ""}, rows)
}

func (e *environment) gateTable(gates []*csv1.UpgradeGate) error {
	var rows [][]string
	for _, g := range gates {
		about := g.GetMessage()
		switch {
		case g.GetAcknowledgedBy() != nil:
			about += " " + g.GetAcknowledgedBy().GetName() + ": " + g.GetAcknowledgedBy().GetReason()
		case g.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING && g.GetCanBeAcknowledged():
			about += " (hcpctl upgrade ack CLUSTER " + g.GetName() + ")"
		}
		rows = append(rows, []string{g.GetName(), word(g.GetState(), "UPGRADE_GATE_STATE_"), about})
	}
	return display.Table(e.out, []string{"GATE", "STATE", ""}, rows)
}

func (e *environment) upgradeStart(f *fleetFlags) *cobra.Command {
	var follow followFlag
	var notBefore string
	var acknowledge []string
	c := f.intervening(&cobra.Command{
		Use: "start CLUSTER VERSION", Short: "Begin an upgrade", Args: cobra.ExactArgs(2),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			cluster, err := e.findCluster(ctx, client, args[0])
			if err != nil {
				return err
			}
			request := &csv1.StartUpgradeRequest{Uid: uuid.NewString(), ClusterUid: cluster.GetUid(), Version: args[1], NodePools: followNames[follow],
				Acknowledge: acknowledge, Actor: f.actor()}
			if notBefore != "" {
				at, err := time.Parse(time.RFC3339, notBefore)
				if err != nil {
					return fmt.Errorf("--not-before: %q is no time such as 2026-11-21T22:00:00Z", notBefore)
				}
				request.NotBefore = timestamppb.New(at)
			}
			upgrade, err := client.StartUpgrade(ctx, request)
			if err != nil {
				return err
			}
			e.noteUpgrade(upgrade)
			return nil
		}),
	})
	c.Flags().StringVar(&notBefore, "not-before", "", "`time` (RFC 3339) before which the control plane is not moved")
	c.Flags().StringArrayVar(&acknowledge, "acknowledge", nil, "`gate` to acknowledge at once; may be given again")
	return follow.add(c)
}

func (e *environment) noteUpgrade(u *csv1.Upgrade) {
	fmt.Fprintf(e.err, "upgrade %s to %s: %s. %s\n", u.GetUid(), u.GetSpec().GetVersion(), word(u.GetStatus().GetState(), "UPGRADE_STATE_"), u.GetStatus().GetMessage())
}

var activeUpgrades = []csv1.UpgradeState{csv1.UpgradeState_UPGRADE_STATE_WAITING, csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS}

func upgrades(ctx context.Context, client *fleetclient.Client, clusterUID string, states ...csv1.UpgradeState) ([]*csv1.Upgrade, error) {
	var list []*csv1.Upgrade
	for request := (&csv1.ListUpgradesRequest{ClusterUid: clusterUID, States: states, PageSize: 500}); ; {
		page, err := client.ListUpgrades(ctx, request)
		if err != nil {
			return nil, err
		}
		list = append(list, page.GetUpgrades()...)
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" {
			return list, nil
		}
	}
}

// newestUpgrade is the one of a cluster that is under way, or came last: of several under way the first, which moves.
func newestUpgrade(ctx context.Context, client *fleetclient.Client, clusterUID string, states ...csv1.UpgradeState) (*csv1.Upgrade, error) {
	list, err := upgrades(ctx, client, clusterUID, states...)
	if err != nil {
		return nil, err
	}
	active := func(u *csv1.Upgrade) bool { return u.GetStatus().GetCompletionTime() == nil }
	var found *csv1.Upgrade
	for _, u := range list {
		switch {
		case found == nil, active(u) && !active(found):
			found = u
		case active(u) == active(found) && u.GetCreateTime().AsTime().Before(found.GetCreateTime().AsTime()) == active(u):
			found = u
		}
	}
	if found == nil {
		return nil, errors.New("the cluster has no upgrade that is under way")
	}
	return found, nil
}

func (e *environment) upgradeStatus(f *fleetFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "status CLUSTER", Short: "Show how far a cluster's upgrade is: its steps, the components that have not arrived, and what it waits for", Args: cobra.ExactArgs(1),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			cluster, err := e.findCluster(ctx, client, args[0])
			if err != nil {
				return err
			}
			u, err := newestUpgrade(ctx, client, cluster.GetUid())
			if err != nil {
				return err
			}
			if e.output != "table" {
				return e.showMessage(u)
			}
			fmt.Fprintf(e.out, "cluster %s, upgrade %s from %s to %s, by %s: %s since %s. %s\n", shortID(cluster.GetResourceId()), u.GetUid(), u.GetStatus().GetFromVersion(),
				u.GetSpec().GetVersion(), by(u), word(u.GetStatus().GetState(), "UPGRADE_STATE_"), u.GetStatus().GetSince().AsTime().Format(time.RFC3339), u.GetStatus().GetMessage())
			if err := e.stepTable(u.GetStatus().GetSteps()); err != nil {
				return err
			}
			if err := e.componentTable(u.GetStatus().GetSteps()); err != nil || len(u.GetStatus().GetGates()) == 0 {
				return err
			}
			return e.gateTable(u.GetStatus().GetGates())
		}),
	}
	e.addOutputFlag(c)
	return c
}

// by is who wanted an upgrade.
func by(u *csv1.Upgrade) string {
	switch u.GetSpec().GetOrigin() {
	case csv1.UpgradeOrigin_UPGRADE_ORIGIN_CUSTOMER:
		return "the customer"
	case csv1.UpgradeOrigin_UPGRADE_ORIGIN_POLICY:
		return "policy " + u.GetSpec().GetPolicy()
	}
	return u.GetSpec().GetActor().GetName()
}

func (e *environment) upgradeList(f *fleetFlags) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List the upgrades of the region that are under way", Args: cobra.NoArgs,
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, _ []string) error {
			states := activeUpgrades
			if all {
				states = nil
			}
			list, err := upgrades(ctx, client, "", states...)
			if err != nil {
				return err
			}
			var rows [][]string
			for _, u := range list {
				rows = append(rows, []string{u.GetClusterUid(), u.GetStatus().GetFromVersion(), u.GetSpec().GetVersion(), by(u), word(u.GetStatus().GetState(), "UPGRADE_STATE_"),
					time.Since(u.GetStatus().GetSince().AsTime()).Round(time.Second).String(), u.GetStatus().GetMessage()})
			}
			return display.Table(e.out, []string{"CLUSTER", "FROM", "TO", "BY", "STATE", "SINCE", ""}, rows)
		}),
	}
	c.Flags().BoolVarP(&all, "all", "A", false, "those that came to their end in the last 7 days, too")
	return c
}

// onUpgrade is a command about the upgrade of a cluster that is under way.
func (e *environment) onUpgrade(f *fleetFlags, use, short string, more int, do func(ctx context.Context, client *fleetclient.Client, u *csv1.Upgrade, args []string) (*csv1.Upgrade, error)) *cobra.Command {
	return f.intervening(&cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1 + more),
		RunE: e.withFleet(f, func(ctx context.Context, client *fleetclient.Client, args []string) error {
			cluster, err := e.findCluster(ctx, client, args[0])
			if err != nil {
				return err
			}
			u, err := newestUpgrade(ctx, client, cluster.GetUid(), activeUpgrades...)
			if err != nil {
				return err
			}
			if u, err = do(ctx, client, u, args[1:]); err != nil {
				return err
			}
			e.noteUpgrade(u)
			return nil
		}),
	})
}

func (e *environment) upgradePause(f *fleetFlags) *cobra.Command {
	return e.onUpgrade(f, "pause CLUSTER", "Hold an upgrade: what has begun goes on, nothing new begins", 0,
		func(ctx context.Context, client *fleetclient.Client, u *csv1.Upgrade, _ []string) (*csv1.Upgrade, error) {
			return client.PauseUpgrade(ctx, &csv1.PauseUpgradeRequest{Uid: u.GetUid(), Actor: f.actor()})
		})
}

func (e *environment) upgradeResume(f *fleetFlags) *cobra.Command {
	return e.onUpgrade(f, "resume CLUSTER", "Let a paused upgrade go on", 0,
		func(ctx context.Context, client *fleetclient.Client, u *csv1.Upgrade, _ []string) (*csv1.Upgrade, error) {
			return client.ResumeUpgrade(ctx, &csv1.ResumeUpgradeRequest{Uid: u.GetUid(), Actor: f.actor()})
		})
}

func (e *environment) upgradeAbort(f *fleetFlags) *cobra.Command {
	return e.onUpgrade(f, "abort CLUSTER", "Give an upgrade up; refused while the control plane moves", 0,
		func(ctx context.Context, client *fleetclient.Client, u *csv1.Upgrade, _ []string) (*csv1.Upgrade, error) {
			return client.AbortUpgrade(ctx, &csv1.AbortUpgradeRequest{Uid: u.GetUid(), Actor: f.actor()})
		})
}

func (e *environment) upgradeAck(f *fleetFlags) *cobra.Command {
	return e.onUpgrade(f, "ack CLUSTER GATE", "Pass a gate of an upgrade by taking the responsibility", 1,
		func(ctx context.Context, client *fleetclient.Client, u *csv1.Upgrade, args []string) (*csv1.Upgrade, error) {
			return client.AcknowledgeUpgradeGate(ctx, &csv1.AcknowledgeUpgradeGateRequest{Uid: u.GetUid(), Gate: args[0], Actor: f.actor()})
		})
}
