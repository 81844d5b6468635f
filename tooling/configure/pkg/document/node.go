// Package document reads the YAML files of the configuration into trees of nodes. Each node carries the file, the line and the
// layer that set it, so that every later error and explanation can name them.
//
// The files are plain YAML: maps, lists, strings, decimal numbers, booleans and null. Parse rejects everything else, such as
// anchors, tags and duplicate keys. A tree is not changed after it was read; functions that merge trees return copies.
package document

import (
	"maps"
	"slices"
	"strconv"
)

// Kind is the kind of a node.
type Kind int

// The kinds of nodes.
const (
	// Scalar is a string, an integer, a float or a boolean.
	Scalar Kind = iota
	Map
	List
	// Deleted is a null in a file. It deletes the inherited value of the key.
	Deleted
)

// String returns the kind in words, for errors.
func (k Kind) String() string {
	return [...]string{"a single value", "a map", "a list", "null"}[k]
}

// Origin is the place that set a value. Line is 0 if the value is not in a file, for example the name of the region.
type Origin struct {
	Layer string
	File  string
	Line  int
}

// String returns FILE:LINE.
func (o Origin) String() string {
	if o.Line == 0 {
		return o.File
	}
	return o.File + ":" + strconv.Itoa(o.Line)
}

// Node is one value with its origin.
type Node struct {
	Kind Kind
	// Value is the value of a scalar: string, int64, float64 or bool.
	Value any
	// Text is a string before its references were replaced. It is empty if the string has no references.
	Text   string
	Fields map[string]*Node
	Items  []*Node
	Origin Origin
	// Comment is the comment at the key in its file, or else at the next outer key, without the number signs.
	Comment string
	// Overrides is the value of the next outer layer that this value replaced; nil if there is none.
	Overrides *Node
}

// Keys returns the sorted keys of a map, without those that were deleted.
func (n *Node) Keys() []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(n.Fields)) {
		if n.Fields[key].Kind != Deleted {
			keys = append(keys, key)
		}
	}
	return keys
}

// Plain returns the value as maps, slices and scalars, without deleted keys.
func (n *Node) Plain() any {
	switch n.Kind {
	case Map:
		plain := map[string]any{}
		for _, key := range n.Keys() {
			plain[key] = n.Fields[key].Plain()
		}
		return plain
	case List:
		plain := make([]any, 0, len(n.Items))
		for _, item := range n.Items {
			plain = append(plain, item.Plain())
		}
		return plain
	case Deleted:
		return nil
	}
	return n.Value
}

// Get returns the node at a path of keys and list indexes, or nil.
func (n *Node) Get(path ...string) *Node {
	found, rest := n.Nearest(path...)
	if len(rest) > 0 {
		return nil
	}
	return found
}

// Nearest returns the last node on a path that exists, and the rest of the path.
func (n *Node) Nearest(path ...string) (*Node, []string) {
	for i, step := range path {
		var next *Node
		switch n.Kind {
		case Map:
			next = n.Fields[step]
		case List:
			if index, err := strconv.Atoi(step); err == nil && index >= 0 && index < len(n.Items) {
				next = n.Items[index]
			}
		}
		if next == nil || next.Kind == Deleted {
			return n, path[i:]
		}
		n = next
	}
	return n, nil
}

// Deletion returns the null that deleted a key, or nil if the key exists or was never set.
func (n *Node) Deletion(path ...string) *Node {
	parent, rest := n.Nearest(path...)
	if len(rest) == 0 || parent.Kind != Map {
		return nil
	}
	return parent.Fields[rest[0]]
}
