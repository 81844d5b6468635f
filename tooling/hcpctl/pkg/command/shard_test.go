package command

import (
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var day = timestamppb.New(time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC))

var kim = &csv1.Actor{Name: "kim", Reason: "kernel update", Ticket: "CHG-7"}

const deletingID = "/subscriptions/" + DefaultSubscription + "/resourceGroups/demo/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/mine"

// wire wraps a message as admin sends it.
func wire(m proto.Message) any { return adminv1.Message[proto.Message]{Of: m} }

// withShards adds two provision shards to the simulated admin.
func withShards(t *testing.T) *sres {
	a := newSREs(t)
	shards := []*csv1.ProvisionShard{
		{Name: "mgmt-1", State: csv1.ProvisionShardState_PROVISION_SHARD_STATE_DRAINING, Capacity: 10, Clusters: 3, Headroom: 7, Zones: []string{"1", "2"}, Version: 4,
			SizeClasses: []string{"small"}, Labels: map[string]string{"stage": "prod"}, Overridden: []string{"capacity"}, StateActor: kim, StateTime: day,
			UnansweredSince: day, AgentSilent: true},
		{Name: "mgmt-2", State: csv1.ProvisionShardState_PROVISION_SHARD_STATE_ACTIVE, Capacity: 5},
	}
	cluster := func(name string, nodes int32) *csv1.DrainCluster {
		return &csv1.DrainCluster{Uid: deletingUID, ResourceId: strings.ReplaceAll(deletingID, "mine", name), SizeClass: "small", WantedNodes: nodes}
	}
	plan := wire(&csv1.DrainPlan{ProvisionShard: shards[0], Time: day, Sentences: []string{"1 cluster would move: 1 to mgmt-2 (then 1 of 5).", "1 cluster could not be moved to any other shard."},
		Moves:   []*csv1.DrainMove{{Cluster: cluster("one", 3), ProvisionShard: "mgmt-2"}},
		Blocked: []*csv1.DrainBlocked{{Cluster: cluster("two", 1), Message: "No provision shard can accept the cluster: mgmt-2 is in zone 1 and not in zone 3."}},
		Leaving: []*csv1.DrainCluster{cluster("three", 0)}})
	decision := &csv1.PlacementDecision{ProvisionShard: "mgmt-1", SizeClass: "small", Verdicts: []*csv1.PlacementVerdict{
		{ProvisionShard: "mgmt-1", Rank: 1, Score: 700, Clusters: 3, Capacity: 10},
		{ProvisionShard: "mgmt-2", Clusters: 5, Capacity: 5, Obstacles: []*csv1.PlacementObstacle{
			{Reason: "Cordoned", Message: "is cordoned"}, {Reason: "Full", Message: "is full (5 of 5 places used)"}}}}}
	explained := wire(&csv1.PlacementExplanation{Uid: deletingUID, ProvisionShard: "mgmt-1", Decisions: []*csv1.PlacementDecision{decision}, Now: &csv1.PlacementDecision{},
		Sentences: []string{"The cluster has been on mgmt-1 since 2026-03-14 15:09:26 UTC. Mgmt-1 was chosen: it is the only provision shard that can accept the cluster, with 3 of 10 places used."}})
	a.shown = map[string]any{
		"/shards": adminv1.ShardList{Items: adminv1.Messages(shards)},
		"/shards/mgmt-1": wire(&csv1.ProvisionShardReport{ProvisionShard: shards[0], DeletingClusters: 1, Nodes: 70, WantedNodes: 72, UnansweredWorks: 2, WaitingClusters: 4,
			SizeClasses: []*csv1.SizeClassUsage{{SizeClass: "small", Clusters: 2, Nodes: 3, WantedNodes: 5, Accepted: true}, {SizeClass: "large", Clusters: 1, Nodes: 67, WantedNodes: 67}},
			History: []*csv1.ProvisionShardChange{{Time: day, Actor: kim, Action: "drain", Changes: []string{"cordoned", "draining"}, Version: 4},
				{Time: day, Actor: kim, Action: "update", Changes: []string{"capacity 5 → 10"}, Version: 3}}}),
		"/shards/mgmt-1/drain-plan": plan,
		"/clusters/mine/placement":  explained,
	}
	a.results = map[string]any{
		"PUT /shards/mgmt-3": wire(shards[1]), "PATCH /shards/mgmt-1": wire(shards[1]), "POST /shards/mgmt-1/drain": plan, "PUT /clusters/mine/placement": explained,
	}
	a.refused["DELETE /shards/mgmt-1"] = "mgmt-1 has 3 clusters, including those being deleted. It can be deregistered when it has none."
	return a
}

func TestShard(t *testing.T) {
	g := &sreGroup{sres: withShards(t), name: "shard", reason: "kernel update", ticket: "CHG-7"}
	g.prints(t, map[string][]string{"shards.txt": {"list"}, "shard.txt": {"show", "mgmt-1"}, "shard-plan.txt": {"plan", "mgmt-1"},
		"shard-explain.txt": {"explain", "mine"}, "shard-explain.yaml": {"explain", "mine", "-o", "yaml"}})
	g.acts(t, []sreAction{
		{[]string{"register", "mgmt-3", "--capacity", "7", "--zones", "1,2", "--labels", "stage=prod"}, adminv1.Recover,
			`PUT /shards/mgmt-3 {"capacity":7,"zones":["1","2"],"labels":{"stage":"prod"}}`, "mgmt-2"},
		{[]string{"cordon", "mgmt-1", "--accept-no-room"}, adminv1.Operate, `PATCH /shards/mgmt-1 {"cordoned":true,"acceptNoRoom":true}`, "mgmt-2"},
		{[]string{"uncordon", "mgmt-1"}, adminv1.Operate, `PATCH /shards/mgmt-1 {"cordoned":false}`, "mgmt-2"},
		{[]string{"set", "mgmt-1", "--capacity", "0", "--zones", "", "--use-configured", "size-classes,labels"}, adminv1.Operate,
			`PATCH /shards/mgmt-1 {"capacity":0,"zones":{},"useConfigured":["size_classes","labels"]}`, "mgmt-2"},
		{[]string{"drain", "mgmt-1"}, adminv1.Operate, `POST /shards/mgmt-1/drain {}`, "could not be moved to any other shard"},
		{[]string{"place", "mine", "--strategy", "pack", "--zones", "1,3", "--avoid", "mgmt-2"}, adminv1.Operate,
			`PUT /clusters/mine/placement {"policy":{"strategy":"PLACEMENT_STRATEGY_PACK","zones":["1","3"],"avoid":["mgmt-2"]}}`, "Mgmt-1 was chosen"},
		{[]string{"place", "mine", "--none"}, adminv1.Operate, `PUT /clusters/mine/placement {}`, "Mgmt-1 was chosen"},
		{[]string{"deregister", "mgmt-2"}, adminv1.Recover, `DELETE /shards/mgmt-2`, "succeeded"},
	})
	if out, err := g.run(t, "show", "mgmt-1", "--expect-state", "draining"); err != nil || !strings.Contains(out, "mgmt-1") {
		t.Errorf("with the state that is expected: %v\n%s", err, out)
	}
	if out, err := g.run(t, "show", "mgmt-9", "--expect-state", "deregistered"); err != nil || out != "There is no provision shard mgmt-9.\n" {
		t.Errorf("a shard that does not exist, and is expected to be deregistered: %v\n%s", err, out)
	}
	g.rejects(t, map[string]rejectedCommand{
		"No ticket":   {"both are always said", []string{"cordon", "mgmt-1", "--reason", "kernel update"}, "ticket"},
		"Refused":     {"Cluster Service's words are shown", g.because("deregister", "mgmt-1"), "It can be deregistered when it has none."},
		"Nothing":     {"a set that sets nothing is a mistake", g.because("set", "mgmt-1"), "at least one of the flags"},
		"Unknown":     {"there is none", []string{"show", "mgmt-9"}, "There is no /shards/mgmt-9."},
		"State":       {"it has another one", []string{"show", "mgmt-1", "--expect-state", "deregistered"}, "provision shard mgmt-1 is draining (3 of 10 places used); it is expected to be deregistered"},
		"No shard":    {"none has the state", []string{"show", "mgmt-9", "--expect-state", "cordoned"}, "There is no /shards/mgmt-9."},
		"No state":    {"no state has this name", []string{"show", "mgmt-1", "--expect-state", "gone"}, "--expect-state: \"gone\" is not one of active, cordoned, deregistered, draining, retired"},
		"Strategy":    {"no strategy has this name", g.because("place", "mine", "--strategy", "random"), "--strategy"},
		"All or none": {"which would be meant", g.because("place", "mine", "--none", "--only", "mgmt-1"), "if any flags in the group"},
	})
}
