package sql

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

func TestRequiredSubstrings(t *testing.T) {
	params := map[string]document.Value{"@p": document.FromString("x/y"), "@q": document.FromString(`a"b<é`), "@n": document.FromNumber(1)}
	for name, tc := range map[string]struct {
		where  string
		want   []string
		reason string
	}{
		"equal":       {"c.kind = @p", []string{`"x/y"`}, "the string with its quotes"},
		"escaped":     {"c.kind = @q", []string{string(document.Append(nil, document.FromString(`a"b<é`)))}, "escaped as in documents"},
		"starts with": {"c.n > @n AND STARTSWITH(c.key, '/a/\"b') AND c.kind = 'k'", []string{`"/a/\"b`, `"k"`}, "without the closing quote"},
		"any case":    {"STARTSWITH(c.key, 'a', true)", nil, "other cases have another text"},
		"not ASCII":   {"STARTSWITH(c.key, 'é')", nil, "the prefix may end within an escape"},
		"empty":       {"STARTSWITH(c.key, '')", nil, "an empty prefix requires nothing"},
		"number":      {"c.n = @n", nil, "a number has several texts"},
		"in":          {"c.kind IN ('a', 'b')", nil, "alternatives require nothing"},
		"in one":      {"c.kind IN ('a')", nil, "IN is not used"},
		"or":          {"c.kind = 'a' OR c.n = @n", nil, "alternatives require nothing"},
		"negated":     {"NOT (c.kind = 'a') AND NOT STARTSWITH(c.key, 'a')", nil, "a negation requires nothing"},
		"property":    {"c.a = c.b", nil, "the value is not constant"},
		"missing":     {"c.a = @missing", nil, "the parameter has no value"},
	} {
		t.Run(name, func(t *testing.T) {
			q := must.Get(Parse("SELECT * FROM c WHERE " + tc.where))(t)
			var got []string
			for _, substring := range q.RequiredSubstrings(params) {
				got = append(got, string(substring))
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: %s: %s", tc.where, tc.reason, diff)
			}
		})
	}
}

func TestRequiredFolders(t *testing.T) {
	params := map[string]document.Value{"@p": document.FromString("/a/b/")}
	for name, tc := range map[string]struct {
		where  string
		want   []string
		reason string
	}{
		"a folder":     {"STARTSWITH(c.key, @p) AND c.n = 'x'", []string{"/a/b/"}, "one of the conjuncts"},
		"root":         {"STARTSWITH(c.key, '/')", []string{"/"}, "the root folder"},
		"not a folder": {"STARTSWITH(c.key, '/a/b')", nil, "/a/bc has the same prefix"},
		"relative":     {"STARTSWITH(c.key, 'a/')", nil, "not a path"},
		"nested":       {"STARTSWITH(c.properties.key, @p)", nil, "only top-level properties are indexed"},
		"any case":     {"STARTSWITH(c.key, @p, true)", nil, "the index does not ignore case"},
		"or":           {"STARTSWITH(c.key, @p) OR c.n = 'x'", nil, "alternatives require nothing"},
		"not":          {"NOT STARTSWITH(c.key, @p)", nil, "a negation requires nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			q := must.Get(Parse("SELECT * FROM c WHERE " + tc.where))(t)
			if diff := cmp.Diff(tc.want, q.RequiredFolders(params)); diff != "" {
				t.Errorf("%s: %s: %s", tc.where, tc.reason, diff)
			}
		})
	}
}
