package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Tenant is a cluster on a shard that is to be drained.
type Tenant struct {
	UID     string
	Needs   Needs
	Rules   Policy
	Created time.Time
	// Leaving reports that the cluster is being deleted.
	Leaving bool
}

// Move is a cluster with the decision about its new shard.
type Move struct {
	Tenant   Tenant
	Decision Decision
}

// Target is a shard that would accept clusters.
type Target struct {
	Shard                   string
	Before, After, Capacity int32
}

// Need is a number of places that are missing on shards with certain properties.
type Need struct {
	Places    int32
	SizeClass string
	Policy    Policy
}

// Drain is a plan to drain a shard.
type Drain struct {
	Shard string
	// Moves and Blocked are in the order of the moves, largest first. Leaving clusters are being deleted and need no move.
	Moves, Blocked []Move
	Leaving        []Tenant
	Targets        []Target
	Needs          []Need
}

// Plan returns where the clusters of a shard would move now, one after the other, by the decision that places a new
// cluster. The drained shard accepts none. A cluster whose policy names only this shard is blocked.
func Plan(shard string, tenants []Tenant, shards []Shard, rules *Rules) Drain {
	plan := Drain{Shard: shard}
	others := slices.DeleteFunc(slices.Clone(shards), func(s Shard) bool { return s.Name == shard })
	slices.SortFunc(others, func(a, b Shard) int { return cmp.Compare(a.Name, b.Name) })
	before := slices.Clone(others)

	class := func(t Tenant) string { return rules.ClassOf(t.Needs, t.Rules) }
	tenants = slices.Clone(tenants)
	// The largest clusters are the hardest to place, so they come first. Equal ones are ordered by creation.
	slices.SortFunc(tenants, func(a, b Tenant) int {
		return cmp.Or(-cmp.Compare(rules.size(class(a)), rules.size(class(b))), -cmp.Compare(a.Needs.Nodes, b.Needs.Nodes),
			a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	for _, t := range tenants {
		if t.Leaving {
			plan.Leaving = append(plan.Leaving, t)
			continue
		}
		d := Decide(others, t.Needs, rules, t.Rules)
		if d.Shard == "" {
			plan.Blocked = append(plan.Blocked, Move{t, d})
			plan.need(d)
			continue
		}
		plan.Moves = append(plan.Moves, Move{t, d})
		others[slices.IndexFunc(others, func(s Shard) bool { return s.Name == d.Shard })].Clusters++
	}
	for i, s := range others {
		if s.Clusters != before[i].Clusters {
			plan.Targets = append(plan.Targets, Target{Shard: s.Name, Before: before[i].Clusters, After: s.Clusters, Capacity: s.Capacity})
		}
	}
	return plan
}

func (d *Drain) need(decision Decision) {
	// The strategy is not a property of a place.
	policy := decision.Policy
	policy.Strategy = ""
	for i, n := range d.Needs {
		if n.SizeClass == decision.SizeClass && n.Policy.Describe() == policy.Describe() {
			d.Needs[i].Places++
			return
		}
	}
	d.Needs = append(d.Needs, Need{Places: 1, SizeClass: decision.SizeClass, Policy: policy})
}

// Sentences returns the plan as sentences.
func (d Drain) Sentences() []string {
	if len(d.Moves)+len(d.Blocked)+len(d.Leaving) == 0 {
		return []string{d.Shard + " has no clusters: no move is needed, and the shard can be deregistered."}
	}
	var lines []string
	if n := len(d.Moves); n > 0 {
		var parts []string
		for _, t := range d.Targets {
			parts = append(parts, fmt.Sprintf("%d to %s (then %d of %d)", t.After-t.Before, t.Shard, t.After, t.Capacity))
		}
		lines = append(lines, fmt.Sprintf("%s would move: %s.", clusters(n), strings.Join(parts, ", ")))
	}
	if n := len(d.Leaving); n > 0 {
		lines = append(lines, fmt.Sprintf("%s being deleted: no move is needed.", clusters(n, "is", "are")))
	}
	if n := len(d.Blocked); n > 0 {
		lines = append(lines, fmt.Sprintf("%s could not be moved to any other shard.", clusters(n)))
		for _, need := range d.Needs {
			line := fmt.Sprintf("Needed: %d more %s for size class %s", need.Places, plural(int(need.Places), "place", "places"), need.SizeClass)
			if rules := need.Policy.Describe(); rules != "" {
				line += ", " + rules
			}
			lines = append(lines, line+".")
		}
		if remedies := d.Blocked[0].Decision.Remedies(); len(remedies) > 0 {
			lines = append(lines, "The first of them could be moved as soon as "+strings.Join(remedies, ", or ")+".")
		}
	}
	return lines
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// clusters returns a number of clusters as text, with an optional verb.
func clusters(n int, verb ...string) string {
	text := fmt.Sprintf("%d %s", n, plural(n, "cluster", "clusters"))
	if len(verb) == 2 {
		text += " " + plural(n, verb[0], verb[1])
	}
	return text
}
