package document

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoundTrip(t *testing.T) {
	cases := map[string]struct{ in, want, reason string }{
		"order":     {`{"b":1,"a":2}`, `{"b":1,"a":2}`, "the order of properties is preserved"},
		"numbers":   {`[1.0,1e3,-0,12345678901234567890]`, `[1.0,1e3,-0,12345678901234567890]`, "the text of numbers is preserved"},
		"twice":     {`{"a":1,"b":2,"a":3}`, "", "a property occurs twice"},
		"space":     {" {\n\t\"a\" : [ 1 , null ] } ", `{"a":[1,null]}`, "white space is removed"},
		"escapes":   {`"\u00e9\n\ud83d\ude00\/\u0001"`, "\"é\\n😀/\\u0001\"", "only required characters are escaped"},
		"surrogate": {`"\ud83d"`, "\"\ufffd\"", "a single surrogate half"},
		"empty":     {`{"a":{},"b":[]}`, `{"a":{},"b":[]}`, "empty containers"},
		"truncated": {`{"a":`, "", "an incomplete value"},
		"trailing":  {`{} x`, "", "text after the value"},
		"zero":      {`01`, "", "a leading zero"},
		"control":   {"\"\n\"", "", "a control character"},
		"comma":     {`[1,]`, "", "a comma without a value"},
		"literal":   {`nul`, "", "an unknown literal"},
		"utf-8":     {"\"\xff\"", "", "invalid UTF-8"},
		"huge":      {`1e999`, "", "out of range"},
		"deep":      {strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2), "", "nesting is bounded"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v, err := Parse([]byte(tc.in))
			if (err != nil) != (tc.want == "") {
				t.Fatalf("error %v: %s", err, tc.reason)
			}
			if diff := cmp.Diff(tc.want, v.JSON()); err == nil && diff != "" {
				t.Errorf("%s: %s", tc.reason, diff)
			}
		})
	}
}

func TestEqual(t *testing.T) {
	cases := map[string]struct {
		a, b string
		want bool
	}{
		"order of properties": {`{"a":1,"b":[2]}`, `{"b":[2.0],"a":1e0}`, true},
		"order of elements":   {`[1,2]`, `[2,1]`, false},
		"null is not absent":  {`{"a":null}`, `{}`, false},
		"types":               {`"1"`, `1`, false},
		"zeros":               {`0`, `0.0`, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, errA := Parse([]byte(tc.a))
			b, errB := Parse([]byte(tc.b))
			if errA != nil || errB != nil {
				t.Fatal(errA, errB)
			}
			if got := Equal(a, b); got != tc.want {
				t.Errorf("Equal = %v", got)
			}
		})
	}
}

func TestUndefinedIsOmitted(t *testing.T) {
	v := Value{Kind: Object, Obj: []Member{{"a", Value{}}, {"b", FromArray([]Value{{}, True, {}})}, {"c", FromNumber(0.5)}}}
	if got := v.JSON(); got != `{"b":[true],"c":0.5}` {
		t.Error(got)
	}
}

// FuzzParse compares Parse with encoding/json. Parse accepts a subset of the texts (it limits depth, requires UTF-8, and rejects
// duplicate names and numbers out of range) and must return the same values.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e-3,true,null,"\u00e9\ud83d\ude00"]}`, `[`, `"\x"`, `{"a":1,"a":2}`, ` 0 `, "\xff", `1e400`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := Parse(in)
		var std any
		d := json.NewDecoder(bytes.NewReader(in))
		d.UseNumber()
		stdErr := d.Decode(&std)
		if err != nil {
			return
		}
		if stdErr != nil {
			t.Fatalf("Parse accepted %q, but encoding/json returned: %v", in, stdErr)
		}
		var reparsed any
		d = json.NewDecoder(strings.NewReader(v.JSON()))
		d.UseNumber()
		if err := d.Decode(&reparsed); err != nil {
			t.Fatalf("%q was written as %q: %v", in, v.JSON(), err)
		}
		if !reflect.DeepEqual(std, reparsed) { // the time of cmp doubles with each level of nested arrays
			t.Fatalf("%q was written as %q", in, v.JSON())
		}
	})
}
