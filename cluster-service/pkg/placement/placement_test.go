package placement_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
)

// region contains the rules of most tests.
var region = placement.Rules{Policy: placement.Policy{Strategy: placement.Spread},
	SizeClasses: []placement.SizeClass{{Name: "small", MaxNodes: 10}, {Name: "medium", MaxNodes: 100}, {Name: "large"}}}

func with(policy placement.Policy) *placement.Rules {
	rules := region
	rules.Policy = policy
	return &rules
}

// TestDecideChoosesShardByRules checks the chosen shard and the obstacles of the others.
func TestDecideChoosesShardByRules(t *testing.T) {
	open := func(name string, clusters, capacity int32, zones ...string) placement.Shard {
		return placement.Shard{Name: name, State: placement.Active, Clusters: clusters, Capacity: capacity, Zones: zones}
	}
	but := func(s placement.Shard, change func(*placement.Shard)) placement.Shard {
		change(&s)
		return s
	}
	tests := map[string]struct {
		reason   string
		shards   []placement.Shard
		needs    placement.Needs
		rules    *placement.Rules
		override placement.Policy
		// want is the chosen shard, followed by the other shards with their obstacles.
		want string
	}{
		"Least full":          {"relative to the capacity", []placement.Shard{open("a", 3, 10), open("b", 20, 100)}, placement.Needs{}, &region, placement.Policy{}, "b"},
		"Equally full":        {"the name decides", []placement.Shard{open("b", 1, 10), open("a", 10, 100)}, placement.Needs{}, &region, placement.Policy{}, "a"},
		"Pack":                {"the fullest shard with a free place", []placement.Shard{open("a", 3, 10), open("b", 9, 10), open("c", 10, 10)}, placement.Needs{}, with(placement.Policy{Strategy: placement.Pack}), placement.Policy{}, "b; c: Full"},
		"Packed by its rules": {"the cluster's strategy overrides the region's", []placement.Shard{open("a", 3, 10), open("b", 9, 10)}, placement.Needs{}, &region, placement.Policy{Strategy: placement.Pack}, "b"},
		"Full":                {"no shard has a free place", []placement.Shard{open("a", 10, 10), open("b", 12, 10), open("c", 0, 0)}, placement.Needs{}, &region, placement.Policy{}, "; a: Full; b: Full; c: Full"},
		"None":                {"no shard is registered", nil, placement.Needs{}, &region, placement.Policy{}, ""},
		"States": {"only active shards accept clusters", []placement.Shard{
			but(open("a", 0, 9), func(s *placement.Shard) { s.State = placement.Cordoned }), but(open("b", 0, 9), func(s *placement.Shard) { s.State = placement.Draining }),
			but(open("c", 0, 9), func(s *placement.Shard) { s.State = placement.Retired }), but(open("d", 0, 9), func(s *placement.Shard) { s.Silent = true }), open("e", 8, 9)},
			placement.Needs{}, &region, placement.Policy{}, "e; a: Cordoned; b: Draining; c: Retired; d: AgentSilent"},
		"Zones": {"the shard must be in all zones", []placement.Shard{open("a", 0, 9, "1", "2"), open("b", 5, 9, "1", "2", "3"), open("c", 0, 9)}, placement.Needs{},
			with(placement.Policy{Zones: []string{"1", "3"}}), placement.Policy{}, "b; a: Zones; c: Zones"},
		"Its own zones": {"the cluster's zones replace the region's", []placement.Shard{open("a", 0, 9, "1", "2"), open("b", 5, 9, "3")}, placement.Needs{},
			with(placement.Policy{Zones: []string{"1"}}), placement.Policy{Zones: []string{"3"}}, "b; a: Zones"},
		"Number of zones": {"a shard of one zone is not enough", []placement.Shard{open("a", 0, 9, "1"), open("b", 5, 9, "1", "2", "3")}, placement.Needs{},
			with(placement.Policy{MinimumZones: 3}), placement.Policy{}, "b; a: Zones"},
		"Size class": {"its nodes make it medium", []placement.Shard{but(open("a", 0, 9), func(s *placement.Shard) { s.SizeClasses = []string{"small"} }),
			but(open("b", 5, 9), func(s *placement.Shard) { s.SizeClasses = []string{"medium", "large"} }), open("c", 6, 9)}, placement.Needs{Nodes: 11}, &region, placement.Policy{}, "b; a: SizeClass"},
		"Requested size": {"a customer may name an existing class", []placement.Shard{but(open("a", 0, 9), func(s *placement.Shard) { s.SizeClasses = []string{"small"} }), open("b", 5, 9)},
			placement.Needs{Nodes: 11, SizeClass: "small"}, &region, placement.Policy{}, "a"},
		"Unknown size": {"an unknown class is ignored", []placement.Shard{but(open("a", 0, 9), func(s *placement.Shard) { s.SizeClasses = []string{"small"} }), open("b", 5, 9)},
			placement.Needs{Nodes: 11, SizeClass: "tiny"}, &region, placement.Policy{}, "b; a: SizeClass"},
		"Labels": {"the cluster's labels add to the region's", []placement.Shard{open("a", 0, 9), but(open("b", 5, 9), func(s *placement.Shard) { s.Labels = map[string]string{"stage": "prod", "gpu": "yes"} }),
			but(open("c", 0, 9), func(s *placement.Shard) { s.Labels = map[string]string{"stage": "prod"} })}, placement.Needs{},
			with(placement.Policy{Labels: map[string]string{"stage": "prod"}}), placement.Policy{Labels: map[string]string{"gpu": "yes"}}, "b; a: Labels Labels; c: Labels"},
		"Avoided": {"the cluster's rules exclude the shard", []placement.Shard{open("a", 0, 9), open("b", 5, 9)}, placement.Needs{}, &region, placement.Policy{Avoid: []string{"a"}}, "b; a: Avoided"},
		"Named": {"a named shard must meet the other rules, too", []placement.Shard{open("a", 0, 9), open("b", 9, 9)}, placement.Needs{}, &region, placement.Policy{Shard: "b"},
			"; a: NotNamed; b: Full"},
		"Several obstacles": {"all obstacles are reported", []placement.Shard{but(open("a", 9, 9), func(s *placement.Shard) { s.State, s.Silent = placement.Cordoned, true })}, placement.Needs{}, &region, placement.Policy{},
			"; a: Cordoned AgentSilent Full"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := placement.Decide(tc.shards, tc.needs, tc.rules, tc.override)
			got := []string{d.Shard}
			for _, v := range d.Verdicts {
				var reasons []string
				for _, o := range v.Obstacles {
					reasons = append(reasons, string(o.Reason))
				}
				if len(reasons) > 0 {
					got = append(got, v.Shard+": "+strings.Join(reasons, " "))
				}
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if len(d.Verdicts) != len(tc.shards) {
				t.Errorf("%d verdicts on %d shards", len(d.Verdicts), len(tc.shards))
			}
		})
	}
}

// TestDecisionMessages checks the messages and remedies of decisions.
func TestDecisionMessages(t *testing.T) {
	a := placement.Shard{Name: "mgmt-1", State: placement.Active, Clusters: 3, Capacity: 10, Zones: []string{"1", "2"}}
	b := placement.Shard{Name: "mgmt-2", State: placement.Cordoned, Clusters: 10, Capacity: 10}
	c := placement.Shard{Name: "mgmt-3", State: placement.Active, Clusters: 4, Capacity: 10, Zones: []string{"1"}}
	tests := map[string]struct {
		reason   string
		decision placement.Decision
		message  string
		remedies []string
	}{
		"Chosen of several": {"the message names the strategy's criterion", placement.Decide([]placement.Shard{a, b, c}, placement.Needs{}, &region, placement.Policy{}),
			"mgmt-1 was chosen: of 2 that can accept the cluster it is the least full, with 3 of 10 places used.", []string{"mgmt-2 is uncordoned and a cluster is removed from mgmt-2 or its capacity is raised"}},
		"Packed": {"the message names the strategy's criterion", placement.Decide([]placement.Shard{a, c}, placement.Needs{}, with(placement.Policy{Strategy: placement.Pack}), placement.Policy{}),
			"mgmt-3 was chosen: of 2 that can accept the cluster it is the fullest, with 4 of 10 places used.", nil},
		"Only one can accept": {"there was no choice", placement.Decide([]placement.Shard{a, b}, placement.Needs{}, &region, placement.Policy{}),
			"mgmt-1 was chosen: it is the only provision shard that can accept the cluster, with 3 of 10 places used.", []string{"mgmt-2 is uncordoned and a cluster is removed from mgmt-2 or its capacity is raised"}},
		"The only one": {"there was no choice", placement.Decide([]placement.Shard{a}, placement.Needs{}, &region, placement.Policy{}),
			"mgmt-1 was chosen: it is the only provision shard, with 3 of 10 places used.", nil},
		"Waits": {"remedies with the fewest changes come first", placement.Decide([]placement.Shard{b, a, c}, placement.Needs{}, with(placement.Policy{Zones: []string{"2", "3"}}), placement.Policy{}),
			"No provision shard can accept the cluster: mgmt-1 is in zones 1, 2 and not in zone 3; mgmt-2 is cordoned and is in no known zone and not in zone 2, 3 and is full (10 of 10 places used); mgmt-3 is in zone 1 and not in zone 2, 3.",
			[]string{"mgmt-1 is also in zone 3", "mgmt-3 is also in zone 2, 3", "mgmt-2 is uncordoned and mgmt-2 is also in zone 2, 3 and a cluster is removed from mgmt-2 or its capacity is raised"}},
		"No shard": {"no shard is registered", placement.Decide(nil, placement.Needs{}, &region, placement.Policy{}), "No provision shard can accept the cluster: none is registered.", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.message, tc.decision.Message()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.remedies, tc.decision.Remedies()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// facts returns random shards.
func facts(random *rand.Rand) []placement.Shard {
	states := []placement.State{placement.Active, placement.Active, placement.Active, placement.Cordoned, placement.Draining, placement.Retired}
	var shards []placement.Shard
	for i := range 1 + random.IntN(8) {
		s := placement.Shard{Name: string(rune('a' + i)), State: states[random.IntN(len(states))], Capacity: int32(random.IntN(12)), Silent: random.IntN(8) == 0}
		s.Clusters = int32(random.IntN(int(s.Capacity) + 2))
		for _, zone := range []string{"1", "2", "3"} {
			if random.IntN(3) > 0 {
				s.Zones = append(s.Zones, zone)
			}
		}
		for _, class := range region.SizeClasses {
			if random.IntN(3) == 0 {
				s.SizeClasses = append(s.SizeClasses, class.Name)
			}
		}
		if random.IntN(2) == 0 {
			s.Labels = map[string]string{"stage": "prod"}
		}
		shards = append(shards, s)
	}
	return shards
}

func policy(random *rand.Rand) placement.Policy {
	p := placement.Policy{Strategy: []placement.Strategy{"", placement.Spread, placement.Pack}[random.IntN(3)], MinimumZones: random.IntN(3)}
	if random.IntN(2) == 0 {
		p.Zones = []string{string(rune('1' + random.IntN(3)))}
	}
	if random.IntN(4) == 0 {
		p.Labels = map[string]string{"stage": "prod"}
	}
	if random.IntN(4) == 0 {
		p.Avoid = []string{string(rune('a' + random.IntN(8)))}
	}
	return p
}

// TestDecisionsFollowEveryRule checks decisions on random shards against an independent implementation of the rules.
func TestDecisionsFollowEveryRule(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		shards, rules, override := facts(random), with(policy(random)), policy(random)
		needs := placement.Needs{Nodes: int32(random.IntN(150))}
		d := placement.Decide(shards, needs, rules, override)

		// The order of the shards does not change the decision, and encoding keeps it.
		shuffled := slices.Clone(shards)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if diff := cmp.Diff(d, placement.Decide(shuffled, needs, rules, override)); diff != "" {
			t.Fatalf("seed %d: the order of the shards matters:\n%s", seed, diff)
		}
		encoded, err := json.Marshal(d)
		var decoded placement.Decision
		if err == nil {
			err = json.Unmarshal(encoded, &decoded)
		}
		if diff := cmp.Diff(d.Message(), decoded.Message()); err != nil || diff != "" {
			t.Fatalf("seed %d: %v:\n%s", seed, err, diff)
		}

		class := "large"
		switch {
		case needs.Nodes <= 10:
			class = "small"
		case needs.Nodes <= 100:
			class = "medium"
		}
		zones, minimum := override.Zones, override.MinimumZones
		if len(zones) == 0 {
			zones = rules.Zones
		}
		if minimum == 0 {
			minimum = rules.MinimumZones
		}
		labelled := len(rules.Labels)+len(override.Labels) > 0
		fit := func(s placement.Shard) bool {
			for _, zone := range zones {
				if !slices.Contains(s.Zones, zone) {
					return false
				}
			}
			return s.State == placement.Active && !s.Silent && s.Clusters < s.Capacity && len(s.Zones) >= minimum && !slices.Contains(override.Avoid, s.Name) &&
				(len(s.SizeClasses) == 0 || slices.Contains(s.SizeClasses, class)) && (!labelled || s.Labels["stage"] == "prod")
		}
		var fitting []string
		for _, s := range shards {
			if fit(s) {
				fitting = append(fitting, s.Name)
			}
			verdict, ok := d.Verdict(s.Name)
			if !ok || (verdict.Rank > 0) != fit(s) || (len(verdict.Obstacles) == 0) != fit(s) {
				t.Fatalf("seed %d: shard %+v got %+v", seed, s, verdict)
			}
		}
		if (d.Shard == "") != (len(fitting) == 0) || d.Shard != "" && !slices.Contains(fitting, d.Shard) {
			t.Fatalf("seed %d: chose %q of %v", seed, d.Shard, fitting)
		}
		if len(d.Verdicts) > 0 && d.Shard != "" && d.Verdicts[0].Shard != d.Shard {
			t.Fatalf("seed %d: the best is not the chosen one: %+v", seed, d)
		}
	}
}

// TestSpreadIsBalanced fills shards of all capacities. At no time is a shard fuller than another by more than one of its places.
func TestSpreadIsBalanced(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		var shards []placement.Shard
		places := 0
		for i := range 2 + random.IntN(5) {
			shards = append(shards, placement.Shard{Name: string(rune('a' + i)), State: placement.Active, Capacity: int32(1 + random.IntN(40))})
			places += int(shards[i].Capacity)
		}
		if seed%2 == 0 { // all alike: their counts differ by one at most
			places = len(shards) * 20
			for i := range shards {
				shards[i].Capacity = 20
			}
		}
		for range places {
			d := placement.Decide(shards, placement.Needs{}, &region, placement.Policy{})
			i := slices.IndexFunc(shards, func(s placement.Shard) bool { return s.Name == d.Shard })
			if i < 0 {
				t.Fatalf("seed %d: no shard was chosen, and places are free: %+v", seed, d)
			}
			shards[i].Clusters++
			for _, a := range shards {
				for _, b := range shards {
					// (a.Clusters-1)/a.Capacity <= b.Clusters/b.Capacity
					if int64(a.Clusters-1)*int64(b.Capacity) > int64(b.Clusters)*int64(a.Capacity) {
						t.Fatalf("seed %d: %s has %d of %d, %s %d of %d", seed, a.Name, a.Clusters, a.Capacity, b.Name, b.Clusters, b.Capacity)
					}
				}
			}
		}
		if d := placement.Decide(shards, placement.Needs{}, &region, placement.Policy{}); d.Shard != "" {
			t.Fatalf("seed %d: a shard was chosen, and all are full: %+v", seed, d)
		}
	}
}

// TestPackFillsShardsOneByOne checks that at most one shard is neither empty nor full.
func TestPackFillsShardsOneByOne(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 3))
		var shards []placement.Shard
		places := 0
		for i := range 2 + random.IntN(5) {
			shards = append(shards, placement.Shard{Name: string(rune('a' + i)), State: placement.Active, Capacity: int32(1 + random.IntN(20))})
			places += int(shards[i].Capacity)
		}
		for range places {
			d := placement.Decide(shards, placement.Needs{}, with(placement.Policy{Strategy: placement.Pack}), placement.Policy{})
			shards[slices.IndexFunc(shards, func(s placement.Shard) bool { return s.Name == d.Shard })].Clusters++
			begun := 0
			for _, s := range shards {
				if s.Clusters > 0 && s.Clusters < s.Capacity {
					begun++
				}
				if s.Clusters > s.Capacity {
					t.Fatalf("seed %d: %s has %d of %d", seed, s.Name, s.Clusters, s.Capacity)
				}
			}
			if begun > 1 {
				t.Fatalf("seed %d: %d shards are half full: %+v", seed, begun, shards)
			}
		}
	}
}
