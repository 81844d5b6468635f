// Package sql implements the query language of Azure Cosmos DB for NoSQL. Parse returns a Query, and Run returns pages of
// its results from a stream of documents. The gateway uses the shape of a Query to reject the queries that the service's
// gateway rejects.
//
// Values follow the service's rules for undefined: a comparison of different types is undefined, a filter accepts only
// true, and a projection omits undefined values. Parse returns an *Error for everything that this package does not
// support. No query is executed with a different meaning.
package sql

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// expr is a node of an expression.
type expr interface {
	eval(e *env) document.Value
	// children returns pointers to the direct sub-expressions, through which bind replaces them.
	children() []*expr
	// canonicalText returns a text that is equal for equivalent expressions. GROUP BY compares it.
	canonicalText() string
}

// env holds the variables of one row. Those of enclosing queries come first.
type env struct {
	vars       []document.Value
	params     map[string]document.Value
	aggregates []document.Value // results of aggregates
	groups     []document.Value // values of the GROUP BY expressions
	budget     *int             // rows that may still be processed
}

type (
	literal struct{ value document.Value }
	param   struct{ name string }
	ident   struct {
		name string
		slot int
	}
	property struct {
		operand expr
		name    string
	}
	index struct{ operand, index expr }
	unary struct {
		op      string
		operand expr
	}
	binary struct {
		op          string
		left, right expr
	}
	// logical is a chain of AND or OR.
	logical struct {
		op    string
		items []expr
	}
	ternary struct{ cond, yes, no expr }
	in      struct {
		operand expr
		list    []expr
		not     bool
	}
	between struct {
		operand, low, high expr
		not                bool
	}
	like struct {
		operand, pattern, escape expr
		not                      bool
	}
	arrayOf  struct{ items []expr }
	objectOf struct {
		names []string
		items []expr
	}
	call struct {
		name string
		args []expr
		fn   function
	}
	aggregate struct {
		name    string
		operand expr
		slot    int
	}
	groupRef struct {
		slot int
		name string
	}
	// subquery is EXISTS(…), ARRAY(…) or a scalar (SELECT VALUE …).
	subquery struct {
		kind  string
		query *Query
	}
)

// Query is a parsed query. It can be run repeatedly and concurrently.
type Query struct {
	distinct bool
	top      expr
	value    bool
	star     bool
	items    []selectItem
	sources  []source
	where    expr
	groupBy  []expr
	orderBy  []orderItem
	offset   expr
	limit    expr

	aggregates []*aggregate
	depth      int // number of variables of the enclosing queries
}

// selectItem is one item of the SELECT list.
type selectItem struct {
	expression expr
	name       string
}

// orderItem is one item of ORDER BY.
type orderItem struct {
	expression expr
	desc       bool
}

// source is one input of FROM or JOIN.
type source struct {
	alias string
	// expression is the expression to iterate or to bind; nil for the container itself.
	expression expr
	// each reports whether the expression is an array to iterate.
	each bool
	sub  *Query // JOIN (SELECT …)
}

func (n *literal) children() []*expr  { return nil }
func (n *param) children() []*expr    { return nil }
func (n *ident) children() []*expr    { return nil }
func (n *property) children() []*expr { return []*expr{&n.operand} }
func (n *index) children() []*expr    { return []*expr{&n.operand, &n.index} }
func (n *unary) children() []*expr    { return []*expr{&n.operand} }
func (n *binary) children() []*expr   { return []*expr{&n.left, &n.right} }
func (n *logical) children() []*expr  { return pointers(n.items) }
func (n *ternary) children() []*expr  { return []*expr{&n.cond, &n.yes, &n.no} }
func (n *between) children() []*expr  { return []*expr{&n.operand, &n.low, &n.high} }
func (n *arrayOf) children() []*expr  { return pointers(n.items) }
func (n *objectOf) children() []*expr { return pointers(n.items) }
func (n *call) children() []*expr     { return pointers(n.args) }
func (n *groupRef) children() []*expr { return nil }
func (n *subquery) children() []*expr { return nil }
func (n *in) children() []*expr       { return append(pointers(n.list), &n.operand) }
func (n *aggregate) children() []*expr {
	return []*expr{&n.operand}
}
func (n *like) children() []*expr {
	out := []*expr{&n.operand, &n.pattern}
	if n.escape != nil {
		out = append(out, &n.escape)
	}
	return out
}

// pointers returns pointers to the elements.
func pointers(es []expr) []*expr {
	out := make([]*expr, len(es))
	for i := range es {
		out[i] = &es[i]
	}
	return out
}

// joinTexts returns the canonical texts of expressions, separated by commas.
func joinTexts(es []expr) string {
	parts := make([]string, len(es))
	for i, e := range es {
		parts[i] = e.canonicalText()
	}
	return strings.Join(parts, ",")
}

func (n *literal) canonicalText() string { return document.Canonical(n.value) }
func (n *param) canonicalText() string   { return n.name }
func (n *ident) canonicalText() string   { return n.name }
func (n *property) canonicalText() string {
	return n.operand.canonicalText() + "[" + document.FromString(n.name).JSON() + "]"
}
func (n *index) canonicalText() string {
	return n.operand.canonicalText() + "[" + n.index.canonicalText() + "]"
}
func (n *unary) canonicalText() string { return "(" + n.op + " " + n.operand.canonicalText() + ")" }
func (n *binary) canonicalText() string {
	return "(" + n.left.canonicalText() + " " + n.op + " " + n.right.canonicalText() + ")"
}
func (n *logical) canonicalText() string { return "(" + n.op + " " + joinTexts(n.items) + ")" }
func (n *ternary) canonicalText() string {
	return "(" + n.cond.canonicalText() + "?" + n.yes.canonicalText() + ":" + n.no.canonicalText() + ")"
}
func (n *in) canonicalText() string {
	return "(" + n.operand.canonicalText() + notText(n.not) + " in " + joinTexts(n.list) + ")"
}
func (n *between) canonicalText() string {
	return "(" + n.operand.canonicalText() + notText(n.not) + " between " + n.low.canonicalText() + " and " + n.high.canonicalText() + ")"
}
func (n *like) canonicalText() string {
	return "(" + n.operand.canonicalText() + notText(n.not) + " like " + n.pattern.canonicalText() + ")"
}
func (n *arrayOf) canonicalText() string { return "[" + joinTexts(n.items) + "]" }
func (n *objectOf) canonicalText() string {
	return "{" + strings.Join(n.names, ",") + ":" + joinTexts(n.items) + "}"
}
func (n *call) canonicalText() string      { return n.name + "(" + joinTexts(n.args) + ")" }
func (n *aggregate) canonicalText() string { return n.name + "(" + n.operand.canonicalText() + ")" }
func (n *groupRef) canonicalText() string  { return n.name }
func (n *subquery) canonicalText() string  { return n.kind + "(subquery)" }

// notText returns the canonical text of an optional NOT.
func notText(not bool) string {
	if not {
		return " not"
	}
	return ""
}
