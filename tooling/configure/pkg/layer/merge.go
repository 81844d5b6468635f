package layer

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// Merge returns the merged values of a target's layers. References are not replaced. The names of the target are the keys cloud,
// environment, region and stamp.
func (t *Tree) Merge(target Target) (*document.Node, document.Problems, error) {
	layers, err := t.Layers(target)
	if err != nil {
		return nil, nil, err
	}
	var m merger
	merged := &document.Node{Kind: document.Map, Fields: map[string]*document.Node{}, Origin: t.origin(target)}
	for _, l := range layers {
		merged = m.merge("", merged, l.Root)
	}
	for i, name := range target {
		origin := t.origin(target[:i+1])
		origin.Layer = "the name of the " + Levels[i+1]
		merged.Fields[Levels[i+1]] = &document.Node{Value: name, Origin: origin}
	}
	return merged, m.problems, nil
}

type merger struct{ problems document.Problems }

func (m *merger) complain(n *document.Node, key, format string, values ...any) {
	m.problems = append(m.problems, document.Problem{Origin: n.Origin, Key: key, Message: fmt.Sprintf(format, values...)})
}

// merge returns the value of inner over outer, either of which may be nil.
func (m *merger) merge(key string, outer, inner *document.Node) *document.Node {
	if inner == nil {
		return outer
	}
	copied := *inner
	copied.Overrides = outer
	switch {
	case inner.Kind == document.Deleted:
		if outer == nil || outer.Kind == document.Deleted {
			m.complain(inner, key, "null deletes an inherited value, and no outer layer sets this key")
		}
		return &copied
	case inner.Kind == document.Map:
		if outer != nil && outer.Kind == document.Map {
			copied.Origin, copied.Overrides, copied.Comment = outer.Origin, nil, outer.Comment
		} else {
			outer = m.replaced(key, outer, inner)
		}
		copied.Fields = map[string]*document.Node{}
		if outer != nil {
			for name, field := range outer.Fields {
				copied.Fields[name] = field
			}
		}
		for name, field := range inner.Fields {
			copied.Fields[name] = m.merge(document.Join(key, name), copied.Fields[name], field)
		}
		return &copied
	}
	m.replaced(key, outer, inner)
	return &copied
}

// replaced checks that inner has the kind of the value that it replaces. It returns nil.
func (m *merger) replaced(key string, outer, inner *document.Node) *document.Node {
	if outer != nil && outer.Kind != document.Deleted && outer.Kind != inner.Kind {
		m.complain(inner, key, "is %s here and %s at %s; delete the inherited value with null in a layer between them", inner.Kind, outer.Kind, outer.Origin)
	}
	return nil
}
