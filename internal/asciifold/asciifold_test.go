package asciifold_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/hcpmesh/hcpmesh/internal/asciifold"
)

// TestOnlyASCIIIsFolded compares all letters outside ASCII with what package unicode folds them to.
func TestOnlyASCIIIsFolded(t *testing.T) {
	var ambiguous []rune
	for r := rune(unicode.MaxASCII + 1); r <= unicode.MaxRune; r++ {
		if asciifold.Ambiguous(r) {
			ambiguous = append(ambiguous, r)
		}
		for _, other := range []rune{unicode.ToLower(r), unicode.ToUpper(r), unicode.ToTitle(r), unicode.SimpleFold(r)} {
			if other > unicode.MaxASCII {
				continue
			}
			if !asciifold.Ambiguous(r) {
				t.Errorf("%q becomes %q and is not ambiguous", r, other)
			}
			if asciifold.Equal(string(r), string(other)) || asciifold.Lower(string(r)) != string(r) {
				t.Errorf("%q equals %q", r, other)
			}
		}
	}
	if want := []rune{'\u0130', '\u0131', '\u017f', '\u212a'}; !slices.Equal(ambiguous, want) {
		t.Errorf("ambiguous letters: %q, want %q", ambiguous, want)
	}
	for c := 'a'; c <= 'z'; c++ {
		if upper := string(unicode.ToUpper(c)); !asciifold.Equal(upper, string(c)) || asciifold.Lower(upper) != string(c) {
			t.Errorf("%s does not equal %c", upper, c)
		}
	}
	for _, c := range []string{"[", "`", "@", "{", "1", "-"} { // they differ from others by the bit of the case
		if asciifold.Lower(c) != c || asciifold.Equal(c, string(c[0]^0x20)) {
			t.Errorf("%q is folded", c)
		}
	}
}

func FuzzEqual(f *testing.F) {
	f.Add("resourceGroups", "RESOURCEGROUPS")
	f.Add("resourceGroups", "reſourceGroups")
	f.Fuzz(func(t *testing.T, a, b string) {
		equal := asciifold.Equal(a, b)
		if equal != (asciifold.Lower(a) == asciifold.Lower(b)) {
			t.Errorf("Equal(%q, %q) is %t", a, b, equal)
		}
		if equal && !strings.EqualFold(a, b) {
			t.Errorf("%q equals %q, not for EqualFold", a, b)
		}
		if asciifold.Lower(a) != a && !asciifold.Equal(a, asciifold.Lower(a)) {
			t.Errorf("%q does not equal its lower case", a)
		}
	})
}
