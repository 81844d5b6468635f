package sql

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// bind resolves names to variables, collects aggregates and validates the shape of the query. outer are the variables of
// the enclosing queries.
func (q *Query) bind(outer []string, inner bool) error {
	q.depth = len(outer)
	names := append([]string(nil), outer...)
	for i := range q.sources {
		s := &q.sources[i]
		if s.alias == "" {
			return &Error{Code: "SC2008", Message: "An input of the FROM clause has no name.", At: -1}
		}
		switch {
		case i == 0 && !inner && !isPath(s.expression):
			return unsupportedError("The first input of FROM must be the container or a property path in it.")
		case s.sub != nil:
			if err := s.sub.bind(names, true); err != nil {
				return err
			}
		case i == 0 && !inner:
			// The first name of the outermost query is the container, with any name.
			s.expression = bindRoot(s.expression)
		default:
			if err := q.bindExpr(&s.expression, names, false); err != nil {
				return err
			}
		}
		for _, n := range names[q.depth:] {
			if n == s.alias {
				return &Error{Code: "SC2007", Message: fmt.Sprintf("The input alias '%s' is specified more than once in the FROM clause.", n), At: -1}
			}
		}
		names = append(names, s.alias)
	}
	if len(q.orderBy) > 0 && len(q.sources) == 0 {
		return unsupportedError("ORDER BY needs a FROM clause.")
	}
	if q.star && len(q.sources) != 1 {
		return &Error{Code: "SC2040", Message: "'SELECT *' is only valid with a single input set.", At: -1}
	}
	if q.where != nil {
		if err := q.bindExpr(&q.where, names, false); err != nil {
			return err
		}
	}
	for i := range q.groupBy {
		if err := q.bindExpr(&q.groupBy[i], names, false); err != nil {
			return err
		}
	}
	for i := range q.items {
		if err := q.bindExpr(&q.items[i].expression, names, true); err != nil {
			return err
		}
	}
	for i := range q.orderBy {
		if err := q.bindExpr(&q.orderBy[i].expression, names, len(q.groupBy) > 0); err != nil {
			return err
		}
	}
	if q.top != nil && (q.offset != nil || q.limit != nil) {
		return unsupportedError("TOP and OFFSET LIMIT cannot be used together.")
	}
	return q.bindGrouping()
}

// isPath reports whether an expression is a name followed by property names and constant indexes.
func isPath(e expr) bool {
	switch n := e.(type) {
	case *ident:
		return true
	case *property:
		return isPath(n.operand)
	case *index:
		_, constant := n.index.(*literal)
		return constant && isPath(n.operand)
	}
	return false
}

// bindRoot converts the path of the outermost FROM to a path on the document; nil means the container itself.
func bindRoot(e expr) expr {
	switch n := e.(type) {
	case *ident:
		return nil
	case *property:
		return &property{bindRootOperand(n.operand), n.name}
	case *index:
		return &index{bindRootOperand(n.operand), n.index}
	}
	return e
}

// bindRootOperand is bindRoot for the operand of a path.
func bindRootOperand(e expr) expr {
	if inner := bindRoot(e); inner != nil {
		return inner
	}
	return &ident{name: "root", slot: rootSlot}
}

// rootSlot marks the document itself in a FROM path such as FROM c.children.
const rootSlot = -2

// bindExpr binds the names and aggregates of an expression.
func (q *Query) bindExpr(p *expr, names []string, aggregates bool) error {
	switch n := (*p).(type) {
	case *ident:
		for i := len(names) - 1; i >= 0; i-- {
			if names[i] == n.name {
				n.slot = i
				return nil
			}
		}
		return &Error{Code: "SC2001", Message: fmt.Sprintf("Identifier '%s' could not be resolved.", n.name), At: -1}
	case *subquery:
		return n.query.bind(names, true)
	case *aggregate:
		if !aggregates {
			return &Error{Code: "SC2009", Message: fmt.Sprintf("The aggregate function '%s' is not allowed here.", n.name), At: -1}
		}
		n.slot = len(q.aggregates)
		q.aggregates = append(q.aggregates, n)
		return q.bindExpr(&n.operand, names, false)
	}
	for _, c := range (*p).children() {
		if err := q.bindExpr(c, names, aggregates); err != nil {
			return err
		}
	}
	return nil
}

// bindGrouping replaces the expressions that GROUP BY computes, and rejects those that neither GROUP BY nor an aggregate
// provides.
func (q *Query) bindGrouping() error {
	if len(q.groupBy) == 0 && len(q.aggregates) == 0 {
		return nil
	}
	if q.star {
		return &Error{Code: "SC2102", Message: "'SELECT *' is not valid with GROUP BY.", At: -1}
	}
	if len(q.orderBy) > 0 {
		return unsupportedError("ORDER BY is not supported together with GROUP BY or aggregates.")
	}
	for i := range q.items {
		if err := q.bindGroup(&q.items[i].expression); err != nil {
			return err
		}
	}
	return nil
}

// bindGroup is bindGrouping for one expression.
func (q *Query) bindGroup(p *expr) error {
	for i, g := range q.groupBy {
		if g.canonicalText() == (*p).canonicalText() {
			*p = &groupRef{slot: i, name: g.canonicalText()}
			return nil
		}
	}
	switch n := (*p).(type) {
	case *aggregate:
		return nil
	case *ident:
		if n.slot < q.depth && n.slot >= 0 {
			return nil // a variable of an enclosing query is constant here
		}
		return &Error{Code: "SC2102", Message: fmt.Sprintf("Property reference '%s' is invalid in the select list because it is not contained in either an aggregate function or the GROUP BY clause.", n.name), At: -1}
	case *subquery:
		return unsupportedError("A subquery is not supported in the select list of a query with GROUP BY or aggregates.")
	}
	for _, c := range (*p).children() {
		if err := q.bindGroup(c); err != nil {
			return err
		}
	}
	return nil
}

// checkParameters returns an error if a parameter has no value, or if an operand of TOP, OFFSET or LIMIT is invalid. It
// includes subqueries.
func (q *Query) checkParameters(params map[string]document.Value) error {
	var err error
	q.walk(func(e expr) {
		if n, ok := e.(*param); ok && err == nil {
			if _, exists := params[n.name]; !exists {
				err = &Error{Code: "SC2011", Message: fmt.Sprintf("The parameter '%s' has no value.", n.name), At: -1}
			}
		}
	}, func(inner *Query) {
		if err == nil {
			_, err = inner.counts(params)
		}
	})
	return err
}

// counts holds the values of TOP, OFFSET and LIMIT.
type counts struct {
	limit  int // -1: none
	offset int
}

// counts evaluates TOP, OFFSET and LIMIT.
func (q *Query) counts(params map[string]document.Value) (counts, error) {
	c := counts{limit: -1}
	for _, o := range []struct {
		e    expr
		into *int
		name string
	}{{q.top, &c.limit, "TOP"}, {q.limit, &c.limit, "LIMIT"}, {q.offset, &c.offset, "OFFSET"}} {
		if o.e == nil {
			continue
		}
		v := o.e.eval(&env{params: params})
		n := int(v.Num)
		if v.Kind != document.Number || float64(n) != v.Num || n < 0 {
			return c, &Error{Code: "SC2062", Message: fmt.Sprintf("The operand of %s must be a non-negative integer.", o.name), At: -1}
		}
		*o.into = n
	}
	return c, nil
}

// walk visits every expression and every query, including subqueries.
func (q *Query) walk(visit func(expr), visitQuery func(*Query)) {
	visitQuery(q)
	var down func(e expr)
	down = func(e expr) {
		if e == nil {
			return
		}
		visit(e)
		if s, ok := e.(*subquery); ok {
			s.query.walk(visit, visitQuery)
		}
		for _, c := range e.children() {
			down(*c)
		}
	}
	down(q.top)
	for _, i := range q.items {
		down(i.expression)
	}
	for _, s := range q.sources {
		down(s.expression)
		if s.sub != nil {
			s.sub.walk(visit, visitQuery)
		}
	}
	down(q.where)
	for _, g := range q.groupBy {
		down(g)
	}
	for _, o := range q.orderBy {
		down(o.expression)
	}
	down(q.offset)
	down(q.limit)
}
