package definition

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/dominikbraun/graph"
)

// Step returns the step that a group calls by a name: STEP of the same group, or GROUP/STEP. It returns nil if there is none.
func (t *Topology) Step(from *Group, name string) *Step {
	g := from
	if group, step, qualified := strings.Cut(name, "/"); qualified {
		g, name = t.byName[group], step
	}
	if g == nil {
		return nil
	}
	for _, s := range g.Steps {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Needs returns the steps that must end before a step of the group starts, because of the topology.
func (t *Topology) Needs(g *Group) []*Step {
	var steps []*Step
	if g.Parent != nil {
		steps = append(steps, g.Parent.Steps...)
	}
	for _, name := range g.DependsOn {
		if other := t.byName[name]; other != nil {
			steps = append(steps, other.Steps...)
		}
	}
	return steps
}

// Before returns the steps that must end before a step starts: those of the topology, of dependsOn and of its inputs.
func (t *Topology) Before(s *Step) []*Step {
	seen := map[*Step]bool{}
	var before []*Step
	add := func(other *Step) {
		if other != nil && !seen[other] {
			seen[other] = true
			before = append(before, other)
		}
	}
	for _, other := range t.Needs(s.Group) {
		add(other)
	}
	for _, name := range s.DependsOn {
		add(t.Step(s.Group, name))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Inputs)) {
		if in := s.Inputs[name]; in.Output != nil {
			add(t.Step(s.Group, in.Output.Step))
		}
	}
	return before
}

// cycles reports dependencies that form a cycle, with the steps on it.
func (c *checker) cycles() {
	g := graph.New(graph.StringHash, graph.Directed(), graph.PreventCycles())
	for _, group := range c.topology.Groups {
		for _, s := range group.Steps {
			_ = g.AddVertex(s.ID()) // IDs are unique here, which is the only error
		}
	}
	for _, group := range c.topology.Groups {
		for _, s := range group.Steps {
			for _, other := range c.topology.Before(s) {
				if err := g.AddEdge(other.ID(), s.ID()); errors.Is(err, graph.ErrEdgeCreatesCycle) {
					path, _ := graph.ShortestPath(g, s.ID(), other.ID())
					s.complain(c, "", "steps wait for each other: %s", strings.Join(append(path, s.ID()), " → "))
				}
			}
		}
	}
}
