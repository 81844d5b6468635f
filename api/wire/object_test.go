package wire_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

func TestProblems(t *testing.T) {
	cases := map[string]struct {
		reason string
		body   string
		read   func(*wire.Body)
		want   []wire.Problem
	}{
		"paths": {
			reason: "a problem names the field with its indices as the caller wrote it",
			body:   `{"a":{"list":[{"x":"ok"},{"x":1}]}}`,
			read: func(b *wire.Body) {
				for _, o := range b.Child("a").Children("list") {
					o.String("x", "")
				}
			},
			want: []wire.Problem{{Field: "a.list[1].x", Message: "Invalid value: 1: must be a string"}},
		},
		"all": {
			reason: "decoding continues after a problem",
			body:   `{"s":1,"b":"x","i":1.5,"o":[],"l":{},"t":"later","e":"Blue"}`,
			read: func(b *wire.Body) {
				b.String("s", "")
				b.Bool("b", false)
				b.Int32("i", 0)
				b.Child("o")
				b.Strings("l")
				b.Time("t")
				b.Enum("e", "", "Red", "Green")
			},
			want: []wire.Problem{
				{Field: "s", Message: "Invalid value: 1: must be a string"},
				{Field: "b", Message: `Invalid value: "x": must be a boolean`},
				{Field: "i", Message: "Invalid value: 1.5: must be a 32-bit integer"},
				{Field: "o", Message: "Invalid value: array: must be an object"},
				{Field: "l", Message: "Invalid value: object: must be an array"},
				{Field: "t", Message: `Invalid value: "later": must be an RFC 3339 time`},
				{Field: "e", Message: `Unsupported value: "Blue": supported values: "Green", "Red"`, Decoded: true},
			},
		},
		"null": {
			reason: "null is the same as absent",
			body:   `{"s":null,"b":null,"i":null,"o":null,"l":null}`,
			read: func(b *wire.Body) {
				if b.String("s", "x") != "x" || !b.Bool("b", true) || b.Int32("i", 7) != 7 || b.Child("o") != nil || b.Strings("l") != nil {
					t.Error("null was decoded as a value")
				}
			},
		},
		"map": {
			reason: "the path of a map's element contains its key",
			body:   `{"tags":{"a":1}}`,
			read:   func(b *wire.Body) { b.StringMap("tags") },
			want:   []wire.Problem{{Field: "tags[a]", Message: "Invalid value: 1: must be a string"}},
		},
		"within a map": {
			reason: "the path of a field within a map's element contains the key",
			body:   `{"a":{"map":{"/x.y/z":{"id":1}}}}`,
			read: func(b *wire.Body) {
				b.Child("a").Child("map").EachObject(func(_ string, value *wire.Object) { value.String("id", "") })
			},
			want: []wire.Problem{{Field: "a.map[/x.y/z].id", Message: "Invalid value: 1: must be a string"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fields, err := wire.ParseObject([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			body := wire.NewBody(fields)
			tc.read(body)
			if diff := cmp.Diff(tc.want, body.Problems()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestMergePatch uses the examples of RFC 7396, appendix A, that are objects.
func TestMergePatch(t *testing.T) {
	for _, tc := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		target, patch, want := parse(t, tc.target), parse(t, tc.patch), parse(t, tc.want)
		if diff := cmp.Diff(want, wire.MergePatch(target, patch)); diff != "" {
			t.Errorf("%s with %s (-want +got):\n%s", tc.target, tc.patch, diff)
		}
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	fields, err := wire.ParseObject([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// FuzzMergePatch checks that the result of every patch is an object and that applying a patch twice is idempotent.
func FuzzMergePatch(f *testing.F) {
	f.Add([]byte(`{"a":{"b":1}}`), []byte(`{"a":{"b":null,"c":[1]}}`))
	f.Add([]byte(`{}`), []byte(`{"a":null}`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		target, err := wire.ParseObject(a)
		if err != nil {
			return
		}
		patch, err := wire.ParseObject(b)
		if err != nil {
			return
		}
		once := wire.MergePatch(target, patch)
		first, err := json.Marshal(once)
		if err != nil {
			t.Fatal(err)
		}
		second, err := json.Marshal(wire.MergePatch(once, patch))
		if err != nil {
			t.Fatal(err)
		}
		if string(first) != string(second) {
			t.Errorf("after one patch %s, after two %s", first, second)
		}
	})
}

// TestProblemsAreLimited decodes a body with 100,000 malformed entries. Neither the problems nor the work for them grow with it.
func TestProblemsAreLimited(t *testing.T) {
	body := func(entries int) map[string]any {
		object, texts, objects := map[string]any{}, make([]any, entries), make([]any, entries)
		for i := range entries {
			object[fmt.Sprintf("key-%d", i)], texts[i], objects[i] = json.Number("1"), json.Number("2"), json.Number("3")
		}
		return map[string]any{"object": object, "texts": texts, "objects": objects}
	}
	for name, decode := range map[string]func(*wire.Body){
		"objects in an object": func(b *wire.Body) { b.Child("object").EachObject(func(string, *wire.Object) {}) },
		"texts in an object":   func(b *wire.Body) { b.StringMap("object") },
		"texts":                func(b *wire.Body) { b.Strings("texts") },
		"objects":              func(b *wire.Body) { b.Children("objects") },
	} {
		t.Run(name, func(t *testing.T) {
			allocations := func(fields map[string]any) float64 {
				return testing.AllocsPerRun(1, func() {
					body := wire.NewBody(fields)
					decode(body)
					if !body.Full() || !body.Malformed() || len(body.Problems()) != wire.MaxProblems {
						t.Errorf("%d problems are recorded, want %d", len(body.Problems()), wire.MaxProblems)
					}
				})
			}
			// A problem needs several allocations. Those of the slice of keys and of the map of results are few.
			if many := allocations(body(100_000)); many > 2000 {
				t.Errorf("100,000 entries need %.0f allocations", many)
			}
		})
	}
}
