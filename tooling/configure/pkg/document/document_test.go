package document

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var origin = Origin{Layer: "defaults", File: "defaults.yaml"}

func TestParse(t *testing.T) {
	root, problems := Parse(origin, []byte("# About a.\na:\n  b: 1\n  # About c.\n  c: [x, true, 0.5]\n\nd: null\ne: \"0777\"\n"))
	if problems != nil {
		t.Fatal(problems)
	}
	want := map[string]any{"a": map[string]any{"b": int64(1), "c": []any{"x", true, 0.5}}, "e": "0777"}
	if diff := cmp.Diff(want, root.Plain()); diff != "" {
		t.Error(diff)
	}
	if b, c := root.Get("a", "b"), root.Get("a", "c"); b.Origin.Line != 3 || b.Comment != "About a." || c.Origin.Line != 5 || c.Comment != "About c." {
		t.Errorf("b is at line %d with the comment %q, c at line %d with %q", b.Origin.Line, b.Comment, c.Origin.Line, c.Comment)
	}
	if root.Get("d") != nil || root.Deletion("d") == nil {
		t.Error("d: null is not a deletion")
	}
}

func TestParseRejectsWhatIsNotPlain(t *testing.T) {
	for reason, c := range map[string]struct {
		text, want string
	}{
		"a duplicate key":         {"a: 1\nb: 2\na: 3\n", "defaults.yaml:3: a: the key appears twice; the first is in line 1 (layer defaults)"},
		"an alias":                {"a: &x 1\nb: *x\n", "anchors and aliases are not allowed"},
		"a merge key":             {"a: {<<: {b: 1}}\n", "has characters other than"},
		"a tag":                   {"a: !!str 1\n", "the tag !!str is not allowed"},
		"an octal number":         {"a: 0777\n", "decimal integer"},
		"a number with separator": {"a: 1_000\n", "decimal integer"},
		"a huge number":           {"a: 99999999999999999999\n", "decimal integer"},
		"infinity":                {"a: .inf\n", "a fraction such as 0.5"},
		"a date":                  {"a: 2026-01-01\n", "the YAML type timestamp is not allowed"},
		"a key with a dot":        {"a.b: 1\n", "has characters other than"},
		"null in a list":          {"a: [1, null]\n", "defaults.yaml:1: a.1: null is not allowed in a list"},
		"a list as the file":      {"- a\n", "the file must contain a map"},
		"two documents":           {"a: 1\n---\nb: 1\n", "one YAML document"},
		"a syntax error":          {"a: 1\nb: [\n", "is not YAML"},
		"too deep":                {strings.Repeat("[", maxDepth+3) + strings.Repeat("]", maxDepth+3), "must contain a map"},
		"too deep in a key":       {"a: " + strings.Repeat("[", maxDepth+3) + strings.Repeat("]", maxDepth+3), "within each other"},
		"a large file":            {"a: " + strings.Repeat("x", MaxBytes), "the limit is"},
	} {
		if _, problems := Parse(origin, []byte(c.text)); !strings.Contains(problems.Error(), c.want) {
			t.Errorf("%s: got %q, want %q", reason, problems.Error(), c.want)
		}
	}
}

func TestProblemsAreSortedAndUnique(t *testing.T) {
	at := func(file string, line int) Problem {
		return Problem{Origin: Origin{File: file, Line: line}, Key: "k", Message: "m"}
	}
	got := Problems{at("b", 1), at("a", 10), at("a", 2), at("b", 1)}.Err().Error()
	if want := "a:2: k: m\na:10: k: m\nb:1: k: m"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if (Problems)(nil).Err() != nil {
		t.Error("no problems are an error")
	}
}

// FuzzParse checks that Parse terminates without a panic on any input, and that what it accepts can be read again.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"a: 1", "a: {b: [1, x]}", "a: &b 1", "? [a]\n: b", "a: !!binary x", "\x00", "a: null", "a: 1e400", "- {a: b}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root, problems := Parse(origin, text)
		if root == nil {
			t.Fatal("no root")
		}
		if len(problems) == 0 {
			root.Plain()
		}
	})
}
