package partition

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

func TestParsePath(t *testing.T) {
	cases := map[string]struct {
		path   string
		want   Path
		reason string
	}{
		"one":        {"/a", Path{"a"}, "a property"},
		"nested":     {"/a/b/c", Path{"a", "b", "c"}, "a path"},
		"quoted":     {`/"a b/c"/d`, Path{"a b/c", "d"}, "any character in quotes"},
		"none":       {"", nil, "an empty path"},
		"no slash":   {"a", nil, "no leading slash"},
		"root":       {"/", nil, "no name"},
		"empty name": {"/a//b", nil, "an empty name"},
		"open quote": {`/"a`, nil, "the quote is not closed"},
		"after":      {`/"a"b`, nil, "text after the quote"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePath(tc.path)
			if (err == nil) != (tc.want != nil) {
				t.Fatalf("%q: %v, %v: %s", tc.path, got, err, tc.reason)
			}
			if diff := cmp.Diff(tc.want, got); err == nil && diff != "" {
				t.Errorf("%s: %s", tc.reason, diff)
			}
		})
	}
}

func TestParseHeader(t *testing.T) {
	cases := map[string]struct {
		header, want string
		reason       string
	}{
		"string":    {`["a"]`, `["a"]`, "a string"},
		"escapes":   {`["\u9c40\n"]`, `["鱀\n"]`, "escapes of the Go client"},
		"scalars":   {`["a",1.5,true,null]`, `["a",1.5,true,null]`, "all scalars"},
		"undefined": {`[{}]`, `[{}]`, "a missing property"},
		"empty":     {`[]`, `[]`, "no component"},
		"object":    {`[{"a":1}]`, "", "not a scalar"},
		"array":     {`[[1]]`, "", "not a scalar"},
		"scalar":    {`"a"`, "", "not an array"},
		"truncated": {`[`, "", "not JSON"},
		"long":      {`["` + strings.Repeat("x", MaxComponentBytes+1) + `"]`, "", "too long"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key, err := ParseHeader(tc.header)
			if (err == nil) != (tc.want != "") {
				t.Fatalf("%s: %v: %s", tc.header, err, tc.reason)
			}
			if err == nil && key.JSON() != tc.want {
				t.Errorf("%s was parsed as %s, want %s: %s", tc.header, key.JSON(), tc.want, tc.reason)
			}
		})
	}
}

// TestEncodingIsSelfDelimiting checks that the encoding of a key is not a prefix of that of another key.
func TestEncodingIsSelfDelimiting(t *testing.T) {
	scalars := []document.Value{{}, document.NullValue, document.True, document.False, document.FromNumber(0), document.FromNumber(-1),
		document.FromNumber(1), document.FromString(""), document.FromString("\x00"), document.FromString("\x00\x01"), document.FromString("a"),
		document.FromString("a\x00"), document.FromString("a\x00\xff")}
	seen := map[string]Key{}
	for _, a := range scalars {
		for _, b := range scalars {
			key := Key{a, b}
			text := string(key.Encode(nil))
			if other, ok := seen[text]; ok {
				t.Errorf("%s and %s have the same encoding", key.JSON(), other.JSON())
			}
			for existing := range seen {
				if strings.HasPrefix(existing, text) || strings.HasPrefix(text, existing) {
					t.Errorf("one of the encodings of %s and %s is a prefix of the other", key.JSON(), seen[existing].JSON())
				}
			}
			seen[text] = key
			if prefix := string(key[:1].Encode(nil)); !strings.HasPrefix(text, prefix) {
				t.Errorf("the encoding of %s does not begin with that of its first component", key.JSON())
			}
		}
	}
}

func TestRanges(t *testing.T) {
	for name, d := range map[string]Definition{
		"version 1":    {Kind: KindHash, Version: 1, Paths: []Path{{"a"}}},
		"version 2":    {Kind: KindHash, Version: 2, Paths: []Path{{"a"}}},
		"hierarchical": {Kind: KindMultiHash, Version: 2, Paths: []Path{{"a"}, {"b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(ranges []Range) {
				t.Helper()
				if ranges[0].Min != "" || ranges[len(ranges)-1].Max != MaxEPK {
					t.Errorf("the ranges do not cover the space: %v", ranges)
				}
				counts := make([]int, len(ranges))
				for i := range 2000 {
					key := Key{document.FromNumber(float64(i))}
					if d.Kind == KindMultiHash {
						key = append(key, document.FromString("x"))
					}
					at := -1
					for j, r := range ranges {
						if r.Contains(d.EPK(key)) {
							if at >= 0 {
								t.Fatalf("%s is in two ranges", d.EPK(key))
							}
							at = j
						}
					}
					if at < 0 {
						t.Fatalf("%s is in no range of %v", d.EPK(key), ranges)
					}
					counts[at]++
				}
				for j, n := range counts {
					if n < 2000/len(ranges)/3 {
						t.Errorf("range %d has %d of 2000 keys: %v", j, n, ranges)
					}
				}
			}
			check(d.Split(1))
			check(d.Split(5))
			left, right, ok := d.Halve(Range{Max: MaxEPK})
			if !ok {
				t.Fatal("Halve rejected the whole space")
			}
			check([]Range{left, right})
			a, b, ok := d.Halve(right)
			if !ok || d.Width(a) != d.Width(b) {
				t.Errorf("halves of %v: %v and %v", right, a, b)
			}
		})
	}
}

func FuzzParseHeader(f *testing.F) {
	for _, s := range []string{`["a"]`, `[1,null,{}]`, `["\ud83d\ude00"]`, `[[]]`, `[`} {
		f.Add(s)
	}
	d := Definition{Kind: KindMultiHash, Version: 2}
	f.Fuzz(func(t *testing.T, header string) {
		key, err := ParseHeader(header)
		if err != nil {
			return
		}
		reparsed, err := ParseHeader(key.JSON())
		if err != nil || !reparsed.Equal(key) {
			t.Fatalf("%q was parsed as %s, and that as %v, %v", header, key.JSON(), reparsed, err)
		}
		if epk := d.EPK(key); len(epk) != 32*len(key) {
			t.Fatalf("the EPK of %s has %d digits", key.JSON(), len(epk))
		}
	})
}
