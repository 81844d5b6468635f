package sql

import (
	be "encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// items are the documents of the tests, in the order of their creation.
var items = []string{
	`{"id":"1","name":"Alpha","n":1,"tags":["red","blue"],"props":{"state":"Ready","zone":1},"kids":[{"name":"a","age":3},{"name":"b","age":5}]}`,
	`{"id":"2","name":"beta","n":2.5,"tags":["red"],"props":{"state":"Failed"},"nothing":null,"flag":true}`,
	`{"id":"3","name":"Gamma%","n":-3,"tags":[],"props":{"state":"Ready","zone":2},"flag":false,"mixed":"x"}`,
	`{"id":"4","n":10,"mixed":7,"deep":{"a":{"b":{"c":"end"}}},"odd name":"here"}`,
	`{"id":"5","name":"αβγ","n":2.5,"tags":["green","red"],"props":{"state":"Updating","zone":1},"kids":[{"name":"c"}]}`,
}

func documents(t testing.TB, docs []string) Source {
	t.Helper()
	parsed := make([]document.Value, len(docs))
	for i, d := range docs {
		v, err := document.Parse([]byte(d))
		if err != nil {
			t.Fatal(err)
		}
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
		if token, err = DecodeToken(page.Next.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%s: the query does not finish with pages of %d rows", query, pageSize)
	return nil, nil
}

func TestQueries(t *testing.T) {
	params := map[string]document.Value{
		"@state": document.FromString("Ready"), "@n": document.FromNumber(2.5), "@two": document.FromNumber(2),
		"@list": document.FromArray([]document.Value{document.FromString("1"), document.FromString("4")}),
	}
	ids := func(s string) []string {
		if s == "" {
			return []string{}
		}
		var out []string
		for _, id := range strings.Split(s, ",") {
			out = append(out, `"`+id+`"`)
		}
		return out
	}
	where := func(cond string) string { return "SELECT VALUE c.id FROM c WHERE " + cond }
	cases := map[string]struct {
		query  string
		want   []string
		reason string
	}{
		"everything":             {"SELECT VALUE c.id FROM c", ids("1,2,3,4,5"), "creation order without ORDER BY"},
		"star":                   {"SELECT * FROM c WHERE c.id = '2'", []string{items[1]}, "the unchanged document"},
		"other name":             {"select value x.id from Families x where x.id='1'", ids("1"), "the container may have any name"},
		"as":                     {"SELECT VALUE x.id FROM root AS x WHERE x.id = \"1\"", ids("1"), "AS before an alias"},
		"projection":             {"SELECT c.id, c.props.state AS s, c.missing, c.n * 2 FROM c WHERE c.id='1'", []string{`{"id":"1","s":"Ready","$1":2}`}, "undefined values are omitted, unnamed columns are numbered"},
		"brackets":               {`SELECT c["odd name"] FROM c WHERE c["id"] = '4'`, []string{`{"odd name":"here"}`}, "names that are not identifiers"},
		"value of undefined":     {"SELECT VALUE c.name FROM c WHERE c.id IN ('3','4')", []string{`"Gamma%"`}, "undefined results produce no rows"},
		"object":                 {"SELECT VALUE {'k': c.id, n: [c.n, c.nope]} FROM c WHERE c.n = 10", []string{`{"k":"4","n":[10]}`}, "constructors"},
		"whole":                  {"SELECT c FROM c WHERE c.id = '3' AND c.flag = false", []string{`{"c":` + items[2] + `}`}, "a variable is its own column name"},
		"no from":                {"SELECT VALUE 1 + 2 * 3", []string{"7"}, "precedence"},
		"from path":              {"SELECT VALUE p.state FROM c.props p WHERE p.zone = 1", []string{`"Ready"`, `"Updating"`}, "FROM a property skips documents without it"},
		"from in":                {"SELECT VALUE k.name FROM k IN c.kids", []string{`"a"`, `"b"`, `"c"`}, "iteration in FROM"},
		"join":                   {"SELECT c.id, t FROM c JOIN t IN c.tags WHERE t = 'red'", []string{`{"id":"1","t":"red"}`, `{"id":"2","t":"red"}`, `{"id":"5","t":"red"}`}, "JOIN over an array"},
		"join twice":             {"SELECT VALUE t || k.name FROM c JOIN t IN c.tags JOIN k IN c.kids WHERE c.id = '1'", []string{`"reda"`, `"redb"`, `"bluea"`, `"blueb"`}, "the product"},
		"join subquery":          {"SELECT VALUE k.name FROM c JOIN (SELECT VALUE k FROM k IN c.kids WHERE k.age > 3) AS k", []string{`"b"`}, "JOIN of a subquery"},
		"parameter":              {where("c.props.state = @state AND c.n < @n"), ids("1,3"), "parameters"},
		"reserved as bracket":    {where("c['props']['state'] = 'Failed'"), ids("2"), "brackets chain"},
		"not equal types":        {where("c.mixed != 'x'"), ids(""), "a comparison of a number with a string is undefined"},
		"not of undefined":       {where("NOT c.flag"), ids("3"), "NOT of undefined is not true"},
		"or with undefined":      {where("c.flag OR c.n > 5"), ids("2,4"), "true OR undefined is true"},
		"and with undefined":     {where("NOT (c.flag AND c.n = 999)"), ids("1,2,3,4,5"), "undefined AND false is false"},
		"null":                   {where("c.nothing = null"), ids("2"), "null equals null, not undefined"},
		"is null":                {where("IS_NULL(c.nothing)"), ids("2"), "IS_NULL"},
		"is defined":             {where("IS_DEFINED(c.deep.a.b.c)"), ids("4"), "IS_DEFINED on a path"},
		"not defined":            {where("NOT IS_DEFINED(c.name)"), ids("4"), "NOT IS_DEFINED"},
		"in":                     {where("c.n IN (1, 10, 'x')"), ids("1,4"), "IN"},
		"not in":                 {where("c.name NOT IN ('Alpha','beta')"), ids("3,5"), "NOT IN of undefined is undefined"},
		"not in other type":      {where("c.n NOT IN ('x', 5)"), ids(""), "a comparison with a string is undefined"},
		"array_contains param":   {where("ARRAY_CONTAINS(@list, c.id)"), ids("1,4"), "an array parameter"},
		"between":                {where("c.n BETWEEN 1 AND 2.5"), ids("1,2,5"), "BETWEEN includes its ends"},
		"not between":            {where("c.n NOT BETWEEN 1 AND 2.5"), ids("3,4"), "NOT BETWEEN"},
		"like":                   {where("c.name LIKE '%a'"), ids("1,2"), "LIKE with %"},
		"like one":               {where("c.name LIKE '_eta'"), ids("2"), "LIKE with _"},
		"like set":               {where("c.name LIKE '[A-C]%'"), ids("1"), "LIKE with a set"},
		"like escape":            {where("c.name LIKE '%!%' ESCAPE '!'"), ids("3"), "LIKE with ESCAPE"},
		"not like":               {where("c.name NOT LIKE '%a%'"), ids("5"), "NOT LIKE of undefined is undefined"},
		"startswith":             {where("STARTSWITH(c.name, 'alpha', true)"), ids("1"), "case folding by the third argument"},
		"startswith case":        {where("STARTSWITH(c.name, 'alpha')"), ids(""), "case matters without it"},
		"endswith":               {where("ENDSWITH(c.name, 'ta')"), ids("2"), "ENDSWITH"},
		"contains":               {where("CONTAINS(LOWER(c.name), 'mm')"), ids("3"), "nested functions"},
		"length":                 {where("LENGTH(c.name) = 3"), ids("5"), "characters, not bytes"},
		"abs":                    {where("ABS(c.n) = 3"), ids("3"), "ABS"},
		"array contains":         {where("ARRAY_CONTAINS(c.tags, 'blue')"), ids("1"), "ARRAY_CONTAINS"},
		"array contains part":    {where("ARRAY_CONTAINS(c.kids, {'name':'c'}, true)"), ids("5"), "partial match"},
		"array contains whole":   {where("ARRAY_CONTAINS(c.kids, {'name':'a'})"), ids(""), "whole match by default"},
		"exists":                 {where("EXISTS(SELECT VALUE k FROM k IN c.kids WHERE k.age > 4)"), ids("1"), "EXISTS"},
		"array subquery":         {"SELECT VALUE ARRAY(SELECT VALUE k.name FROM k IN c.kids) FROM c WHERE c.id='1'", []string{`["a","b"]`}, "ARRAY(…)"},
		"scalar subquery":        {"SELECT VALUE (SELECT VALUE COUNT(1) FROM k IN c.kids) FROM c WHERE c.id='1'", []string{"2"}, "a scalar subquery with an aggregate"},
		"subquery limits":        {"SELECT VALUE ARRAY(SELECT DISTINCT VALUE t FROM t IN c.tags ORDER BY t OFFSET 1 LIMIT 1) FROM c WHERE c.id = '1'", []string{`["red"]`}, "a subquery's own clauses"},
		"subquery top":           {"SELECT VALUE ARRAY(SELECT TOP 1 VALUE t FROM t IN c.tags) FROM c WHERE c.id IN ('1','3')", []string{`["red"]`, `[]`}, "TOP in a subquery"},
		"no from where":          {"SELECT VALUE 1 WHERE false", []string{}, "a filter without an input"},
		"ternary":                {"SELECT VALUE c.flag ? 'y' : 'n' FROM c WHERE IS_DEFINED(c.flag)", []string{`"y"`, `"n"`}, "the conditional operator"},
		"coalesce":               {"SELECT VALUE c.name ?? 'none' FROM c WHERE c.n >= 10", []string{`"none"`}, "the coalesce operator"},
		"order":                  {"SELECT VALUE c.id FROM c ORDER BY c.n", ids("3,1,2,5,4"), "ties in creation order"},
		"order desc":             {"SELECT VALUE c.id FROM c ORDER BY c.n DESC", ids("4,2,5,1,3"), "ties in creation order with DESC"},
		"order types":            {"SELECT VALUE c.id FROM c ORDER BY c.mixed", ids("1,2,5,4,3"), "undefined, number, string"},
		"order two":              {"SELECT VALUE c.id FROM c WHERE IS_DEFINED(c.props) ORDER BY c.props.state, c.n DESC", ids("2,1,3,5"), "two keys"},
		"top":                    {"SELECT TOP 2 VALUE c.id FROM c", ids("1,2"), "TOP"},
		"top param":              {"SELECT TOP @two VALUE c.id FROM c ORDER BY c.n DESC", ids("4,2"), "TOP with a parameter"},
		"top zero":               {"SELECT TOP 0 VALUE c.id FROM c", ids(""), "TOP 0"},
		"offset":                 {"SELECT VALUE c.id FROM c OFFSET 1 LIMIT 3", ids("2,3,4"), "OFFSET without an order"},
		"offset order":           {"SELECT VALUE c.id FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 2", ids("2,5"), "OFFSET with an order"},
		"offset join":            {"SELECT VALUE t FROM c JOIN t IN c.tags OFFSET 1 LIMIT 3", []string{`"blue"`, `"red"`, `"green"`}, "OFFSET counts rows, not documents"},
		"offset beyond":          {"SELECT VALUE c.id FROM c OFFSET 9 LIMIT 3", ids(""), "OFFSET past the end"},
		"distinct":               {"SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags", []string{`"red"`, `"blue"`, `"green"`}, "DISTINCT keeps the first"},
		"distinct object":        {"SELECT DISTINCT c.props.zone FROM c", []string{`{"zone":1}`, `{}`, `{"zone":2}`}, "an empty object is a row"},
		"distinct order":         {"SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n", []string{"-3", "1", "2.5", "10"}, "DISTINCT with ORDER BY"},
		"count":                  {"SELECT VALUE COUNT(1) FROM c WHERE c.n > 1", []string{"3"}, "COUNT(1)"},
		"count path":             {"SELECT COUNT(c.name) AS named, COUNT(1) FROM c", []string{`{"named":4,"$1":5}`}, "COUNT of a property counts defined values"},
		"count none":             {"SELECT VALUE COUNT(1) FROM c WHERE false", []string{"0"}, "COUNT without rows is 0"},
		"sum":                    {"SELECT VALUE SUM(c.n) FROM c", []string{"13"}, "SUM"},
		"sum mixed":              {"SELECT VALUE SUM(c.mixed) FROM c", []string{}, "SUM of a string is undefined"},
		"avg":                    {"SELECT VALUE AVG(c.n) FROM c WHERE c.n > 0", []string{"4"}, "AVG"},
		"min max":                {"SELECT MIN(c.n) AS low, MAX(c.n) AS high FROM c", []string{`{"low":-3,"high":10}`}, "MIN and MAX"},
		"group":                  {"SELECT c.props.state, COUNT(1) AS n FROM c WHERE IS_DEFINED(c.props.state) GROUP BY c.props.state", []string{`{"state":"Ready","n":2}`, `{"state":"Failed","n":1}`, `{"state":"Updating","n":1}`}, "GROUP BY"},
		"aggregate arithmetic":   {"SELECT VALUE MAX(c.n) - MIN(c.n) FROM c", []string{"13"}, "expressions of aggregates"},
		"full text":              {where("FullTextContains(c.props.state, 'ready')"), ids("1,3"), "words without case"},
		"string escapes":         {`SELECT VALUE 'it\'s \u03b1 \\'`, []string{`"it's α \\"`}, "escapes in literals"},
		"comments":               {"SELECT /* all */ VALUE c.id -- only ids\nFROM c WHERE c.id = '1'", ids("1"), "comments"},
		"type functions":         {where("IS_ARRAY(c.tags) AND IS_OBJECT(c.props) AND IS_NUMBER(c.n) AND NOT IS_INTEGER(c.n) AND IS_BOOL(c.flag)"), ids("2"), "type checks"},
		"substring":              {"SELECT VALUE SUBSTRING(c.name, 1, 2) FROM c WHERE c.id IN ('1','5')", []string{`"lp"`, `"βγ"`}, "SUBSTRING in characters"},
		"index of":               {"SELECT VALUE INDEX_OF('abcabc', 'c', 3)", []string{"5"}, "INDEX_OF from a start"},
		"division":               {"SELECT VALUE 1/0", []string{}, "division by zero is undefined"},
		"regex":                  {where("RegexMatch(c.name, '^a', 'i')"), ids("1"), "RegexMatch with a flag"},
		"element":                {where("c.tags[1] = 'red'"), ids("5"), "an array's element"},
		"compare bool":           {where("c.flag < true"), ids("3"), "false is less than true"},
		"array literal equality": {where("c.tags = ['red']"), ids("2"), "arrays are compared as a whole"},
		"negative":               {where("c.n = -3"), ids("3"), "a negative literal"},
		"concat":                 {"SELECT VALUE CONCAT(c.id, '-', ToString(c.n)) FROM c WHERE c.id = '2'", []string{`"2-2.5"`}, "numbers with their original text"},
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
		"empty":              {"", "SC1001", "no query"},
		"truncated":          {"SELECT * FROM", "SC1001", "FROM requires an input"},
		"trailing":           {"SELECT * FROM c c2 c3", "SC1001", "text after the query"},
		"not sql":            {"DELETE FROM c", "SC1001", "only SELECT"},
		"reserved":           {"SELECT c.order FROM c", "SC1001", "reserved words need brackets, as in the service"},
		"unknown name":       {"SELECT * FROM c WHERE d.id = '1'", "SC2001", "d is not an input"},
		"old name":           {"SELECT * FROM c x WHERE c.id = '1'", "SC2001", "the alias replaces the name"},
		"unknown function":   {"SELECT VALUE FOO(c.id) FROM c", "SC2005", "an unknown function"},
		"arity":              {"SELECT VALUE ABS() FROM c", "SC2050", "too few arguments"},
		"star join":          {"SELECT * FROM c JOIN t IN c.tags", "SC2040", "* requires one input"},
		"star without from":  {"SELECT *", "SC2040", "* requires an input"},
		"aggregate in where": {"SELECT * FROM c WHERE COUNT(1) > 1", "SC2009", "aggregates are computed after the filter"},
		"ungrouped":          {"SELECT c.id, COUNT(1) FROM c", "SC2102", "id is neither grouped nor aggregated"},
		"parameter":          {"SELECT * FROM c WHERE c.id = @missing", "SC2011", "a parameter without a value"},
		"udf":                {"SELECT VALUE udf.f(c.id) FROM c", "SC2900", "user-defined functions are not supported"},
		"same alias":         {"SELECT VALUE c FROM c JOIN c IN c.tags", "SC2007", "one name for two inputs"},
		"same column":        {"SELECT c.id, c.n AS id FROM c", "SC2203", "one name for two columns"},
		"unclosed":           {"SELECT 'a FROM c", "SC1001", "the literal is not terminated"},
		"bad top":            {"SELECT TOP 1.5 * FROM c", "SC2062", "TOP requires an integer"},
		"deep":               {"SELECT VALUE " + strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500), "SC1003", "nesting is bounded"},
		"first subquery":     {"SELECT VALUE x FROM (SELECT VALUE c.id FROM c) x", "SC2900", "a subquery has no container to read"},
		"first in subquery":  {"SELECT VALUE x FROM x IN (SELECT VALUE y * 1)", "SC2900", "a subquery after IN has none either"},
		"computed path":      {"SELECT VALUE x FROM c[c.name] x", "SC2900", "an input must be a path"},
		"joins":              {"SELECT VALUE c FROM c" + strings.Repeat(" JOIN t IN c.tags", 11), "SC2900", "the number of JOINs is limited"},
		"inner container":    {"SELECT VALUE EXISTS(SELECT 1 FROM c)", "SC2001", "a subquery reads the inputs of the enclosing query, not the container"},
		"order without from": {"SELECT VALUE 1 ORDER BY 1", "SC2900", "ORDER BY requires an input"},
		"vector":             {"SELECT TOP 1 c.id FROM c ORDER BY RANK VectorDistance(c.v, [1])", "SC2900", "ranking is not supported"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := rows(t, tc.query, nil, 10)
			var rejected *Error
			if !errors.As(err, &rejected) || rejected.Code != tc.code {
				t.Errorf("%s: got %v and error %v, want %s: %s", tc.query, got, err, tc.code, tc.reason)
			}
		})
	}
}

func TestNeedsMerge(t *testing.T) {
	cases := map[string]struct{ query, merge string }{
		"filter":    {"SELECT * FROM c WHERE c.a = 1", ""},
		"order":     {"SELECT * FROM c ORDER BY c.a", "ORDER BY"},
		"aggregate": {"SELECT VALUE COUNT(1) FROM c", "an aggregate"},
		"distinct":  {"SELECT DISTINCT c.a FROM c", "DISTINCT"},
		"top":       {"SELECT TOP 1 * FROM c", "TOP"},
		"offset":    {"SELECT * FROM c OFFSET 0 LIMIT 1", "OFFSET LIMIT"},
		"group":     {"SELECT c.a FROM c GROUP BY c.a", "GROUP BY"},
		"inner":     {"SELECT VALUE (SELECT VALUE COUNT(1) FROM t IN c.tags) FROM c", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, err := Parse(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			if got := q.NeedsMerge(); got != tc.merge {
				t.Errorf("%s: NeedsMerge = %q, want %q", tc.query, got, tc.merge)
			}
		})
	}
}

func TestEqualities(t *testing.T) {
	params := map[string]document.Value{"@p": document.FromString("x")}
	cases := map[string]struct {
		query, path string
		want        []string
		reason      string
	}{
		"equal":     {"SELECT * FROM c WHERE c.pk = @p", "pk", []string{`"x"`}, "an equality"},
		"swapped":   {"SELECT * FROM c WHERE 'y' = c.pk AND c.n > 1", "pk", []string{`"y"`}, "swapped operands in a conjunction"},
		"in":        {"SELECT * FROM c WHERE c.pk IN ('a', 'b')", "pk", []string{`"a"`, `"b"`}, "a list"},
		"or":        {"SELECT * FROM c WHERE c.pk = 'a' OR c.n = 1", "pk", nil, "a disjunction restricts nothing"},
		"negated":   {"SELECT * FROM c WHERE NOT (c.pk = 'a')", "pk", nil, "a negation restricts nothing"},
		"nested":    {"SELECT * FROM c WHERE c.a.b = 1", "a\x00b", []string{"1"}, "a nested path"},
		"from path": {"SELECT * FROM c.a x WHERE x.b = 1", "a\x00b", []string{"1"}, "through FROM"},
		"joined":    {"SELECT VALUE c FROM c JOIN t IN c.tags WHERE t.pk = 'a'", "pk", nil, "a property of another input"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, err := Parse(tc.query)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range q.Equalities(params)[tc.path] {
				got = append(got, v.JSON())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: %s: %s", tc.query, tc.reason, diff)
			}
		})
	}
}

func TestKeyCombinations(t *testing.T) {
	cases := map[string]struct{ where, want, reason string }{
		"one":        {"c.pk = 'p' AND c.id = 'a'", "p/a", "both paths are restricted"},
		"product":    {"c.pk IN ('p','q') AND c.id IN ('a','b') AND c.n > 1", "p/a p/b q/a q/b", "all combinations"},
		"read many":  {"(c.id = 'a' AND c.pk = 'p') OR (c.id = 'b' AND c.pk = 'q')", "p/a q/b", "alternatives"},
		"restricted": {"c.n = 1 AND ((c.id = 'a' AND c.pk = 'p') OR (c.id = 'b' AND c.pk = 'q'))", "p/a q/b", "alternatives in a conjunction"},
		"no key":     {"c.id = 'a'", "", "the key is not restricted"},
		"half":       {"(c.id = 'a' AND c.pk = 'p') OR c.n = 1", "", "one alternative does not restrict the key"},
		"negated":    {"NOT (c.id = 'a' AND c.pk = 'p')", "", "a negation restricts nothing"},
		"both":       {"c.pk = 'p' AND c.id = 'a' AND c.id = 'b'", "p/a", "the filter handles contradictions"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, err := Parse("SELECT * FROM c WHERE " + tc.where)
			if err != nil {
				t.Fatal(err)
			}
			points, ok := q.KeyCombinations([][]string{{"pk"}, {"id"}}, nil)
			var got []string
			for _, p := range points {
				got = append(got, p[0].Str+"/"+p[1].Str)
			}
			if ok != (tc.want != "") || strings.Join(got, " ") != tc.want {
				t.Errorf("%v, %v, want %q: %s", got, ok, tc.want, tc.reason)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"SELECT * FROM c", "SELECT TOP 1 VALUE c.a[0]['b'] FROM c JOIN t IN c.t WHERE c.x LIKE '%a[^b-c]_' ESCAPE '!' ORDER BY c.y DESC",
		"SELECT DISTINCT c.a, COUNT(1) AS n FROM c GROUP BY c.a", "SELECT VALUE {a:[1,'x',null]} FROM c WHERE EXISTS(SELECT 1 FROM x IN c.y)",
		"SELECT c.a ?? b : 'x' FROM", "SELECT '\\ud83d\\ude00' --", "/*", "SELECT 0x1F >>> 2", "SELECT VALUE x FROM x IN (SELECT VALUE 1)",
		"SELECT c FROM c WHERE c.a BETWEEN 1 AND 2 AND NOT c.b IN (1) OFFSET 1 LIMIT 2",
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
		q.Equalities(nil)
		_, _ = q.OrderPaths()
		params := map[string]document.Value{}
		q.walk(func(e expr) {
			if n, ok := e.(*param); ok {
				params[n.name] = document.FromNumber(1)
			}
		}, func(*Query) {})
		page, err := q.Run(documents(t, items), params, nil, 5, 1<<20)
		if err != nil {
			return
		}
		for _, r := range page.Rows {
			if _, err := document.Parse(r); err != nil {
				t.Fatalf("%q returned %q, which is not JSON: %v", text, r, err)
			}
		}
	})
}
