package sql

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// Grouped says whether results are computed from groups of documents.
func (q *Query) Grouped() bool { return len(q.groupBy) > 0 || len(q.aggregates) > 0 }

// NeedsMerge names the clause because of which results of several partitions cannot simply follow one another:
// the service's gateway refuses such a query over more than one logical partition. Empty when there is none.
func (q *Query) NeedsMerge() string {
	switch {
	case len(q.orderBy) > 0:
		return "ORDER BY"
	case len(q.groupBy) > 0:
		return "GROUP BY"
	case len(q.aggregates) > 0:
		return "an aggregate"
	case q.distinct:
		return "DISTINCT"
	case q.top != nil:
		return "TOP"
	case q.offset != nil:
		return "OFFSET LIMIT"
	}
	return ""
}

// OrderPath is one item of ORDER BY.
type OrderPath struct {
	Path []string
	Desc bool
}

// OrderPaths are the properties of ORDER BY; the service orders by nothing else.
func (q *Query) OrderPaths() ([]OrderPath, error) {
	var out []OrderPath
	for _, o := range q.orderBy {
		path, ok := q.path(o.of)
		if !ok || len(path) == 0 {
			return nil, &Error{Code: "SC2104", Message: "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.", At: -1}
		}
		out = append(out, OrderPath{path, o.desc})
	}
	return out, nil
}

// path reads an expression as a property path of the document.
func (q *Query) path(e expr) ([]string, bool) {
	switch n := e.(type) {
	case *ident:
		if n.slot != 0 || len(q.sources) == 0 || q.sources[0].each {
			return nil, false
		}
		if q.sources[0].of == nil {
			return nil, true
		}
		return q.fromPath(q.sources[0].of)
	case *property:
		p, ok := q.path(n.of)
		return append(p[:len(p):len(p)], n.name), ok
	case *index:
		// An element of an array, by a number that is written out.
		if l, ok := n.at.(*literal); ok && l.value.Kind == document.Number {
			p, ok := q.path(n.of)
			return append(p[:len(p):len(p)], "["+l.value.JSON()+"]"), ok
		}
	}
	return nil, false
}

func (q *Query) fromPath(e expr) ([]string, bool) {
	switch n := e.(type) {
	case *ident:
		return nil, n.slot == rootSlot
	case *property:
		p, ok := q.fromPath(n.of)
		return append(p[:len(p):len(p)], n.name), ok
	}
	return nil, false
}

// Equalities are the values that the filter demands of properties: a document that is in the result has one of the
// values of each path. The key is the path's names joined by a NUL.
type Equalities map[string][]document.Value

// PathKey is the key of a path in Pins.
func PathKey(path []string) string { return strings.Join(path, "\x00") }

// Equalities finds, in the conjunctions of the filter, equalities and INs with constants and parameters.
func (q *Query) Equalities(params map[string]document.Value) Equalities {
	out := Equalities{}
	q.addEqualities(q.where, params, out)
	return out
}

func (q *Query) addEqualities(e expr, params map[string]document.Value, out Equalities) {
	switch n := e.(type) {
	case *logical:
		if n.op == "AND" {
			for _, item := range n.items {
				q.addEqualities(item, params, out)
			}
		}
	case *binary:
		if n.op != "=" {
			return
		}
		if !q.addEquality(n.left, []expr{n.right}, params, out) {
			q.addEquality(n.right, []expr{n.left}, params, out)
		}
	case *in:
		if !n.not {
			q.addEquality(n.of, n.list, params, out)
		}
	case *call:
		if n.name == "IS_NULL" {
			q.addEquality(n.args[0], []expr{&literal{document.NullValue}}, params, out)
		}
	}
}

func (q *Query) addEquality(of expr, to []expr, params map[string]document.Value, out Equalities) bool {
	path, ok := q.path(of)
	if !ok || len(path) == 0 {
		return false
	}
	values := make([]document.Value, 0, len(to))
	for _, e := range to {
		switch n := e.(type) {
		case *literal:
			values = append(values, n.value)
		case *param:
			values = append(values, params[n.name])
		default:
			return false
		}
	}
	key := PathKey(path)
	if old, ok := out[key]; !ok || len(values) < len(old) {
		out[key] = values
	}
	return true
}
