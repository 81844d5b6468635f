package server

import "testing"

// TestMatches compares lists of ETags, as If-Match (strong) and If-None-Match (weak) have them.
func TestMatches(t *testing.T) {
	const etag = `"x"`
	cases := map[string]struct {
		reason       string
		condition    string
		strong, weak bool
	}{
		"same":           {"an ETag equals itself", `"x"`, true, true},
		"weak":           {"a weak ETag is equal only in the weak comparison", `W/"x"`, false, true},
		"other":          {"another ETag is not equal", `"y"`, false, false},
		"casing":         {"ETags have a case", `"X"`, false, false},
		"weak casing":    {"so has the prefix of weak ETags", `w/"x"`, false, false},
		"any":            {"* matches every resource that exists", `*`, true, true},
		"any in a list":  {"* is not an element of a list", `"y", *`, false, false},
		"list":           {"one of the list is enough", `"y", "x"`, true, true},
		"weak list":      {"a list may have both kinds", `"y",W/"x"`, false, true},
		"empty elements": {"empty elements are ignored (RFC 9110, section 5.6.1)", `, ,"x",,`, true, true},
		"spaces":         {"elements may have space around them", "\t\"y\" , \t\"x\" ", true, true},
		"comma":          {"the text of an ETag may contain a comma", `"y,", "x"`, true, true},
		"inner":          {"a part of an ETag is no element", `"a,"x",b"`, false, false},
		"no quotes":      {"a text without quotes is not an ETag", `x`, false, false},
		"one quote":      {"an ETag that does not end is none", `"x`, false, false},
		"rest":           {"text after an ETag makes the element malformed", `"x"y`, false, false},
		"malformed":      {"a malformed element does not hide the others", `x", "x"`, true, true},
		"quotes":         {"the empty text is an ETag", `""`, false, false},
		"nothing":        {"a list may be empty", `,,`, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if strong, weak := matches(tc.condition, etag, false), matches(tc.condition, etag, true); strong != tc.strong || weak != tc.weak {
				t.Errorf("%s: %s is equal to %s: strongly %t, weakly %t", tc.reason, tc.condition, etag, strong, weak)
			}
		})
	}
}
