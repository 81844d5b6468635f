package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// TestDuplicateFieldsAreRejected checks which field the error names. Objects of any size are compared, and each with itself alone.
func TestDuplicateFieldsAreRejected(t *testing.T) {
	many := func(extra string) string { return "{" + numbered(1000) + extra + "}" }
	for name, tc := range map[string]struct{ content, want string }{
		"none":                     {`{"a":{"a":["a",{"a":"b"},{"a":"c"}]},"b":"a"}`, ""},
		"casing":                   {`{"a":1,"A":2}`, ""},
		"values":                   {`{"a":["x","x"],"b":"x","c":"x"}`, ""},
		"value before a colon":     {`{"a":"b:","b":":"}`, ""},
		"one":                      {`{"location":"a","x":1,"location":"b"}`, "location"},
		"the same value":           {`{"a":1,"a":1}`, "a"},
		"objects":                  {`{"a":{"b":1},"a":{"c":1}}`, "a"},
		"the first of two":         {`{"a":1,"b":1,"b":2,"a":2}`, "b"},
		"nested":                   {`{"a":{"b":{"c":1,"c":2}}}`, "a.b.c"},
		"in a list":                {`{"a":[{"b":1},{"b":1},[1,{"b":1,"b":2}]]}`, "a[2][1].b"},
		"after a list":             {`{"a":[1,2,{"b":1}],"b":{"a":1,"a":2}}`, "b.a"},
		"key of a map":             {`{"a":{"x/y":1,"x/y":2}}`, "a[x/y]"},
		"escaped":                  {`{"a":1,"\u0061":2}`, "a"},
		"escaped quote":            {`{"\"":1,"b":"\\","\u0022":2}`, `"`},
		"white space":              {"{\n\"a\" \t:1 ,\r\n \"a\"\n:2}", "a"},
		"empty name":               {`{"":1,"":2}`, ""},
		"many":                     {many(`"x":1`), ""},
		"of many":                  {many(`"field-0":1`), "field-0"},
		"of many, in another":      {`{"a":` + many(`"field-999":1`) + `}`, "a.field-999"},
		"after many":               {`{"a":` + many(`"x":1`) + `,"b":{"field-0":1,"field-1":{},"field-0":1}}`, "b.field-0"},
		"deep":                     {strings.Repeat(`{"a":[`, 4000) + `{"b":1,"b":2}` + strings.Repeat(`]}`, 4000), strings.Repeat("a[0].", 4000) + "b"},
		"not UTF-8":                {"{\"\xff\":1,\"\ufffd\":2}", "\ufffd"},
		"beyond the few, at their": {`{"0":1,"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"10":1,"11":1,"12":1,"13":1,"14":1,"15":1,"16":1,"16":1}`, "16"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := wire.ParseObject([]byte(tc.content))
			duplicate := new(wire.DuplicateError)
			if !errors.As(err, &duplicate) && err != nil {
				t.Fatal(err)
			}
			if rejected := err != nil; rejected != (tc.want != "" || name == "empty name") || duplicate.Field != tc.want {
				t.Errorf("the error is %v, want the field %q", err, tc.want)
			}
		})
	}
}

// FuzzDuplicates compares CheckDuplicates with encoding/json: a text has as many names of fields as the decoded value, unless one is given twice.
func FuzzDuplicates(f *testing.F) {
	for _, seed := range []string{`{"a":1,"\u0061":[{"b":":"},"b"]}`, `[{"a":"\\\""},{"a":{}}]`, `"a"`, `{"😀":1,"\ud83d\ude00":2}`, "{\"\xff\":1,\"\xfe\":2}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var value any
		if json.Unmarshal(content, &value) != nil {
			return
		}
		named, err := names(json.NewDecoder(bytes.NewReader(content)))
		if err != nil {
			t.Fatal(err)
		}
		if got := wire.CheckDuplicates(content); (got != nil) != (named != fieldsIn(value)) {
			t.Errorf("%q has %d names, and its value %d: %v", content, named, fieldsIn(value), got)
		}
	})
}

// names returns the number of names of fields in a text.
func names(decoder *json.Decoder) (count int, err error) {
	// isObject has the open objects and lists, and isName is whether the next text in an object is a name.
	var isObject, isName []bool
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err != nil {
			return 0, err
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			isObject, isName = isObject[:len(isObject)-1], isName[:len(isName)-1]
			continue
		}
		if last := len(isObject) - 1; last >= 0 && isObject[last] {
			if isName[last] {
				count++
			}
			isName[last] = !isName[last]
		}
		if token == json.Delim('{') || token == json.Delim('[') {
			isObject, isName = append(isObject, token == json.Delim('{')), append(isName, true)
		}
	}
}

// fieldsIn returns the number of fields in a value.
func fieldsIn(value any) (count int) {
	switch value := value.(type) {
	case map[string]any:
		count = len(value)
		for _, inner := range value {
			count += fieldsIn(inner)
		}
	case []any:
		for _, inner := range value {
			count += fieldsIn(inner)
		}
	}
	return count
}

// BenchmarkParseObject measures how much of parsing is the search for duplicate names, with objects of several sizes.
func BenchmarkParseObject(b *testing.B) {
	for name, object := range map[string]string{
		"few fields":  `{"abc":1,"def":"text","ghi":{"a":true},"location":"westus3"}`,
		"many fields": "{" + strings.TrimSuffix(numbered(1000), ",") + "}",
	} {
		content := []byte(`{"list":[` + strings.TrimSuffix(strings.Repeat(object+",", 1+(1<<20)/len(object)), ",") + `]}`)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.ParseObject(content); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// numbered returns fields with different names.
func numbered(count int) string {
	var all strings.Builder
	for i := range count {
		fmt.Fprintf(&all, `"field-%d":%d,`, i, i)
	}
	return all.String()
}
