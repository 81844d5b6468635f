package definition

import (
	"fmt"
	"io"

	"github.com/dominikbraun/graph"
	"github.com/dominikbraun/graph/draw"
)

// DOT writes the steps of the topology and their dependencies in the DOT language of Graphviz. A dependency that follows from others is
// left out.
func (t *Topology) DOT(out io.Writer) error {
	g := graph.New(graph.StringHash, graph.Directed(), graph.PreventCycles())
	for _, group := range t.Groups {
		for _, s := range group.Steps {
			if err := g.AddVertex(s.ID(), graph.VertexAttribute("label", fmt.Sprintf("%s\\n%s, %s", s.ID(), s.Action, group.Scope))); err != nil {
				return err
			}
		}
	}
	for _, group := range t.Groups {
		for _, s := range group.Steps {
			for _, other := range t.Before(s) {
				if err := g.AddEdge(other.ID(), s.ID()); err != nil {
					return err
				}
			}
		}
	}
	reduced, err := graph.TransitiveReduction(g)
	if err != nil {
		return err
	}
	return draw.DOT(reduced, out, draw.GraphAttribute("rankdir", "LR"))
}
