package placement_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
)

// TestPlanMovesLargestClustersFirst checks the moves, the blocked clusters and the sentences of drain plans.
func TestPlanMovesLargestClustersFirst(t *testing.T) {
	tenant := func(uid string, nodes int32, change ...func(*placement.Tenant)) placement.Tenant {
		t := placement.Tenant{UID: uid, Needs: placement.Needs{Nodes: nodes}}
		for _, c := range change {
			c(&t)
		}
		return t
	}
	zone3 := func(t *placement.Tenant) { t.Rules.Zones = []string{"3"} }
	leaving := func(t *placement.Tenant) { t.Leaving = true }
	shards := []placement.Shard{
		{Name: "mgmt-1", State: placement.Draining, Clusters: 5, Capacity: 10},
		{Name: "mgmt-2", State: placement.Active, Clusters: 8, Capacity: 10, Zones: []string{"1"}, SizeClasses: []string{"small"}},
		{Name: "mgmt-3", State: placement.Active, Clusters: 9, Capacity: 10, Zones: []string{"1", "2"}},
		{Name: "mgmt-4", State: placement.Cordoned, Clusters: 0, Capacity: 10, Zones: []string{"3"}},
	}
	tests := map[string]struct {
		reason    string
		tenants   []placement.Tenant
		moves     []string
		blocked   []string
		sentences []string
	}{
		"Empty": {"no cluster has to move", nil, nil, nil, []string{"mgmt-1 has no clusters: no move is needed, and the shard can be deregistered."}},
		"All fit": {"the largest cluster is planned first", []placement.Tenant{tenant("a", 1), tenant("b", 2), tenant("c", 50), tenant("d", 3, leaving)},
			[]string{"c mgmt-3", "b mgmt-2", "a mgmt-2"}, nil,
			[]string{"3 clusters would move: 2 to mgmt-2 (then 10 of 10), 1 to mgmt-3 (then 10 of 10).", "1 cluster is being deleted: no move is needed."}},
		"Not all fit": {"missing places are counted by size class and rules", []placement.Tenant{tenant("a", 20), tenant("b", 20), tenant("c", 1, zone3), tenant("d", 20)},
			[]string{"a mgmt-3"}, []string{"b", "d", "c"},
			[]string{"1 cluster would move: 1 to mgmt-3 (then 10 of 10).", "3 clusters could not be moved to any other shard.", "Needed: 2 more places for size class medium.",
				"Needed: 1 more place for size class small, in zone 3.",
				"The first of them could be moved as soon as mgmt-2 accepts clusters of size class medium, or a cluster is removed from mgmt-3 or its capacity is raised, or mgmt-4 is uncordoned."}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			plan := placement.Plan("mgmt-1", tc.tenants, shards, &region)
			var moves, blocked []string
			for _, m := range plan.Moves {
				moves = append(moves, m.Tenant.UID+" "+m.Decision.Shard)
			}
			for _, b := range plan.Blocked {
				blocked = append(blocked, b.Tenant.UID)
			}
			if diff := cmp.Diff([][]string{tc.moves, tc.blocked, tc.sentences}, [][]string{moves, blocked, plan.Sentences()}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestPlansAreExecutable executes each move of random plans. Moves follow the rules, and every cluster is in the plan.
func TestPlansAreExecutable(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 4))
		shards, rules := facts(random), with(policy(random))
		var tenants []placement.Tenant
		for i := range random.IntN(20) {
			tenants = append(tenants, placement.Tenant{UID: fmt.Sprint(i), Needs: placement.Needs{Nodes: int32(random.IntN(150))}, Rules: policy(random),
				Created: time.Unix(int64(random.IntN(100)), 0), Leaving: random.IntN(8) == 0})
		}
		plan := placement.Plan("a", tenants, shards, rules)
		if n := len(plan.Moves) + len(plan.Blocked) + len(plan.Leaving); n != len(tenants) {
			t.Fatalf("seed %d: %d of %d tenants are in the plan", seed, n, len(tenants))
		}
		now := map[string]*placement.Shard{}
		for i := range shards {
			now[shards[i].Name] = &shards[i]
		}
		for _, m := range plan.Moves {
			target := now[m.Decision.Shard]
			if target.Name == "a" || target.State != placement.Active || target.Silent || target.Clusters >= target.Capacity {
				t.Fatalf("seed %d: %+v would go to %+v", seed, m.Tenant, target)
			}
			target.Clusters++
		}
		for _, target := range plan.Targets {
			if now[target.Shard].Clusters != target.After || target.Before >= target.After {
				t.Fatalf("seed %d: %+v, and it would have %d", seed, target, now[target.Shard].Clusters)
			}
		}
		// No free place fits a blocked cluster.
		needed := int32(0)
		for _, n := range plan.Needs {
			needed += n.Places
		}
		if int(needed) != len(plan.Blocked) {
			t.Fatalf("seed %d: %d places are needed for %d clusters", seed, needed, len(plan.Blocked))
		}
		for _, b := range plan.Blocked {
			var others []placement.Shard
			for _, s := range shards {
				if s.Name != "a" {
					others = append(others, s)
				}
			}
			if d := placement.Decide(others, b.Tenant.Needs, rules, b.Tenant.Rules); d.Shard != "" {
				t.Fatalf("seed %d: %+v is blocked, and %s could accept it", seed, b.Tenant, d.Shard)
			}
		}
	}
}

// TestInvalidRulesAreRejected checks the error for each kind of invalid rule.
func TestInvalidRulesAreRejected(t *testing.T) {
	valid := placement.DefaultRules()
	if err := valid.Validate("placement"); err != nil {
		t.Error(err)
	}
	tests := map[string]struct {
		reason string
		change func(*placement.Rules)
		want   string
	}{
		"Strategy":   {"the strategy does not exist", func(r *placement.Rules) { r.Strategy = "random" }, `placement.strategy: Unsupported value: "random": supported values: spread, pack`},
		"Of one":     {"rules of a region do not name a shard", func(r *placement.Rules) { r.Shard = "a" }, "placement.sizeClass, shard, avoid: are allowed only in the rules of one cluster"},
		"No classes": {"every cluster has a class", func(r *placement.Rules) { r.SizeClasses = nil }, "placement.sizeClasses: must have at least one item"},
		"Order":      {"from small to large", func(r *placement.Rules) { r.SizeClasses[1].MaxNodes = 5 }, "placement.sizeClasses[1].maxNodes: 5 must be greater than that of the class before"},
		"Bounded":    {"every cluster has a class", func(r *placement.Rules) { r.SizeClasses[2].MaxNodes = 500 }, "placement.sizeClasses[2].maxNodes: must be 0 for the last class, which accepts any number of nodes"},
		"Twice":      {"names are unique", func(r *placement.Rules) { r.SizeClasses[1].Name = "small" }, `placement.sizeClasses[1].name: "small" appears twice`},
		"Silence":    {"it must be a duration", func(r *placement.Rules) { r.SilentAfter = "5" }, `placement.silentAfter: "5" is not a duration`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			rules := placement.DefaultRules()
			tc.change(&rules)
			if err := rules.Validate("placement"); err == nil || err.Error() != tc.want {
				t.Errorf("%v, want %s: %s", err, tc.want, tc.reason)
			}
		})
	}
}
