// Package placement decides which provision shard gets a cluster, and says why. Decide is a pure function of the shards as
// they stand, what the cluster needs and the rules in effect: every shard that is considered gets a verdict, with each
// obstacle that keeps it out, so that the answer to "why there?" and "what is it waiting for?" is what the decision was
// made of and not a guess afterwards. Plan runs the same decision over the clusters of a shard that is to be emptied. It
// holds nothing and reads no clock: package store locks the shards, takes the place and keeps the decision.
package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// State says whether a shard takes clusters.
type State string

// The states of a shard.
const (
	Active   State = "Active"
	Cordoned State = "Cordoned"
	Draining State = "Draining"
	// Retired shards are in no file any more; they keep their clusters.
	Retired State = "Retired"
)

// States returns all states.
func States() []State { return []State{Active, Cordoned, Draining, Retired} }

// Shard is a provision shard as a place for one cluster more.
type Shard struct {
	Name     string
	State    State
	Capacity int32
	Clusters int32
	// Zones are the availability zones that it stands in; none when nobody said.
	Zones []string
	// SizeClasses are those that it takes; none means all.
	SizeClasses []string
	Labels      map[string]string
	// Silent says that its agent does not answer.
	Silent bool
}

// Needs is what is known of a cluster that wants a place.
type Needs struct {
	// Nodes are those that were asked for, the maximum where they autoscale.
	Nodes int32
	// SizeClass is the class that was asked for; empty takes the one that follows from the nodes.
	SizeClass string
}

// Decision is what was decided and why. Its JSON form is stored.
type Decision struct {
	// Shard is the one that was chosen; empty when none could take the cluster.
	Shard     string `json:"shard,omitempty"`
	Policy    Policy `json:"policy"`
	SizeClass string `json:"sizeClass,omitempty"`
	Nodes     int32  `json:"nodes,omitempty"`
	// Verdicts are those on the shards that could take it, best first, then those on the others by name.
	Verdicts []Verdict `json:"verdicts"`
	// Omitted counts shards beyond those.
	Omitted int `json:"omitted,omitempty"`
}

// Verdict is what was found of one shard.
type Verdict struct {
	Shard    string `json:"shard"`
	Clusters int32  `json:"clusters"`
	Capacity int32  `json:"capacity"`
	// Rank is 1 for the best; 0 when the shard could not take the cluster.
	Rank int `json:"rank,omitempty"`
	// Score is 0 to 1000, the more the better: how empty the shard is for Spread, how full for Pack. It is for the eye; the
	// order is exact.
	Score     int32      `json:"score,omitempty"`
	Obstacles []Obstacle `json:"obstacles,omitempty"`
}

// Obstacle is one reason why a shard cannot take a cluster.
type Obstacle struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// Remedy is what would end it.
	Remedy string `json:"remedy"`
}

// Reason names an obstacle.
type Reason string

// The obstacles.
const (
	ReasonCordoned  Reason = "Cordoned"
	ReasonDraining  Reason = "Draining"
	ReasonRetired   Reason = "Retired"
	ReasonFull      Reason = "Full"
	ReasonSilent    Reason = "AgentSilent"
	ReasonZones     Reason = "Zones"
	ReasonSizeClass Reason = "SizeClass"
	ReasonLabels    Reason = "Labels"
	ReasonAvoided   Reason = "Avoided"
	ReasonNotNamed  Reason = "NotNamed"
)

// maxVerdicts bounds what is kept of one decision.
const maxVerdicts = 100

// Decide chooses a shard for a cluster. The order of the shards does not matter.
func Decide(shards []Shard, needs Needs, rules *Rules, override Policy) Decision {
	policy := override.over(rules.Policy)
	d := Decision{Policy: policy, Nodes: needs.Nodes, SizeClass: rules.ClassOf(needs, policy)}
	var able, unable []Shard
	obstacles := map[string][]Obstacle{}
	for _, s := range shards {
		if obstacles[s.Name] = s.obstacles(d.SizeClass, policy); len(obstacles[s.Name]) > 0 {
			unable = append(unable, s)
			continue
		}
		able = append(able, s)
	}
	slices.SortFunc(able, func(a, b Shard) int {
		return cmp.Or(policy.Strategy.compare(a, b), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(unable, func(a, b Shard) int { return cmp.Compare(a.Name, b.Name) })
	if len(able) > 0 {
		d.Shard = able[0].Name
	}
	for i, s := range able {
		d.Verdicts = append(d.Verdicts, Verdict{Shard: s.Name, Clusters: s.Clusters, Capacity: s.Capacity, Rank: i + 1, Score: policy.Strategy.score(s)})
	}
	for _, s := range unable {
		d.Verdicts = append(d.Verdicts, Verdict{Shard: s.Name, Clusters: s.Clusters, Capacity: s.Capacity, Obstacles: obstacles[s.Name]})
	}
	if d.Omitted = max(0, len(d.Verdicts)-maxVerdicts); d.Omitted > 0 {
		d.Verdicts = d.Verdicts[:maxVerdicts]
	}
	return d
}

// compare orders shards that can take a cluster, the better first: by the part of the capacity that is taken, exactly.
func (s Strategy) compare(a, b Shard) int {
	fuller := cmp.Compare(int64(a.Clusters)*int64(b.Capacity), int64(b.Clusters)*int64(a.Capacity))
	if s == Pack {
		return -fuller
	}
	return fuller
}

func (s Strategy) score(shard Shard) int32 {
	full := int32(int64(shard.Clusters) * 1000 / int64(shard.Capacity))
	if s == Pack {
		return full
	}
	return 1000 - full
}

// obstacles are the reasons why a shard cannot take a cluster, those that are the operator's own decision first.
func (s Shard) obstacles(sizeClass string, policy Policy) []Obstacle {
	var found []Obstacle
	add := func(reason Reason, remedy, format string, args ...any) {
		found = append(found, Obstacle{Reason: reason, Message: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	switch s.State {
	case Active:
	case Draining:
		add(ReasonDraining, s.Name+" is uncordoned", "is being drained")
	case Retired:
		add(ReasonRetired, s.Name+" is registered or put into the shards file again", "is no longer in the shards file")
	case Cordoned:
		add(ReasonCordoned, s.Name+" is uncordoned", "is cordoned")
	default:
		add(ReasonCordoned, s.Name+" is uncordoned", "is in the unknown state %q", s.State)
	}
	if policy.Shard != "" && policy.Shard != s.Name {
		add(ReasonNotNamed, "the cluster's rules no longer name "+policy.Shard+" alone", "is not %s, which the cluster's rules name", policy.Shard)
	}
	if slices.Contains(policy.Avoid, s.Name) {
		add(ReasonAvoided, "the cluster's rules no longer avoid "+s.Name, "is avoided by the cluster's rules")
	}
	if missing := without(policy.Zones, s.Zones); len(missing) > 0 {
		add(ReasonZones, s.Name+" stands in zone "+strings.Join(missing, ", ")+", too", "stands in %s and not in zone %s", zones(s.Zones), strings.Join(missing, ", "))
	}
	if len(s.Zones) < policy.MinimumZones {
		add(ReasonZones, fmt.Sprintf("%s stands in %d zones", s.Name, policy.MinimumZones), "stands in %s, and %d are needed", zones(s.Zones), policy.MinimumZones)
	}
	if len(s.SizeClasses) > 0 && !slices.Contains(s.SizeClasses, sizeClass) {
		add(ReasonSizeClass, s.Name+" takes clusters of size class "+sizeClass, "takes size class %s and not %s", strings.Join(s.SizeClasses, ", "), sizeClass)
	}
	for _, key := range slices.Sorted(maps.Keys(policy.Labels)) {
		if want := policy.Labels[key]; s.Labels[key] != want {
			add(ReasonLabels, fmt.Sprintf("%s carries the label %s=%s", s.Name, key, want), "does not carry the label %s=%s", key, want)
		}
	}
	if s.Silent {
		add(ReasonSilent, "the agent of "+s.Name+" answers", "has an agent that does not answer")
	}
	if s.Clusters >= s.Capacity {
		add(ReasonFull, "a cluster leaves "+s.Name+" or its capacity is raised", "is full (%d of %d places taken)", s.Clusters, s.Capacity)
	}
	return found
}

func without(want, have []string) []string {
	var missing []string
	for _, w := range want {
		if !slices.Contains(have, w) {
			missing = append(missing, w)
		}
	}
	return missing
}

func zones(list []string) string {
	switch len(list) {
	case 0:
		return "no zone that is known"
	case 1:
		return "zone " + list[0]
	}
	return "zones " + strings.Join(list, ", ")
}
