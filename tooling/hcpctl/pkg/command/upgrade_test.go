package command

import (
	"context"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

func (f *fleetService) PlanUpgrade(_ context.Context, r *csv1.PlanUpgradeRequest) (*csv1.UpgradePlan, error) {
	plan := &csv1.UpgradePlan{ClusterUid: r.GetClusterUid(), FromVersion: "4.20.8", ToVersion: r.GetVersion(), Targets: []*csv1.UpgradeTarget{
		{Version: "4.21.4", Minor: true, Path: []string{"4.20.16", "4.21.4"}}, {Version: "4.21.1", Minor: true, Path: []string{"4.21.1"}, Risks: []string{"KubeletLeaksMounts"}}}}
	if r.GetVersion() == "4.19.20" {
		plan.Refusals = []*csv1.UpgradeRefusal{{Rule: "VERSION_NOT_NEWER", Message: "The control plane runs 4.20.8, and nothing lowers a version. Allowed are 4.21.4, 4.21.1."}}
		return plan, nil
	}
	plan.Steps, plan.Gates = upgradeSteps, upgradeGates
	return plan, nil
}

func (f *fleetService) upgrade() *csv1.Upgrade {
	return &csv1.Upgrade{Uid: "5c1e", ClusterUid: deletingUID, CreateTime: timestamppb.New(time.Now().Add(-time.Hour)),
		Spec: &csv1.UpgradeSpec{Version: "4.21.4", Origin: csv1.UpgradeOrigin_UPGRADE_ORIGIN_OPERATOR, Actor: &csv1.Actor{Name: "ada"}},
		Status: &csv1.UpgradeStatus{State: csv1.UpgradeState_UPGRADE_STATE_WAITING, Message: "Somebody has to agree to that.", FromVersion: "4.20.8",
			Since: timestamppb.New(time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)), Steps: upgradeSteps, Gates: upgradeGates}}
}

// rollingOut is a control plane of which one component has arrived.
var rollingOut = []*csv1.UpgradeStep{
	{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE, FromVersion: "4.20.8", ToVersion: "4.20.16", State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING,
		Message: "The control plane rolls out 4.20.16. 1 of 3 components are at 4.20.16; waiting for kube-apiserver.",
		Components: []*csv1.ComponentProgress{
			{Name: "etcd", Version: "4.20.16", State: csv1.ComponentState_COMPONENT_STATE_UPDATED, Since: timestamppb.New(time.Date(2026, 11, 21, 3, 2, 0, 0, time.UTC))},
			{Name: "kube-apiserver", Version: "4.20.8", State: csv1.ComponentState_COMPONENT_STATE_ROLLING_OUT, Since: timestamppb.New(time.Date(2026, 11, 21, 3, 2, 1, 0, time.UTC)),
				Message: "Waiting for deployment kube-apiserver rollout to finish: 0 out of 3 new replicas have been updated"},
			{Name: "kube-scheduler", Version: "4.20.8", State: csv1.ComponentState_COMPONENT_STATE_WAITING, Since: timestamppb.New(time.Date(2026, 11, 21, 3, 0, 15, 0, time.UTC)),
				Message: "Waiting for Dependencies: kube-apiserver"},
		}},
	upgradeSteps[2],
}

// TestComponents: those that have not arrived are listed, what rolls out before what waits for it.
func TestComponents(t *testing.T) {
	var out strings.Builder
	e := &environment{out: &out}
	if err := e.stepTable(rollingOut); err != nil {
		t.Fatal(err)
	}
	if err := e.componentTable(rollingOut); err != nil {
		t.Fatal(err)
	}
	golden(t, "upgrade-components.txt", out.String())
	out.Reset()
	if err := e.componentTable(upgradeSteps); err != nil || out.Len() > 0 {
		t.Errorf("without components it says %q, %v", out.String(), err)
	}
}

func (f *fleetService) StartUpgrade(_ context.Context, r *csv1.StartUpgradeRequest) (*csv1.Upgrade, error) {
	f.actors, f.args = append(f.actors, r.GetActor()), append(f.args, r.GetVersion(), r.GetNodePools().String(), strings.Join(r.GetAcknowledge(), " "))
	return f.upgrade(), nil
}

func (f *fleetService) ListUpgrades(context.Context, *csv1.ListUpgradesRequest) (*csv1.ListUpgradesResponse, error) {
	ended := f.upgrade()
	ended.Uid, ended.Status.CompletionTime = "0000", timestamppb.Now()
	return &csv1.ListUpgradesResponse{Upgrades: []*csv1.Upgrade{ended, f.upgrade()}}, nil
}

func (f *fleetService) AbortUpgrade(_ context.Context, r *csv1.AbortUpgradeRequest) (*csv1.Upgrade, error) {
	if r.GetUid() != "5c1e" {
		return nil, status.Error(codes.NotFound, r.GetUid())
	}
	return nil, status.Error(codes.FailedPrecondition, "The control plane goes to 4.21.4, and nothing lowers a version.")
}

func (f *fleetService) AcknowledgeUpgradeGate(_ context.Context, r *csv1.AcknowledgeUpgradeGateRequest) (*csv1.Upgrade, error) {
	f.actors, f.args = append(f.actors, r.GetActor()), append(f.args, r.GetUid(), r.GetGate())
	return f.upgrade(), nil
}

func (f *fleetService) ApplyUpgradePolicy(_ context.Context, r *csv1.ApplyUpgradePolicyRequest) (*csv1.UpgradePolicy, error) {
	f.actors, f.args = append(f.actors, r.GetActor()), append(f.args, r.GetName(), concerned(r.GetSpec()), when(r.GetSpec()), atOnce(r.GetSpec()))
	return &csv1.UpgradePolicy{}, nil
}

func (f *fleetService) GetUpgradePolicy(_ context.Context, r *csv1.GetUpgradePolicyRequest) (*csv1.UpgradePolicy, error) {
	return &csv1.UpgradePolicy{Name: r.GetName(), Spec: &csv1.UpgradePolicySpec{MaxConcurrent: 50}, Status: &csv1.UpgradePolicyStatus{Open: true, Running: 50, Remaining: 400, UpToDate: 49,
		LeftOut: []*csv1.LeftOutCluster{{ResourceId: f.cluster.GetResourceId(), Reason: "It is not ready."}}}}, nil
}

func TestUpgradeCommands(t *testing.T) {
	f, flags := startFleet(t)
	run := func(args ...string) (out, progress string, err error) {
		t.Helper()
		var stdout, stderr strings.Builder
		c := New(&stdout, &stderr)
		c.SetArgs(append(args, flags...))
		err = c.ExecuteContext(t.Context())
		return stdout.String(), stderr.String(), err
	}
	for name, args := range map[string][]string{
		"upgrade-plan.txt":    {"upgrade", "plan", deletingUID, "4.21.4", "--node-pools", "all"},
		"upgrade-refused.txt": {"upgrade", "plan", deletingUID, "4.19.20"},
		"upgrade-status.txt":  {"upgrade", "status", deletingUID},
		"upgrade-policy.txt":  {"upgrade", "policy", "show", "patches"},
	} {
		out, _, err := run(args...)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, out)
	}
	for _, args := range [][]string{
		{"upgrade", "start", deletingUID, "4.21.4", "--node-pools", "unpinned", "--acknowledge", "minor-version", "--reason", "a fix"},
		{"upgrade", "ack", deletingUID, "minor-version", "--reason", "a fix"},
		{"upgrade", "policy", "apply", "patches", "--window", "sat,sun 01:00 240", "--max-concurrent", "50", "--minor", "4.21", "--reason", "a fix"},
	} {
		if _, _, err := run(args...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	want := "4.21.4 NODE_POOL_FOLLOW_UNPINNED minor-version 5c1e minor-version patches minor 4.21 SAT,SUN 01:00 for 240 min 50"
	if got := strings.Join(f.args, " "); got != want {
		t.Errorf("asked for %q, want %q", got, want)
	}
	for _, a := range f.actors {
		if a.GetReason() != "a fix" || a.GetName() == "" {
			t.Errorf("recorded as %v", a)
		}
	}
	for says, args := range map[string][]string{
		"nothing lowers a version": {"upgrade", "abort", deletingUID, "--reason", "a fix"},
		"reason":                   {"upgrade", "pause", deletingUID},
		"none, unpinned or all":    {"upgrade", "plan", deletingUID, "--node-pools", "some"},
		"--not-before":             {"upgrade", "start", deletingUID, "4.21.4", "--not-before", "tomorrow", "--reason", "a fix"},
		"--window":                 {"upgrade", "policy", "apply", "x", "--window", "SAT", "--reason", "a fix"},
	} {
		if _, _, err := run(args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want it to say %q", args, err, says)
		}
	}
}
