package database

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// aCluster draws a document with the relevant shapes: embedded structs, pointers, lists of structs, maps of structs.
func aCluster(t *rapid.T) ClusterDocument {
	word := rapid.StringMatching(`[a-z]{1,6}`)
	d := ClusterDocument{UID: word.Draw(t, "uid"), Generation: rapid.Int64().Draw(t, "generation")}
	d.Cluster.Name = word.Draw(t, "name")
	d.Cluster.Tags = rapid.MapOf(word, word).Draw(t, "tags")
	d.Cluster.Properties.Network.HostPrefix = rapid.Int32().Draw(t, "prefix")
	for _, layer := range rapid.SliceOfNDistinct(word, 0, 4, rapid.ID).Draw(t, "layers") {
		d.Status.Progress = append(d.Status.Progress, hub.Progress{Layer: layer, State: word.Draw(t, "state"), Since: time.Unix(1, 0).UTC()})
	}
	for _, source := range rapid.SliceOfNDistinct(word, 0, 3, rapid.ID).Draw(t, "sources") {
		d.Cluster.Properties.ImageDigestMirrors = append(d.Cluster.Properties.ImageDigestMirrors, hub.ImageDigestMirror{Source: source, Mirrors: []string{}})
	}
	if rapid.Bool().Draw(t, "encrypted") {
		d.Cluster.Properties.Etcd.DataEncryption.CustomerManaged = &hub.CustomerManagedEncryption{KMS: &hub.KMSEncryption{VaultName: word.Draw(t, "vault")}}
	}
	if rapid.Bool().Draw(t, "identified") {
		d.Cluster.Identity = &hub.Identity{Type: "UserAssigned", UserAssigned: map[string]hub.UserAssignedIdentity{}}
		for _, id := range rapid.SliceOfNDistinct(word, 0, 3, rapid.ID).Draw(t, "identities") {
			d.Cluster.Identity.UserAssigned[id] = hub.UserAssignedIdentity{ClientID: word.Draw(t, "client")}
		}
	}
	return d
}

func tree(t *rapid.T, value any) any {
	text := must.Get(json.Marshal(value))(t)
	return must.Get(parse(text))(t)
}

// scatter adds fields of another release to objects anywhere in value, and returns how many.
func scatter(t *rapid.T, typ reflect.Type, value any) int {
	typ = concrete(typ)
	if opaque(typ) {
		return 0
	}
	added := 0
	switch v := value.(type) {
	case map[string]any:
		inner := func(string) reflect.Type { return typ.Elem() }
		if typ.Kind() == reflect.Struct {
			known := fieldsOf(typ)
			inner = func(name string) reflect.Type { return known[name] }
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			added += scatter(t, inner(name), v[name])
		}
		if typ.Kind() == reflect.Struct && rapid.Bool().Draw(t, "add") {
			v["x-"+rapid.StringMatching(`[a-z]{3}`).Draw(t, "unknown")] = rapid.SampledFrom([]any{
				"text", json.Number("9007199254740993"), nil, []any{map[string]any{"a": true}}, map[string]any{"b": "c"},
			}).Draw(t, "value")
			added++
		}
	case []any:
		if typ.Kind() == reflect.Slice {
			for _, element := range v {
				added += scatter(t, typ.Elem(), element)
			}
		}
	}
	return added
}

// strip returns value without everything that typ does not know.
func strip(typ reflect.Type, value any) any {
	typ = concrete(typ)
	if opaque(typ) {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		if typ.Kind() == reflect.Struct {
			known := fieldsOf(typ)
			for name := range v {
				if known[name] == nil {
					delete(v, name)
				} else {
					v[name] = strip(known[name], v[name])
				}
			}
			return v
		}
		for name := range v {
			v[name] = strip(typ.Elem(), v[name])
		}
	case []any:
		for i := range v {
			v[i] = strip(typ.Elem(), v[i])
		}
	}
	return value
}

// TestUnknownFieldsSurvive: a document of another release that this release reads and writes unchanged stays the same.
func TestUnknownFieldsSurvive(t *testing.T) {
	typ := reflect.TypeFor[ClusterDocument]()
	rapid.Check(t, func(t *rapid.T) {
		stored := tree(t, aCluster(t))
		scatter(t, typ, stored)
		text := must.Get(json.Marshal(stored))(t)
		var read ClusterDocument
		must.Do(t, json.Unmarshal(text, &read))
		fresh := must.Get(json.Marshal(&read))(t)
		written := must.Get(preserve(typ, fresh, text))(t)
		got := must.Get(parse(written))(t)
		if diff := cmp.Diff(stored, got); diff != "" {
			t.Fatalf("document (-stored +written back):\n%s", diff)
		}
	})
}

// TestKnownFieldsAreWritten: the known fields of the written document are those of the new value, whatever the old
// document had.
func TestKnownFieldsAreWritten(t *testing.T) {
	typ := reflect.TypeFor[ClusterDocument]()
	rapid.Check(t, func(t *rapid.T) {
		stored := tree(t, aCluster(t))
		scatter(t, typ, stored)
		text := must.Get(json.Marshal(stored))(t)
		next := aCluster(t)
		fresh := must.Get(json.Marshal(&next))(t)
		written := must.Get(preserve(typ, fresh, text))(t)
		got := must.Get(parse(written))(t)
		if diff := cmp.Diff(tree(t, &next), strip(typ, got)); diff != "" {
			t.Fatalf("known fields (-want +got):\n%s", diff)
		}
	})
}

func TestElementsKeepTheirUnknownFields(t *testing.T) {
	type element struct {
		Name  string `json:"name"`
		Count int    `json:"count"`
	}
	type list struct {
		Elements []element `json:"elements"`
	}
	const old = `{"elements":[{"name":"a","count":1,"x":"of a"},{"name":"b","count":2,"x":"of b"}]}`
	for name, c := range map[string]struct{ fresh, want, reason string }{
		"moved":   {`{"elements":[{"name":"b","count":2},{"name":"a","count":1}]}`, `{"elements":[{"count":2,"name":"b","x":"of b"},{"count":1,"name":"a","x":"of a"}]}`, "an element is found in any position"},
		"changed": {`{"elements":[{"name":"a","count":7},{"name":"b","count":2}]}`, `{"elements":[{"count":7,"name":"a","x":"of a"},{"count":2,"name":"b","x":"of b"}]}`, "a changed element is found by its name"},
		"removed": {`{"elements":[{"name":"b","count":2}]}`, `{"elements":[{"count":2,"name":"b","x":"of b"}]}`, "what was of a removed element goes with it"},
		"added":   {`{"elements":[{"name":"c","count":1},{"name":"a","count":1}]}`, `{"elements":[{"count":1,"name":"c"},{"count":1,"name":"a","x":"of a"}]}`, "a new element inherits nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := preserve(reflect.TypeFor[list](), json.RawMessage(c.fresh), json.RawMessage(old))
			if err != nil || string(got) != c.want {
				t.Errorf("%s: got %s (%v), want %s", c.reason, got, err, c.want)
			}
		})
	}
}

// FuzzPreserve tests documents that no release has written.
func FuzzPreserve(f *testing.F) {
	f.Add([]byte(`{"uid":"a","x":1}`))
	f.Add([]byte(`{"status":{"progress":[{"layer":"a","x":[]}]}}`))
	f.Add([]byte(`{"cluster":{"tags":7,"identity":{"userAssignedIdentities":[1]}}}`))
	f.Add([]byte(`[]`))
	fresh := must.Get(json.Marshal(&ClusterDocument{UID: "b", Status: hub.ClusterStatus{Progress: []hub.Progress{{Layer: "a"}}}}))(f)
	f.Fuzz(func(t *testing.T, old []byte) {
		written, err := preserve(reflect.TypeFor[ClusterDocument](), fresh, old)
		if err != nil {
			return
		}
		var got ClusterDocument
		if err := json.Unmarshal(written, &got); err != nil || got.UID != "b" {
			t.Errorf("%s became %s: %v", written, old, err)
		}
	})
}

// TestPreserveInElements: a changed list element keeps its unknown fields if its previous state is unambiguous.
func TestPreserveInElements(t *testing.T) {
	cases := map[string]struct{ reason, old, fresh, want string }{
		"client": {
			reason: "clients differ by their IDs, not by a common type",
			old:    `{"clients":[{"clientId":"a","type":"Public","x":1},{"clientId":"b","type":"Public","x":2}]}`,
			fresh:  `{"clients":[{"clientId":"b","type":"Public","extraScopes":["s"]}]}`,
			want:   `{"clients":[{"clientId":"b","type":"Public","extraScopes":["s"],"x":2}]}`,
		},
		"rules": {
			reason: "rules have nothing that names them: one that changed is a new one",
			old:    `{"claim":{"validationRules":[{"type":"RequiredClaim","requiredClaim":{"claim":"a"},"x":1},{"type":"RequiredClaim","requiredClaim":{"claim":"b"},"x":2}]}}`,
			fresh:  `{"claim":{"validationRules":[{"type":"RequiredClaim","requiredClaim":{"claim":"c"}},{"type":"RequiredClaim","requiredClaim":{"claim":"b"}}]}}`,
			want:   `{"claim":{"validationRules":[{"type":"RequiredClaim","requiredClaim":{"claim":"c"}},{"type":"RequiredClaim","requiredClaim":{"claim":"b"},"x":2}]}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := must.Get(preserve(reflect.TypeFor[hub.ExternalAuthProperties](), json.RawMessage(tc.fresh), json.RawMessage(tc.old)))(t)
			var want, is any
			if json.Unmarshal([]byte(tc.want), &want) != nil || json.Unmarshal(got, &is) != nil {
				t.Fatalf("not JSON: %s", got)
			}
			if diff := cmp.Diff(want, is); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
