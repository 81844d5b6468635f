package command

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func (e *environment) upgrade() *cobra.Command {
	c := group("upgrade", "Plan, start and control upgrades of clusters",
		e.upgradePlan(), e.upgradeStart(), e.upgradeStatus(), e.upgradeList(), e.upgradePolicy())
	c.Long = `Plan, start and control upgrades of clusters, and manage upgrade policies. docs/operators/upgrades.md describes which upgrades are
possible when.`
	return c
}

// followFlag selects the node pools that follow their control plane.
type followFlag string

var followNames = map[followFlag]csv1.NodePoolFollow{
	"none": csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE, "unpinned": csv1.NodePoolFollow_NODE_POOL_FOLLOW_UNPINNED, "all": csv1.NodePoolFollow_NODE_POOL_FOLLOW_ALL,
}

// String implements pflag.Value.
func (v *followFlag) String() string { return string(*v) }

// Type implements pflag.Value.
func (v *followFlag) Type() string { return "which" }

// Set implements pflag.Value.
func (v *followFlag) Set(text string) error {
	if _, known := followNames[followFlag(text)]; !known {
		return errors.New("must be none, unpinned or all")
	}
	*v = followFlag(text)
	return nil
}

func (v *followFlag) add(c *cobra.Command) *cobra.Command {
	*v = "none"
	c.Flags().Var(v, "node-pools", "node pools that follow the control plane, one at a time: none, unpinned (without a version of their own) or all")
	return c
}

func (e *environment) upgradePlan() *cobra.Command {
	var follow followFlag
	c := e.readCommand(&cobra.Command{
		Use: "plan CLUSTER [VERSION]", Short: "Show the steps, gates and possible targets of an upgrade",
		Long: `Show the steps, gates and possible targets of an upgrade. VERSION defaults to the newest recommended release of the cluster's
minor version.`,
	}, func(ctx context.Context, client *adminclient.Client, args []string) error {
		cluster, err := adminclient.Get(ctx, client, adminv1.ReadCluster, nil, args[0])
		if err != nil {
			return err
		}
		plan, err := adminclient.Get(ctx, client, adminv1.ReadUpgradePlan, adminclient.Query{"version": strings.Join(args[1:], ""), "nodePools": string(follow)}, cluster.UID)
		if err != nil {
			return err
		}
		return e.printAs(plan, func() error { return e.planTables(cluster, plan.Of) })
	})
	return follow.add(e.addOutputFlag(c))
}

func (e *environment) planTables(cluster *adminv1.Cluster, plan *csv1.UpgradePlan) error {
	fmt.Fprintf(e.out, "cluster %s: %s to %s\n", shortID(cluster.ResourceID), plan.GetFromVersion(), plan.GetToVersion())
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
	if len(plan.GetTargets()) == 0 {
		fmt.Fprintln(e.out, "no newer version is reachable")
		return nil
	}
	return display.List(e.out, plan.GetTargets(), func(t *csv1.UpgradeTarget) display.Row {
		return display.Row{{"TARGET", t.GetVersion()}, {"PATH", strings.Join(t.GetPath(), ", ")}, {"RISKS", strings.Join(t.GetRisks(), ", ")}}
	})
}

func enumWord(enum fmt.Stringer, prefix string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(enum.String(), prefix), "_", "-"))
}

func (e *environment) stepTable(steps []*csv1.UpgradeStep) error {
	var rows [][]string
	for i, s := range steps {
		object := "control plane"
		if s.GetNodePool() != "" {
			object = "node pool " + s.GetNodePool()
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), object, s.GetFromVersion(), s.GetToVersion(), enumWord(s.GetState(), "UPGRADE_STEP_STATE_"), s.GetMessage()})
	}
	return display.Table(e.out, []string{"STEP", "OBJECT", "FROM", "TO", "STATE", "MESSAGE"}, rows)
}

func (e *environment) gateTable(gates []*csv1.UpgradeGate) error {
	return display.List(e.out, gates, func(g *csv1.UpgradeGate) display.Row {
		about := g.GetMessage()
		switch {
		case g.GetAcknowledgedBy() != nil:
			about += " " + g.GetAcknowledgedBy().GetName() + ": " + g.GetAcknowledgedBy().GetReason()
		case g.GetState() == csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING && g.GetCanBeAcknowledged():
			about += " (hcpctl upgrade ack CLUSTER " + g.GetName() + ")"
		}
		return display.Row{{"GATE", g.GetName()}, {"STATE", enumWord(g.GetState(), "UPGRADE_GATE_STATE_")}, {"MESSAGE", about}}
	})
}

func (e *environment) upgradeStart() *cobra.Command {
	var follow followFlag
	var notBefore string
	request := &csv1.StartUpgradeRequest{}
	c := &cobra.Command{
		Use: "start CLUSTER VERSION", Short: "Start an upgrade", Long: "Start an upgrade. With --acknowledge it requires the role break-glass.",
		PreRunE: func(*cobra.Command, []string) error {
			if notBefore == "" {
				return nil
			}
			at, err := time.Parse(time.RFC3339, notBefore)
			if err != nil {
				return fmt.Errorf("--not-before: %q is not an RFC 3339 time such as 2026-11-21T22:00:00Z", notBefore)
			}
			request.NotBefore = timestamppb.New(at)
			return nil
		},
	}
	c.Flags().StringVar(&notBefore, "not-before", "", "earliest start `time` of the control plane, RFC 3339")
	c.Flags().StringArrayVar(&request.Acknowledge, "acknowledge", nil, "`gate` to acknowledge immediately; repeatable")
	follow.add(c)
	class := func() adminv1.AccessClass {
		if len(request.Acknowledge) > 0 {
			return adminv1.ClassOf(adminv1.ActionUpgradeAcknowledge)
		}
		return adminv1.ClassOf(adminv1.ActionUpgradeStart)
	}
	return e.requestWith(c, class, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		request.Version, request.NodePools = args[1], followNames[follow]
		return client.Act(ctx, adminv1.ActionUpgradeStart, request, args[0])
	}, func(operation *adminv1.Operation) error { return printResult(e, operation, e.printUpgrade) })
}

// printUpgrade prints the state of an upgrade that was changed.
func (e *environment) printUpgrade(u *csv1.Upgrade) error {
	_, err := fmt.Fprintf(e.out, "upgrade %s to %s: %s. %s\n", u.GetUid(), u.GetSpec().GetVersion(), enumWord(u.GetStatus().GetState(), "UPGRADE_STATE_"), u.GetStatus().GetMessage())
	return err
}

// inProgress reports whether an upgrade has not ended.
func inProgress(u *csv1.Upgrade) bool { return u.GetStatus().GetCompletionTime() == nil }

// newestUpgrade returns the oldest upgrade in progress, which is the one that advances, or else the last one that ended.
func newestUpgrade(list []*csv1.Upgrade) (*csv1.Upgrade, error) {
	var found *csv1.Upgrade
	for _, u := range list {
		switch {
		case found == nil, inProgress(u) && !inProgress(found):
			found = u
		case inProgress(u) == inProgress(found) && u.GetCreateTime().AsTime().Before(found.GetCreateTime().AsTime()) == inProgress(u):
			found = u
		}
	}
	if found == nil {
		return nil, notFound("the cluster has no upgrade in progress; `hcpctl upgrade plan CLUSTER` lists possible ones")
	}
	return found, nil
}

func (e *environment) upgradeStatus() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "status CLUSTER", Short: "Show the steps, components and gates of the upgrade of a cluster"}, func(ctx context.Context, client *adminclient.Client, args []string) error {
		cluster, err := adminclient.Get(ctx, client, adminv1.ReadCluster, nil, args[0])
		if err != nil {
			return err
		}
		list, err := adminclient.Get(ctx, client, adminv1.ReadClusterUpgrades, nil, cluster.UID)
		if err != nil {
			return err
		}
		u, err := newestUpgrade(adminv1.Contents(list.Items))
		if err != nil {
			return err
		}
		return e.printAs(adminv1.FleetUpgrade{Of: u}, func() error { return e.upgradeTables(cluster, u) })
	})
	return e.addOutputFlag(c)
}

func (e *environment) upgradeTables(cluster *adminv1.Cluster, u *csv1.Upgrade) error {
	fmt.Fprintf(e.out, "cluster %s, upgrade %s from %s to %s, by %s: %s since %s. %s\n", shortID(cluster.ResourceID), u.GetUid(), u.GetStatus().GetFromVersion(),
		u.GetSpec().GetVersion(), requesterOf(u), enumWord(u.GetStatus().GetState(), "UPGRADE_STATE_"), u.GetStatus().GetSince().AsTime().Format(time.RFC3339), u.GetStatus().GetMessage())
	if err := e.stepTable(u.GetStatus().GetSteps()); err != nil {
		return err
	}
	if err := e.componentTable(u.GetStatus().GetSteps()); err != nil || len(u.GetStatus().GetGates()) == 0 {
		return err
	}
	return e.gateTable(u.GetStatus().GetGates())
}

// requesterOf returns who requested an upgrade.
func requesterOf(u *csv1.Upgrade) string {
	switch u.GetSpec().GetOrigin() {
	case csv1.UpgradeOrigin_UPGRADE_ORIGIN_CUSTOMER:
		return "the customer"
	case csv1.UpgradeOrigin_UPGRADE_ORIGIN_POLICY:
		return "policy " + u.GetSpec().GetPolicy()
	}
	return u.GetSpec().GetActor().GetName()
}

func (e *environment) upgradeList() *cobra.Command {
	var all bool
	c := answer(e, &cobra.Command{Use: "list", Short: "List upgrades in progress"},
		func(ctx context.Context, client *adminclient.Client, _ []string) ([]adminv1.FleetUpgrade, error) {
			list, _, err := adminclient.List(ctx, client, adminv1.ReadUpgrades, adminclient.Query{"active": !all}, math.MaxInt)
			return list, err
		}, func(list []adminv1.FleetUpgrade) error {
			return printList(e, list, func(u adminv1.FleetUpgrade) display.Row {
				status := u.Of.GetStatus()
				return display.Row{{"CLUSTER", u.Of.GetClusterUid()}, {"FROM", status.GetFromVersion()}, {"TO", u.Of.GetSpec().GetVersion()}, {"REQUESTER", requesterOf(u.Of)}, {"STATE", enumWord(status.GetState(), "UPGRADE_STATE_")},
					{"AGE", time.Since(status.GetSince().AsTime()).Round(time.Second).String()}, {"MESSAGE", status.GetMessage()}}
			})
		})
	c.Flags().BoolVarP(&all, "all", "A", false, "include upgrades that ended in the last 7 days")
	return c
}

// upgradeInProgress returns the upgrade in progress of a cluster.
func upgradeInProgress(ctx context.Context, client *adminclient.Client, cluster string) (*csv1.Upgrade, error) {
	list, err := adminclient.Get(ctx, client, adminv1.ReadClusterUpgrades, nil, cluster)
	if err != nil {
		return nil, err
	}
	return newestUpgrade(slices.DeleteFunc(adminv1.Contents(list.Items), func(u *csv1.Upgrade) bool { return !inProgress(u) }))
}
