package sql

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// group is the state of one group.
type group struct {
	values       []document.Value
	accumulators []accumulator
}

// groupSet collects rows in groups, in the order of their first rows.
type groupSet struct {
	q     *Query
	byKey map[string]*group
	order []*group
}

// newGroupSet returns an empty groupSet.
func newGroupSet(q *Query) *groupSet {
	g := &groupSet{q: q, byKey: map[string]*group{}}
	if len(q.groupBy) == 0 {
		g.newGroup("", nil) // without GROUP BY there is one group, even without rows
	}
	return g
}

// newGroup adds a group.
func (g *groupSet) newGroup(key string, values []document.Value) *group {
	one := &group{values: values, accumulators: make([]accumulator, len(g.q.aggregates))}
	g.byKey[key] = one
	g.order = append(g.order, one)
	return one
}

// add adds a row to its group. It always returns true, as a visitor of rows.
func (g *groupSet) add(e *env) bool {
	var key strings.Builder
	values := make([]document.Value, len(g.q.groupBy))
	for i, by := range g.q.groupBy {
		values[i] = by.eval(e)
		key.WriteString(document.Canonical(values[i]))
		key.WriteByte(0)
	}
	one := g.byKey[key.String()]
	if one == nil {
		one = g.newGroup(key.String(), values)
	}
	for i, a := range g.q.aggregates {
		one.accumulators[i].add(a.operand.eval(e))
	}
	return true
}

// env returns the environment for the projection of the group. outer has the variables of the enclosing queries.
func (g *group) env(q *Query, outer *env) *env {
	e := &env{vars: outer.vars, params: outer.params, budget: outer.budget, groups: g.values, aggregates: make([]document.Value, len(q.aggregates))}
	for i, a := range q.aggregates {
		e.aggregates[i] = g.accumulators[i].result(a.name)
	}
	return e
}

// runGrouped computes all groups and returns those after the token.
func (r *run) runGrouped() error {
	q := r.q
	gs := newGroupSet(q)
	top := &env{params: r.params, budget: &r.budget}
	if len(q.sources) == 0 {
		q.rows(top, gs.add)
	} else {
		err := r.src(nil, func(_ []byte, doc document.Value) (bool, error) {
			r.page.Read++
			return q.document(r.params, &r.budget, doc, gs.add), nil
		})
		if err != nil {
			return err
		}
	}
	var rows [][]byte
	seen := map[string]bool{}
	for _, g := range gs.order {
		v := q.project(g.env(q, top))
		if !v.IsDefined() {
			continue
		}
		if key := document.Canonical(v); q.distinct {
			if seen[key] {
				continue
			}
			seen[key] = true
		}
		rows = append(rows, document.Append(nil, v))
	}
	rows = rows[min(r.offset, len(rows)):]
	if r.limit >= 0 {
		rows = rows[:min(r.limit, len(rows))]
	}
	rows = rows[min(r.from.Done, len(rows)):]
	for i, row := range rows {
		r.emit(row)
		if r.full() && i+1 < len(rows) {
			r.page.Next = &Token{Done: r.from.Done + len(r.page.Rows)}
			break
		}
	}
	return nil
}

// accumulator collects the input of all aggregate functions.
type accumulator struct {
	count    int
	sum      float64
	mixed    bool // SUM and AVG: a value was not a number
	min, max document.Value
	complex  bool // MIN and MAX: a value was an array or an object
}

// add adds a value.
func (a *accumulator) add(v document.Value) {
	if !v.IsDefined() {
		return
	}
	a.count++
	if v.Kind == document.Number {
		a.sum += v.Num
	} else {
		a.mixed = true
	}
	if v.Kind == document.Array || v.Kind == document.Object {
		a.complex = true
		return
	}
	if !a.min.IsDefined() || document.Compare(v, a.min) < 0 {
		a.min = v
	}
	if !a.max.IsDefined() || document.Compare(v, a.max) > 0 {
		a.max = v
	}
}

// result returns the value of an aggregate function.
func (a *accumulator) result(name string) document.Value {
	switch {
	case name == "COUNT":
		return document.FromNumber(float64(a.count))
	case name == "SUM" && !a.mixed:
		return document.FromNumber(a.sum)
	case name == "AVG" && !a.mixed && a.count > 0:
		return document.FromNumber(a.sum / float64(a.count))
	case name == "MIN" && !a.complex:
		return a.min
	case name == "MAX" && !a.complex:
		return a.max
	}
	return undefined
}
