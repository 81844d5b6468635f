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

// Token is the position at which a query continues. It survives restarts. It identifies documents instead of counting them.
type Token struct {
	// After is the last processed document or, with ORDER BY, the last returned one.
	After []byte `json:"a"`
	// Key is the ORDER BY value of the last returned document, as the member v of an object.
	Key json.RawMessage `json:"k,omitempty"`
}

// Encode returns the token as the text of a continuation header.
func (t Token) Encode() string {
	b, _ := json.Marshal(t) // never fails: Key is JSON
	return base64.RawURLEncoding.EncodeToString(b)
}

// DecodeToken parses the result of Encode.
func DecodeToken(s string) (*Token, error) {
	t := &Token{}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, t)
	}
	if err != nil {
		return nil, fmt.Errorf("continuation token: %w", err)
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
	for _, name := range q.params {
		if _, ok := params[name]; !ok {
			return nil, &Error{Code: "SC2011", Message: fmt.Sprintf("The parameter '%s' has no value.", name), At: -1}
		}
	}
	if t == nil {
		t = &Token{}
	}
	r := &run{Query: q, src: src, params: params, from: *t, maxRows: maxRows, maxBytes: maxBytes}
	if q.Ordered() {
		return &r.page, r.ordered()
	}
	return &r.page, r.streamed()
}

// run is the state of one Run.
type run struct {
	*Query
	src               Source
	params            map[string]document.Value
	from              Token
	maxRows, maxBytes int
	page              Page
	bytes             int
}

// emit adds a row to the page and reports whether the page is full.
func (r *run) emit(row []byte) (full bool) {
	r.page.Rows = append(r.page.Rows, row)
	r.bytes += len(row)
	return len(r.page.Rows) >= r.maxRows || r.bytes >= r.maxBytes
}

// scan calls visit for the documents that the filter accepts.
func (r *run) scan(after []byte, visit func(at []byte, doc document.Value) (more bool)) error {
	return r.src(after, func(at []byte, doc document.Value) (bool, error) {
		r.page.Read++
		return r.where != nil && !r.where.eval(&env{doc, r.params}).IsTrue() || visit(bytes.Clone(at), doc), nil
	})
}

// project returns the result for a document.
func (r *run) project(doc document.Value) []byte {
	if len(r.items) > 0 {
		doc = objectOf(r.items).eval(&env{doc, r.params})
	}
	return document.Append(nil, doc)
}

// streamed runs a query without an order. It stops reading when the page is full. It does not know whether more documents
// match, so a full page always has a continuation, as in the service.
func (r *run) streamed() error {
	return r.scan(r.from.After, func(at []byte, doc document.Value) bool {
		if r.emit(r.project(doc)) {
			r.page.Next = &Token{After: at}
		}
		return r.page.Next == nil
	})
}

// sortedRow is a row with its ORDER BY value and its position.
type sortedRow struct {
	key document.Value
	at  []byte
	out []byte
}

// ordered collects and sorts all rows and returns those after the token.
func (r *run) ordered() error {
	var rows []sortedRow
	err := r.scan(nil, func(at []byte, doc document.Value) bool {
		rows = append(rows, sortedRow{doc.Path(r.order.names), at, r.project(doc)})
		return true
	})
	if err != nil {
		return err
	}
	compare := func(a, b sortedRow) int {
		c := document.Compare(a.key, b.key)
		if r.desc {
			c = -c
		}
		if c == 0 {
			c = bytes.Compare(a.at, b.at)
		}
		return c
	}
	slices.SortFunc(rows, compare)
	if r.from.After != nil {
		key, err := document.Parse(r.from.Key)
		if err != nil {
			return &Error{Code: "SC3001", Message: "The continuation token belongs to another query.", At: -1}
		}
		at, found := slices.BinarySearchFunc(rows, sortedRow{key: key.Get("v"), at: r.from.After}, compare)
		if found {
			at++
		}
		rows = rows[at:]
	}
	for i, row := range rows {
		if r.emit(row.out) && i+1 < len(rows) {
			key := document.Value{Kind: document.Object}.With("v", row.key)
			r.page.Next = &Token{After: row.at, Key: document.Append(nil, key)}
			break
		}
	}
	return nil
}
