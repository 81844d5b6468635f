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

type status struct{ URL string }

// thing is a hub resource with one field of each sort.
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
	A string `json:"a"`
	B string `json:"b"`
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
		"every sort": {
			reason: "what is read is shown alike",
			table: shape.Resource(shape.Object("properties", value("word"), value("count"), value("flag"), value("maybe"), value("texts"), value("named"),
				shape.Object("within", value("a")), shape.Object("pointed", value("a")), shape.List("many", value("a")), shape.Map("byId", value("a")))),
			body: `{"properties":{"word":"w","count":1,"flag":true,"maybe":2,"texts":["<&>","é"],"named":{"b":"2","a":"1"},"within":{"a":"x"},"pointed":{"a":"y"},"many":[{"a":"z"},{}],"byId":{"/X":{"a":"v"}}}}`,
			want: properties{Word: "w", Count: 1, Flag: true, Maybe: &two, Texts: []string{"<&>", "é"}, Named: map[string]string{"a": "1", "b": "2"},
				Within: within{A: "x"}, Pointed: &within{A: "y"}, Many: []within{{A: "z"}, {}}, ByID: map[string]within{"/X": {A: "v"}}},
			shown: `{"properties":{"word":"w","count":1,"flag":true,"maybe":2,"texts":["\u003c\u0026\u003e","é"],"named":{"a":"1","b":"2"},"within":{"a":"x"},"pointed":{"a":"y"},"many":[{"a":"z"},{}],"byId":{"/X":{"a":"v"}}}}`,
		},
		"empty": {
			reason: "what is empty is left out, with the objects around it",
			table:  shape.Resource(shape.Object("properties", shape.Object("within", value("a")), shape.Object("pointed", value("a")), value("texts"), value("count"))),
			stored: properties{Pointed: &within{}, Texts: []string{}},
			body:   `{"properties":{"pointed":{}}}`,
			want:   properties{Pointed: &within{}},
			shown:  `{}`,
		},
		"zeros": {
			reason: "a zero is shown where leaving it out would be read as another value, where it is to be, and where nothing else says how many",
			table:  shape.Resource(shape.Object("properties", value("count").WriteZeroUnless("pointed"), value("flag").Default(true), shape.Object("pointed", value("a")))),
			body:   `{"properties":{"flag":false}}`,
			shown:  `{"properties":{"count":0,"flag":false}}`,
		},
		"not alone": {
			reason: "but not where something else does",
			table:  shape.Resource(shape.Object("properties", value("count").WriteZeroUnless("pointed"), value("flag").WriteZero(), shape.Object("pointed", value("a")))),
			body:   `{"properties":{"pointed":{"a":"x"}}}`,
			want:   properties{Pointed: &within{A: "x"}},
			shown:  `{"properties":{"flag":false,"pointed":{"a":"x"}}}`,
		},
		"unknown stays": {
			reason: "what the table has no entry for stays, also within a pointer",
			table:  shape.Resource(shape.Object("properties", value("count"), shape.Object("within", value("a")), shape.Object("pointed", value("a")))),
			stored: properties{Word: "w", Count: 5, Texts: []string{"t"}, Within: within{A: "1", B: "2"}, Pointed: &within{A: "3", B: "4"}},
			body:   `{"properties":{"within":{"a":"x"},"pointed":{"a":"y"}}}`,
			want:   properties{Word: "w", Texts: []string{"t"}, Within: within{A: "x", B: "2"}, Pointed: &within{A: "y", B: "4"}},
			shown:  `{"properties":{"within":{"a":"x"},"pointed":{"a":"y"}}}`,
		},
		"pointer goes": {
			reason: "an object that is left out takes what it held with it",
			table:  shape.Resource(shape.Object("properties", shape.Object("pointed", value("a")))),
			stored: properties{Pointed: &within{A: "3", B: "4"}},
			body:   `{}`, shown: `{}`,
		},
		"map": {
			reason: "an element of a map is found in any casing",
			table:  shape.Resource(shape.Object("properties", shape.Map("byId", value("a").KeepIfAbsent()))),
			stored: properties{ByID: map[string]within{"/X": {A: "1", B: "2"}, "/Y": {A: "3"}}},
			body:   `{"properties":{"byId":{"/x":null}}}`,
			want:   properties{ByID: map[string]within{"/x": {A: "1", B: "2"}}},
			shown:  `{"properties":{"byId":{"/x":{"a":"1"}}}}`,
		},
		"kept": {
			reason: "a PUT that leaves a kept field out keeps it, and null is the same as leaving out",
			table:  inner(value("word").Default("d").KeepIfAbsent(), shape.Object("within", value("a")).KeepIfAbsent()),
			stored: properties{Word: "w", Within: within{A: "1"}},
			body:   `{"properties":{"word":null}}`,
			want:   properties{Word: "w", Within: within{A: "1"}},
			shown:  `{"properties":{"word":"w","within":{"a":"1"}}}`,
		},
		"kept in a patch": {
			reason: "a merged body without it has had it taken away",
			table:  inner(value("word").KeepIfAbsent(), shape.Object("within", value("a")).KeepIfAbsent()),
			stored: properties{Word: "w", Within: within{A: "1"}},
			patch:  true, body: `{}`, shown: `{}`,
		},
		"default": {
			reason: "a default is for what a PUT leaves out",
			table:  inner(value("word").Default("d"), value("count").Default(-3)),
			body:   `{}`, want: properties{Word: "d", Count: -3}, shown: `{"properties":{"word":"d","count":-3}}`,
		},
		"default in a patch": {
			reason: "and not for a PATCH, but for new elements of lists",
			table:  inner(value("word").Default("d"), shape.List("many", value("a").Default("e"))),
			patch:  true, body: `{"properties":{"many":[{}]}}`,
			want: properties{Many: []within{{A: "e"}}}, shown: `{"properties":{"many":[{"a":"e"}]}}`,
		},
		"word that is not known": {
			reason: "is not shown, and stays while the body has none",
			table:  inner(value("word").OneOf("x", "y").Default("x"), value("count")),
			stored: properties{Word: "new"}, body: `{}`, want: properties{Word: "new"}, shown: `{}`,
		},
		"word that is not known is replaced": {
			reason: "by one that is",
			table:  inner(value("word").OneOf("x", "y").Default("x"), value("count")),
			stored: properties{Word: "new"}, body: `{"properties":{"word":"y"}}`, want: properties{Word: "y"}, shown: `{"properties":{"word":"y"}}`,
		},
		"wrong word": {
			reason: "a body must use the version's words",
			table:  inner(value("word").OneOf("x", "y").Default("x"), value("count")),
			body:   `{"properties":{"word":"new"}}`, want: properties{Word: "x"}, shown: `{"properties":{"word":"x"}}`,
			problems: []string{`properties.word: Unsupported value: "new": supported values: "x", "y"`},
		},
		"without the object": {
			reason: "an object that is not there says something too, and in a PATCH as well",
			table:  shape.Resource(shape.Object("properties", shape.Object("within", value("a").OneOf("mine").IfObjectAbsent("theirs")))),
			patch:  true, body: `{}`, want: properties{Within: within{A: "theirs"}}, shown: `{}`,
		},
		"with the object": {
			reason: "while one that is there and says nothing says nothing",
			table:  shape.Resource(shape.Object("properties", shape.Object("within", value("a").OneOf("mine").IfObjectAbsent("theirs")))),
			stored: properties{Within: within{A: "theirs"}},
			body:   `{"properties":{"within":{}}}`, shown: `{}`,
		},
		"fixed": {
			reason: "what has a value keeps it at this version",
			table:  inner(value("word").Immutable(), value("count")),
			stored: properties{Word: "w"}, body: `{"properties":{"word":"x"}}`, want: properties{Word: "w"}, shown: `{"properties":{"word":"w"}}`,
			problems: []string{"properties.word: Forbidden: field is immutable"},
		},
		"fixed later": {
			reason: "what has none may be given one",
			table:  inner(value("word").Immutable(), value("count")),
			body:   `{"properties":{"word":"x"}}`, want: properties{Word: "x"}, shown: `{"properties":{"word":"x"}}`,
		},
		"unsaid": {
			reason: "what cannot be said has a value when there is none yet",
			table:  shape.Resource(shape.Object("properties", shape.Object("pointed", value("a"), shape.ImpliedFrom("b", "a")), shape.Implied("word", "w"))),
			body:   `{"properties":{"word":"x","pointed":{"a":"1","b":"2"}}}`,
			want:   properties{Word: "w", Pointed: &within{A: "1", B: "1"}},
			shown:  `{"properties":{"pointed":{"a":"1"}}}`,
		},
		"moved": {
			reason: "a field may stand elsewhere than in the hub",
			table:  shape.Resource(shape.Object("properties", shape.Object("group", value("title").From("word"), value("a").From("within.a")).Inline())),
			body:   `{"properties":{"group":{"title":"t","a":1}}}`,
			want:   properties{Word: "t"}, shown: `{"properties":{"group":{"title":"t"}}}`,
			problems: []string{"properties.group.a: Invalid value: 1: must be a string"},
		},
		"shown only": {
			reason: "what the service says is not read",
			table: shape.Resource(shape.ReadOnly("id"), shape.Object("properties", shape.State("state"),
				shape.FromStatus("url", func(s *status) any { return s.URL }), shape.FromStatus("nothing", func(*status) any { return (*within)(nil) }))),
			body: `{"id":"other","properties":{"state":"Failed","url":"u"}}`, shown: `{"properties":{"state":"Succeeded","url":"https://u"}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fields, err := wire.ParseObject([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			body := wire.NewBody(fields)
			converter := shape.Bind[thing, status](tc.table)
			stored := &thing{Properties: tc.stored}
			before, _ := json.Marshal(stored)
			got := converter.Decode(body, stored, !tc.patch)
			if diff := cmp.Diff(tc.want, got.Properties); diff != "" {
				t.Errorf("%s (-want +read):\n%s", tc.reason, diff)
			}
			state, s := hub.ProvisioningState(""), &status{}
			if strings.Contains(tc.shown, "state") {
				state, s = hub.Succeeded, &status{"https://u"}
			}
			shown, err := json.Marshal(converter.Encode(got, state, s))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.shown, string(shown)); diff != "" {
				t.Errorf("%s (-want +shown):\n%s", tc.reason, diff)
			}
			var problems []string
			for _, problem := range body.Problems() {
				problems = append(problems, problem.Field+": "+problem.Message)
			}
			if diff := cmp.Diff(tc.problems, problems); diff != "" {
				t.Errorf("%s (-want +problems):\n%s", tc.reason, diff)
			}
			if after, _ := json.Marshal(stored); string(after) != string(before) {
				t.Errorf("the stored resource became %s", after)
			}
		})
	}
}

// TestEdits: a version changes the tables of another without touching them.
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
		t.Errorf("the old table (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"properties", "properties.wordd", "properties.within", "properties.within.a", "properties.within.b", "properties.flag"}, paths(changed)); diff != "" {
		t.Errorf("the changed table (-want +got):\n%s", diff)
	}
}

// TestPath: the hub's fields are found where the version has them, with the keys that the path names.
func TestPath(t *testing.T) {
	converter := shape.Bind[thing, status](shape.Resource(shape.Value("tags"), shape.Object("properties",
		shape.Object("group", shape.Value("title").From("word")).Inline(), shape.List("many", shape.Value("a")), shape.Implied("count", 1))))
	for hubPath, want := range map[string]string{
		"tags[a.b].c]":         "tags[a.b].c]",
		"properties.word":      "properties.group.title",
		"properties.many[3].a": "properties.many[3].a",
		"properties":           "properties",
		"properties.count":     "",
		"properties.flag":      "",
	} {
		if got, ok := converter.Path(hubPath); got != want || ok != (want != "") {
			t.Errorf("%s is at %q, %v, not %q", hubPath, got, ok, want)
		}
	}
}

// TestBornWithTheNewestDefaults: what a version cannot say has a value from the start, and its own defaults come first.
func TestBornWithTheNewestDefaults(t *testing.T) {
	newest := shape.Bind[thing, status](inner(shape.Value("word").Default("newest"), shape.Value("count").Default(7)))
	old := shape.Bind[thing, status](shape.Resource(shape.Object("properties", shape.Value("word").Default("old")))).WithDefaultsOf(newest)
	empty := wire.NewBody(map[string]any{})
	made := old.Decode(empty, &thing{Resource: hub.Resource{ID: "/x"}}, true)
	if want := (properties{Word: "old", Count: 7}); !cmp.Equal(made.Properties, want) || made.ID != "/x" {
		t.Errorf("made %+v", made)
	}
	made.Properties.Count = 0
	if again := old.Decode(empty, made, true); again.Properties.Count != 0 {
		t.Errorf("a default of another version was applied again: %+v", again.Properties)
	}
}

// TestTablesThatDoNotFit are found when they are bound, and edits of what is not there when they are made.
func TestTablesThatDoNotFit(t *testing.T) {
	for reason, make := range map[string]func(){
		"a field that the hub does not have": func() { shape.Bind[thing, status](shape.Resource(shape.Value("nothing"))) },
		"a default of another type":          func() { shape.Bind[thing, status](inner(shape.Value("count").Default("1"), shape.Value("word"))) },
		"an object that is none":             func() { shape.Bind[thing, status](shape.Resource(shape.Object("location", shape.Value("a")))) },
		"a value that is an object":          func() { shape.Bind[thing, status](shape.Resource(shape.Value("properties"))) },
		"something of another status": func() {
			shape.Bind[thing, status](shape.Resource(shape.FromStatus("a", func(*hub.ClusterStatus) any { return nil })))
		},
		"an edit of what is not there":  func() { shape.Resource().With("properties", shape.Value("a")) },
		"taking away what is not there": func() { shape.Resource(shape.Value("location")).Without("", "tags") },
		"a rival that does not stand by": func() {
			shape.Bind[thing, status](inner(shape.Value("count").WriteZeroUnless("x"), shape.Value("word")))
		},
		"a path through what is no table": func() { shape.Bind[thing, status](shape.Resource(shape.Value("a").From("properties.word.b"))) },
	} {
		t.Run(reason, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			make()
		})
	}
}
