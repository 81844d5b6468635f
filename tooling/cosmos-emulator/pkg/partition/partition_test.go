package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePath(t *testing.T) {
	for path, want := range map[string]Path{
		"/a": {"a"}, "/a/b/c": {"a", "b", "c"}, "": nil, "a": nil, "/": nil, "/a//b": nil, "/a/": nil, `/"a"`: nil,
	} {
		got, err := ParsePath(path)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: %v, %s", path, err, diff)
		}
	}
}

func TestParseHeader(t *testing.T) {
	cases := map[string]struct {
		header string
		want   Key
		reason string
	}{
		"string":    {`["a"]`, "a", "a string"},
		"escapes":   {`["\u9c40\n"]`, "鱀\n", "escapes of the Go client"},
		"empty":     {`[""]`, "", "an empty key means none"},
		"two":       {`["a","b"]`, "", "hierarchical keys are not supported"},
		"none":      {`[]`, "", "no component"},
		"number":    {`[1]`, "", "only strings are supported"},
		"undefined": {`[{}]`, "", "only strings are supported"},
		"null":      {`[null]`, "", "only strings are supported"},
		"array":     {`[["a"]]`, "", "not a string"},
		"scalar":    {`"a"`, "", "not an array"},
		"truncated": {`[`, "", "not JSON"},
		"absent":    {``, "", "no header"},
		"long":      {`["` + strings.Repeat("x", maxBytes+1) + `"]`, "", "too long"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key, err := ParseHeader(tc.header)
			if key != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("%s was parsed as %q, %v, want %q: %s", tc.header, key, err, tc.want, tc.reason)
			}
		})
	}
}

// TestEncodingIsSelfDelimiting checks that the encoding of a key is not a prefix of that of another key.
func TestEncodingIsSelfDelimiting(t *testing.T) {
	keys := []Key{"\x00", "\x00\x01", "\x01", "a", "a\x00", "a\x00\x01", "a\x00\xff", "aa"}
	for i, a := range keys {
		for j, b := range keys {
			if i != j && strings.HasPrefix(string(a.Encode(nil)), string(b.Encode(nil))) {
				t.Errorf("the encoding of %q begins with that of %q", a, b)
			}
		}
	}
}

// TestRanges halves the space twice and checks that each key is in one range, and that the ranges are even.
func TestRanges(t *testing.T) {
	left, right, ok := Range{Max: MaxEPK}.Halve()
	if !ok {
		t.Fatal("Halve rejected the whole space")
	}
	middle, last, ok := right.Halve()
	if !ok {
		t.Fatal("Halve rejected a half")
	}
	ranges, counts := []Range{left, middle, last}, [3]int{}
	for i := range 2000 {
		epk, found := Key(fmt.Sprint(i)).EPK(), 0
		for j, r := range ranges {
			if r.Contains(epk) {
				counts[j]++
				found++
			}
		}
		if found != 1 || !(Range{Max: MaxEPK}).Contains(epk) || !(Range{}).Contains(epk) {
			t.Fatalf("%s is in %d ranges of %v", epk, found, ranges)
		}
	}
	if counts[0] < 900 || counts[1] < 400 || counts[2] < 400 {
		t.Errorf("the ranges %v have %v of 2000 keys", ranges, counts)
	}
	narrow := Range{Min: strings.Repeat("0", 32), Max: "0000000000000001" + strings.Repeat("0", 16)}
	if _, _, ok := narrow.Halve(); ok {
		t.Errorf("Halve divided %v", narrow)
	}
}
