package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// TestValuesWithoutFormAreNotDecoded checks what of a body a form decodes.
func TestValuesWithoutFormAreNotDecoded(t *testing.T) {
	form := wire.Fields(map[string]*wire.Form{
		"text": wire.Scalar(), "list": wire.List(2, wire.Scalar()), "map": wire.Map(2, wire.Scalar()),
		"object":  wire.Fields(map[string]*wire.Form{"a": wire.Scalar()}),
		"objects": wire.List(2, wire.Fields(map[string]*wire.Form{"a": wire.Scalar()})),
		"later":   wire.List(2, wire.TextOfObject()),
		"any":     wire.List(4, wire.TextOfValue()),
	})
	for name, tc := range map[string]struct {
		reason, content string
		want            map[string]any
		duplicate       string
	}{
		"values": {reason: "values of the form are decoded", content: ` {"text":"\u00e9","list":[1,null],"map":{"a":true},"object":{"a":"x"},"objects":[{"a":1.5}]}`,
			want: map[string]any{"text": "é", "list": []any{json.Number("1"), nil}, "map": map[string]any{"a": true}, "object": map[string]any{"a": "x"}, "objects": []any{map[string]any{"a": json.Number("1.5")}}}},
		"other kinds": {reason: "an object or an array in place of something else is empty", content: `{"text":[1,{"a":2}],"list":{"a":1},"map":[1],"object":[{"a":1}],"objects":[[1],"x"]}`,
			want: map[string]any{"text": []any{}, "list": map[string]any{}, "map": []any{}, "object": []any{}, "objects": []any{[]any{}, "x"}}},
		"unknown": {reason: "a field without a form has its kind only", content: `{"other":{"a":1},"object":{"b":[1,2],"c":"x"}}`,
			want: map[string]any{"other": map[string]any{}, "object": map[string]any{"b": []any{}, "c": "x"}}},
		"any":       {reason: "a value that is decoded later keeps its text", content: `{"any":[{"a": [1]}, [ 2 ], 1e400, null]}`, want: map[string]any{"any": []any{wire.Text(`{"a": [1]}`), wire.Text(`[ 2 ]`), wire.Text(`1e400`), wire.Text(`null`)}}},
		"later":     {reason: "an object that is decoded later keeps its text", content: `{"later":[{"a": [1, "]"]},[1]]}`, want: map[string]any{"later": []any{wire.Text(`{"a": [1, "]"]}`), []any{}}}},
		"twice":     {reason: "a field must not be given twice", content: `{"objects":[{"a":1},{"a":1,"a":2}]}`, duplicate: "objects[1].a"},
		"map twice": {reason: "a key of a map must not be given twice", content: `{"map":{"a":1,"\u0061":2}}`, duplicate: "map.a"},
	} {
		t.Run(name, func(t *testing.T) {
			fields, err := wire.Parse([]byte(tc.content), form)
			duplicate := new(wire.DuplicateError)
			if !errors.As(err, &duplicate) && err != nil || duplicate.Field != tc.duplicate {
				t.Fatalf("%s: the error is %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, fields); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestOneOfManyUnknownFieldsIsDecoded checks that a body with many unknown fields keeps one that is not null, because a patch may remove fields with null.
func TestOneOfManyUnknownFieldsIsDecoded(t *testing.T) {
	var nulls strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&nulls, `"null-%d":null,"%d":1,`, i, i)
	}
	fields, err := wire.Parse([]byte("{"+nulls.String()+`"last":1}`), wire.Fields(nil))
	if err != nil {
		t.Fatal(err)
	}
	if len(fields) > 2*wire.MaxProblems || fields["0"] == nil {
		t.Errorf("%d fields were decoded", len(fields))
	}
}

// TestLongPatches checks which maps a patch may have with more entries than their form permits.
func TestLongPatches(t *testing.T) {
	form := wire.Fields(map[string]*wire.Form{"inner": wire.Fields(map[string]*wire.Form{"map": wire.Map(2, wire.Scalar())})})
	for name, tc := range map[string]struct {
		reason, target, patch string
		want                  any
		duplicate             string
	}{
		"nulls":        {reason: "null removes entries", target: `{"a":"1","b":"2"}`, patch: `{"a":null,"b":null,"c":null,"d":"1"}`, want: map[string]any{"d": "1"}},
		"as many":      {reason: "the target has as many", target: `{"a":"1","b":"2","c":"3"}`, patch: `{"a":"4","b":"5","c":"6"}`, want: map[string]any{"a": "4", "b": "5", "c": "6"}},
		"too many":     {reason: "the patch has too many", target: `{"a":"1"}`, patch: `{"a":"4","b":"5","c":"6"}`},
		"without any":  {reason: "the target has none", target: `{}`, patch: `{"a":null,"b":null,"c":null}`, want: map[string]any{}},
		"twice":        {reason: "no entry may be given twice", target: `{}`, patch: `{"a":null,"b":null,"c":null,"c":"1"}`, duplicate: "inner.map.c"},
		"not too many": {reason: "short maps are decoded already", target: `{}`, patch: `{"a":"1"}`, want: map[string]any{"a": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			target := parse(t, `{"inner":{"map":`+tc.target+`}}`)
			patch, err := wire.Parse([]byte(`{"inner":{"map":`+tc.patch+`}}`), form)
			if err != nil {
				t.Fatal(err)
			}
			err = wire.DecodeLong(target, patch)
			if duplicate := new(wire.DuplicateError); errors.As(err, &duplicate) || tc.duplicate != "" {
				if duplicate.Field != tc.duplicate {
					t.Errorf("%s: the error is %v", tc.reason, err)
				}
				return
			}
			merged := wire.MergePatch(target, patch)["inner"].(map[string]any)["map"]
			if _, isLong := merged.(wire.Long); isLong && tc.want == nil {
				return
			}
			if diff := cmp.Diff(tc.want, merged); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDeepBodiesAreRefused checks that a body with a form has a maximum depth, and that brackets in texts do not count.
func TestDeepBodiesAreRefused(t *testing.T) {
	form := wire.Fields(map[string]*wire.Form{"a": wire.Scalar()})
	for content, refused := range map[string]bool{
		`{"a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}`: true,
		`{"a":` + strings.Repeat("[", 400) + strings.Repeat("]", 400) + `}`: false,
		`{"a":[` + strings.Repeat("[],", 600) + `{}]}`:                      false,
		`{"a":"\"` + strings.Repeat("[", 600) + `"}`:                        false,
	} {
		if _, err := wire.Parse([]byte(content), form); (err != nil) != refused {
			t.Errorf("the error of %.20s is %v", content, err)
		}
	}
}

// FuzzParse compares ParseObject with encoding/json.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":1,"b":[{"b":":"},"b",null,true,-1.5e3]}`, ` {"a":"\\\"\/\b\f\n\r\t\u00e9\ud83d\ude00\ud83dx\ud83d\u0041\udc00"}`, "{\"\xff\xfe\":\"\xe2\x82\"}", `{"a":[[],{}]}x`, `[1]`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := wire.ParseObject(content)
		if duplicate := new(wire.DuplicateError); errors.As(err, &duplicate) {
			return // FuzzDuplicates checks it
		}
		decoder := json.NewDecoder(bytes.NewReader(content))
		decoder.UseNumber()
		var want any
		if json.Valid(content) && decoder.Decode(&want) != nil {
			t.Fatalf("%q is valid and not decoded", content)
		}
		object, isObject := want.(map[string]any)
		if isObject != (err == nil) || !reflect.DeepEqual(object, got) {
			t.Errorf("%q: got %v and the error %v, want %v", content, got, err, want)
		}
	})
}
