package store

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var testedFields = searchFields{
	Text:      map[string]string{"id": "r.id", "consumer_name": "r.consumer"},
	Integer:   map[string]string{"version": "r.version"},
	Labels:    "r.metadata -> 'labels'",
	LabelPath: "payload->'metadata'->'labels'",
}

func TestSearchCondition(t *testing.T) {
	cases := map[string]struct {
		search, sql string
		args        []any
	}{
		"Equal":       {"id='a'", "(r.id = $1)", []any{"a"}},
		"Quotes":      {"id = 'it''s'", "(r.id = $1)", []any{"it's"}},
		"Precedence":  {"id='a' or id='b' and version>2", "((r.id = $1) or ((r.id = $2) and (r.version > $3)))", []any{"a", "b", int64(2)}},
		"Parentheses": {"(id='a' or id='b') and not version=2", "((((r.id = $1) or (r.id = $2))) and not (r.version = $3))", []any{"a", "b", int64(2)}},
		"In":          {"consumer_name in ('a','b')", "(r.consumer in ($1, $2))", []any{"a", "b"}},
		"Labels":      {`payload->'metadata'->'labels'@>'{"a":"b"}'`, "(r.metadata -> 'labels' @> $1::jsonb)", []any{`{"a":"b"}`}},
		"Label":       {`payload->'metadata'->'labels'->>'a'in('b')`, "((r.metadata -> 'labels' ->> $1) in ($2))", []any{"a", "b"}},
		"LabelNot":    {`payload->'metadata'->'labels'->>'a'<>'b'`, "((r.metadata -> 'labels' ->> $1) is distinct from $2)", []any{"a", "b"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			sql, args, err := testedFields.Condition(c.search, 1)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.sql, sql); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.args, args); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzSearchCondition checks that no expression panics and that the SQL contains no text of an expression.
func FuzzSearchCondition(f *testing.F) {
	for _, seed := range []string{"id='a'", "not (id like 'a%' or version in (1,2))", `payload->'metadata'->'labels'->>'a'<>null`, "((((", "id='", "version='1'"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, search string) {
		sql, args, err := testedFields.Condition(search, 1)
		if err != nil {
			return
		}
		for _, part := range []string{"r.id", "r.consumer", "r.version", "r.metadata -> 'labels'", "ilike", "like", "->>", "@>", "::jsonb",
			"is distinct from", "is not null", "not", "and", "or", "in", "$", "(", ")", ",", " ", "=", "<", ">"} {
			sql = strings.ReplaceAll(sql, part, "")
		}
		if strings.Trim(sql, "0123456789") != "" {
			t.Errorf("%q leaves %q in the SQL (arguments %v)", search, sql, args)
		}
	})
}
