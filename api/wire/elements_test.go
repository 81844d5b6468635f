package wire_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// entry is an element of the lists of the tests.
type entry struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
}

// TestMalformedElementHidesNoOther checks that the elements beside malformed ones are used, that each malformed one is named and counted, and that Stream
// returns an error for a text that is not a list and for an incomplete one.
func TestMalformedElementHidesNoOther(t *testing.T) {
	const good = `{"id":"a","number":1}`
	for name, tc := range map[string]struct {
		field, text string
		used        int
		ignored     []string
		failure     string
	}{
		"an object":              {"items", `{"kind":"List","items":[` + good + `,` + good + `],"total":2}`, 2, nil, ""},
		"a list":                 {"", `[` + good + `]`, 1, nil, ""},
		"no elements":            {"items", `{"items":[]}`, 0, nil, ""},
		"null":                   {"items", `{"items":null,"total":0}`, 0, nil, ""},
		"a wrong type":           {"items", `{"items":[` + good + `,{"number":"x","id":"b"},` + good + `]}`, 2, []string{`items[1] "b": json: cannot unmarshal`}, ""},
		"others than objects":    {"", `[1,` + good + `,"x",[],null]`, 1, []string{"[0]: ", "[2]: ", "[3]: ", "[4]: it has no ID"}, ""},
		"use refuses it":         {"", `[{"number":3},` + good + `]`, 1, []string{"[0]: it has no ID"}, ""},
		"an element that is big": {"", `[` + good + `,{"id":"` + strings.Repeat("x", 2000) + `"},` + good + `]`, 1, nil, "an element has more than 1000 bytes"},
		"the end is missing":     {"items", `{"items":[` + good, 1, nil, "unexpected EOF"},
		"the list is missing":    {"items", `{"kind":"Error"}`, 0, nil, "the object has no list items"},
		"a list in its place":    {"items", `[` + good + `]`, 0, nil, wire.ErrNotObject.Error()},
		"no list in its place":   {"items", `{"items":{"id":"a"}}`, 0, nil, "it is not a list"},
		"no JSON":                {"", `[` + good + `,}]`, 1, nil, "invalid character"},
		"nothing":                {"", ``, 0, nil, "unexpected EOF"},
	} {
		list, failure := wire.Stream(strings.NewReader(tc.text), tc.field, 1000)
		used, ignored := 0, wire.Ignored{}
		wire.Elements(tc.field, "id", list, func(_ int, element entry) error {
			if element.ID == "" {
				return errors.New("it has no ID")
			}
			used++
			return nil
		}, ignored.Add)
		named := slices.EqualFunc(ignored.Reasons, tc.ignored, func(got, want string) bool { return strings.HasPrefix(got, want) })
		if used != tc.used || !named || ignored.Count != len(tc.ignored) || (ignored.Err() == nil) != (len(tc.ignored) == 0) {
			t.Errorf("%s: %d elements, without %d: %q", name, used, ignored.Count, ignored.Reasons)
		}
		if err := failure(); (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
			t.Errorf("%s: %v, want %q", name, err, tc.failure)
		}
	}
}

// TestReasonsAreBounded checks that few of many malformed elements are named, that all are counted, and that a reason is short and valid UTF-8.
func TestReasonsAreBounded(t *testing.T) {
	const elements = 100_000
	list, failure := wire.Stream(strings.NewReader("["+strings.Repeat(`"x",`, elements)+`"x"]`), "", 100)
	ignored := wire.Ignored{}
	wire.Elements("list", "id", list, func(int, entry) error { return nil }, ignored.Add)
	if failure() != nil || ignored.Count != elements+1 || len(ignored.Reasons) != 10 {
		t.Errorf("%d elements, of which %d are named: %v", ignored.Count, len(ignored.Reasons), failure())
	}
	long := wire.Ignored{}
	long.Add(func() string { return "x" + strings.Repeat("ä", 1000) })
	if len(long.Reasons[0]) > 300 || !utf8.ValidString(long.Reasons[0]) {
		t.Errorf("%q", long.Reasons[0])
	}
}
