package sql

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

func TestNeedles(t *testing.T) {
	params := map[string]document.Value{"@p": document.FromString("x/y"), "@q": document.FromString(`a"b<é`), "@n": document.FromNumber(1)}
	for name, tc := range map[string]struct {
		where  string
		want   []string
		reason string
	}{
		"equal":       {"c.kind = @p", []string{`"x/y"`}, "the string with its quotes"},
		"escaped":     {"c.kind = @q", []string{string(document.Append(nil, document.FromString(`a"b<é`)))}, "as documents are written"},
		"starts with": {"c.n > 1 AND STARTSWITH(c.key, '/a/\"b') AND c.kind = 'k'", []string{`"/a/\"b`, `"k"`}, "without the closing quote"},
		"any case":    {"STARTSWITH(c.key, 'a', true)", nil, "another casing is written otherwise"},
		"not ASCII":   {"STARTSWITH(c.key, 'é')", nil, "it may end within what is written as one"},
		"empty":       {"STARTSWITH(c.key, '')", nil, "nothing to look for"},
		"number":      {"c.n = @n", nil, "1 may be written 1.0"},
		"in":          {"c.kind IN ('a', 'b')", nil, "either"},
		"in one":      {"c.kind IN ('a')", nil, "not worth it"},
		"or":          {"c.kind = 'a' OR c.n = 1", nil, "either"},
		"negated":     {"NOT (c.kind = 'a') AND NOT STARTSWITH(c.key, 'a')", nil, "what is not meant"},
		"property":    {"c.a = c.b", nil, "not known beforehand"},
		"missing":     {"c.a = @missing", nil, "has no value"},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := Parse("SELECT * FROM c WHERE " + tc.where)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, needle := range q.RequiredSubstrings(params) {
				got = append(got, string(needle))
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: %s: %s", tc.where, tc.reason, diff)
			}
		})
	}
}

func TestFolders(t *testing.T) {
	params := map[string]document.Value{"@p": document.FromString("/a/b/")}
	for name, tc := range map[string]struct {
		where  string
		want   []string
		reason string
	}{
		"a folder":       {"STARTSWITH(c.key, @p) AND c.n = 1", []string{"/a/b/"}, "a conjunct"},
		"alone":          {"STARTSWITH(c.key, '/')", []string{"/"}, "the only one"},
		"not a folder":   {"STARTSWITH(c.key, '/a/b')", nil, "/a/bc begins so too"},
		"relative":       {"STARTSWITH(c.key, 'a/')", nil, "not a path"},
		"within another": {"STARTSWITH(c.properties.key, @p)", nil, "only what is not within another is remembered"},
		"any case":       {"STARTSWITH(c.key, @p, true)", nil, "another casing is another folder"},
		"or":             {"STARTSWITH(c.key, @p) OR c.n = 1", nil, "either"},
		"not":            {"NOT STARTSWITH(c.key, @p)", nil, "what is not meant"},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := Parse("SELECT * FROM c WHERE " + tc.where)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, q.RequiredFolders(params)); diff != "" {
				t.Errorf("%s: %s: %s", tc.where, tc.reason, diff)
			}
		})
	}
}
