package sql

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// Grouped reports whether the results are computed from groups of documents.
func (q *Query) Grouped() bool { return len(q.groupBy) > 0 || len(q.aggregates) > 0 }

// NeedsMerge returns the clause that requires a merge of the results of several partitions, or "". The service's gateway
// rejects these queries over more than one logical partition.
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

// OrderPaths returns the properties of ORDER BY. The service orders only by properties.
func (q *Query) OrderPaths() ([]OrderPath, error) {
	var out []OrderPath
	for _, o := range q.orderBy {
		path, ok := q.path(o.expression)
		if !ok || len(path) == 0 {
			return nil, &Error{Code: "SC2104", Message: "Unsupported ORDER BY clause. ORDER BY item expression could not be mapped to a document path.", At: -1}
		}
		out = append(out, OrderPath{path, o.desc})
	}
	return out, nil
}

// path returns the property path of the document that an expression refers to.
func (q *Query) path(e expr) ([]string, bool) {
	switch n := e.(type) {
	case *ident:
		if n.slot != 0 || len(q.sources) == 0 || q.sources[0].each {
			return nil, false
		}
		if q.sources[0].expression == nil {
			return nil, true
		}
		return q.fromPath(q.sources[0].expression)
	case *property:
		p, ok := q.path(n.operand)
		return append(p[:len(p):len(p)], n.name), ok
	case *index:
		// An element of an array with a constant index.
		if l, ok := n.index.(*literal); ok && l.value.Kind == document.Number {
			p, ok := q.path(n.operand)
			return append(p[:len(p):len(p)], "["+l.value.JSON()+"]"), ok
		}
	}
	return nil, false
}

// fromPath is path for the expression of the first FROM.
func (q *Query) fromPath(e expr) ([]string, bool) {
	switch n := e.(type) {
	case *ident:
		return nil, n.slot == rootSlot
	case *property:
		p, ok := q.fromPath(n.operand)
		return append(p[:len(p):len(p)], n.name), ok
	}
	return nil, false
}

// Equalities maps property paths to the values that a filter requires: every document in the result has one of the values
// of each path. The keys are results of PathKey.
type Equalities map[string][]document.Value

// PathKey returns the key of a path in Equalities: its names joined by a NUL.
func PathKey(path []string) string { return strings.Join(path, "\x00") }

// Equalities returns the equalities and INs with constants and parameters in the conjunctions of the filter.
func (q *Query) Equalities(params map[string]document.Value) Equalities {
	out := Equalities{}
	q.addEqualities(q.where, params, out)
	return out
}

// addEqualities adds the equalities of an expression to out.
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
			q.addEquality(n.operand, n.list, params, out)
		}
	case *call:
		if n.name == "IS_NULL" {
			q.addEquality(n.args[0], []expr{&literal{document.NullValue}}, params, out)
		}
	}
}

// addEquality adds the values of a path to out. It returns false if of is not a path or if a value is not constant.
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
