package sql

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// runSubquery runs a subquery for one row of its enclosing query. It returns false if visit did.
func (q *Query) runSubquery(outer *env, visit func(v document.Value) bool) bool {
	e := &env{vars: outer.vars, params: outer.params, budget: outer.budget}
	n, err := q.counts(e.params)
	if err != nil || n.limit == 0 {
		return true // checkParameters rejects invalid counts before
	}
	var seen map[string]bool
	if q.distinct {
		seen = map[string]bool{}
	}
	stopped := false
	emit := func(v document.Value) bool {
		if !v.IsDefined() {
			return true
		}
		if q.distinct {
			key := document.Canonical(v)
			if seen[key] {
				return true
			}
			seen[key] = true
		}
		if n.offset > 0 {
			n.offset--
			return true
		}
		if n.limit > 0 {
			n.limit--
		}
		stopped = !visit(v)
		return !stopped && n.limit != 0
	}
	switch {
	case q.Grouped():
		gs := newGroupSet(q)
		q.rows(e, gs.add)
		for _, g := range gs.order {
			if !emit(q.project(g.env(q, e))) {
				break
			}
		}
	case len(q.orderBy) > 0:
		q.runSortedSubquery(e, emit)
	default:
		q.rows(e, func(row *env) bool { return emit(q.project(row)) })
	}
	return !stopped
}

// runSortedSubquery runs a subquery with ORDER BY.
func (q *Query) runSortedSubquery(e *env, emit func(v document.Value) bool) {
	type row struct {
		sortedRow
		v document.Value
	}
	var all []*row
	q.rows(e, func(env *env) bool {
		r := &row{v: q.project(env)}
		r.row = len(all)
		for _, o := range q.orderBy {
			r.keys = append(r.keys, o.expression.eval(env))
		}
		all = append(all, r)
		return true
	})
	slices.SortFunc(all, func(a, b *row) int { return q.compareRows(&a.sortedRow, &b.sortedRow) })
	for _, r := range all {
		if !emit(r.v) {
			return
		}
	}
}
