package deployment

import (
	"fmt"
	"slices"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// Leaf is a key without keys below it: a scalar, a list or an empty map.
type Leaf struct {
	Key  string
	Node *document.Node
}

// Leaves returns the leaves of a value in alphabetical order. key is the path of the value.
func Leaves(key string, n *document.Node) []Leaf {
	if n.Kind != document.Map || len(n.Keys()) == 0 {
		return []Leaf{{key, n}}
	}
	var leaves []Leaf
	for _, name := range n.Keys() {
		leaves = append(leaves, Leaves(document.Join(key, name), n.Fields[name])...)
	}
	return leaves
}

// History returns the values of a key from the one in effect to that of the outermost layer.
func History(n *document.Node) []*document.Node {
	var history []*document.Node
	for ; n != nil; n = n.Overrides {
		history = append(history, n)
	}
	return history
}

// Related returns the names of the rules that relate a key, or a key above or below it, to others.
func (c *Configuration) Related(key string) []string {
	var names []string
	for _, r := range c.Rules {
		for _, related := range r.Keys() {
			if within(related, key) || within(key, related) {
				names = append(names, r.Name())
				break
			}
		}
	}
	return names
}

// within reports whether key is outer or a key below it.
func within(key, outer string) bool {
	return key == outer || len(key) > len(outer) && key[:len(outer)+1] == outer+"."
}

// Difference is a key with different values in two targets. A target without the key has nil.
type Difference struct {
	Key         string
	First, Then *document.Node
}

// Diff compares two targets of any level, for example two environments. It compares what the layers contain, so that ${region}
// does not make every name different; with resolved it compares the values that are in effect, of regions and stamps only. Keys that
// follow from the names of the targets are left out.
func (c *Configuration) Diff(first, then layer.Target, resolved bool) ([]Difference, error) {
	var values [2]map[string]*document.Node
	var keys []string
	for i, target := range []layer.Target{first, then} {
		root, err := c.comparable(target, resolved)
		if err != nil {
			return nil, err
		}
		values[i] = map[string]*document.Node{}
		for _, leaf := range Leaves("", root) {
			if p := c.Schema.Lookup(document.Split(leaf.Key)...); p == nil || !p.Computed {
				values[i][leaf.Key] = leaf.Node
				keys = append(keys, leaf.Key)
			}
		}
	}
	return differences(keys, values), nil
}

func (c *Configuration) comparable(target layer.Target, resolved bool) (*document.Node, error) {
	if resolved {
		return c.Render(target)
	}
	if _, err := c.Tree.Layers(target); err != nil {
		return nil, err
	}
	if problems := c.problemsOf(target); len(problems) > 0 {
		return nil, problems.Err()
	}
	root, problems, err := c.Tree.Merge(target)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("merging the layers of %s: %w", target, err)
	}
	return root, nil
}

// differences compares leaves by key.
func differences(keys []string, values [2]map[string]*document.Node) []Difference {
	slices.Sort(keys)
	var found []Difference
	for _, key := range slices.Compact(keys) {
		first, then := values[0][key], values[1][key]
		if first == nil || then == nil || String(first) != String(then) {
			found = append(found, Difference{key, first, then})
		}
	}
	return found
}
