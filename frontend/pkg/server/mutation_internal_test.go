package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/openapi/check"
	"github.com/hcpmesh/hcpmesh/api/version"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/rulebook"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
)

// The schema mutation tests apply to each resource, at each api-version, every mutation that the version's OpenAPI
// document defines for the resource's full bodies; they use no store. The service must reject at the mutated field what
// the document rejects, and accept what the document accepts. knownExceptions lists the differences with their reasons.
// See package schemamutation. `make nightly` tries all mutations. `make test` tries all at the newest api-version, and at each other version a
// quarter and the first of each known exception, without combinations.

// The ways in which a body changes a resource.
const (
	created  = "create"
	replaced = "replace"
	patched  = "patch"
)

// TestSchemaMutations compares the service's verdict on every mutation with the document's.
func TestSchemaMutations(t *testing.T) {
	book := must.Get(rulebook.Read("../../docs/validation.md"))(t)
	all := versions.All()
	known := map[apierror.Violation]bool{}
	contracts := map[string]*check.Contract{}
	for _, api := range version.All() {
		contracts[api.Name] = must.Get(check.New(api.Name))(t)
	}
	idle, loose := map[int]bool{}, map[int]bool{}
	for i := range knownExceptions {
		idle[i] = true
	}
	for i := range stricterLimits {
		loose[i] = true
	}
	tried := 0
	for _, subject := range subjects() {
		for i, api := range version.All() {
			t.Run(subject.name+"/"+api.Name, func(t *testing.T) {
				version, schema := all[api.Name], resourceSchema(t, api.Name, subject.definition)
				var bodies []map[string]any
				for _, file := range subject.files {
					bodies = append(bodies, fullBody(t, file, schema, api.Name))
				}
				for i, bound := range stricterLimits {
					if of := schema.Writable()[bound.place]; bound.subject == subject.name && of != nil && bound.tighten(of) {
						delete(loose, i)
					}
				}
				for _, place := range schema.Uncovered(bodies...) {
					t.Errorf("none of %v has the writable property %s", subject.files, place)
				}
				for _, body := range bodies {
					w := &mutationTester{t: t, subject: subject.name, version: api.Name, judge: subject.newEvaluator(t, version), book: book, known: known, versions: all, seen: map[string]bool{}, idle: idle, contracts: contracts, get: subject.get,
						every: 1}
					if !nightly.Run() && i < len(all)-1 {
						w.every, w.offset = len(all), i
					}
					w.body(schema, body)
					tried += w.tried
				}
			})
		}
	}
	for _, i := range slices.Sorted(maps.Keys(idle)) {
		t.Errorf("unused known exception: %+v", knownExceptions[i])
	}
	for _, i := range slices.Sorted(maps.Keys(loose)) {
		t.Errorf("unused stricter limit: %s of %s", stricterLimits[i].place, stricterLimits[i].subject)
	}
	t.Logf("%d mutations", tried)
	if tried < 10_000 {
		t.Error("too few mutations")
	}
}

type mutationTester struct {
	t                testing.TB
	subject, version string
	judge            evaluator
	book             rulebook.Book
	known            map[apierror.Violation]bool
	versions         map[string]*versions.Version
	// seen contains the resources that shown has checked.
	seen      map[string]bool
	idle      map[int]bool
	tried     int
	contracts map[string]*check.Contract
	// get is the operation that returns the resource.
	get string
	// One of every mutations is tried: that at offset.
	every, offset int
}

// selects reports whether the i-th mutation is tried.
func (w *mutationTester) selects(i int, how string, change schemamutation.Mutation) bool {
	return i%w.every == w.offset || w.idle[w.exception(how, change)]
}

// exception returns the index of the known exception that applies to a mutation, or -1.
func (w *mutationTester) exception(how string, change schemamutation.Mutation) int {
	return slices.IndexFunc(knownExceptions, func(d knownException) bool { return d.matches(w.subject, w.version, how, change) })
}

func (w *mutationTester) body(schema *schemamutation.Schema, body map[string]any) {
	if violations := w.judge.create(body); len(violations) > 0 {
		w.t.Fatalf("the full body is rejected: %v", violations)
	}
	shown := w.judge.shown()
	w.shown("the full body")
	if properties, _ := shown["properties"].(map[string]any); properties["autoScaling"] != nil {
		// It excludes replicas, which a body may repeat only with the shown zero.
		delete(properties, "replicas")
	}
	samples := schemamutation.Samples{Text: sampleText, Item: schemamutation.SampleItem}
	for i, change := range schema.Mutations(shown, samples) {
		if w.selects(i, replaced, change) {
			_, violations := w.judge.change(change.Apply(shown), false)
			w.try(change, replaced, change.Current(shown), violations)
		}
		// A patch removes a value with null.
		if patch, ok := change.Patch(shown); ok && change.Kind != schemamutation.Absent && w.selects(i, patched, change) {
			_, violations := w.judge.change(patch, true)
			w.try(change, patched, change.Current(shown), violations)
		}
	}
	var refused []rejectedMutation
	for i, change := range schema.Mutations(body, samples) {
		if !w.selects(i, created, change) {
			continue
		}
		violations := w.judge.create(change.Apply(body))
		w.try(change, created, nil, violations)
		if len(violations) == 0 {
			w.shown(change.String())
		}
		// An unknown field hides all other violations.
		if len(violations) > 0 && !change.Drop && change.Kind != schemamutation.Null && change.Kind != schemamutation.UnknownProperty {
			refused = append(refused, rejectedMutation{change, violations})
		}
	}
	if w.every == 1 {
		w.together(body, refused)
	}
}

// shown checks the stored resource at every version: the response complies with the version's document, and sending it
// back changes nothing.
func (w *mutationTester) shown(what string) {
	now := must.Get(json.Marshal(w.judge.shown()))(w.t)
	if w.seen[string(now)] {
		return
	}
	w.seen[string(now)] = true
	for _, api := range version.All() {
		judge := w.judge.at(w.versions[api.Name])
		shown := judge.shown()
		text := must.Get(json.Marshal(shown))(w.t)
		if err := w.contracts[api.Name].Response(w.get, http.StatusOK, nil, text); err != nil {
			w.t.Errorf("%.120s: shown at %s: %.500s", what, api.Name, err)
		}
		for how, patch := range map[string]map[string]any{replaced: nil, patched: shown, "empty patch": {}} {
			body := shown
			if patch != nil {
				body = patch
			}
			after, violations := judge.change(body, patch != nil)
			if len(violations) > 0 {
				w.t.Errorf("%.120s: %s with the response of %s is rejected: %v", what, how, api.Name, violations)
			} else if diff := judge.differs(after); diff != "" {
				w.t.Errorf("%.120s: %s with the response of %s changes the resource (-before +after):\n%.500s", what, how, api.Name, diff)
			}
		}
	}
}

// rejectedMutation is a mutation with the violations that it causes alone.
type rejectedMutation struct {
	schemamutation.Mutation
	alone []apierror.Violation
}

// concurrently applies three mutations at once. Each must still cause one of the violations that it causes alone.
func (w *mutationTester) together(body map[string]any, refused []rejectedMutation) {
	random := rand.New(rand.NewPCG(1, uint64(len(refused))))
	for range 200 {
		three := []rejectedMutation{refused[random.IntN(len(refused))], refused[random.IntN(len(refused))], refused[random.IntN(len(refused))]}
		if overlap(three[0], three[1]) || overlap(three[0], three[2]) || overlap(three[1], three[2]) {
			continue
		}
		w.tried++
		changed := body
		for _, change := range three {
			changed = change.Apply(changed)
		}
		violations := w.judge.create(changed)
		for _, change := range three {
			if !slices.ContainsFunc(violations, func(v apierror.Violation) bool { return slices.Contains(change.alone, v) }) {
				w.t.Errorf("%.100s, %.100s and %.100s: no violation for %.100s: %.300s", three[0], three[1], three[2], change, fmt.Sprint(violations))
			}
		}
	}
}

// overlap reports whether two mutations concern the same field, or cause violations at the same field.
func overlap(a, b rejectedMutation) bool {
	within := func(a, b string) bool { return validation.Covers(a, b) || validation.Covers(b, a) }
	for _, v := range a.alone {
		for _, other := range b.alone {
			if within(v.Field, other.Field) || within(v.Field, b.Path) || within(other.Field, a.Path) {
				return true
			}
		}
	}
	return within(a.Path, b.Path)
}

// try compares the service's verdict on a mutation with that of the document and of knownExceptions. before is the
// value that the mutation replaces.
func (w *mutationTester) try(change schemamutation.Mutation, how string, before any, violations []apierror.Violation) {
	w.tried++
	allowed, at := change.Allowed, change.Path
	if i := w.exception(how, change); i >= 0 {
		d := knownExceptions[i]
		allowed = d.allowed
		if d.at != "" {
			at = d.at
		}
		delete(w.idle, i)
	}
	if w.subject == "nodePool" && strings.HasPrefix(change.Place, "properties.labels[]") {
		// Labels are a map in the published service, with the key in the path, or without it if the key is malformed.
		at = "properties.labels"
	}
	for _, v := range violations {
		if !w.described(v) {
			w.t.Errorf("%s: docs/validation.md has no rule for %q at %q", how, v.Message, v.Field)
		}
	}
	fixed := func(v apierror.Violation) bool {
		return v.Message == immutableMessage && (validation.Covers(v.Field, at) || validation.Covers(at, v.Field))
	}
	// A changed value of an immutable field can violate its own rule too.
	atFixed := func(v apierror.Violation) bool {
		return slices.ContainsFunc(violations, func(other apierror.Violation) bool { return other.Field == v.Field && fixed(other) })
	}
	scalar := slices.Contains([]schemamutation.Kind{schemamutation.EnumValue, schemamutation.Range, schemamutation.Length, schemamutation.Pattern}, change.Kind)
	switch {
	case allowed && how != created && change.Schema.CreateOnly && scalar && change.Value != before:
		if !slices.ContainsFunc(violations, fixed) {
			w.t.Errorf("%s: %.120s: want a create-only violation, got %.300s", how, change, fmt.Sprint(violations))
		}
	case allowed && how != created && (change.Schema.CreateOnly || change.Schema.Type == "object") && !slices.ContainsFunc(violations, func(v apierror.Violation) bool { return !atFixed(v) }):
	case allowed && len(violations) > 0:
		w.t.Errorf("%s: %.120s: want no violations, got %.300s", how, change, fmt.Sprint(violations))
	case !allowed && !slices.ContainsFunc(violations, func(v apierror.Violation) bool { return validation.Covers(at, v.Field) || fixed(v) }):
		w.t.Errorf("%s: %.120s: want a violation at the field, got %.300s", how, change, fmt.Sprint(violations))
	}
}

// described reports whether docs/validation.md contains a violation.
func (w *mutationTester) described(v apierror.Violation) bool {
	known, asked := w.known[v]
	if !asked {
		known = w.book.Describes(v.Field, v.Message)
		w.known[v] = known
	}
	return known
}

const immutableMessage = "Forbidden: field is immutable"

// TestOlderVersionsKeepFieldsOfNewer: a PUT or PATCH at an older version does not change fields that only newer
// versions have.
func TestOlderVersionsKeepFieldsOfNewer(t *testing.T) {
	apis, all := version.All(), versions.All()
	newest := apis[len(apis)-1].Name
	// These values differ from all defaults.
	unusual := map[string]string{
		"cluster":  `{"properties":{"cryptoRestrictions":"FIPS","etcd":{"dataEncryption":{"customerManaged":{"kms":{"visibility":"Private"}}}}}}`,
		"nodePool": `{"properties":{"platform":{"osDisk":{"diskType":"Ephemeral"}}}}`,
	}
	for _, subject := range subjects() {
		newer := resourceSchema(t, newest, subject.definition)
		body := fullBody(t, subject.files[0], newer, newest)
		if patch := unusual[subject.name]; patch != "" {
			body = wire.MergePatch(body, parsed(t, patch))
		}
		stored := subject.newEvaluator(t, all[newest])
		if violations := stored.create(body); len(violations) > 0 {
			t.Fatal(violations)
		}
		for _, api := range apis[:len(apis)-1] {
			t.Run(subject.name+"/"+api.Name, func(t *testing.T) {
				older := resourceSchema(t, api.Name, subject.definition)
				for place := range newer.Writable() {
					if list, _, within := strings.Cut(place, "["); within && older.Writable()[list] != nil && older.Writable()[place] == nil {
						t.Errorf("list elements have %s, which a PUT at %s removes", place, api.Name)
					}
				}
				unsaid := slices.DeleteFunc(slices.Collect(maps.Keys(newer.Writable())), func(place string) bool {
					return older.Writable()[place] != nil || strings.Contains(place, "[")
				})
				if len(unsaid) == 0 {
					return
				}
				before := stored.shown()
				judge := stored.at(all[api.Name])
				shown, changes := judge.shown(), 0
				for _, change := range older.Mutations(shown, schemamutation.Samples{Text: sampleText, Item: schemamutation.SampleItem}) {
					patch, _ := change.Patch(shown)
					for how, body := range map[string]map[string]any{replaced: change.Apply(shown), patched: patch} {
						after, violations := judge.change(body, how == patched)
						if len(violations) > 0 || body == nil {
							continue
						}
						changes++
						now := after.at(all[newest]).shown()
						for _, place := range unsaid {
							if diff := cmp.Diff(value(before, place), value(now, place)); diff != "" {
								t.Errorf("%s: %s: %s is not kept (-before +after):\n%s", how, change, place, diff)
							}
						}
					}
				}
				t.Logf("%d mutations keep %d values", changes, len(unsaid))
				if changes < 30 {
					t.Error("too few mutations")
				}
			})
		}
	}
}

// value returns the value at a path without arrays and maps, or nil.
func value(of any, place string) any {
	for name := range strings.SplitSeq(place, ".") {
		object, _ := of.(map[string]any)
		of = object[name]
	}
	return of
}

// TestCredentialRequestMutations applies the mutations of the body of requestAdminCredential.
func TestCredentialRequestMutations(t *testing.T) {
	apis := version.All()
	newest := apis[len(apis)-1].Name
	schema := resourceSchema(t, newest, "HcpOpenShiftClusterAdminCredentialRequest")
	content := must.Get(os.ReadFile("../../testdata/bodies/credential-request.json"))(t)
	body := parsed(t, string(content))
	if missing := schema.Uncovered(body); missing != nil {
		t.Errorf("no body has %v", missing)
	}
	for _, change := range schema.Mutations(body, schemamutation.Samples{}) {
		text, err := json.Marshal(change.Apply(body))
		if err != nil {
			t.Fatal(err)
		}
		err = (&Server{}).signingRequest(&request{version: versions.All()[newest], body: text}, &database.CredentialDocument{})
		// The document has the property as optional; the service requires it, and rejects unknown ones.
		target := "certificateSigningRequest"
		if change.Kind == schemamutation.UnknownProperty {
			target = change.Path
		}
		if e := apierror.As(err); e == nil || e.Kind != apierror.Invalid || e.Target != target {
			t.Errorf("%.100s: %v", change, err)
		}
	}
}

// TestPreflightWithExpressions: a preflight accepts a valid resource, whichever of its values is an expression.
func TestPreflightWithExpressions(t *testing.T) {
	patches := map[string][]string{
		"cluster-full.json":  {`{"properties":{"network":{"machineCidr":"10.128.0.0/24","podCidr":"10.0.0.0/16"}}}`},
		"nodepool-full.json": {`{"properties":{"platform":{"osDisk":{"diskType":"Ephemeral"}}}}`, `{"properties":{"autoScaling":null,"replicas":300}}`},
	}
	for _, subject := range subjects() {
		for _, api := range version.All() {
			t.Run(subject.name+"/"+api.Name, func(t *testing.T) {
				version, schema := versions.All()[api.Name], resourceSchema(t, api.Name, subject.definition)
				judge := subject.newEvaluator(t, version)
				tried := 0
				for _, file := range subject.files {
					for _, patch := range append(patches[file], "{}") {
						body := wire.MergePatch(fullBody(t, file, schema, api.Name), parsed(t, patch))
						body = schema.Prune(body).(map[string]any)
						if violations := judge.create(body); len(violations) > 0 {
							t.Fatal(violations)
						}
						asked := map[string]bool{}
						for _, change := range schema.Mutations(body, schemamutation.Samples{}) {
							if change.Kind != schemamutation.WrongType || asked[change.Path] {
								continue
							}
							asked[change.Path] = true
							tried++
							change.Value = "[parameters('later')]"
							planned := change.Apply(body)
							unknown := validation.ResolveExpressions(planned)
							if violations := withoutUnknown(judge.create(planned), unknown); len(violations) > 0 {
								t.Errorf("%s is unknown, and rejected: %v", change.Path, violations)
							}
						}
					}
				}
				if tried < 20 {
					t.Errorf("only %d unknown values", tried)
				}
			})
		}
	}
}
