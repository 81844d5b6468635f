// Package placement chooses the provision shard of a cluster and explains the choice. Decide is a pure function of the
// shards, the needs of the cluster and the rules. Every shard gets a verdict with the obstacles that exclude it, so
// explanations show what the decision was made of. Plan makes the same decision for all clusters of a shard that is to be
// drained. The package stores nothing and reads no clock: package store locks the shards, takes the place and records the
// decision.
package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// State is the state of a shard for new clusters.
type State string

// The states of a shard.
const (
	Active   State = "Active"
	Cordoned State = "Cordoned"
	Draining State = "Draining"
	// Retired shards are no longer in the shards file. They keep their clusters.
	Retired State = "Retired"
)

// States returns all states.
func States() []State { return []State{Active, Cordoned, Draining, Retired} }

// Shard is a provision shard as input of a decision.
type Shard struct {
	Name     string
	State    State
	Capacity int32
	Clusters int32
	// Zones are the availability zones of the shard; empty if they are unknown.
	Zones []string
	// SizeClasses are the accepted size classes; empty means all.
	SizeClasses []string
	Labels      map[string]string
	// Silent reports that the shard's agent does not respond.
	Silent bool
}

// Needs are the requirements of a cluster.
type Needs struct {
	// Nodes is the desired number of nodes; autoscaled pools count with their maximum.
	Nodes int32
	// SizeClass is the requested size class. If it is empty, the class follows from the nodes.
	SizeClass string
}

// Decision is a placement decision with its reasons. Its JSON form is stored.
type Decision struct {
	// Shard is the chosen shard; empty if no shard accepts the cluster.
	Shard     string `json:"shard,omitempty"`
	Policy    Policy `json:"policy"`
	SizeClass string `json:"sizeClass,omitempty"`
	Nodes     int32  `json:"nodes,omitempty"`
	// Verdicts contains the shards that accept the cluster, best first, and then the others by name.
	Verdicts []Verdict `json:"verdicts"`
	// Omitted is the number of shards that Verdicts does not contain.
	Omitted int `json:"omitted,omitempty"`
}

// Verdict is the evaluation of one shard.
type Verdict struct {
	Shard    string `json:"shard"`
	Clusters int32  `json:"clusters"`
	Capacity int32  `json:"capacity"`
	// Rank is 1 for the best shard, and 0 for a shard that does not accept the cluster.
	Rank int `json:"rank,omitempty"`
	// Score is between 0 and 1000, higher is better: the free share of the capacity for Spread, the used share for Pack. It
	// is rounded for display; the order is exact.
	Score     int32      `json:"score,omitempty"`
	Obstacles []Obstacle `json:"obstacles,omitempty"`
}

// Obstacle is a reason for which a shard does not accept a cluster.
type Obstacle struct {
	Reason  Reason `json:"reason"`
	Message string `json:"message"`
	// Remedy is the change that would remove the obstacle.
	Remedy string `json:"remedy"`
}

// Reason is the machine-readable name of an obstacle.
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

// maxVerdicts bounds the verdicts of one decision.
const maxVerdicts = 100

// Decide chooses a shard for a cluster. The order of shards does not matter.
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

// compare orders shards that accept a cluster, the better one first, by the exact share of the capacity that is taken.
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

// obstacles returns the reasons for which a shard does not accept a cluster. Decisions of operators come first.
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
		add(ReasonZones, s.Name+" is also in zone "+strings.Join(missing, ", "), "is in %s and not in zone %s", zones(s.Zones), strings.Join(missing, ", "))
	}
	if len(s.Zones) < policy.MinimumZones {
		add(ReasonZones, fmt.Sprintf("%s is in at least %d zones", s.Name, policy.MinimumZones), "is in %s, and at least %d zones are required", zones(s.Zones), policy.MinimumZones)
	}
	if len(s.SizeClasses) > 0 && !slices.Contains(s.SizeClasses, sizeClass) {
		add(ReasonSizeClass, s.Name+" accepts clusters of size class "+sizeClass, "accepts size class %s and not %s", strings.Join(s.SizeClasses, ", "), sizeClass)
	}
	for _, key := range slices.Sorted(maps.Keys(policy.Labels)) {
		if want := policy.Labels[key]; s.Labels[key] != want {
			add(ReasonLabels, fmt.Sprintf("%s has the label %s=%s", s.Name, key, want), "does not have the label %s=%s", key, want)
		}
	}
	if s.Silent {
		add(ReasonSilent, "the agent of "+s.Name+" responds", "has an agent that does not respond")
	}
	if s.Clusters >= s.Capacity {
		add(ReasonFull, "a cluster is removed from "+s.Name+" or its capacity is raised", "is full (%d of %d places used)", s.Clusters, s.Capacity)
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
		return "no known zone"
	case 1:
		return "zone " + list[0]
	}
	return "zones " + strings.Join(list, ", ")
}
