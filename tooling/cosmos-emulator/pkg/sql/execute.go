package sql

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// Source streams documents in a stable order, after a position (nil: from the start), until visit returns false.
// Positions are opaque and ordered by their bytes.
type Source func(after []byte, visit func(at []byte, doc document.Value) (more bool, err error)) error

// Token is the position at which a query continues. It survives restarts. It identifies documents instead of counting
// them, except for grouped results.
type Token struct {
	// After is the last processed document or, with ORDER BY, the last returned one.
	After []byte `json:"a,omitempty"`
	// Row is the number of rows that were returned for the document after After. JOINs produce several rows.
	Row int `json:"r,omitempty"`
	// Keys are the ORDER BY values of the last returned row.
	Keys []json.RawMessage `json:"k,omitempty"`
	// Done is the number of returned rows, for TOP, LIMIT and grouped results.
	Done int `json:"n"`
}

// Encode returns the token as the text of a continuation header.
func (t Token) Encode() string {
	b, _ := json.Marshal(t) // never fails for slices and integers
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeToken parses the result of Encode.
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
	Next *Token   // nil for the last page
	// Read is the number of documents that were read.
	Read int
}

// Run returns the page after a token (nil: the first page), with at most maxRows rows and about maxBytes bytes.
func (q *Query) Run(src Source, params map[string]document.Value, t *Token, maxRows, maxBytes int) (*Page, error) {
	if err := q.checkParameters(params); err != nil {
		return nil, err
	}
	n, err := q.counts(params)
	if err != nil {
		return nil, err
	}
	r := &run{q: q, src: src, params: params, maxRows: maxRows, maxBytes: maxBytes, page: &Page{}, counts: n, budget: maxRowsRead}
	if t != nil {
		r.from = *t
	}
	switch {
	case q.Grouped():
		err = r.runGrouped()
	case len(q.orderBy) > 0:
		err = r.runOrdered()
	default:
		err = r.runStreamed()
	}
	if err == nil && r.budget < 0 {
		err = unsupportedError("The query processes more than %d rows for one page of results.", maxRowsRead)
	}
	if err != nil {
		return nil, err
	}
	return r.page, nil
}

// run is the state of one Run.
type run struct {
	counts
	q                 *Query
	src               Source
	params            map[string]document.Value
	from              Token
	maxRows, maxBytes int
	page              *Page
	bytes             int
	budget            int
}

// maxRowsRead bounds the rows that one page of a query may process, including those of JOINs. Larger queries are
// rejected, because they would hold a snapshot and a processor too long.
const maxRowsRead = 20_000_000

// countRow counts a row. It returns false if the query must stop.
func (e *env) countRow() bool {
	if e.budget == nil {
		return true
	}
	*e.budget--
	return *e.budget >= 0
}

// full reports whether the page is full.
func (r *run) full() bool { return len(r.page.Rows) >= r.maxRows || r.bytes >= r.maxBytes }

// finished reports whether TOP or LIMIT is reached.
func (r *run) finished() bool { return r.limit >= 0 && r.from.Done+len(r.page.Rows) >= r.limit }

// emit adds a row to the page.
func (r *run) emit(row []byte) {
	r.page.Rows = append(r.page.Rows, row)
	r.bytes += len(row)
}

// rows calls visit with the variables of each row that passes the filter, until visit returns false.
func (q *Query) rows(e *env, visit func(e *env) bool) bool {
	return q.join(e, 0, visit)
}

// join is rows from the i-th input.
func (q *Query) join(e *env, i int, visit func(e *env) bool) bool {
	if !e.countRow() {
		return false
	}
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
		return s.sub.runSubquery(e, bind)
	}
	v := s.expression.eval(e)
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

// document calls visit for the rows of a document, which is the first input of the outermost query.
func (q *Query) document(params map[string]document.Value, budget *int, doc document.Value, visit func(e *env) bool) bool {
	e := &env{params: params, budget: budget}
	if len(q.sources) == 0 {
		return q.rows(e, visit)
	}
	s := &q.sources[0]
	if s.expression != nil {
		doc = s.expression.eval(&env{vars: []document.Value{doc}, params: params, budget: budget})
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

// project returns the result of a row.
func (q *Query) project(e *env) document.Value {
	switch {
	case q.star:
		return e.vars[len(e.vars)-1]
	case q.value:
		return q.items[0].expression.eval(e)
	}
	out := document.Value{Kind: document.Object, Obj: make([]document.Member, 0, len(q.items))}
	for _, i := range q.items {
		if v := i.expression.eval(e); v.IsDefined() {
			out.Obj = append(out.Obj, document.Member{Name: i.name, Value: v})
		}
	}
	return out
}

// runStreamed runs a query without an order. It stops reading when the page is full. It does not know whether more rows
// match, so a full page always has a continuation, as in the service.
func (r *run) runStreamed() error {
	q := r.q
	if r.limit == 0 {
		return nil
	}
	if len(q.sources) == 0 {
		if r.from.Done > 0 {
			return nil
		}
		q.rows(&env{params: r.params, budget: &r.budget}, func(e *env) bool {
			if v := q.project(e); v.IsDefined() && r.offset == 0 {
				r.emit(document.Append(nil, v))
			}
			return true
		})
		return nil
	}
	skip := 0
	if r.from.Done == 0 && r.from.After == nil {
		skip = r.offset
	}
	// DISTINCT needs the rows of earlier pages, so it reads them again.
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
		returned := q.distinct && resume != nil && bytes.Compare(at, resume) <= 0
		row := 0
		completed := q.document(r.params, &r.budget, doc, func(e *env) bool {
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
			if returned || row <= rowsDone {
				return true
			}
			r.emit(document.Append(nil, v))
			return !r.full() && !r.finished()
		})
		if returned {
			return true, nil
		}
		if completed {
			rowsDone = 0
			last = append([]byte(nil), at...)
			return true, nil
		}
		if !r.finished() {
			// The document may have more rows: continue after its predecessor and skip the returned rows.
			r.page.Next = &Token{After: last, Row: row, Done: r.from.Done + len(r.page.Rows)}
			if len(q.sources) == 1 && !q.sources[0].each {
				r.page.Next.After, r.page.Next.Row = append([]byte(nil), at...), 0
			}
		}
		return false, nil
	})
}

// sortedRow is a row with its ORDER BY values.
type sortedRow struct {
	keys []document.Value
	at   []byte
	row  int
	out  []byte
	same string // canonical form, for DISTINCT
}

// compareRows compares rows by ORDER BY, then by their position.
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

// runOrdered collects and sorts all rows and returns those after the token.
func (r *run) runOrdered() error {
	q := r.q
	var all []*sortedRow
	err := r.src(nil, func(at []byte, doc document.Value) (bool, error) {
		r.page.Read++
		n := 0
		position := append([]byte(nil), at...)
		q.document(r.params, &r.budget, doc, func(e *env) bool {
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
				row.keys[i] = o.expression.eval(e)
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
			duplicate := seen[row.same]
			seen[row.same] = true
			return duplicate
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

// token returns the position after the row.
func (s *sortedRow) token(done int) *Token {
	t := &Token{After: s.at, Row: s.row, Done: done}
	for _, k := range s.keys {
		wrapped := document.Value{Kind: document.Object, Obj: []document.Member{{Name: "item", Value: k}}}
		t.Keys = append(t.Keys, json.RawMessage(document.Append(nil, wrapped)))
	}
	return t
}

// lastRow returns the row of the token, with the given number of ORDER BY values.
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
