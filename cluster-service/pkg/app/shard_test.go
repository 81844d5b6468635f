package app_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// kim is the actor in these tests.
var kim = &csv1.Actor{Name: "kim@example.com", Reason: "kernel update", Ticket: "INC-1"}

const (
	active   = csv1.ProvisionShardState_PROVISION_SHARD_STATE_ACTIVE
	cordoned = csv1.ProvisionShardState_PROVISION_SHARD_STATE_CORDONED
	draining = csv1.ProvisionShardState_PROVISION_SHARD_STATE_DRAINING
)

func (i *instance) report(t *testing.T, name string) *csv1.ProvisionShardReport {
	t.Helper()
	return must.Get(i.GetProvisionShard(t.Context(), &csv1.GetProvisionShardRequest{Name: name}))(t)
}

// history returns the changes of a shard, oldest first.
func history(report *csv1.ProvisionShardReport) []string {
	var list []string
	for _, change := range report.GetHistory() {
		list = append([]string{change.GetActor().GetName() + " " + change.GetAction() + ": " + strings.Join(change.GetChanges(), ", ")}, list...)
	}
	return list
}

// TestShardLifecycle registers a management cluster, activates it, places clusters on it, drains it and deregisters it.
// The state survives a restart.
func TestShardLifecycle(t *testing.T) {
	t.Parallel()
	r := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 2, Zones: []string{"1"}}, config.Shard{Name: "mgmt-2", Capacity: 2})
	r.play()
	// The third management cluster is in no file.
	r.shards = r.shards[:1]
	service := r.start(nil)
	ctx := t.Context()
	register := &csv1.RegisterProvisionShardRequest{Name: "mgmt-2", Capacity: 5, Zones: []string{"1", "2"}, Labels: map[string]string{"stage": "prod"}, Actor: kim}
	for range 2 { // repeating changes nothing
		shard, err := service.RegisterProvisionShard(ctx, register)
		if err != nil || shard.GetState() != cordoned || shard.GetVersion() != 1 || shard.GetStateActor().GetTicket() != "INC-1" {
			t.Fatalf("%v, %v; want it cordoned at version 1", shard, err)
		}
	}
	open := false
	shard, err := service.UpdateProvisionShard(ctx, &csv1.UpdateProvisionShardRequest{Name: "mgmt-2", Cordoned: &open, ExpectedVersion: 1, Actor: kim})
	if err != nil || shard.GetState() != active || shard.GetHeadroom() != 5 {
		t.Fatalf("%v, %v; want it active", shard, err)
	}
	var requests []*csv1.ApplyClusterRequest
	for i := range 4 {
		requests = append(requests, applyRequest(fmt.Sprintf("c%d", i), 1))
		must.Get(service.ApplyCluster(ctx, requests[i]))(t)
		service.awaitCluster(t, requests[i].Uid, clusterReady(1))
	}
	pool := poolRequest(requests[1], "np", 70)
	service.applyPool(t, pool, func(p *csv1.NodePool) bool { return p.GetStatus().GetReplicas() == 70 })

	// With 0/2 and 0/5, the placement order is mgmt-1, then mgmt-2 three times, because 2/5 is less than 1/2.
	report := service.report(t, "mgmt-2")
	var classes []string
	for _, c := range report.GetSizeClasses() {
		classes = append(classes, fmt.Sprintf("%s %d clusters %d nodes of %d", c.GetSizeClass(), c.GetClusters(), c.GetNodes(), c.GetWantedNodes()))
	}
	want := []string{"small 2 clusters 0 nodes of 0", "medium 1 clusters 70 nodes of 70", "large 0 clusters 0 nodes of 0"}
	if diff := cmp.Diff(want, classes); diff != "" || report.GetNodes() != 70 || report.GetProvisionShard().GetHeadroom() != 2 {
		t.Errorf("%v (-want +got):\n%s", report, diff)
	}

	// The drain plan has a place for one cluster, but not for the other two.
	plan := must.Get(service.DrainProvisionShard(ctx, &csv1.DrainProvisionShardRequest{Name: "mgmt-2", Actor: kim}))(t)
	wantPlan := []string{"1 cluster would move: 1 to mgmt-1 (then 2 of 2).", "2 clusters could not be moved to any other shard.", "Needed: 2 more places for size class small.",
		"The first of them could be moved as soon as a cluster is removed from mgmt-1 or its capacity is raised."}
	if diff := cmp.Diff(wantPlan, plan.GetSentences()); diff != "" || plan.GetProvisionShard().GetState() != draining || plan.GetMoves()[0].GetCluster().GetUid() != requests[1].Uid {
		t.Errorf("%v (-want +got):\n%s", plan, diff)
	}
	last := applyRequest("last", 1)
	placed, err := service.ApplyCluster(ctx, last)
	if err != nil || placed.GetStatus().GetProvisionShard() != "mgmt-1" {
		t.Errorf("%v, %v; want it on the other shard", placed.GetStatus(), err)
	}

	service.stop()
	service = r.start(nil)
	if report := service.report(t, "mgmt-2"); report.GetProvisionShard().GetState() != draining || report.GetProvisionShard().GetClusters() != 3 {
		t.Errorf("shard after a restart: %v", report.GetProvisionShard())
	}
	if _, err := service.DeregisterProvisionShard(ctx, &csv1.DeregisterProvisionShardRequest{Name: "mgmt-2", Actor: kim}); reason(err) != "PROVISION_SHARD_NOT_EMPTY" {
		t.Errorf("deregistering a shard with clusters: %v", err)
	}
	for _, request := range requests[1:] {
		service.remove(t, request.Uid)
	}
	for _, request := range requests[1:] {
		service.awaitCluster(t, request.Uid, clusterDeleted)
	}
	for range 2 {
		must.Get(service.DeregisterProvisionShard(ctx, &csv1.DeregisterProvisionShardRequest{Name: "mgmt-2", Actor: kim}))(t)
	}
	listed, err := service.ListProvisionShards(ctx, &csv1.ListProvisionShardsRequest{})
	if err != nil || len(listed.GetProvisionShards()) != 1 {
		t.Errorf("%v, %v; want mgmt-1 alone", listed, err)
	}
	if _, err := service.GetProvisionShard(ctx, &csv1.GetProvisionShardRequest{Name: "mgmt-2"}); reason(err) != "PROVISION_SHARD_UNKNOWN" {
		t.Errorf("deregistered shard: %v", err)
	}
	register.Capacity = 7
	if _, err := service.RegisterProvisionShard(ctx, register); err != nil {
		t.Errorf("registering it again: %v", err)
	}
	wantHistory := []string{"kim@example.com register: capacity 5, zones 1, 2, size classes none, labels stage=prod, cordoned", "kim@example.com uncordon: uncordoned",
		"kim@example.com drain: cordoned, draining", "kim@example.com deregister: deregistered",
		"kim@example.com register: capacity 7, zones 1, 2, size classes none, labels stage=prod, cordoned"}
	if diff := cmp.Diff(wantHistory, history(service.report(t, "mgmt-2"))); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func reason(err error) string { return apierror.As(apierror.FromGRPC(err)).Reason }

// TestShardSettingsOfOperatorTakePrecedence sets what a shard offers by file and by an operator. The value of the
// operator takes precedence until it is removed.
func TestShardSettingsOfOperatorTakePrecedence(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	service := r.start(nil)
	ctx := t.Context()
	yes, capacity := true, int32(7)
	update := &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Capacity: &capacity, Cordoned: &yes, SizeClasses: &csv1.Names{Values: []string{"large"}},
		Labels: &csv1.Labels{Values: map[string]string{"stage": "prod"}}, Actor: kim}
	for range 2 {
		if shard, err := service.UpdateProvisionShard(ctx, update); err != nil || shard.GetVersion() != 1 {
			t.Fatalf("%v, %v; want one change", shard, err)
		}
	}
	// The file now has other zones and does not contain mgmt-2.
	r.shards = []config.Shard{{Name: "mgmt-1", Capacity: 50, Zones: []string{"3"}, SizeClasses: []string{"small"}}}
	service.stop()
	service = r.start(nil)
	shard := service.report(t, "mgmt-1").GetProvisionShard()
	if shard.GetCapacity() != 7 || shard.GetState() != cordoned || shard.GetSizeClasses()[0] != "large" || shard.GetZones()[0] != "3" || shard.GetStateActor().GetName() != kim.GetName() ||
		strings.Join(shard.GetOverridden(), " ") != "capacity labels size_classes" {
		t.Errorf("%v; want the settings of the operator and the zones of the file", shard)
	}
	if retired := service.report(t, "mgmt-2").GetProvisionShard(); retired.GetState() != csv1.ProvisionShardState_PROVISION_SHARD_STATE_RETIRED || !retired.GetCordoned() {
		t.Errorf("%v; want it retired", retired)
	}
	no := false
	if _, err := service.UpdateProvisionShard(ctx, &csv1.UpdateProvisionShardRequest{Name: "mgmt-2", Cordoned: &no, Actor: kim}); reason(err) != "PROVISION_SHARD_NOT_CONFIGURED" {
		t.Errorf("activating a shard without a file entry: %v", err)
	}
	back, err := service.UpdateProvisionShard(ctx, &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Cordoned: &no, UseConfigured: []string{"capacity", "size_classes", "labels"}, Actor: kim})
	if err != nil || back.GetCapacity() != 50 || back.GetSizeClasses()[0] != "small" || len(back.GetLabels()) != 0 || back.GetState() != active || len(back.GetOverridden()) != 0 {
		t.Errorf("%v, %v; want the settings of the file", back, err)
	}
	want := []string{"kim@example.com cordon: capacity 100 → 7, size classes none → large, labels none → stage=prod, cordoned",
		"kim@example.com uncordon: capacity 7 → 50, size classes large → small, labels stage=prod → none, uncordoned"}
	if diff := cmp.Diff(want, history(service.report(t, "mgmt-1"))); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// TestShardErrors checks the rejected requests of provision shards.
func TestShardErrors(t *testing.T) {
	t.Parallel()
	service := newRegion(t).start(nil)
	ctx := t.Context()
	must.Get(service.ApplyCluster(ctx, applyRequest("c", 1)))(t)
	yes, negative := true, int32(-1)
	must.Get(service.UpdateProvisionShard(ctx, &csv1.UpdateProvisionShardRequest{Name: "mgmt-2", Cordoned: &yes, Actor: kim}))(t)
	update := func(request *csv1.UpdateProvisionShardRequest) func() error {
		return failure(ctx, service.UpdateProvisionShard, request)
	}
	policy := func(request *csv1.SetPlacementPolicyRequest) func() error {
		return failure(ctx, service.SetPlacementPolicy, request)
	}
	uid := applyRequest("c", 1).Uid
	checkErrors(t, map[string]errorCase{
		"Nobody":    {"who intervenes is said", update(&csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Cordoned: &yes}), codes.InvalidArgument, "actor"},
		"No reason": {"and why", failure(ctx, service.DrainProvisionShard, &csv1.DrainProvisionShardRequest{Name: "mgmt-1", Actor: &csv1.Actor{Name: "kim"}}), codes.InvalidArgument, "actor.reason"},
		"Settings": {"all wrong fields are named", update(&csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Capacity: &negative, Zones: &csv1.Names{Values: []string{"1", "1"}},
			SizeClasses: &csv1.Names{Values: []string{"huge"}}, UseConfigured: []string{"name"}, Actor: kim}), codes.InvalidArgument, "zones.values[1] size_classes.values[0] capacity use_configured[0]"},
		"Set and not":        {"which would be meant", update(&csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Capacity: &negative, UseConfigured: []string{"capacity"}, Actor: kim}), codes.InvalidArgument, "capacity use_configured[0]"},
		"Last":               {"every new cluster would wait", update(&csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Cordoned: &yes, Actor: kim}), codes.FailedPrecondition, "LAST_PROVISION_SHARD"},
		"Drain of the last":  {"every new cluster would wait", failure(ctx, service.DrainProvisionShard, &csv1.DrainProvisionShardRequest{Name: "mgmt-1", Actor: kim}), codes.FailedPrecondition, "LAST_PROVISION_SHARD"},
		"Race":               {"somebody was faster", update(&csv1.UpdateProvisionShardRequest{Name: "mgmt-2", ExpectedVersion: 7, Actor: kim}), codes.Aborted, "PROVISION_SHARD_CHANGED"},
		"Twice":              {"it is there, with other settings", failure(ctx, service.RegisterProvisionShard, &csv1.RegisterProvisionShardRequest{Name: "mgmt-1", Capacity: 1, Actor: kim}), codes.FailedPrecondition, "PROVISION_SHARD_EXISTS"},
		"No key":             {"no Secret could be sealed for its agent", failure(ctx, service.RegisterProvisionShard, &csv1.RegisterProvisionShardRequest{Name: "mgmt-keyless", Capacity: 1, Actor: kim}), codes.FailedPrecondition, "PROVISION_SHARD_KEY_MISSING"},
		"Name":               {"it is a consumer's", failure(ctx, service.RegisterProvisionShard, &csv1.RegisterProvisionShardRequest{Name: "Mgmt 1", Capacity: -1, Actor: kim}), codes.InvalidArgument, "name capacity"},
		"Forget an open one": {"it takes clusters", failure(ctx, service.DeregisterProvisionShard, &csv1.DeregisterProvisionShardRequest{Name: "mgmt-1", Actor: kim}), codes.FailedPrecondition, "PROVISION_SHARD_NOT_CORDONED"},
		"Plan for nobody":    {"there is none", failure(ctx, service.PlanDrain, &csv1.PlanDrainRequest{Name: "mgmt-9"}), codes.NotFound, "PROVISION_SHARD_UNKNOWN"},
		"Explain nothing":    {"there is none", failure(ctx, service.ExplainPlacement, &csv1.ExplainPlacementRequest{Uid: uuid.NewString()}), codes.NotFound, "CLUSTER_UNKNOWN"},
		"Policy": {"all wrong fields are named", policy(&csv1.SetPlacementPolicyRequest{Uid: uid, Actor: kim, Policy: &csv1.PlacementPolicy{SizeClass: "huge", ProvisionShard: "a", Avoid: []string{"a"}}}),
			codes.InvalidArgument, "policy.sizeClass policy.avoid"},
		"Policy, strategy": {"a value that this release does not know is rejected before the rest of the request is validated",
			policy(&csv1.SetPlacementPolicyRequest{Uid: uid, Actor: kim, Policy: &csv1.PlacementPolicy{Strategy: 9, SizeClass: "huge"}}), codes.InvalidArgument, "policy.strategy"},
		"Policy of an unknown cluster": {"the cluster does not exist", policy(&csv1.SetPlacementPolicyRequest{Uid: uuid.NewString(), Actor: kim}), codes.NotFound, "CLUSTER_UNKNOWN"},
	})
	if _, err := service.DrainProvisionShard(ctx, &csv1.DrainProvisionShardRequest{Name: "mgmt-1", AcceptNoRoom: true, Actor: kim}); err != nil {
		t.Errorf("with accepted lack of capacity: %v", err)
	}
}

// TestPlacementIsExplained follows a cluster that waits, gets its own placement policy, and is placed.
func TestPlacementIsExplained(t *testing.T) {
	t.Parallel()
	_, service := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 1, Zones: []string{"1"}}, config.Shard{Name: "mgmt-2", Capacity: 5, Zones: []string{"1", "2"}}).run()
	ctx := t.Context()
	yes := true
	must.Get(service.UpdateProvisionShard(ctx, &csv1.UpdateProvisionShardRequest{Name: "mgmt-2", Cordoned: &yes, Actor: kim}))(t)
	first, second := applyRequest("first", 1), applyRequest("second", 1)
	for _, request := range []*csv1.ApplyClusterRequest{first, second} {
		must.Get(service.ApplyCluster(ctx, request))(t)
	}
	explain := func(uid string) *csv1.PlacementExplanation {
		t.Helper()
		return must.Get(service.ExplainPlacement(ctx, &csv1.ExplainPlacementRequest{Uid: uid}))(t)
	}
	said := func(e *csv1.PlacementExplanation, parts ...string) {
		t.Helper()
		text := strings.Join(e.GetSentences(), "\n")
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("the explanation lacks %q:\n%s", part, text)
			}
		}
	}
	said(explain(first.Uid), "has been on mgmt-1 since", "mgmt-1 was chosen: it is the only provision shard that can accept the cluster, with 0 of 1 places used.")
	waiting := explain(second.Uid)
	said(waiting, "has waited for a place", "mgmt-1 is full (1 of 1 places used); mgmt-2 is cordoned", "size class small, and the rules are: spread",
		"would be placed as soon as a cluster is removed from mgmt-1 or its capacity is raised, or mgmt-2 is uncordoned")
	if len(waiting.GetDecisions()) != 1 || waiting.GetDecisions()[0].GetProvisionShard() != "" || len(waiting.GetDecisions()[0].GetVerdicts()) != 2 {
		t.Errorf("decisions %v", waiting.GetDecisions())
	}
	if c, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: second.Uid}); err != nil || !strings.Contains(c.GetStatus().GetProgress()[0].GetMessage(), "mgmt-2 is cordoned") {
		t.Errorf("%v, %v; want the progress to name the reason", c.GetStatus(), err)
	}

	// Its own policy excludes the shard that becomes free. The response explains the effect.
	ruled := must.Get(service.SetPlacementPolicy(ctx, &csv1.SetPlacementPolicyRequest{Uid: second.Uid, Policy: &csv1.PlacementPolicy{Zones: []string{"2"}}, Actor: kim}))(t)
	said(ruled, "The cluster has its own rules: in zone 2. kim@example.com set them on", "kernel update", "as soon as mgmt-2 is uncordoned")
	service.removed(t, first.Uid)
	no := false
	must.Get(service.UpdateProvisionShard(ctx, &csv1.UpdateProvisionShardRequest{Name: "mgmt-2", Cordoned: &no, Actor: kim}))(t)
	ready := service.awaitCluster(t, second.Uid, clusterReady(1))
	if ready.GetStatus().GetProvisionShard() != "mgmt-2" {
		t.Errorf("placed on %s", ready.GetStatus().GetProvisionShard())
	}
	said(explain(second.Uid), "has been on mgmt-2 since", "It had waited since", "in zone 2")
	must.Get(service.SetPlacementPolicy(ctx, &csv1.SetPlacementPolicyRequest{Uid: second.Uid, Actor: kim}))(t)
	if e := explain(second.Uid); e.GetOverride() != nil {
		t.Errorf("the policy is still %v", e.GetOverride())
	}
	// A required label that the shard does not have: a placed cluster stays, and the drain plan reports it.
	must.Get(service.SetPlacementPolicy(ctx, &csv1.SetPlacementPolicyRequest{Uid: second.Uid, Policy: &csv1.PlacementPolicy{Labels: map[string]string{"gpu": "yes"}}, Actor: kim}))(t)
	said(explain(second.Uid), "It would not be placed there today: mgmt-2 does not have the label gpu=yes.")
	plan, err := service.PlanDrain(ctx, &csv1.PlanDrainRequest{Name: "mgmt-2"})
	if err != nil || len(plan.GetBlocked()) != 1 || plan.GetNeeds()[0].GetPolicy().GetLabels()["gpu"] != "yes" {
		t.Errorf("%v, %v; want it bound by its policy", plan, err)
	}
}

// TestWaitingClusterDoesNotBlockOthers makes the oldest cluster wait for a shard that never becomes available.
func TestWaitingClusterDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	_, service := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 0}).run()
	ctx := t.Context()
	var requests []*csv1.ApplyClusterRequest
	for i := range 3 {
		requests = append(requests, applyRequest(fmt.Sprintf("c%d", i), 1))
		must.Get(service.ApplyCluster(ctx, requests[i]))(t)
	}
	must.Get(service.SetPlacementPolicy(ctx, &csv1.SetPlacementPolicyRequest{Uid: requests[0].Uid, Policy: &csv1.PlacementPolicy{ProvisionShard: "mgmt-9"}, Actor: kim}))(t)
	capacity := int32(2)
	must.Get(service.UpdateProvisionShard(ctx, &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Capacity: &capacity, Actor: kim}))(t)
	service.awaitCluster(t, requests[1].Uid, clusterReady(1))
	service.awaitCluster(t, requests[2].Uid, clusterReady(1))
}

// TestSilentAgentsGetNoClusters silences an agent. New clusters are placed elsewhere until it reports again.
func TestSilentAgentsGetNoClusters(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t, config.Shard{Name: "mgmt-1", Capacity: 100}, config.Shard{Name: "mgmt-2", Capacity: 100}).run()
	ctx := t.Context()
	r.maestro.Silence("mgmt-1", true)
	first, second := applyRequest("first", 1), applyRequest("second", 1)
	if c, err := service.ApplyCluster(ctx, first); err != nil || c.GetStatus().GetProvisionShard() != "mgmt-1" {
		t.Fatalf("%v, %v; want it on mgmt-1", c, err)
	}
	awaitSilence := func(silent bool) {
		t.Helper()
		untilDone(t, func(context.Context) error {
			report := service.report(t, "mgmt-1")
			if shard := report.GetProvisionShard(); shard.GetAgentSilent() != silent || (shard.GetLastHeardTime() == nil) != silent || (report.GetUnansweredWorks() > 0) != silent {
				return fmt.Errorf("want silent %t, got %v", silent, report)
			}
			return nil
		})
	}
	awaitCondition(t, "the agent of mgmt-1 has unanswered works", func() bool { return service.report(t, "mgmt-1").GetUnansweredWorks() > 0 })
	r.clock.advance(2 * placement.DefaultSilentAfter)
	awaitSilence(true)
	// The agent of the other shard has nothing to report, and its heartbeats show that it runs.
	untilDone(t, func(context.Context) error {
		idle, silent := service.report(t, "mgmt-2").GetProvisionShard(), service.report(t, "mgmt-1").GetProvisionShard()
		if idle.GetLastHeartbeatTime() == nil || silent.GetLastHeartbeatTime() != nil {
			return fmt.Errorf("heartbeats of mgmt-2 at %v and of mgmt-1 at %v; want only those of mgmt-2", idle.GetLastHeartbeatTime(), silent.GetLastHeartbeatTime())
		}
		return nil
	})
	// Both shards are equally full, so the name would decide.
	for i := range 2 {
		if c, err := service.ApplyCluster(ctx, applyRequest(fmt.Sprintf("c%d", i), 1)); err != nil || c.GetStatus().GetProvisionShard() != "mgmt-2" {
			t.Errorf("%v, %v; want it on the shard with a responsive agent", c.GetStatus(), err)
		}
	}
	r.maestro.Silence("mgmt-1", false)
	service.awaitCluster(t, first.Uid, clusterReady(1))
	awaitSilence(false)
	if c, err := service.ApplyCluster(ctx, second); err != nil || c.GetStatus().GetProvisionShard() != "mgmt-1" {
		t.Errorf("%v, %v; want it on mgmt-1 again", c.GetStatus(), err)
	}
}

// TestSweepShardChanges crashes Cluster Service at every external write, and at pairs of them, of the changes of a shard. Every change
// is in the history once.
func TestSweepShardChanges(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	yes, no := true, false
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		name := fmt.Sprintf("mgmt-1%d", d.Seed())
		m := r.crashingInstance(d)
		defer m.stop()
		call(t, m, csv1.ClusterServiceClient.RegisterProvisionShard, &csv1.RegisterProvisionShardRequest{Name: name, Capacity: 5, Actor: kim}, nil)
		call(t, m, csv1.ClusterServiceClient.UpdateProvisionShard, &csv1.UpdateProvisionShardRequest{Name: name, Cordoned: &no, Actor: kim}, nil)
		call(t, m, csv1.ClusterServiceClient.UpdateProvisionShard, &csv1.UpdateProvisionShardRequest{Name: name, Cordoned: &yes, Actor: kim}, nil)
		call(t, m, csv1.ClusterServiceClient.DrainProvisionShard, &csv1.DrainProvisionShardRequest{Name: name, Actor: kim}, nil)
		report := call(t, m, csv1.ClusterServiceClient.GetProvisionShard, &csv1.GetProvisionShardRequest{Name: name}, nil)
		var actions []string
		for _, change := range report.GetHistory() {
			actions = append(actions, change.GetAction())
		}
		if got := strings.Join(actions, " "); got != "drain cordon uncordon register" || report.GetProvisionShard().GetVersion() != 4 || report.GetProvisionShard().GetState() != draining {
			t.Errorf("seed %d: %v", d.Seed(), report)
		}
		call(t, m, csv1.ClusterServiceClient.DeregisterProvisionShard, &csv1.DeregisterProvisionShardRequest{Name: name, Actor: kim}, nil)
		return actions
	})
}
