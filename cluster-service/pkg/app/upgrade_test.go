package app_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	awaitsGates  = csv1.UpgradeState_UPGRADE_STATE_WAITING
	controlPlane = csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE
	nodePools    = csv1.UpgradeState_UPGRADE_STATE_NODE_POOLS
	completed    = csv1.UpgradeState_UPGRADE_STATE_COMPLETED
	aborted      = csv1.UpgradeState_UPGRADE_STATE_ABORTED
	canceled     = csv1.UpgradeState_UPGRADE_STATE_CANCELED

	followAll = csv1.NodePoolFollow_NODE_POOL_FOLLOW_ALL
)

var ada = &csv1.Actor{Name: "ada@example.com", Reason: "a fix is needed", Ticket: "INC-7"}

// installed creates a cluster at an exact version with node pools and waits until everything is ready. It then removes
// the tag for the exact version.
func (i *instance) installed(t *testing.T, name, version string, pools ...string) *csv1.ApplyClusterRequest {
	t.Helper()
	request := applyRequest(name, 1)
	request.Spec.Version.Id = version[:strings.LastIndexByte(version, '.')]
	request.Spec.Experiments = map[string]string{experiment.ExactVersion: version}
	must.Get(i.ApplyCluster(t.Context(), request))(t)
	for _, pool := range pools {
		must.Get(i.ApplyNodePool(t.Context(), poolRequest(request, pool, 2)))(t)
	}
	i.awaitCluster(t, request.Uid, clusterReady(1))
	for _, pool := range pools {
		i.awaitPool(t, poolRequest(request, pool, 2).Uid, poolAt(version))
	}
	return request
}

func poolAt(version string) func(*csv1.NodePool) bool {
	return func(p *csv1.NodePool) bool {
		return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY && p.GetStatus().GetVersion() == version
	}
}

func runs(versions ...string) func(*csv1.Cluster) bool {
	return func(c *csv1.Cluster) bool { return slices.Equal(c.GetStatus().GetActiveVersions(), versions) }
}

func startRequest(cluster *csv1.ApplyClusterRequest, version string, follow csv1.NodePoolFollow) *csv1.StartUpgradeRequest {
	return &csv1.StartUpgradeRequest{Uid: uuid.NewString(), ClusterUid: cluster.Uid, Version: version, NodePools: follow, Actor: ada}
}

func (i *instance) awaitUpgrade(t *testing.T, wanted func(*csv1.Upgrade) bool) *csv1.Upgrade {
	t.Helper()
	var last *csv1.Upgrade
	i.watchUntil(t, func(r *csv1.WatchResponse) bool {
		if u := r.GetUpgrade(); u != nil {
			last = u
			return wanted(u)
		}
		return false
	}, func() string { return fmt.Sprint(last) })
	return last
}

// startUpgrade starts an upgrade and waits until one satisfies wanted.
func (i *instance) startUpgrade(t *testing.T, request *csv1.StartUpgradeRequest, wanted func(*csv1.Upgrade) bool) *csv1.Upgrade {
	t.Helper()
	must.Get(i.StartUpgrade(t.Context(), request))(t)
	return i.awaitUpgrade(t, wanted)
}

func upgradeIs(uid string, state csv1.UpgradeState) func(*csv1.Upgrade) bool {
	return func(u *csv1.Upgrade) bool {
		return (uid == "" || u.GetUid() == uid) && u.GetStatus().GetState() == state
	}
}

func said(state csv1.UpgradeState, message string) func(*csv1.Upgrade) bool {
	return func(u *csv1.Upgrade) bool {
		return u.GetStatus().GetState() == state && strings.Contains(u.GetStatus().GetMessage(), message)
	}
}

// refusal returns the reason of an error.
func refusal(err error) string {
	var known *apierror.Error
	if !errors.As(apierror.FromGRPC(err), &known) {
		return ""
	}
	return known.Reason
}

func (r *region) nothingWasWrong(t *testing.T) {
	t.Helper()
	if violations := r.hypershift.Violations(); len(violations) > 0 {
		t.Errorf("violations on the management clusters: %v", violations)
	}
}

func steps(u *csv1.Upgrade) []string {
	var list []string
	for _, s := range u.GetStatus().GetSteps() {
		name := s.GetNodePool()
		if name == "" {
			name = "control plane"
		}
		list = append(list, fmt.Sprintf("%s %s to %s %s", name, s.GetFromVersion(), s.GetToVersion(), strings.TrimPrefix(s.GetState().String(), "UPGRADE_STEP_STATE_")))
	}
	return list
}

// TestUpgradeInSteps upgrades a cluster from an old release to the next minor version over the newest patch of its own
// minor version. Its node pools follow one after the other. The upgrade follows the plan.
func TestUpgradeInSteps(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster := service.installed(t, "c", "4.20.8", "a", "b")

	plan := must.Get(service.PlanUpgrade(ctx, &csv1.PlanUpgradeRequest{ClusterUid: cluster.Uid, Version: "4.21.4", NodePools: followAll}))(t)
	request := startRequest(cluster, "4.21.4", followAll)
	want := steps(&csv1.Upgrade{Status: &csv1.UpgradeStatus{Steps: plan.GetSteps()}})
	if len(plan.GetRefusals()) > 0 || !slices.Equal(want, []string{"control plane 4.20.8 to 4.20.16 PLANNED", "control plane 4.20.16 to 4.21.4 PLANNED",
		"a 4.20.8 to 4.21.4 PLANNED", "b 4.20.8 to 4.21.4 PLANNED"}) {
		t.Fatalf("plan: %v, refusals %v", want, plan.GetRefusals())
	}
	started := must.Get(service.StartUpgrade(ctx, request))(t)
	again, err := service.StartUpgrade(ctx, request)
	if err != nil || again.GetUid() != started.GetUid() {
		t.Errorf("repeated request: %v, %v", again, err)
	}
	// Another minor version needs an acknowledgement.
	service.awaitUpgrade(t, said(awaitsGates, "removes APIs"))
	if _, err := service.AcknowledgeUpgradeGate(ctx, &csv1.AcknowledgeUpgradeGateRequest{Uid: request.Uid, Gate: fleet.GateClusterReady, Actor: ada}); refusal(err) != fleet.RuleGateNotAcknowledgable {
		t.Errorf("gate that cannot be acknowledged: %v", err)
	}
	if _, err := service.AcknowledgeUpgradeGate(ctx, &csv1.AcknowledgeUpgradeGateRequest{Uid: request.Uid, Gate: "x", Actor: ada}); refusal(err) != fleet.RuleGateUnknown {
		t.Errorf("unknown gate: %v", err)
	}
	must.Get(service.AcknowledgeUpgradeGate(ctx, &csv1.AcknowledgeUpgradeGateRequest{Uid: request.Uid, Gate: fleet.GateMinorVersion, Actor: ada}))(t)
	done := service.awaitUpgrade(t, upgradeIs(request.Uid, completed))
	for i := range want {
		want[i] = strings.Replace(want[i], "PLANNED", "COMPLETED", 1)
	}
	if diff := cmp.Diff(want, steps(done)); diff != "" {
		t.Error(diff)
	}
	service.awaitCluster(t, cluster.Uid, runs("4.21.4"))
	service.awaitPool(t, poolRequest(cluster, "b", 2).Uid, poolAt("4.21.4"))
	// ARM does not see the upgrade: the generation is unchanged and the resource was READY throughout.
	if c, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: cluster.Uid}); err != nil || !clusterReady(1)(c) {
		t.Errorf("the cluster is %v, %v", c.GetStatus(), err)
	}
	r.nothingWasWrong(t)
}

// TestCustomerVersionStartsUpgrade checks that a newer version of the ARM resource starts an upgrade. Its generation is
// observed when the control plane has reached the version, regardless of repeated requests.
func TestCustomerVersionStartsUpgrade(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	request := applyRequest("c", 1)
	request.Spec.Version.Id = "4.20"
	service.applyUntilReady(t, request)

	r.hypershift.HoldUpgrades(true)
	request.Generation, request.Spec.Version.Id = 2, "4.21"
	for range 2 {
		must.Get(service.ApplyCluster(ctx, request))(t)
	}
	service.awaitCluster(t, request.Uid, runs("4.21.4", "4.20.16"))
	c, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid})
	if err != nil || c.GetStatus().GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_UPDATING || c.GetStatus().GetObservedGeneration() != 1 {
		t.Errorf("status during the upgrade: %v, %v", c.GetStatus(), err)
	}
	// Another change during the upgrade is accepted and does not lower the version.
	request.Generation, request.Spec.Api.AuthorizedCidrs = 3, []string{"192.0.2.0/24"}
	must.Get(service.ApplyCluster(ctx, request))(t)
	down := applyRequest("c", 4)
	down.Spec.Version.Id = "4.20"
	if _, err := service.ApplyCluster(ctx, down); err == nil || !strings.Contains(err.Error(), "a version cannot be lowered") {
		t.Errorf("downgrade: %v", err)
	}
	skip := applyRequest("c", 4)
	skip.Spec.Version.Id = "4.23"
	if _, err := service.ApplyCluster(ctx, skip); err == nil || !strings.Contains(err.Error(), "at most one minor version above 4.21.4") {
		t.Errorf("skipped minor version: %v", err)
	}
	// Another upgrade of the customer waits for this one. An SRE cannot queue one.
	next := applyRequest("c", 4)
	next.Spec.Version.Id, next.Spec.Api.AuthorizedCidrs = "4.22", []string{"192.0.2.0/24"}
	must.Get(service.ApplyCluster(ctx, next))(t)
	service.awaitUpgrade(t, said(awaitsGates, "which was requested earlier"))
	if _, err := service.StartUpgrade(ctx, startRequest(request, "4.21.6", followAll)); refusal(err) != fleet.RuleUpgradeInProgress {
		t.Errorf("upgrade of an SRE during an upgrade: %v", err)
	}
	r.continueUpgrades()
	service.awaitCluster(t, request.Uid, clusterReady(4))
	service.awaitCluster(t, request.Uid, runs("4.22.2"))
	list, err := service.ListUpgrades(ctx, &csv1.ListUpgradesRequest{ClusterUid: request.Uid, States: []csv1.UpgradeState{completed}})
	if err != nil || len(list.GetUpgrades()) != 2 {
		t.Errorf("upgrades: %v, %v", list, err)
	}
	r.nothingWasWrong(t)
}

// TestUpgradeableGate checks that a cluster that is not upgradeable is upgraded only when it becomes upgradeable or an
// SRE acknowledges the gate.
func TestUpgradeableGate(t *testing.T) {
	t.Parallel()
	for name, pass := range map[string]func(*region, *instance, string) error{
		"Ready": func(r *region, _ *instance, _ string) error {
			r.hypershift.BlockMinorUpgrades(false)
			r.maestro.Touch()
			return nil
		},
		"Forced": func(_ *region, service *instance, uid string) error {
			_, err := service.AcknowledgeUpgradeGate(context.Background(), &csv1.AcknowledgeUpgradeGateRequest{Uid: uid, Gate: fleet.GateUpgradeable, Actor: ada})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			r.play()
			r.hypershift.BlockMinorUpgrades(true)
			service := r.start(nil)
			cluster := service.installed(t, "c", "4.20.16")
			request := startRequest(cluster, "4.21.4", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)
			request.Acknowledge = []string{fleet.GateMinorVersion}
			service.startUpgrade(t, request, said(awaitsGates, "AdminAckRequired"))
			must.Do(t, pass(r, service, request.Uid))
			service.awaitUpgrade(t, upgradeIs(request.Uid, completed))
			r.nothingWasWrong(t)
		})
	}
}

// TestPauseAndAbort checks at which stages an upgrade can be paused and aborted, and the errors otherwise.
func TestPauseAndAbort(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster := service.installed(t, "c", "4.20.8", "a", "b")
	pause := func(uid string) error {
		_, err := service.PauseUpgrade(ctx, &csv1.PauseUpgradeRequest{Uid: uid, Actor: ada})
		return err
	}
	resume := func(uid string) error {
		_, err := service.ResumeUpgrade(ctx, &csv1.ResumeUpgradeRequest{Uid: uid, Actor: ada})
		return err
	}
	abort := func(uid string) error {
		_, err := service.AbortUpgrade(ctx, &csv1.AbortUpgradeRequest{Uid: uid, Actor: ada})
		return err
	}
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}

	// Before its start time.
	later := startRequest(cluster, "4.20.15", followAll)
	later.NotBefore = timestamppb.New(time.Now().Add(time.Hour))
	_, err := service.StartUpgrade(ctx, later)
	ok("starting one for later", err)
	service.awaitUpgrade(t, said(awaitsGates, "must not start before"))
	ok("pausing before the begin", pause(later.Uid))
	ok("pausing it again", pause(later.Uid))
	ok("aborting before the begin", abort(later.Uid))
	ok("aborting it again", abort(later.Uid))
	if err := resume(later.Uid); refusal(err) != fleet.RuleUpgradeEnded {
		t.Errorf("resuming an aborted upgrade: %v", err)
	}

	// During the rollout of the control plane, the node pools can be paused, but not the control plane.
	r.hypershift.HoldUpgrades(true)
	request := startRequest(cluster, "4.20.15", followAll)
	_, err = service.StartUpgrade(ctx, request)
	ok("starting", err)
	service.awaitCluster(t, cluster.Uid, runs("4.20.15"+"", "4.20.8"))
	if err := abort(request.Uid); refusal(err) != fleet.RuleUpgradeMoving || !strings.Contains(err.Error(), "a version cannot be lowered") {
		t.Errorf("abort during the rollout of the control plane: %v", err)
	}
	ok("pausing the followers", pause(request.Uid))
	r.continueUpgrades()
	service.awaitUpgrade(t, said(nodePools, "Paused by ada@example.com"))
	// A node pool continues without an action when its turn comes.
	ok("resuming", resume(request.Uid))
	service.awaitUpgrade(t, upgradeIs(request.Uid, completed))
	service.awaitPool(t, poolRequest(cluster, "b", 2).Uid, poolAt("4.20.15"))

	// The rollout of a control plane without node pools can be neither paused nor aborted.
	r.hypershift.HoldUpgrades(true)
	last := startRequest(cluster, "4.20.16", csv1.NodePoolFollow_NODE_POOL_FOLLOW_NONE)
	_, err = service.StartUpgrade(ctx, last)
	ok("starting", err)
	service.awaitUpgrade(t, upgradeIs(last.Uid, controlPlane))
	if err := pause(last.Uid); refusal(err) != fleet.RuleUpgradeMoving || !strings.Contains(err.Error(), "cannot pause or revert") {
		t.Errorf("pause during the rollout of the control plane: %v", err)
	}
	r.continueUpgrades()
	service.awaitUpgrade(t, upgradeIs(last.Uid, completed))

	// An upgrade of node pools only is aborted after the first pool has started. The first pool completes, the second
	// stays.
	r.hypershift.HoldUpgrades(true)
	pools := startRequest(cluster, "4.20.16", followAll)
	_, err = service.StartUpgrade(ctx, pools)
	ok("starting the node pools", err)
	service.awaitUpgrade(t, said(nodePools, "Node pool a is being upgraded"))
	ok("aborting the node pools", abort(pools.Uid))
	r.continueUpgrades()
	service.awaitPool(t, poolRequest(cluster, "a", 2).Uid, poolAt("4.20.16"))
	if b, err := service.GetNodePool(ctx, &csv1.GetNodePoolRequest{Uid: poolRequest(cluster, "b", 2).Uid}); err != nil || b.GetStatus().GetVersion() != "4.20.15" {
		t.Errorf("the second node pool is %v, %v", b.GetStatus(), err)
	}
	r.nothingWasWrong(t)
}

// TestOtherChangesDuringUpgrade scales a pool, creates a pool and deletes the cluster during an upgrade.
func TestOtherChangesDuringUpgrade(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()
	cluster := service.installed(t, "c", "4.20.8", "a")
	r.hypershift.HoldUpgrades(true)
	request := startRequest(cluster, "4.20.16", csv1.NodePoolFollow_NODE_POOL_FOLLOW_UNPINNED)
	must.Get(service.StartUpgrade(ctx, request))(t)
	service.awaitCluster(t, cluster.Uid, runs("4.20.16", "4.20.8"))

	scale := poolRequest(cluster, "a", 5)
	scale.Generation = 2
	service.applyPool(t, scale, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetObservedGeneration() == 2 && p.GetStatus().GetReplicas() == 5 && p.GetStatus().GetVersion() == "4.20.8"
	})
	// A new node pool starts at the previous version of the control plane. A newer version is rejected.
	must.Get(service.ApplyNodePool(ctx, poolRequest(cluster, "new", 1)))(t)
	service.awaitPool(t, poolRequest(cluster, "new", 1).Uid, poolAt("4.20.8"))
	ahead := poolRequest(cluster, "ahead", 1)
	ahead.Spec.Version = &csv1.Version{Id: "4.20.16"}
	if _, err := service.ApplyNodePool(ctx, ahead); err == nil || !strings.Contains(err.Error(), "nodes must not be newer than their control plane, which runs 4.20.8") {
		t.Errorf("node pool newer than its control plane: %v", err)
	}
	r.continueUpgrades()
	done := service.awaitUpgrade(t, upgradeIs(request.Uid, completed))
	if diff := cmp.Diff([]string{"control plane 4.20.8 to 4.20.16 COMPLETED", "a 4.20.8 to 4.20.16 COMPLETED", "new 4.20.8 to 4.20.16 COMPLETED"}, steps(done)); diff != "" {
		t.Error(diff)
	}
	// The version of a node pool resource does not revert its upgrade.
	lower := poolRequest(cluster, "a", 5)
	lower.Generation, lower.Spec.Version = 3, &csv1.Version{Id: "4.20.15"}
	if _, err := service.ApplyNodePool(ctx, lower); err == nil || !strings.Contains(err.Error(), "nodes cannot go back from 4.20.16") {
		t.Errorf("downgrade of a node pool: %v", err)
	}

	r.hypershift.HoldUpgrades(true)
	next := startRequest(cluster, "4.21.4", followAll)
	next.Acknowledge = []string{fleet.GateMinorVersion}
	service.startUpgrade(t, next, upgradeIs(next.Uid, controlPlane))
	service.remove(t, cluster.Uid)
	service.awaitUpgrade(t, upgradeIs(next.Uid, canceled))
	service.awaitCluster(t, cluster.Uid, clusterDeleted)
	if _, err := service.StartUpgrade(ctx, startRequest(cluster, "4.21.4", followAll)); refusal(err) != "CLUSTER_DELETING" {
		t.Errorf("upgrade of a cluster that is being deleted: %v", err)
	}
	r.nothingWasWrong(t)
}

// TestRejectedUpgrades checks that the error names the violated rule and the allowed versions.
func TestRejectedUpgrades(t *testing.T) {
	t.Parallel()
	_, service := newRegion(t).run()
	ctx := t.Context()
	cluster := service.installed(t, "c", "4.20.16")
	tests := map[string]struct{ reason, version, rule, says string }{
		"Down":        {"nothing lowers a version", "4.20.15", fleet.RuleVersionNotNewer, "Allowed versions: 4.21.4"},
		"Same":        {"there is nothing to do", "4.20.16", fleet.RuleVersionNotNewer, "already runs 4.20.16"},
		"Two minors":  {"one at a time", "4.22.2", fleet.RuleMinorSkipped, "one minor version at a time"},
		"No way":      {"the graph has none", "4.21.1", fleet.RuleNoUpdatePath, "no path from 4.20.16 to 4.21.1 in channel stable-4.21"},
		"Not for all": {"it is in another channel group", "4.21.6", fleet.RuleNoUpdatePath, "Allowed versions: 4.21.4"},
		"Unknown":     {"there is no such release", "4.20.99", fleet.RuleVersionUnknown, "no release"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := service.StartUpgrade(ctx, startRequest(cluster, tc.version, followAll))
			if refusal(err) != tc.rule || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v", tc.reason, err)
			}
			plan, err := service.PlanUpgrade(ctx, &csv1.PlanUpgradeRequest{ClusterUid: cluster.Uid, Version: tc.version})
			if err != nil || len(plan.GetRefusals()) == 0 || plan.GetRefusals()[0].GetRule() != tc.rule {
				t.Errorf("refusals of the plan: %v, %v", plan.GetRefusals(), err)
			}
		})
	}
	bad := map[string]*csv1.StartUpgradeRequest{
		"actor":   {Uid: uuid.NewString(), ClusterUid: cluster.Uid, Version: "4.21.4"},
		"version": {Uid: uuid.NewString(), ClusterUid: cluster.Uid, Version: "4.21", Actor: ada},
		"uid":     {Uid: "x", ClusterUid: cluster.Uid, Version: "4.21.4", Actor: ada},
	}
	for field, request := range bad {
		if _, err := service.StartUpgrade(ctx, request); status.Code(err) != codes.InvalidArgument {
			t.Errorf("invalid %s: %v", field, err)
		}
	}
	if _, err := service.GetUpgrade(ctx, &csv1.GetUpgradeRequest{Uid: uuid.NewString()}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown upgrade: %v", err)
	}
}

// rollouts returns the names of the bundles through which Cluster Service reads the control plane components of a
// cluster.
func (r *region) rollouts(clusterUID string) (names []string) {
	for _, resource := range r.maestro.Resources() {
		if strings.HasPrefix(resource.Name, fleet.ClusterID(clusterUID)+"-rollout-") {
			names = append(names, resource.Name)
		}
	}
	return names
}

// rolled returns a condition: the message of the control plane step of an upgrade has this suffix.
func rolled(message string) func(*csv1.Upgrade) bool {
	return func(u *csv1.Upgrade) bool {
		return slices.ContainsFunc(u.GetStatus().GetSteps(), func(s *csv1.UpgradeStep) bool { return strings.HasSuffix(s.GetMessage(), message) })
	}
}

// TestComponentsAreReportedDuringRollout checks that components are reported one by one while a control plane is
// upgraded, without writes to the cluster, and that nothing of it is left afterwards.
func TestComponentsAreReportedDuringRollout(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	r.componentsAfter = 300 * time.Millisecond
	r.play()
	service := r.start(nil)
	cluster := service.installed(t, "c", "4.20.15")
	r.hypershift.HoldUpgrades(true)
	request := startRequest(cluster, "4.20.16", followAll)
	u := service.startUpgrade(t, request, rolled("The control plane is rolling out 4.20.16. 0 of 4 components are at 4.20.16; waiting for etcd, kube-apiserver."))
	var names []string
	for _, c := range u.GetStatus().GetSteps()[0].GetComponents() {
		names = append(names, c.GetName()+" "+c.GetVersion()+" "+strings.TrimPrefix(c.GetState().String(), "COMPONENT_STATE_"))
		if c.GetSince() == nil {
			t.Errorf("component without a time: %v", c)
		}
	}
	if want := []string{"etcd 4.20.15 ROLLING_OUT", "kube-apiserver 4.20.15 ROLLING_OUT", "kube-controller-manager 4.20.15 WAITING", "kube-scheduler 4.20.15 WAITING"}; !slices.Equal(names, want) {
		t.Errorf("components: %q", names)
	}
	before := must.Get(service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: cluster.Uid}))(t)
	for _, step := range [][2]string{{"etcd", "1 of 4 components are at 4.20.16; waiting for kube-apiserver."},
		{"kube-apiserver", "2 of 4 components are at 4.20.16; waiting for kube-controller-manager, kube-scheduler."},
		{"kube-scheduler", "3 of 4 components are at 4.20.16; waiting for kube-controller-manager."}} {
		r.hypershift.CompleteComponents(step[0])
		r.maestro.Touch()
		service.awaitUpgrade(t, rolled(step[1]))
	}
	after, err := service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: cluster.Uid})
	if err != nil || after.GetRevision() != before.GetRevision() {
		t.Errorf("the reports of components changed the revision of the cluster from %d to %d, %v", before.GetRevision(), after.GetRevision(), err)
	}
	r.continueUpgrades()
	u = service.awaitUpgrade(t, upgradeIs(request.Uid, completed))
	if s := u.GetStatus().GetSteps()[0]; len(s.GetComponents()) > 0 || s.GetComponentsTime() != nil {
		t.Errorf("step after the upgrade is %v", s)
	}
	untilDone(t, func(context.Context) error {
		if left := r.rollouts(cluster.Uid); len(left) > 0 {
			return fmt.Errorf("leftovers are %v", left)
		}
		return nil
	})
	r.nothingWasWrong(t)
}

// TestUpgradeWithoutComponents checks that an upgrade succeeds if Maestro rejects or does not answer the request for
// components.
func TestUpgradeWithoutComponents(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]codes.Code{"Refused": codes.InvalidArgument, "Away": codes.Unavailable} {
		t.Run(name, func(t *testing.T) {
			r := newRegion(t)
			r.componentsAfter = 0
			r.play()
			r.maestro.Fault(func(action string, resource *maestrotest.Resource) (before, after error) {
				if strings.Contains(resource.Name, "-rollout-") && action != "delete" {
					return status.Error(code, "no"), nil
				}
				return nil, nil
			})
			service := r.start(nil)
			cluster := service.installed(t, "c", "4.20.8", "a")
			request := startRequest(cluster, "4.21.4", followAll)
			request.Acknowledge = []string{fleet.GateMinorVersion}
			service.startUpgrade(t, request, upgradeIs(request.Uid, completed))
			service.awaitPool(t, poolRequest(cluster, "a", 2).Uid, poolAt("4.21.4"))
			r.nothingWasWrong(t)
		})
	}
}
