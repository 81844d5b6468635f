package layer

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// reference matches ${KEY} and, so that it can be reported, every other use of "${".
var reference = regexp.MustCompile(`\$\{([A-Za-z0-9_.-]*)\}?`)

// HasReferences reports whether a text has references.
func HasReferences(text string) bool { return strings.Contains(text, "${") }

// maxResolved bounds the length of a string after its references were replaced.
const maxResolved = 4096

// Resolve returns a copy of the merged values in which ${KEY} in strings is replaced by the value of KEY, which must be a string,
// an integer or a boolean. The value of KEY may have references itself.
func Resolve(root *document.Node) (*document.Node, document.Problems) {
	r := &resolver{root: root, values: map[string]*document.Node{}}
	return r.copy("", root), r.problems
}

type resolver struct {
	root     *document.Node
	values   map[string]*document.Node
	active   []string
	problems document.Problems
}

func (r *resolver) copy(key string, n *document.Node) *document.Node {
	copied := *n
	switch n.Kind {
	case document.Map:
		copied.Fields = map[string]*document.Node{}
		for name, field := range n.Fields {
			copied.Fields[name] = r.copy(document.Join(key, name), field)
		}
	case document.List:
		copied.Items = nil
		for i, item := range n.Items {
			copied.Items = append(copied.Items, r.copy(document.Join(key, strconv.Itoa(i)), item))
		}
	case document.Scalar:
		return r.scalar(key, n)
	}
	return &copied
}

func (r *resolver) complain(n *document.Node, key, format string, values ...any) {
	r.problems = append(r.problems, document.Problem{Origin: n.Origin, Key: key, Message: fmt.Sprintf(format, values...)})
}

// scalar returns the value of a scalar with its references replaced. Each key is resolved, and its problems are reported, once.
func (r *resolver) scalar(key string, n *document.Node) *document.Node {
	text, isText := n.Value.(string)
	if !isText || !HasReferences(text) {
		return n
	}
	if known := r.values[key]; known != nil {
		return known
	}
	copied := *n
	r.values[key] = &copied
	r.active = append(r.active, key)
	copied.Text = text
	copied.Value = reference.ReplaceAllStringFunc(text, func(found string) string { return r.replace(key, n, found) })
	r.active = r.active[:len(r.active)-1]
	if len(copied.Value.(string)) > maxResolved {
		r.complain(n, key, "has more than %d characters after its references were replaced", maxResolved)
		copied.Value = ""
	}
	return &copied
}

func (r *resolver) replace(key string, n *document.Node, found string) string {
	name, closed := strings.CutSuffix(strings.TrimPrefix(found, "${"), "}")
	if !closed || name == "" {
		r.complain(n, key, "%q is not a reference of the form ${KEY}", found)
		return ""
	}
	for i, active := range r.active {
		if active == name {
			r.complain(n, key, "the references form a cycle: %s", strings.Join(append(r.active[i:len(r.active):len(r.active)], name), " → "))
			return ""
		}
	}
	referred := r.root.Get(document.Split(name)...)
	switch {
	case referred == nil:
		r.complain(n, key, "refers to %s, which no layer of the target sets", name)
		return ""
	case referred.Kind != document.Scalar:
		r.complain(n, key, "refers to %s, which is %s", name, referred.Kind)
		return ""
	}
	return fmt.Sprint(r.scalar(name, referred).Value)
}
