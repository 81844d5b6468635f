package command

import (
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var upgradeSteps = []*csv1.UpgradeStep{
	{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE, FromVersion: "4.20.8", ToVersion: "4.20.16", State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_COMPLETED, Message: "The control plane runs 4.20.16."},
	{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE, FromVersion: "4.20.16", ToVersion: "4.21.4", State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED},
	{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_NODE_POOL, NodePool: "workers", FromVersion: "4.20.8", ToVersion: "4.21.4", State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_PLANNED},
}

var upgradeGates = []*csv1.UpgradeGate{
	{Name: "cluster-ready", State: csv1.UpgradeGateState_UPGRADE_GATE_STATE_PASSED, Message: "The control plane runs 4.20.16 and is available."},
	{Name: "minor-version", State: csv1.UpgradeGateState_UPGRADE_GATE_STATE_WAITING, CanBeAcknowledged: true, Message: "Somebody has to agree to that."},
}

// withUpgrades adds a cluster with a waiting and a completed upgrade to the simulated admin.
func withUpgrades(t *testing.T) *sres {
	a := newSREs(t)
	plan := func(to string) *csv1.UpgradePlan {
		return &csv1.UpgradePlan{ClusterUid: deletingUID, FromVersion: "4.20.8", ToVersion: to, Targets: []*csv1.UpgradeTarget{
			{Version: "4.21.4", Minor: true, Path: []string{"4.20.16", "4.21.4"}}, {Version: "4.21.1", Minor: true, Path: []string{"4.21.1"}, Risks: []string{"KubeletLeaksMounts"}}}}
	}
	possible, refused := plan("4.21.4"), plan("4.19.20")
	possible.Steps, possible.Gates = upgradeSteps, upgradeGates
	refused.Refusals = []*csv1.UpgradeRefusal{{Rule: "VERSION_NOT_NEWER", Message: "The control plane runs 4.20.8, and a version cannot be lowered. Allowed are 4.21.4, 4.21.1."}}
	upgrade := func(uid string, ended *timestamppb.Timestamp) *csv1.Upgrade {
		return &csv1.Upgrade{Uid: uid, ClusterUid: deletingUID, CreateTime: timestamppb.New(time.Now().Add(-time.Hour)),
			Spec: &csv1.UpgradeSpec{Version: "4.21.4", Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_OPERATOR, Actor: &csv1.Actor{Name: "ada"}},
			Status: &csv1.UpgradeStatus{State: csv1.UpgradeState_UPGRADE_STATE_WAITING, Message: "Somebody has to agree to that.", FromVersion: "4.20.8", CompletionTime: ended,
				Since: timestamppb.New(time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)), Steps: upgradeSteps, Gates: upgradeGates}}
	}
	cluster := adminv1.Cluster{UID: deletingUID, ResourceID: deletingID}
	list := adminv1.UpgradeList{Items: adminv1.Messages([]*csv1.Upgrade{upgrade("0000", timestamppb.Now()), upgrade("5c1e", nil)})}
	a.shown = map[string]any{
		"/clusters/mine":                         cluster,
		"/clusters/other":                        adminv1.Cluster{UID: "other"},
		"/clusters/" + deletingUID + "/upgrades": list,
		"/clusters/mine/upgrades":                list,
		"/clusters/other/upgrades":               adminv1.UpgradeList{Items: list.Items[:1]},
		"/clusters/" + deletingUID + "/upgrade-plan?nodePools=all&version=4.21.4":   wire(possible),
		"/clusters/" + deletingUID + "/upgrade-plan?nodePools=none&version=4.19.20": wire(refused),
		"/upgrade-policies/patches": wire(&csv1.UpgradePolicy{Name: "patches", Spec: &csv1.UpgradePolicySpec{MaxConcurrent: 50},
			Status: &csv1.UpgradePolicyStatus{Open: true, Running: 50, Remaining: 400, UpToDate: 49,
				LeftOut: []*csv1.LeftOutCluster{{ResourceId: deletingID, Reason: "It is not ready."}}}}),
	}
	a.results = map[string]any{"POST /clusters/mine/upgrades": wire(upgrade("5c1e", nil)), "POST /upgrades/5c1e/acknowledge": wire(upgrade("5c1e", nil))}
	a.refused["POST /upgrades/5c1e/abort"] = "The control plane is being upgraded to 4.21.4, and a version cannot be lowered."
	return a
}

func TestUpgradeCommands(t *testing.T) {
	g := &sreGroup{sres: withUpgrades(t), name: "upgrade", reason: "a fix for all", ticket: "CHG-8"}
	g.prints(t, map[string][]string{
		"upgrade-plan.txt":    {"plan", "mine", "4.21.4", "--node-pools", "all"},
		"upgrade-refused.txt": {"plan", "mine", "4.19.20"},
		"upgrade-status.txt":  {"status", "mine"},
		"upgrade-policy.txt":  {"policy", "show", "patches"},
	})
	g.acts(t, []sreAction{
		{[]string{"start", "mine", "4.21.4", "--node-pools", "unpinned"}, adminv1.Operate,
			`POST /clusters/mine/upgrades {"version":"4.21.4","nodePools":"NODE_POOL_FOLLOW_UNPINNED"}`, "upgrade 5c1e to 4.21.4: waiting."},
		{[]string{"start", "mine", "4.21.4", "--acknowledge", "minor-version", "--not-before", "2026-11-21T22:00:00Z"}, adminv1.Recover,
			`POST /clusters/mine/upgrades {"version":"4.21.4","nodePools":"NODE_POOL_FOLLOW_NONE","notBefore":"2026-11-21T22:00:00Z","acknowledge":["minor-version"]}`, "5c1e"},
		{[]string{"ack", "mine", "minor-version"}, adminv1.Recover, `POST /upgrades/5c1e/acknowledge {"gate":"minor-version"}`, "upgrade 5c1e"},
		{[]string{"pause", "mine"}, adminv1.Operate, `POST /upgrades/5c1e/pause`, "succeeded"},
		{[]string{"resume", "mine"}, adminv1.Operate, `POST /upgrades/5c1e/resume`, "succeeded"},
		{[]string{"policy", "apply", "patches", "--window", "sat,sun 01:00 240", "--max-concurrent", "50", "--minor", "4.21", "--cluster", "mine"}, adminv1.Operate,
			`PUT /upgrade-policies/patches {"spec":{"clusterUid":"` + deletingUID + `","minorVersions":["4.21"],"schedule":{"weekly":[{"days":["SAT","SUN"],"start":"01:00","minutes":240}]},` +
				`"maxConcurrent":50,"nodePools":"NODE_POOL_FOLLOW_NONE"}}`, "policy patches applied"},
		{[]string{"policy", "delete", "patches"}, adminv1.Operate, `DELETE /upgrade-policies/patches`, "policy patches deleted"},
	})
	for says, args := range map[string][]string{
		"a version cannot be lowered": {"abort", "mine"},
		"no upgrade":                  {"pause", "other"},
		"none, unpinned or all":       {"start", "mine", "4.21.4", "--node-pools", "some"},
		"--not-before":                {"start", "mine", "4.21.4", "--not-before", "tomorrow"},
		"--window":                    {"policy", "apply", "x", "--window", "SAT"},
	} {
		if _, err := g.run(t, g.because(args...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want it to say %q", args, err, says)
		}
	}
}
