package command

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var day = timestamppb.New(time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC))

func (f *fleetService) shards() []*csv1.ProvisionShard {
	return []*csv1.ProvisionShard{
		{Name: "mgmt-1", State: csv1.ProvisionShardState_PROVISION_SHARD_STATE_DRAINING, Capacity: 10, Clusters: 3, Headroom: 7, Zones: []string{"1", "2"}, Version: 4,
			SizeClasses: []string{"small"}, Labels: map[string]string{"stage": "prod"}, Overridden: []string{"capacity"}, StateActor: kim, StateTime: day,
			UnansweredSince: day, AgentSilent: true},
		{Name: "mgmt-2", State: csv1.ProvisionShardState_PROVISION_SHARD_STATE_ACTIVE, Capacity: 5},
	}
}

var kim = &csv1.Actor{Name: "kim", Reason: "kernel update", Ticket: "CHG-7"}

// did remembers a request, without who made it, and who did.
func (f *fleetService) did(what string, r proto.Message, actor *csv1.Actor) {
	text, _ := protojson.Marshal(r)
	// The encoder varies its spaces.
	f.args, f.actors = append(f.args, what+" "+strings.ReplaceAll(string(text), " ", "")), append(f.actors, actor)
}

func (f *fleetService) ListProvisionShards(context.Context, *csv1.ListProvisionShardsRequest) (*csv1.ListProvisionShardsResponse, error) {
	return &csv1.ListProvisionShardsResponse{ProvisionShards: f.shards()}, nil
}

func (f *fleetService) GetProvisionShard(_ context.Context, r *csv1.GetProvisionShardRequest) (*csv1.ProvisionShardReport, error) {
	if r.GetName() != "mgmt-1" {
		return nil, status.Error(codes.NotFound, "There is no provision shard "+r.GetName()+".")
	}
	return &csv1.ProvisionShardReport{ProvisionShard: f.shards()[0], DeletingClusters: 1, Nodes: 70, WantedNodes: 72, UnansweredWorks: 2, WaitingClusters: 4,
		SizeClasses: []*csv1.SizeClassUsage{{SizeClass: "small", Clusters: 2, Nodes: 3, WantedNodes: 5, Accepted: true}, {SizeClass: "large", Clusters: 1, Nodes: 67, WantedNodes: 67}},
		History: []*csv1.ProvisionShardChange{{Time: day, Actor: kim, Action: "drain", Changes: []string{"cordoned", "draining"}, Version: 4},
			{Time: day, Actor: kim, Action: "update", Changes: []string{"capacity 5 → 10"}, Version: 3}}}, nil
}

func (f *fleetService) RegisterProvisionShard(_ context.Context, r *csv1.RegisterProvisionShardRequest) (*csv1.ProvisionShard, error) {
	actor := r.GetActor()
	r.Actor = nil
	f.did("register", r, actor)
	return f.shards()[1], nil
}

func (f *fleetService) UpdateProvisionShard(_ context.Context, r *csv1.UpdateProvisionShardRequest) (*csv1.ProvisionShard, error) {
	actor := r.GetActor()
	r.Actor = nil
	f.did("update", r, actor)
	return f.shards()[1], nil
}

func (f *fleetService) DrainProvisionShard(ctx context.Context, r *csv1.DrainProvisionShardRequest) (*csv1.DrainPlan, error) {
	actor := r.GetActor()
	r.Actor = nil
	f.did("drain", r, actor)
	return f.PlanDrain(ctx, &csv1.PlanDrainRequest{Name: r.GetName()})
}

func (f *fleetService) PlanDrain(context.Context, *csv1.PlanDrainRequest) (*csv1.DrainPlan, error) {
	cluster := func(name string, nodes int32) *csv1.DrainCluster {
		return &csv1.DrainCluster{Uid: deletingUID, ResourceId: strings.ReplaceAll(f.cluster.GetResourceId(), "mine", name), SizeClass: "small", WantedNodes: nodes}
	}
	return &csv1.DrainPlan{ProvisionShard: f.shards()[0], Time: day, Sentences: []string{"1 cluster would move: 1 to mgmt-2 (then 1 of 5).", "1 cluster could not go anywhere."},
		Moves:   []*csv1.DrainMove{{Cluster: cluster("one", 3), ProvisionShard: "mgmt-2"}},
		Blocked: []*csv1.DrainBlocked{{Cluster: cluster("two", 1), Message: "No provision shard can take it: mgmt-2 stands in zone 1 and not in zone 3."}},
		Leaving: []*csv1.DrainCluster{cluster("three", 0)}}, nil
}

func (f *fleetService) DeregisterProvisionShard(context.Context, *csv1.DeregisterProvisionShardRequest) (*csv1.ProvisionShard, error) {
	return nil, status.Error(codes.FailedPrecondition, "mgmt-1 holds 3 clusters, those being deleted included. It can be deregistered when it holds none.")
}

func (f *fleetService) ExplainPlacement(_ context.Context, r *csv1.ExplainPlacementRequest) (*csv1.PlacementExplanation, error) {
	decision := &csv1.PlacementDecision{ProvisionShard: "mgmt-1", SizeClass: "small", Verdicts: []*csv1.PlacementVerdict{
		{ProvisionShard: "mgmt-1", Rank: 1, Score: 700, Clusters: 3, Capacity: 10},
		{ProvisionShard: "mgmt-2", Clusters: 5, Capacity: 5, Obstacles: []*csv1.PlacementObstacle{
			{Reason: "Cordoned", Message: "is cordoned"}, {Reason: "Full", Message: "is full (5 of 5 places taken)"}}}}}
	return &csv1.PlacementExplanation{Uid: r.GetUid(), ProvisionShard: "mgmt-1", Decisions: []*csv1.PlacementDecision{decision}, Now: &csv1.PlacementDecision{},
		Sentences: []string{"The cluster is on mgmt-1 since 2026-03-14 15:09:26 UTC. Mgmt-1 was chosen: it is the only provision shard that can take the cluster, with 3 of 10 places taken."}}, nil
}

func (f *fleetService) SetPlacementPolicy(ctx context.Context, r *csv1.SetPlacementPolicyRequest) (*csv1.PlacementExplanation, error) {
	actor := r.GetActor()
	r.Actor = nil
	f.did("place", r, actor)
	return f.ExplainPlacement(ctx, &csv1.ExplainPlacementRequest{Uid: r.GetUid()})
}

func TestShard(t *testing.T) {
	f, flags := startFleet(t)
	run := func(args ...string) (string, string, error) {
		t.Helper()
		return hcpctl(t, append(append([]string{"shard"}, args...), flags...)...)
	}
	for name, args := range map[string][]string{"shards.txt": {"list"}, "shard.txt": {"show", "mgmt-1"}, "shard-plan.txt": {"plan", "mgmt-1"},
		"shard-explain.txt": {"explain", "mine"}, "shard-explain.yaml": {"explain", deletingUID, "-o", "yaml"}} {
		out, _, err := run(args...)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, out)
	}

	because := []string{"--reason", "kernel update", "--ticket", "CHG-7"}
	for _, args := range [][]string{
		{"register", "mgmt-3", "--capacity", "7", "--zones", "1,2", "--labels", "stage=prod"},
		{"cordon", "mgmt-1", "--accept-no-room"},
		{"uncordon", "mgmt-1"},
		{"set", "mgmt-1", "--capacity", "0", "--zones", "", "--use-configured", "size-classes,labels"},
		{"drain", "mgmt-1"},
		{"place", "mine", "--strategy", "pack", "--zones", "1,3", "--avoid", "mgmt-2"},
		{"place", "mine", "--none"},
	} {
		if _, _, err := run(append(args, because...)...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	want := []string{
		`register {"name":"mgmt-3","capacity":7,"zones":["1","2"],"labels":{"stage":"prod"}}`,
		`update {"name":"mgmt-1","cordoned":true,"acceptNoRoom":true}`,
		`update {"name":"mgmt-1","cordoned":false}`,
		`update {"name":"mgmt-1","capacity":0,"zones":{},"useConfigured":["size_classes","labels"]}`,
		`drain {"name":"mgmt-1"}`,
		`place {"uid":"` + deletingUID + `","policy":{"strategy":"PLACEMENT_STRATEGY_PACK","zones":["1","3"],"avoid":["mgmt-2"]}}`,
		`place {"uid":"` + deletingUID + `"}`,
	}
	if !slices.Equal(f.args, want) {
		t.Errorf("it was asked\n%s\nwant\n%s", strings.Join(f.args, "\n"), strings.Join(want, "\n"))
	}
	for i, actor := range f.actors {
		if actor.GetName() == "" || actor.GetReason() != "kernel update" || actor.GetTicket() != "CHG-7" {
			t.Errorf("request %d was made by %v", i, actor)
		}
	}
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"No reason":   {"why is always said", []string{"cordon", "mgmt-1"}, `required flag(s) "reason" not set`},
		"Refused":     {"Cluster Service's words are shown", append([]string{"deregister", "mgmt-1"}, because...), "It can be deregistered when it holds none."},
		"Nothing":     {"a set that sets nothing is a mistake", append([]string{"set", "mgmt-1"}, because...), "at least one of the flags"},
		"Unknown":     {"there is none", []string{"show", "mgmt-9"}, "There is no provision shard mgmt-9."},
		"Strategy":    {"there is no such one", append([]string{"place", "mine", "--strategy", "random"}, because...), "--strategy"},
		"All or none": {"which would be meant", append([]string{"place", "mine", "--none", "--only", "mgmt-1"}, because...), "if any flags in the group"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := run(tc.args...); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q: %s", err, tc.want, tc.reason)
			}
		})
	}
}
