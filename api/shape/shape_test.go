package shape_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

type status struct {
	URL string
	// ByID has values of entries of thing.Properties.ByID.
	ByID map[string]string
}

// thing is a hub resource with one field of each type.
type thing struct {
	hub.Resource
	Properties properties `json:"properties"`
}

type properties struct {
	Word    string            `json:"word"`
	Count   int32             `json:"count"`
	Flag    bool              `json:"flag"`
	Maybe   *int32            `json:"maybe"`
	Texts   []string          `json:"texts"`
	Named   map[string]string `json:"named"`
	Within  within            `json:"within"`
	Pointed *within           `json:"pointed"`
	Many    []within          `json:"many"`
	ByID    map[string]within `json:"byId"`
}

type within struct {
	A    string   `json:"a"`
	B    string   `json:"b"`
	List []string `json:"list,omitempty"`
}

func inner(a, b shape.Field) shape.Field { return shape.Resource(shape.Object("properties", a, b)) }

func TestReadAndShow(t *testing.T) {
	value, two := shape.Value, int32(2)
	cases := map[string]struct {
		reason   string
		table    shape.Field
		stored   properties
		body     string
		patch    bool
		want     properties
		shown    string
		problems []string
	}{
		"every type": {
			reason: "decoding and encoding are inverse",
			table: shape.Resource(shape.Object("properties", value("word"), value("count"), value("flag"), value("maybe"), value("texts").AtMost(9), value("named").AtMost(9),
				shape.Object("within", value("a")), shape.Object("pointed", value("a")), shape.List("many", value("a")).AtMost(9), shape.Map("byId", value("a")).AtMost(9))),
			body: `{"properties":{"word":"w","count":1,"flag":true,"maybe":2,"texts":["<&>","é"],"named":{"b":"2","a":"1"},"within":{"a":"x"},"pointed":{"a":"y"},"many":[{"a":"z"},{}],"byId":{"/X":{"a":"v"}}}}`,
			want: properties{Word: "w", Count: 1, Flag: true, Maybe: &two, Texts: []string{"<&>", "é"}, Named: map[string]string{"a": "1", "b": "2"},
				Within: within{A: "x"}, Pointed: &within{A: "y"}, Many: []within{{A: "z"}, {}}, ByID: map[string]within{"/X": {A: "v"}}},
			shown: `{"properties":{"word":"w","count":1,"flag":true,"maybe":2,"texts":["\u003c\u0026\u003e","é"],"named":{"a":"1","b":"2"},"within":{"a":"x"},"pointed":{"a":"y"},"many":[{"a":"z"},{}],"byId":{"/X":{"a":"v"}}}}`,
		},
		"empty": {
			reason: "empty values are omitted, with the objects that contain nothing else",
			table:  shape.Resource(shape.Object("properties", shape.Object("within", value("a")), shape.Object("pointed", value("a")), value("texts").AtMost(9), value("count"))),
			stored: properties{Pointed: &within{}, Texts: []string{}},
			body:   `{"properties":{"pointed":{}}}`,
			want:   properties{Pointed: &within{}},
			shown:  `{}`,
		},
		"zeros": {
			reason: "a zero is written if an absent field has another default, and with WriteZero",
			table:  shape.Resource(shape.Object("properties", value("count").WriteZero(), value("flag").Default(true), shape.Object("pointed", value("a")))),
			body:   `{"properties":{"flag":false}}`,
			shown:  `{"properties":{"count":0,"flag":false}}`,
		},
		"empty object": {
			reason: "WriteZero writes an empty object that is present",
			table:  shape.Resource(shape.Object("properties", shape.Object("pointed", value("a")).WriteZero())),
			body:   `{"properties":{"pointed":{}}}`,
			want:   properties{Pointed: &within{}},
			shown:  `{"properties":{"pointed":{}}}`,
		},
		"unknown stays": {
			reason: "fields without an entry keep their values, also behind a pointer",
			table:  shape.Resource(shape.Object("properties", value("count"), shape.Object("within", value("a")), shape.Object("pointed", value("a")))),
			stored: properties{Word: "w", Count: 5, Texts: []string{"t"}, Within: within{A: "1", B: "2"}, Pointed: &within{A: "3", B: "4"}},
			body:   `{"properties":{"within":{"a":"x"},"pointed":{"a":"y"}}}`,
			want:   properties{Word: "w", Texts: []string{"t"}, Within: within{A: "x", B: "2"}, Pointed: &within{A: "y", B: "4"}},
			shown:  `{"properties":{"within":{"a":"x"},"pointed":{"a":"y"}}}`,
		},
		"pointer goes": {
			reason: "an absent object is removed with all its fields",
			table:  shape.Resource(shape.Object("properties", shape.Object("pointed", value("a")))),
			stored: properties{Pointed: &within{A: "3", B: "4"}},
			body:   `{}`, shown: `{}`,
		},
		"map": {
			reason: "keys of a map are compared without case",
			table:  shape.Resource(shape.Object("properties", shape.Map("byId", value("a").KeepIfAbsent()).AtMost(9))),
			stored: properties{ByID: map[string]within{"/X": {A: "1", B: "2"}, "/Y": {A: "3"}}},
			body:   `{"properties":{"byId":{"/x":null}}}`,
			want:   properties{ByID: map[string]within{"/x": {A: "1", B: "2"}}},
			shown:  `{"properties":{"byId":{"/x":{"a":"1"}}}}`,
		},
		"kept": {
			reason: "KeepIfAbsent keeps the stored value in a PUT; null is the same as absent",
			table:  inner(value("word").Default("d").KeepIfAbsent(), shape.Object("within", value("a")).KeepIfAbsent()),
			stored: properties{Word: "w", Within: within{A: "1"}},
			body:   `{"properties":{"word":null}}`,
			want:   properties{Word: "w", Within: within{A: "1"}},
			shown:  `{"properties":{"word":"w","within":{"a":"1"}}}`,
		},
		"kept in a patch": {
			reason: "a merged body without the field is the result of a patch that removes it",
			table:  inner(value("word").KeepIfAbsent(), shape.Object("within", value("a")).KeepIfAbsent()),
			stored: properties{Word: "w", Within: within{A: "1"}},
			patch:  true, body: `{}`, shown: `{}`,
		},
		"default": {
			reason: "a default applies to fields that a PUT omits",
			table:  inner(value("word").Default("d"), value("count").Default(-3)),
			body:   `{}`, want: properties{Word: "d", Count: -3}, shown: `{"properties":{"word":"d","count":-3}}`,
		},
		"default in a patch": {
			reason: "in a PATCH, a default applies only to elements of lists",
			table:  inner(value("word").Default("d"), shape.List("many", value("a").Default("e")).AtMost(9)),
			patch:  true, body: `{"properties":{"many":[{}]}}`,
			want: properties{Many: []within{{A: "e"}}}, shown: `{"properties":{"many":[{"a":"e"}]}}`,
		},
		"unsupported stored value": {
			reason: "a value of another version is omitted, and kept while the body has none",
			table:  inner(value("word").OneOf("x", "y").Default("x"), value("count")),
			stored: properties{Word: "new"}, body: `{}`, want: properties{Word: "new"}, shown: `{}`,
		},
		"unsupported stored value is replaced": {
			reason: "a supported value of the body replaces it",
			table:  inner(value("word").OneOf("x", "y").Default("x"), value("count")),
			stored: properties{Word: "new"}, body: `{"properties":{"word":"y"}}`, want: properties{Word: "y"}, shown: `{"properties":{"word":"y"}}`,
		},
		"unsupported value": {
			reason: "a body may contain only the values of the version",
			table:  inner(value("word").OneOf("x", "y").Default("x"), value("count")),
			body:   `{"properties":{"word":"new"}}`, want: properties{Word: "new"}, shown: `{}`,
			problems: []string{`properties.word: Unsupported value: "new": supported values: "x", "y"`},
		},
		"empty text": {
			reason: "the empty string is not one of the values",
			table:  inner(value("word").OneOf("x", "y").Default("x"), value("count")),
			body:   `{"properties":{"word":""}}`, shown: `{}`,
			problems: []string{`properties.word: Unsupported value: "": supported values: "x", "y"`},
		},
		"empty mandatory text": {
			reason: "the empty string is a missing value too, but a value of another type is not",
			table:  inner(value("word").OneOf("x", "y").Mandatory().Default("x"), value("count")),
			body:   `{"properties":{"word":""}}`, shown: `{}`,
			problems: []string{`properties.word: Unsupported value: "": supported values: "x", "y"`, "properties.word: Required value"},
		},
		"mandatory text of another type": {
			reason: "the wrong type is the only problem",
			table:  inner(value("word").OneOf("x", "y").Mandatory(), value("count")),
			body:   `{"properties":{"word":1}}`, shown: `{}`,
			problems: []string{"properties.word: Invalid value: 1: must be a string"},
		},
		"value of the version that is not supported": {
			reason: "the problem lists the supported values only",
			table:  inner(value("word").OneOf("x", "y").Supported("x").Default("x"), value("count")),
			body:   `{"properties":{"word":"y"}}`, want: properties{Word: "y"}, shown: `{"properties":{"word":"y"}}`,
			problems: []string{`properties.word: Unsupported value: "y": supported values: "x"`},
		},
		"stored value that is not supported": {
			reason: "a resource keeps it, and shows it",
			table:  inner(value("word").OneOf("x", "y").Supported("x").Default("x"), value("count")),
			stored: properties{Word: "y"}, body: `{"properties":{"word":"y"}}`, want: properties{Word: "y"}, shown: `{"properties":{"word":"y"}}`,
		},
		"null in a PATCH": {
			reason: "DefaultIfNull returns the field to its default",
			table:  inner(value("word").Default("x").DefaultIfNull(), value("count")),
			patch:  true, stored: properties{Word: "y"}, body: `{"properties":{"word":null}}`, want: properties{Word: "x"}, shown: `{"properties":{"word":"x"}}`,
		},
		"PATCH without a stored value": {
			reason: "DefaultIfNull does not apply to a field without a value, which a PATCH does not change",
			table:  inner(value("word").Default("x").DefaultIfNull(), value("count")),
			patch:  true, body: `{"properties":{"word":null}}`, shown: `{}`,
		},
		"required in a PATCH": {
			reason: "RequiredIfNull rejects null at a field that has a value",
			table:  inner(value("flag").Default(true).RequiredIfNull(), value("count")),
			patch:  true, stored: properties{Flag: true}, body: `{"properties":{"flag":null}}`, want: properties{Flag: true},
			problems: []string{"properties.flag: Required value"}, shown: `{"properties":{"flag":true}}`,
		},
		"required, but not set": {
			reason: "RequiredIfNull does not apply to a field without a value, or to an absent object",
			table:  inner(value("flag").Default(true).RequiredIfNull(), value("count")),
			patch:  true, body: `{"properties":{"flag":null}}`, shown: `{"properties":{"flag":false}}`,
		},
		"default that is not supported": {
			reason: "a default applies in any case; package validation rejects it",
			table:  inner(value("word").OneOf("x", "y").Supported("x").Default("y"), value("count")),
			body:   `{}`, want: properties{Word: "y"}, shown: `{"properties":{"word":"y"}}`,
		},
		"immutable": {
			reason: "an immutable field that has a value keeps it",
			table:  inner(value("word").Immutable(), value("count")),
			stored: properties{Word: "w"}, body: `{"properties":{"word":"x"}}`, want: properties{Word: "w"}, shown: `{"properties":{"word":"w"}}`,
			problems: []string{"properties.word: Forbidden: field is immutable"},
		},
		"immutable without a value": {
			reason: "an immutable field without a value accepts one",
			table:  inner(value("word").Immutable(), value("count")),
			body:   `{"properties":{"word":"x"}}`, want: properties{Word: "x"}, shown: `{"properties":{"word":"x"}}`,
		},
		"implied": {
			reason: "an implied field gets its value if it has none",
			table:  shape.Resource(shape.Object("properties", shape.Object("pointed", value("a"), shape.ImpliedFrom("b", "a")), shape.Implied("word", "w"))),
			body:   `{"properties":{"word":"x","pointed":{"a":"1","b":"2"}}}`,
			want:   properties{Word: "w", Pointed: &within{A: "1", B: "1"}},
			shown:  `{"properties":{"pointed":{"a":"1"}}}`,
		},
		"moved": {
			reason: "a field may have another place than in the hub type",
			table:  shape.Resource(shape.Object("properties", shape.Object("group", value("title").From("word"), value("a").From("within.a")).Inline())),
			body:   `{"properties":{"group":{"title":"t","a":1}}}`,
			want:   properties{Word: "t"}, shown: `{"properties":{"group":{"title":"t"}}}`,
			problems: []string{"properties.group.a: Invalid value: 1: must be a string"},
		},
		"shown from the status": {
			reason: "the value of a body is read, and that of the status is written",
			table: shape.Resource(shape.Object("properties", shape.State("state"),
				shape.Map("byId", shape.ShownFromStatus(shape.Value("a"), func(s *status, key string) any { return s.ByID[key] }), shape.Value("b")).AtMost(9))),
			body:  `{"properties":{"byId":{"x":{"a":"1"},"y":{"a":"2","b":"3"}}}}`,
			want:  properties{ByID: map[string]within{"x": {A: "1"}, "y": {A: "2", B: "3"}}},
			shown: `{"properties":{"state":"Succeeded","byId":{"x":{"a":"of x"},"y":{"b":"3"}}}}`,
		},
		"read-only": {
			reason: "values of the service are written and not read",
			table: shape.Resource(shape.ReadOnly("id"), shape.Object("properties", shape.State("state"),
				shape.FromStatus("url", func(s *status) any { return s.URL }), shape.FromStatus("nothing", func(*status) any { return (*within)(nil) }))),
			body: `{"id":"other","properties":{"state":"Failed","url":"u"}}`, shown: `{"properties":{"state":"Succeeded","url":"https://u"}}`,
		},
		"too many": {
			reason: "a field with too many entries is one problem, whatever its entries are; the first ones of a list stay for rules of other fields",
			table: shape.Resource(shape.Object("properties", value("texts").AtMost(1), value("named").AtMost(1),
				shape.List("many", value("a")).AtMost(1), shape.Map("byId", value("a")).AtMost(1))),
			body:  `{"properties":{"texts":["t",2],"named":{"b":2,"a":1},"many":[{"a":"z"},3],"byId":{"/X":1,"/Y":2}}}`,
			want:  properties{Texts: []string{"t"}, Named: map[string]string{}, Many: []within{{A: "z"}}},
			shown: `{"properties":{"texts":["t"],"many":[{"a":"z"}]}}`,
			problems: []string{"properties.texts: Too many: 2: must have at most 1 items", "properties.named: Too many: 2: must have at most 1 items",
				"properties.many: Too many: 2: must have at most 1 items", "properties.byId: Too many: 2: must have at most 1 items"},
		},
		"as many as stored": {
			reason: "an update may keep too many entries; its entries are decoded",
			table:  shape.Resource(shape.Object("properties", value("texts").AtMost(1), value("named").AtMost(1), shape.List("many", value("a"), value("list").AtMost(1)).AtMost(1))),
			stored: properties{Texts: []string{"1", "2"}, Named: map[string]string{"a": "1", "b": "2"}, Many: []within{{List: []string{"1", "2"}}, {A: "2"}}},
			body:   `{"properties":{"texts":["1","3"],"named":{"a":"1","b":"3"},"many":[{"a":"3"},{"list":["1",2]}]}}`,
			want:   properties{Texts: []string{"1", "3"}, Named: map[string]string{"a": "1", "b": "3"}, Many: []within{{A: "3"}, {List: []string{"1"}}}},
			shown:  `{"properties":{"texts":["1","3"],"named":{"a":"1","b":"3"},"many":[{"a":"3"},{"list":["1"]}]}}`,

			problems: []string{"properties.many[1].list[1]: Invalid value: 2: must be a string"},
		},
		"many entries without a value": {
			reason: "entries that are ignored do not count, although there are more than a form decodes",
			table:  inner(value("named").AtMost(1), value("word")),
			body:   `{"properties":{"named":{"a":null,"b":null,"c":"1"}}}`,
			want:   properties{Named: map[string]string{"c": "1"}}, shown: `{"properties":{"named":{"c":"1"}}}`,
		},
		"as many as stored, one twice": {
			reason:   "a field that is given twice is a problem, although the form decodes fewer entries",
			table:    inner(value("named").AtMost(1), value("word")),
			stored:   properties{Named: map[string]string{"a": "1", "b": "2"}},
			body:     `{"properties":{"named":{"a":"1","b":null,"b":"3"}}}`,
			problems: []string{"properties.named: " + wire.DuplicateMessage}, shown: `{}`,
		},
		"entries without a value": {
			reason: "entries that are ignored do not count",
			table:  inner(value("named").DropEmpty().AtMost(1), value("word")),
			body:   `{"properties":{"named":{"a":"1","b":"","c":null}}}`,
			want:   properties{Named: map[string]string{"a": "1"}}, shown: `{"properties":{"named":{"a":"1"}}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			converter := shape.Bind[thing, status](tc.table)
			fields, err := wire.Parse([]byte(tc.body), converter.Form())
			if err != nil {
				t.Fatal(err)
			}
			body := wire.NewBody(fields)
			stored := &thing{Properties: tc.stored}
			before, _ := json.Marshal(stored)
			got := converter.Decode(body, stored, !tc.patch)
			if diff := cmp.Diff(tc.want, got.Properties); diff != "" {
				t.Errorf("%s (-want +decoded):\n%s", tc.reason, diff)
			}
			state, s := hub.ProvisioningState(""), &status{}
			if strings.Contains(tc.shown, "state") {
				state, s = hub.Succeeded, &status{"https://u", map[string]string{"x": "of x"}}
			}
			shown, err := json.Marshal(converter.Encode(got, state, s))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.shown, string(shown)); diff != "" {
				t.Errorf("%s (-want +encoded):\n%s", tc.reason, diff)
			}
			var problems []string
			for _, problem := range body.Problems() {
				problems = append(problems, problem.Field+": "+problem.Message)
			}
			if diff := cmp.Diff(tc.problems, problems); diff != "" {
				t.Errorf("%s (-want +problems):\n%s", tc.reason, diff)
			}
			if after, _ := json.Marshal(stored); string(after) != string(before) {
				t.Errorf("decoding changed the stored resource to %s", after)
			}
		})
	}
}

// TestEdits: With and Without return changed copies of a table.
func TestEdits(t *testing.T) {
	old := shape.Resource(shape.Object("properties", shape.Value("word"), shape.Object("within", shape.Value("a")), shape.Value("count")))
	changed := old.
		With("properties.within", shape.Value("b")).
		With("properties", shape.Value("word").Default("d"), shape.Value("flag")).
		Without("properties", "count")
	paths := func(table shape.Field) (paths []string) {
		for _, entry := range shape.Bind[thing, status](table).Entries() {
			paths = append(paths, entry.Path+entry.Default)
		}
		return paths
	}
	if diff := cmp.Diff([]string{"properties", "properties.word", "properties.within", "properties.within.a", "properties.count"}, paths(old)); diff != "" {
		t.Errorf("original table (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"properties", "properties.wordd", "properties.within", "properties.within.a", "properties.within.b", "properties.flag"}, paths(changed)); diff != "" {
		t.Errorf("changed table (-want +got):\n%s", diff)
	}
}

// TestPath: hub paths are converted to wire paths, including indices and keys.
func TestPath(t *testing.T) {
	converter := shape.Bind[thing, status](shape.Resource(shape.Value("tags").AtMost(9), shape.Object("properties",
		shape.Object("group", shape.Value("title").From("word")).Inline(), shape.List("many", shape.Value("a")).AtMost(9), shape.Implied("count", 1))))
	for hubPath, want := range map[string]string{
		"tags[a.b].c]":         "tags[a.b].c]",
		"properties.word":      "properties.group.title",
		"properties.many[3].a": "properties.many[3].a",
		"properties":           "properties",
		"properties.count":     "",
		"properties.flag":      "",
	} {
		if got, ok := converter.Path(hubPath); got != want || ok != (want != "") {
			t.Errorf("Path(%q) = %q, %v, want %q", hubPath, got, ok, want)
		}
	}
}

// TestNewResourceHasDefaultsOfNewestVersion: fields that a version does not have get the newest version's defaults, and the
// version's own defaults take precedence.
func TestNewResourceHasDefaultsOfNewestVersion(t *testing.T) {
	newest := shape.Bind[thing, status](inner(shape.Value("word").Default("newest"), shape.Value("count").Default(7)))
	old := shape.Bind[thing, status](shape.Resource(shape.Object("properties", shape.Value("word").Default("old")))).WithDefaultsOf(newest)
	empty := wire.NewBody(map[string]any{})
	made := old.Decode(empty, &thing{Resource: hub.Resource{ID: "/x"}}, true)
	if want := (properties{Word: "old", Count: 7}); !cmp.Equal(made.Properties, want) || made.ID != "/x" {
		t.Errorf("decoded %+v, want properties %+v", made, want)
	}
	made.Properties.Count = 0
	if again := old.Decode(empty, made, true); again.Properties.Count != 0 {
		t.Errorf("the newest version's default was applied to a stored resource: %+v", again.Properties)
	}
}

// TestInvalidTablesPanic: Bind rejects tables that do not match the hub type; With and Without reject unknown paths.
func TestInvalidTablesPanic(t *testing.T) {
	for reason, make := range map[string]func(){
		"a field that the hub does not have": func() { shape.Bind[thing, status](shape.Resource(shape.Value("nothing"))) },
		"a default of another type":          func() { shape.Bind[thing, status](inner(shape.Value("count").Default("1"), shape.Value("word"))) },
		"a list of any length":               func() { shape.Bind[thing, status](shape.Resource(shape.Value("tags"))) },
		"an object for a string":             func() { shape.Bind[thing, status](shape.Resource(shape.Object("location", shape.Value("a")))) },
		"a value for a struct":               func() { shape.Bind[thing, status](shape.Resource(shape.Value("properties"))) },
		"a function of another status": func() {
			shape.Bind[thing, status](shape.Resource(shape.FromStatus("a", func(*hub.ClusterStatus) any { return nil })))
		},
		"an entry shown from another status": func() {
			shown := shape.ShownFromStatus(shape.Value("a"), func(*hub.ClusterStatus, string) any { return nil })
			shape.Bind[thing, status](shape.Resource(shape.Object("properties", shape.Map("byId", shown).AtMost(9))))
		},
		"an edit of what is not there":  func() { shape.Resource().With("properties", shape.Value("a")) },
		"taking away what is not there": func() { shape.Resource(shape.Value("location")).Without("", "tags") },
		"an unknown other field": func() {
			shape.Bind[thing, status](inner(shape.ImpliedFrom("count", "x"), shape.Value("word")))
		},
		"a path through a string": func() { shape.Bind[thing, status](shape.Resource(shape.Value("a").From("properties.word.b"))) },
	} {
		t.Run(reason, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			make()
		})
	}
}

func TestUnknownField(t *testing.T) {
	table := shape.Resource(shape.ReadOnly("name").Holding(shape.ReadOnly("inner")), shape.Object("properties",
		shape.Value("word"), shape.Implied("count", int32(1)), shape.List("many", shape.Value("a")).AtMost(9), shape.Object("pointed", shape.Value("a"))))
	converter := shape.Bind[thing, status](table)
	for body, want := range map[string]string{
		`{}`: "",
		`{"name":{"inner":1},"properties":{"word":{"x":1},"many":[{"a":1}],"pointed":{"a":null}}}`: "",
		`{"z":1,"b":null}`:                                    "b",
		`{"Name":"x"}`:                                        "Name",
		`{"name":{"other":1}}`:                                "name.other",
		`{"properties":{"count":1}}`:                          "properties.count",
		`{"properties":{"many":[{"a":1},{"b":1}]}}`:           "properties.many[1].b",
		`{"properties":{"pointed":{"a":1,"x":{"y":1}}}}`:      "properties.pointed.x",
		`{"properties":{"many":{"b":1},"pointed":[{"b":1}]}}`: "",
	} {
		fields, err := wire.ParseObject([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := converter.UnknownField(fields); got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
		if fields, err = wire.Parse([]byte(body), converter.Form()); err != nil || converter.UnknownField(fields) != want {
			t.Errorf("%s, decoded with the form: got %q, want %q, and the error is %v", body, converter.UnknownField(fields), want, err)
		}
	}
}
