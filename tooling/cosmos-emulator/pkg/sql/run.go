package sql

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// Source streams documents in a stable order, beginning after a position (nil: from the start), until visit says
// no. Positions are opaque but ordered by bytes.
type Source func(after []byte, visit func(at []byte, doc document.Value) (more bool, err error)) error

// Token says where a query goes on. It survives restarts: it names documents, not counts of them, wherever the
// query has an order or none; only grouped results are counted.
type Token struct {
	// After is the last document that was finished (or, under ORDER BY, the last one returned).
	After []byte `json:"a,omitempty"`
	// Row counts the rows already returned of the document after After (JOINs make several).
	Row int `json:"r,omitempty"`
	// Keys are the ORDER BY values of the last row returned.
	Keys []json.RawMessage `json:"k,omitempty"`
	// Done counts the rows returned so far, for TOP, LIMIT and grouped results.
	Done int `json:"n"`
}

// Encode and DecodeToken translate to the continuation header's text.
func (t Token) Encode() string {
	b, _ := json.Marshal(t) // a struct of slices and ints cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeToken reads what Encode wrote.
func DecodeToken(s string) (*Token, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return nil, fmt.Errorf("continuation token: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	t := &Token{}
	if err := d.Decode(t); err != nil {
		return nil, fmt.Errorf("continuation token: %w", err)
	}
	if t.Row < 0 || t.Done < 0 {
		return nil, fmt.Errorf("continuation token: negative count")
	}
	return t, nil
}

// Page is one page of results.
type Page struct {
	Rows [][]byte // JSON values
	Next *Token   // nil when the query is finished
	// Read counts the documents looked at.
	Read int
}

// Run produces the page after a token (nil: the first), of at most maxRows rows and about maxBytes bytes.
func (q *Query) Run(src Source, params map[string]document.Value, t *Token, maxRows, maxBytes int) (*Page, error) {
	if err := q.checkParams(params); err != nil {
		return nil, err
	}
	r := &run{q: q, src: src, params: params, maxRows: maxRows, maxBytes: maxBytes, page: &Page{}, limit: -1}
	if t != nil {
		r.from = *t
	}
	for _, c := range []struct {
		e    expr
		into *int
		name string
	}{{q.top, &r.limit, "TOP"}, {q.limit, &r.limit, "LIMIT"}, {q.offset, &r.offset, "OFFSET"}} {
		if c.e == nil {
			continue
		}
		v := c.e.eval(&env{params: params})
		n := int(v.Num)
		if v.Kind != document.Number || float64(n) != v.Num || n < 0 {
			return nil, &Error{Code: "SC2062", Message: fmt.Sprintf("The operand of %s must be a whole number that is not negative.", c.name), At: -1}
		}
		*c.into = n
	}
	var err error
	switch {
	case q.Grouped():
		err = r.grouped()
	case len(q.orderBy) > 0:
		err = r.ordered()
	default:
		err = r.streamed()
	}
	return r.page, err
}

type run struct {
	q                 *Query
	src               Source
	params            map[string]document.Value
	from              Token
	maxRows, maxBytes int
	limit, offset     int // limit -1: none
	page              *Page
	bytes             int
}

// full says whether the page is.
func (r *run) full() bool { return len(r.page.Rows) >= r.maxRows || r.bytes >= r.maxBytes }

// finished says whether TOP or LIMIT is used up.
func (r *run) finished() bool { return r.limit >= 0 && r.from.Done+len(r.page.Rows) >= r.limit }

func (r *run) emit(row []byte) {
	r.page.Rows = append(r.page.Rows, row)
	r.bytes += len(row)
}

// rows calls visit with the variables of every row that passes the filter, until it says no.
func (q *Query) rows(e *env, visit func(e *env) bool) bool {
	return q.join(e, 0, visit)
}

func (q *Query) join(e *env, i int, visit func(e *env) bool) bool {
	if i == len(q.sources) {
		if q.where != nil && !q.where.eval(e).IsTrue() {
			return true
		}
		return visit(e)
	}
	s := &q.sources[i]
	bind := func(v document.Value) bool {
		inner := *e
		inner.vars = append(e.vars[:len(e.vars):len(e.vars)], v)
		return q.join(&inner, i+1, visit)
	}
	if s.sub != nil {
		return s.sub.inner(e, bind)
	}
	v := s.of.eval(e)
	if !s.each {
		return !v.IsDefined() || bind(v)
	}
	for _, item := range v.Arr {
		if !bind(item) {
			return false
		}
	}
	return true
}

// document binds a document as the first input of the outermost query.
func (q *Query) document(params map[string]document.Value, doc document.Value, visit func(e *env) bool) bool {
	e := &env{params: params}
	if len(q.sources) == 0 {
		return q.rows(e, visit)
	}
	s := &q.sources[0]
	if s.of != nil {
		doc = s.of.eval(&env{vars: []document.Value{doc}, params: params})
	}
	if s.each {
		for _, item := range doc.Arr {
			e.vars = []document.Value{item}
			if !q.join(e, 1, visit) {
				return false
			}
		}
		return true
	}
	if !doc.IsDefined() {
		return true
	}
	e.vars = []document.Value{doc}
	return q.join(e, 1, visit)
}

// project computes the row's result.
func (q *Query) project(e *env) document.Value {
	switch {
	case q.star:
		return e.vars[len(e.vars)-1]
	case q.value:
		return q.items[0].of.eval(e)
	}
	out := document.Value{Kind: document.Object, Obj: make([]document.Member, 0, len(q.items))}
	for _, i := range q.items {
		if v := i.of.eval(e); v.IsDefined() {
			out.Obj = append(out.Obj, document.Member{Name: i.name, Value: v})
		}
	}
	return out
}

// streamed runs a query without an order: it stops reading when the page is full. It cannot know whether more
// will match, so a full page always has a continuation, as the service's has.
func (r *run) streamed() error {
	q := r.q
	if r.limit == 0 {
		return nil
	}
	if len(q.sources) == 0 {
		if r.from.Done > 0 {
			return nil
		}
		if v := q.project(&env{params: r.params}); v.IsDefined() && r.offset == 0 {
			r.emit(document.Append(nil, v))
		}
		return nil
	}
	skip := 0
	if r.from.Done == 0 && r.from.After == nil {
		skip = r.offset
	}
	// DISTINCT must know what earlier pages returned, so it reads them again.
	start := r.from.After
	var seen map[string]bool
	if q.distinct {
		seen, start = map[string]bool{}, nil
		skip = r.offset
	}
	resume := r.from.After
	rowsDone := r.from.Row
	last := r.from.After
	return r.src(start, func(at []byte, doc document.Value) (bool, error) {
		r.page.Read++
		old := q.distinct && resume != nil && bytes.Compare(at, resume) <= 0
		row := 0
		goOn := q.document(r.params, doc, func(e *env) bool {
			v := q.project(e)
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
			row++
			if skip > 0 {
				skip--
				return true
			}
			if old || row <= rowsDone {
				return true
			}
			r.emit(document.Append(nil, v))
			return !r.full() && !r.finished()
		})
		if old {
			return true, nil
		}
		if goOn {
			rowsDone = 0
			last = append([]byte(nil), at...)
			return true, nil
		}
		if !r.finished() {
			// Rows of this document may be left: go on after its predecessor, past the rows returned.
			r.page.Next = &Token{After: last, Row: row, Done: r.from.Done + len(r.page.Rows)}
			if len(q.sources) == 1 && !q.sources[0].each {
				r.page.Next.After, r.page.Next.Row = append([]byte(nil), at...), 0
			}
		}
		return false, nil
	})
}

type sortedRow struct {
	keys []document.Value
	at   []byte
	row  int
	out  []byte
	same string // canonical form, for DISTINCT
}

func (q *Query) compareRows(a, b *sortedRow) int {
	for i, o := range q.orderBy {
		if c := document.Compare(a.keys[i], b.keys[i]); c != 0 {
			if o.desc {
				return -c
			}
			return c
		}
	}
	if c := bytes.Compare(a.at, b.at); c != 0 {
		return c
	}
	return a.row - b.row
}

// ordered collects and sorts everything, and returns what comes after the token's row.
func (r *run) ordered() error {
	q := r.q
	var all []*sortedRow
	err := r.src(nil, func(at []byte, doc document.Value) (bool, error) {
		r.page.Read++
		n := 0
		position := append([]byte(nil), at...)
		q.document(r.params, doc, func(e *env) bool {
			v := q.project(e)
			if !v.IsDefined() {
				return true
			}
			row := &sortedRow{at: position, row: n, out: document.Append(nil, v), keys: make([]document.Value, len(q.orderBy))}
			n++
			if q.distinct {
				row.same = document.Canonical(v)
			}
			for i, o := range q.orderBy {
				row.keys[i] = o.of.eval(e)
			}
			all = append(all, row)
			return true
		})
		return true, nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(all, q.compareRows)
	if q.distinct {
		seen := map[string]bool{}
		all = slices.DeleteFunc(all, func(row *sortedRow) bool {
			again := seen[row.same]
			seen[row.same] = true
			return again
		})
	}
	if r.from.Keys != nil {
		last, err := r.from.lastRow(len(q.orderBy))
		if err != nil {
			return err
		}
		at, found := slices.BinarySearchFunc(all, last, q.compareRows)
		if found {
			at++
		}
		all = all[at:]
	} else {
		all = all[min(r.offset, len(all)):]
	}
	if r.limit >= 0 {
		all = all[:min(max(0, r.limit-r.from.Done), len(all))]
	}
	for i, row := range all {
		r.emit(row.out)
		if r.full() && i+1 < len(all) {
			r.page.Next = row.token(r.from.Done + len(r.page.Rows))
			break
		}
	}
	return nil
}

func (s *sortedRow) token(done int) *Token {
	t := &Token{After: s.at, Row: s.row, Done: done}
	for _, k := range s.keys {
		wrapped := document.Value{Kind: document.Object, Obj: []document.Member{{Name: "item", Value: k}}}
		t.Keys = append(t.Keys, json.RawMessage(document.Append(nil, wrapped)))
	}
	return t
}

func (t Token) lastRow(keys int) (*sortedRow, error) {
	if len(t.Keys) != keys {
		return nil, &Error{Code: "SC3001", Message: "The continuation token belongs to another query.", At: -1}
	}
	s := &sortedRow{at: t.After, row: t.Row}
	for _, raw := range t.Keys {
		v, err := document.Parse(raw)
		if err != nil {
			return nil, &Error{Code: "SC3001", Message: "The continuation token is malformed.", At: -1}
		}
		s.keys = append(s.keys, v.Get("item"))
	}
	return s, nil
}

// group is the state of one group.
type group struct {
	values []document.Value
	accs   []accumulator
}

// grouped computes all groups, in the order in which their first documents come, and returns those not returned yet.
func (r *run) grouped() error {
	q := r.q
	groups := map[string]*group{}
	var order []*group
	newGroup := func(values []document.Value) *group {
		g := &group{values: values, accs: make([]accumulator, len(q.aggregates))}
		order = append(order, g)
		return g
	}
	if len(q.groupBy) == 0 {
		groups[""] = newGroup(nil)
	}
	add := func(e *env) bool {
		var key string
		values := make([]document.Value, len(q.groupBy))
		for i, by := range q.groupBy {
			values[i] = by.eval(e)
			key += document.Canonical(values[i]) + "\x00"
		}
		g := groups[key]
		if g == nil {
			g = newGroup(values)
			groups[key] = g
		}
		for i, a := range q.aggregates {
			g.accs[i].add(a.of.eval(e))
		}
		return true
	}
	if len(q.sources) == 0 {
		q.rows(&env{params: r.params}, add)
	} else {
		err := r.src(nil, func(_ []byte, doc document.Value) (bool, error) {
			r.page.Read++
			q.document(r.params, doc, add)
			return true, nil
		})
		if err != nil {
			return err
		}
	}
	var rows [][]byte
	seen := map[string]bool{}
	for _, g := range order {
		v := q.project(g.env(q, r.params))
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

func (g *group) env(q *Query, params map[string]document.Value) *env {
	e := &env{params: params, groups: g.values, aggs: make([]document.Value, len(q.aggregates))}
	for i, a := range q.aggregates {
		e.aggs[i] = g.accs[i].result(a.name)
	}
	return e
}

// inner runs a subquery for one row of its enclosing query.
func (q *Query) inner(outer *env, visit func(v document.Value) bool) bool {
	e := &env{vars: outer.vars, params: outer.params}
	if q.Grouped() || len(q.orderBy) > 0 {
		return q.innerCollected(e, visit)
	}
	left := -1
	if q.top != nil {
		left = int(q.top.eval(e).Num)
	}
	seen := map[string]bool{}
	stopped := false
	q.rows(e, func(row *env) bool {
		if left == 0 {
			return false
		}
		v := q.project(row)
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
		left--
		stopped = !visit(v)
		return !stopped
	})
	return !stopped
}

func (q *Query) innerCollected(e *env, visit func(v document.Value) bool) bool {
	if len(q.orderBy) > 0 {
		type row struct {
			sortedRow
			v document.Value
		}
		var all []*row
		q.rows(e, func(env *env) bool {
			v := q.project(env)
			if v.IsDefined() {
				r := &row{v: v}
				r.row = len(all)
				for _, o := range q.orderBy {
					r.keys = append(r.keys, o.of.eval(env))
				}
				all = append(all, r)
			}
			return true
		})
		slices.SortFunc(all, func(a, b *row) int { return q.compareRows(&a.sortedRow, &b.sortedRow) })
		for _, r := range all {
			if !visit(r.v) {
				return false
			}
		}
		return true
	}
	groups := map[string]*group{}
	var order []*group
	if len(q.groupBy) == 0 {
		g := &group{accs: make([]accumulator, len(q.aggregates))}
		groups[""] = g
		order = append(order, g)
	}
	q.rows(e, func(env *env) bool {
		var key string
		var values []document.Value
		for _, by := range q.groupBy {
			v := by.eval(env)
			values = append(values, v)
			key += document.Canonical(v) + "\x00"
		}
		g := groups[key]
		if g == nil {
			g = &group{values: values, accs: make([]accumulator, len(q.aggregates))}
			groups[key] = g
			order = append(order, g)
		}
		for i, a := range q.aggregates {
			g.accs[i].add(a.of.eval(env))
		}
		return true
	})
	for _, g := range order {
		ge := g.env(q, e.params)
		ge.vars = e.vars
		if v := q.project(ge); v.IsDefined() && !visit(v) {
			return false
		}
	}
	return true
}

// accumulator gathers what any of the aggregate functions needs.
type accumulator struct {
	count    int
	sum      float64
	mixed    bool // SUM and AVG: something was not a number
	min, max document.Value
	complex  bool // MIN and MAX: something was an array or an object
}

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
