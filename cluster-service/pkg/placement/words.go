package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// named bounds the shards that a sentence names.
const named = 3

// Message returns the decision as a sentence.
func (d Decision) Message() string {
	if d.Shard == "" {
		return "No provision shard can accept the cluster: " + d.refusals() + "."
	}
	chosen := d.Verdicts[0]
	text := fmt.Sprintf("%s was chosen: ", d.Shard)
	switch able := d.able(); {
	case able == 1 && len(d.Verdicts)+d.Omitted == 1:
		text += "it is the only provision shard, "
	case able == 1:
		text += "it is the only provision shard that can accept the cluster, "
	case d.Policy.Strategy == Pack:
		text += fmt.Sprintf("of %d that can accept the cluster it is the fullest, ", able)
	default:
		text += fmt.Sprintf("of %d that can accept the cluster it is the least full, ", able)
	}
	return text + fmt.Sprintf("with %d of %d places used.", chosen.Clusters, chosen.Capacity)
}

func (d Decision) able() int {
	able := 0
	for _, v := range d.Verdicts {
		if v.Rank > 0 {
			able++
		}
	}
	return able
}

// refusals returns the shards that do not accept the cluster with their obstacles.
func (d Decision) refusals() string {
	if len(d.Verdicts) == 0 {
		return "none is registered"
	}
	var parts []string
	left := d.Omitted
	for _, v := range d.Verdicts {
		switch {
		case v.Rank > 0:
		case len(parts) == named:
			left++
		default:
			parts = append(parts, v.Shard+" "+v.Why())
		}
	}
	text := strings.Join(parts, "; ")
	if left > 0 {
		text += fmt.Sprintf("; %d more cannot accept it", left)
	}
	return text
}

// Why returns the obstacles of a shard; empty if it has none.
func (v Verdict) Why() string {
	var parts []string
	for _, o := range v.Obstacles {
		parts = append(parts, o.Message)
	}
	return strings.Join(parts, " and ")
}

// Remedies returns the changes that would let the cluster be placed: for each shard all changes that are needed, fewest
// first.
func (d Decision) Remedies() []string {
	var remedies []string
	for count := 1; len(remedies) < named && count <= maxObstacles; count++ {
		for _, v := range d.Verdicts {
			if v.Rank > 0 || len(v.Obstacles) != count || len(remedies) == named {
				continue
			}
			var parts []string
			for _, o := range v.Obstacles {
				parts = append(parts, o.Remedy)
			}
			remedies = append(remedies, strings.Join(parts, " and "))
		}
	}
	return remedies
}

// maxObstacles bounds the obstacles of one shard: one per reason, two for zones, one per label.
const maxObstacles = 10 + 2*MaxLabels

// Verdict returns the verdict on a shard.
func (d Decision) Verdict(shard string) (Verdict, bool) {
	for _, v := range d.Verdicts {
		if v.Shard == shard {
			return v, true
		}
	}
	return Verdict{}, false
}

// Describe returns the rules as text; empty if there are none beyond the strategy.
func (p Policy) Describe() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if p.Strategy != "" {
		add("%s", p.Strategy)
	}
	if len(p.Zones) > 0 {
		add("in %s", zones(p.Zones))
	}
	if p.MinimumZones > 0 {
		add("in at least %d zones", p.MinimumZones)
	}
	for _, label := range p.labels() {
		add("with label %s", label)
	}
	if p.SizeClass != "" {
		add("as size class %s", p.SizeClass)
	}
	if p.Shard != "" {
		add("on %s only", p.Shard)
	}
	if len(p.Avoid) > 0 {
		add("not on %s", strings.Join(p.Avoid, ", "))
	}
	return strings.Join(parts, ", ")
}

func (p Policy) labels() []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		list = append(list, key+"="+p.Labels[key])
	}
	return list
}
