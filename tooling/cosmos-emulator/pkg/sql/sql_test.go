package sql

import (
	be "encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// items are the documents of the tests, in the order of their creation.
var items = []string{
	`{"id":"1","name":"Alpha","n":1,"tags":["red","blue"],"props":{"state":"Ready","zone":1}}`,
	`{"id":"2","name":"beta","n":2.5,"tags":["red"],"props":{"state":"Failed"},"nothing":null,"flag":true}`,
	`{"id":"3","name":"Gamma%","n":-3,"tags":[],"props":{"state":"Ready","zone":2},"flag":false,"mixed":"x"}`,
	`{"id":"4","n":10,"mixed":7,"deep":{"a":{"b":{"c":"end"}}}}`,
	`{"id":"5","name":"αβγ","n":2.5,"tags":["green","red"],"props":{"state":"Updating","zone":1}}`,
}

func documents(t testing.TB, docs []string) Source {
	t.Helper()
	parsed := make([]document.Value, len(docs))
	for i, d := range docs {
		v := must.Get(document.Parse([]byte(d)))(t)
		parsed[i] = v
	}
	return func(after []byte, visit func([]byte, document.Value) (bool, error)) error {
		from := 0
		if after != nil {
			from = int(be.BigEndian.Uint64(after)) + 1
		}
		for i := from; i < len(parsed); i++ {
			more, err := visit(be.BigEndian.AppendUint64(nil, uint64(i)), parsed[i])
			if err != nil || !more {
				return err
			}
		}
		return nil
	}
}

func rows(t testing.TB, query string, params map[string]document.Value, pageSize int) ([]string, error) {
	t.Helper()
	q, err := Parse(query)
	if err != nil {
		return nil, err
	}
	out := []string{}
	var token *Token
	for range 1000 {
		page, err := q.Run(documents(t, items), params, token, pageSize, math.MaxInt)
		if err != nil {
			return nil, err
		}
		if len(page.Rows) > pageSize {
			t.Fatalf("a page has %d rows, want at most %d", len(page.Rows), pageSize)
		}
		for _, r := range page.Rows {
			out = append(out, string(r))
		}
		if page.Next == nil {
			return out, nil
		}
		token = must.Get(DecodeToken(page.Next.Encode()))(t)
	}
	t.Fatalf("%s: the query does not finish with pages of %d rows", query, pageSize)
	return nil, nil
}

func TestQueries(t *testing.T) {
	params := map[string]document.Value{
		"@state": document.FromString("Ready"), "@n": document.FromNumber(2.5), "@one": document.FromNumber(1), "@ten": document.FromNumber(10),
		"@null": {Kind: document.Null}, "@tags": document.FromArray([]document.Value{document.FromString("red")}),
	}
	ids := func(s string) []string {
		out := []string{}
		for id := range strings.FieldsSeq(s) {
			out = append(out, `{"id":"`+id+`"}`)
		}
		return out
	}
	where := func(cond string) string { return "SELECT c.id FROM c WHERE " + cond }
	cases := map[string]struct {
		query  string
		want   []string
		reason string
	}{
		"everything":         {"SELECT c.id FROM c", ids("1 2 3 4 5"), "creation order without ORDER BY"},
		"star":               {"SELECT * FROM c WHERE c.id = '2'", []string{items[1]}, "the unchanged document"},
		"any name":           {"select x.id from x where x.id='1'", ids("1"), "the container may have any name, and keywords any case"},
		"projection":         {"SELECT c.id, c.props.state AS s, c.missing FROM c WHERE c.id='1'", []string{`{"id":"1","s":"Ready"}`}, "undefined values are omitted"},
		"object":             {"SELECT c.id, {'s': c.props.state, 'x': c.nope} AS o FROM c WHERE c.n = @ten", []string{`{"id":"4","o":{}}`}, "an object without values"},
		"whole":              {"SELECT c AS d FROM c WHERE c.id = '3' AND c.flag = false", []string{`{"d":` + items[2] + `}`}, "the container's name is the document"},
		"parameter":          {where("c.props.state = @state AND c.n < @n"), ids("1 3"), "parameters"},
		"not equal types":    {where("c.mixed != 'x'"), ids(""), "a comparison of a number with a string is undefined"},
		"not of undefined":   {where("NOT c.flag"), ids("3"), "NOT of undefined is not true"},
		"or with undefined":  {where("c.flag OR c.n > @n"), ids("2 4"), "true OR undefined is true"},
		"and with undefined": {where("NOT (c.flag AND c.n = '999')"), ids("3"), "undefined AND false is false"},
		"precedence":         {where("c.id = '1' OR c.id = '2' AND NOT c.flag"), ids("1"), "NOT, AND, OR"},
		"null":               {where("c.nothing = @null"), ids("2"), "null equals null, not undefined"},
		"is defined":         {where("IS_DEFINED(c.deep.a.b.c)"), ids("4"), "IS_DEFINED on a path"},
		"not defined":        {where("NOT IS_DEFINED(c.name)"), ids("4"), "NOT IS_DEFINED"},
		"in":                 {where("c.n IN (@one, @ten, 'x')"), ids("1 4"), "IN"},
		"not in other type":  {where("NOT c.n IN ('x', @one)"), ids(""), "a comparison with a string is undefined"},
		"at least":           {where("c.n >= @n AND c.n <= @ten"), ids("2 4 5"), "the bounds are included"},
		"prefix":             {where("StartsWith(c.name, 'a')"), ids(""), "STARTSWITH considers case, and names of functions do not"},
		"prefix in any case": {where("STARTSWITH(c.name, 'a', true)"), ids("1"), "the third argument ignores case"},
		"equal":              {where("STRINGEQUALS(c.name, 'ALPHA', true)"), ids("1"), "equality without case"},
		"equal case":         {where("STRINGEQUALS(c.name, 'ALPHA', false)"), ids(""), "equality with case"},
		"prefix of number":   {where("NOT STARTSWITH(c.mixed, 'y')"), ids("3"), "only strings have prefixes"},
		"boolean order":      {where("c.flag < true"), ids("3"), "false is less than true"},
		"arrays":             {where("c.tags = @tags"), ids("2"), "arrays are compared as a whole"},
		"order":              {"SELECT c.id FROM c ORDER BY c.n", ids("3 1 2 5 4"), "equal values have the order of creation"},
		"descending":         {"SELECT c.id FROM c ORDER BY c.n DESC", ids("4 2 5 1 3"), "equal values have the order of creation"},
		"order of types":     {"SELECT c.id FROM c ORDER BY c.mixed ASC", ids("1 2 5 4 3"), "undefined, numbers, strings"},
		"filter and order":   {"SELECT c.id FROM c WHERE c.props.state = @state ORDER BY c.name DESC", ids("3 1"), "a filter with an order"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1000, 3, 1} {
				got, err := rows(t, tc.query, params, size)
				if err != nil {
					t.Fatalf("%s: %v", tc.query, err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\n%s, in pages of %d rows: %s", tc.query, tc.reason, size, diff)
				}
			}
		})
	}
}

func TestRejectedQueries(t *testing.T) {
	cases := map[string]struct{ query, code, reason string }{
		"empty":            {"", "SC1001", "no query"},
		"truncated":        {"SELECT * FROM", "SC1001", "FROM requires an input"},
		"trailing":         {"SELECT * FROM c c2", "SC1001", "text after the query"},
		"not sql":          {"DELETE FROM c", "SC1001", "only SELECT"},
		"reserved":         {"SELECT c.order FROM c", "SC1001", "reserved words are no names, as in the service"},
		"unknown name":     {"SELECT * FROM c WHERE d.id = '1'", "SC2001", "d is not the container"},
		"unknown function": {"SELECT * FROM c WHERE CONTAINS(c.id, 'x')", "SC2005", "another function"},
		"arity":            {"SELECT * FROM c WHERE STARTSWITH(c.id)", "SC2050", "too few arguments"},
		"aggregate":        {"SELECT COUNT(c) FROM c", "SC1001", "aggregates"},
		"value":            {"SELECT VALUE c.id FROM c", "SC1001", "VALUE"},
		"distinct":         {"SELECT DISTINCT c.id FROM c", "SC1001", "DISTINCT"},
		"top":              {"SELECT TOP 1 * FROM c", "SC1001", "TOP"},
		"join":             {"SELECT c.id FROM c JOIN t IN c.tags", "SC1001", "JOIN"},
		"group":            {"SELECT c.id FROM c GROUP BY c.id", "SC1001", "GROUP BY"},
		"offset":           {"SELECT * FROM c OFFSET 0 LIMIT 1", "SC1001", "OFFSET"},
		"two orders":       {"SELECT * FROM c ORDER BY c.a, c.b", "SC1001", "ORDER BY two properties"},
		"order of values":  {"SELECT * FROM c ORDER BY STARTSWITH(c.a, 'b')", "SC1001", "ORDER BY an expression"},
		"number":           {"SELECT * FROM c WHERE c.n = 1", "SC1001", "numbers are parameters"},
		"like":             {"SELECT * FROM c WHERE c.name LIKE 'a%'", "SC1001", "LIKE"},
		"escape":           {`SELECT * FROM c WHERE c.name = 'it\'s'`, "SC1001", "escapes"},
		"element":          {"SELECT * FROM c WHERE c['name'] = 'a'", "SC1001", "brackets"},
		"subquery":         {"SELECT * FROM c WHERE EXISTS(SELECT c FROM c)", "SC1001", "subqueries"},
		"unnamed object":   {"SELECT {'a': c.a} FROM c", "SC1001", "an object needs a name"},
		"parameter":        {"SELECT * FROM c WHERE c.id = @missing", "SC2011", "a parameter without a value"},
		"same column":      {"SELECT c.id, c.n AS id FROM c", "SC2203", "one name for two columns"},
		"same member":      {"SELECT {'a': c.a, 'a': c.b} AS o FROM c", "SC2203", "one name for two members"},
		"unclosed":         {"SELECT * FROM c WHERE c.id = 'a", "SC1001", "the string is not terminated"},
		"deep":             {"SELECT * FROM c WHERE " + strings.Repeat("(", 500) + "true" + strings.Repeat(")", 500), "SC1003", "nesting is bounded"},
		"many NOTs":        {"SELECT * FROM c WHERE " + strings.Repeat("NOT ", 500) + "true", "SC1003", "nesting is bounded"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := rows(t, tc.query, nil, 10)
			var rejected *Error
			if !errors.As(err, &rejected) || rejected.Code != tc.code {
				t.Fatalf("%s: got %v and error %v, want %s: %s", tc.query, got, err, tc.code, tc.reason)
			}
			if listed := strings.HasSuffix(rejected.Message, supported); listed != (tc.code == "SC1001" || tc.code == "SC2005") {
				t.Errorf("%s: the error %q lists the supported constructs: %v", tc.query, rejected.Message, listed)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"SELECT * FROM c", "SELECT c.a, {'b': c.b} AS d FROM c WHERE c.x IN (@a, 'b') AND NOT IS_DEFINED(c.y) ORDER BY c.z DESC",
		"SELECT c FROM c WHERE (c.a = true OR STARTSWITH(c.b, @p, true)) AND STRINGEQUALS(c.d, 'é')", "SELECT * FROM c WHERE c.a <=", "'", "@",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err != nil {
			var rejected *Error
			if !errors.As(err, &rejected) {
				t.Fatalf("the error is not an *Error: %v", err)
			}
			return
		}
		params := map[string]document.Value{}
		for _, name := range q.params {
			params[name] = document.FromNumber(1)
		}
		q.RequiredSubstrings(params)
		q.RequiredFolders(params)
		page, err := q.Run(documents(t, items), params, nil, 5, 1<<20)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		for _, r := range page.Rows {
			if _, err := document.Parse(r); err != nil {
				t.Fatalf("%q returned %q, which is not JSON: %v", text, r, err)
			}
		}
	})
}
