// Package schemamutation derives mutations of valid bodies from the OpenAPI document of an api-version. Each mutation
// violates exactly one constraint of the document, or takes a value to the limit of one. Tests of servers send the mutated
// bodies and compare the verdict with the document's.
//
// The package traverses a schema and a body together. Properties that a body does not have are not mutated; Uncovered
// returns the properties that none of the bodies has. A constraint that the package does not know is an error. A document
// therefore cannot gain a property or a constraint without a test.
package schemamutation

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// Kind is the kind of constraint that a mutation concerns.
type Kind string

// The kinds of constraints.
const (
	Absent            Kind = "absent"
	Null              Kind = "null"
	WrongType         Kind = "type"
	EnumValue         Kind = "enum value"
	Range             Kind = "range"
	Length            Kind = "length"
	Pattern           Kind = "pattern"
	ItemCount         Kind = "item count"
	Format            Kind = "format"
	ControlCharacters Kind = "control characters"
	ReadOnly          Kind = "read-only"
	UnknownProperty   Kind = "unknown property"
	MapKey            Kind = "key"
	Unbounded         Kind = "unbounded"
)

// Values of these sizes must be rejected even if the document sets no limit, because systems behind the service have one.
const (
	sizeOfText = 70_000
	sizeOfList = 5_000
)

// Mutation is one change of a valid body.
type Mutation struct {
	Kind Kind
	// Path is the path of the mutated value as errors name it. Place is the same path with [] after arrays and [*] after
	// maps.
	Path, Place string
	// Detail distinguishes mutations of one kind at one place.
	Detail string
	// Value replaces the current value; if Drop is set, the value is removed instead.
	Value any
	Drop  bool
	// Allowed reports whether the document allows the mutated body.
	Allowed bool
	// Schema is the schema of the value.
	Schema *Schema

	// steps is Path as map keys (string) and array indices (int).
	steps []any
}

// String returns the name of the mutation in tests.
func (c Mutation) String() string {
	return fmt.Sprintf("%s %s %s", c.Path, c.Kind, c.Detail)
}

// Apply returns a mutated copy of body.
func (c Mutation) Apply(body map[string]any) map[string]any {
	changed, _ := Clone(body).(map[string]any)
	return put(changed, c.steps, c.Value, c.Drop).(map[string]any)
}

// Current returns the value of body at the mutation's path, or nil.
func (c Mutation) Current(body map[string]any) any {
	var at any = body
	for _, step := range c.steps {
		switch within := at.(type) {
		case map[string]any:
			key, _ := step.(string)
			at = within[key]
		case []any:
			at = within[step.(int)]
		default:
			return nil
		}
	}
	return at
}

// Patch returns a merge patch that results in the mutated body, or false if there is none. A patch replaces an array as a
// whole.
func (c Mutation) Patch(body map[string]any) (map[string]any, bool) {
	var at any = body
	value, steps := c.Value, c.steps
	if c.Drop {
		value = nil
	}
	for i, step := range c.steps {
		if values, ok := at.([]any); ok {
			steps = c.steps[:i]
			value = put(Clone(values), c.steps[i:], c.Value, c.Drop)
			break
		}
		at = at.(map[string]any)[step.(string)]
	}
	for i := len(steps) - 1; i >= 0; i-- {
		value = map[string]any{steps[i].(string): value}
	}
	patch, ok := value.(map[string]any)
	return patch, ok
}

// Clone returns a deep copy of a JSON value.
func Clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		copied := make(map[string]any, len(value))
		for name, inner := range value {
			copied[name] = Clone(inner)
		}
		return copied
	case []any:
		copied := make([]any, len(value))
		for i, inner := range value {
			copied[i] = Clone(inner)
		}
		return copied
	}
	return value
}

func put(within any, steps []any, value any, drop bool) any {
	if len(steps) == 0 {
		return value
	}
	switch step := steps[0].(type) {
	case string:
		object := within.(map[string]any)
		if len(steps) == 1 && drop {
			delete(object, step)
			return object
		}
		object[step] = put(object[step], steps[1:], value, drop)
	case int:
		values := within.([]any)
		if len(steps) == 1 && drop {
			return slices.Delete(values, step, step+1)
		}
		values[step] = put(values[step], steps[1:], value, drop)
	}
	return within
}

// Samples returns valid values that cannot be derived from a schema.
type Samples struct {
	// Text returns a valid string of a length at a place. It returns false if there is none; the limit is then not tested.
	Text func(place string, length int) (string, bool)
	// Item returns a valid i-th element of the array at a place. All elements must differ.
	Item func(place string, i int) any
}

// SampleItem returns valid elements of the lists of clusters, node pools and external authentications. It is an Item of Samples.
func SampleItem(place string, i int) any {
	switch place {
	case "properties.api.authorizedCidrs":
		return fmt.Sprintf("203.%d.%d.0/24", i/250, i%250)
	case "properties.imageDigestMirrors":
		return map[string]any{"source": fmt.Sprintf("quay.io/a-%d", i), "mirrors": []any{"mirror.example/a"}}
	case "properties.imageDigestMirrors[].mirrors":
		return fmt.Sprintf("mirror.example/a-%d", i)
	case "properties.labels":
		return map[string]any{"key": fmt.Sprintf("key-%d", i)}
	case "properties.taints":
		return map[string]any{"key": fmt.Sprintf("key-%d", i), "effect": "NoSchedule"}
	case "properties.clients":
		return map[string]any{"component": map[string]any{"name": fmt.Sprintf("cli-%d", i), "authClientNamespace": "a"}, "clientId": "client-2", "type": "Public"}
	case "properties.claim.validationRules":
		return map[string]any{"type": "RequiredClaim", "requiredClaim": map[string]any{"claim": fmt.Sprintf("claim-%d", i), "requiredValue": "a"}}
	case "properties.issuer.audiences":
		return fmt.Sprintf("client-%d", i)
	}
	return fmt.Sprintf("item-%d", i)
}

// Mutations returns all mutations of a body, in order of name. It omits properties that the body does not have.
func (s *Schema) Mutations(body map[string]any, samples Samples) []Mutation {
	d := &deriver{samples: samples}
	d.object(s, body, location{})
	slices.SortStableFunc(d.mutations, func(a, b Mutation) int { return strings.Compare(a.String(), b.String()) })
	return d.mutations
}

// Uncovered returns the writable places of the schema that none of the bodies has, in order.
func (s *Schema) Uncovered(bodies ...map[string]any) []string {
	covered := map[string]bool{}
	for _, body := range bodies {
		for _, change := range s.Mutations(body, Samples{}) {
			covered[change.Place] = true
		}
	}
	var uncovered []string
	for _, place := range slices.Sorted(maps.Keys(s.Writable())) {
		if !covered[place] {
			uncovered = append(uncovered, place)
		}
	}
	return uncovered
}

// location is the location of a value in a body; see Mutation.
type location struct {
	path, place string
	steps       []any
}

func (l location) field(name string) location {
	inner := location{path: l.path + "." + name, place: l.place + "." + name, steps: append(slices.Clone(l.steps), name)}
	inner.path, inner.place = strings.TrimPrefix(inner.path, "."), strings.TrimPrefix(inner.place, ".")
	return inner
}

func (l location) key(key string) location {
	return location{path: l.path + "[" + key + "]", place: l.place + "[*]", steps: append(slices.Clone(l.steps), key)}
}

func (l location) item(i int) location {
	return location{path: fmt.Sprintf("%s[%d]", l.path, i), place: l.place + "[]", steps: append(slices.Clone(l.steps), i)}
}

type deriver struct {
	samples   Samples
	mutations []Mutation
}

func (d *deriver) add(at location, schema *Schema, kind Kind, detail string, value any, allowed bool) {
	d.mutations = append(d.mutations, Mutation{Kind: kind, Path: at.path, Place: at.place, Detail: detail, Value: value, Allowed: allowed, Schema: schema, steps: at.steps})
}

func (d *deriver) object(schema *Schema, body map[string]any, here location) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property, place := schema.Properties[name], here.field(name)
		if property.ReadOnly {
			for detail, value := range map[string]any{"text": "mine", "number": json.Number("1"), "object": map[string]any{}} {
				d.add(place, property, ReadOnly, detail, value, true)
			}
			continue
		}
		value, present := body[name]
		if !present {
			continue
		}
		optional := !slices.Contains(schema.Required, name)
		d.add(place, property, Absent, "", nil, optional)
		d.mutations[len(d.mutations)-1].Drop = true
		d.add(place, property, Null, "", nil, optional)
		d.value(property, value, place)
	}
	if schema.Values != nil {
		d.entries(schema, body, here)
		return
	}
	d.add(here.field("unknown"), &Schema{}, UnknownProperty, "", map[string]any{"a": []any{json.Number("1")}}, true)
}

// entries derives the mutations of a map.
func (d *deriver) entries(schema *Schema, body map[string]any, here location) {
	keys := slices.Sorted(maps.Keys(body))
	for _, key := range keys {
		d.add(here.key(key), schema.Values, Null, "", nil, false)
		d.value(schema.Values, body[key], here.key(key))
	}
	if len(keys) == 0 {
		return
	}
	entry := body[keys[0]]
	for detail, key := range map[string]string{"empty": "", "NUL": "a\x00b", "line": "a\nb", "long": strings.Repeat("a", sizeOfText)} {
		d.add(here.key(key), schema.Values, MapKey, detail, entry, false)
	}
	many := make(map[string]any, sizeOfList)
	for i := range sizeOfList {
		many[fmt.Sprintf("key-%d", i)] = entry
	}
	d.add(here, schema, Unbounded, "entries", many, false)
}

func (d *deriver) value(schema *Schema, value any, here location) {
	d.types(schema, here)
	switch schema.Type {
	case "string":
		d.text(schema, here)
	case "integer":
		d.integer(schema, here)
	case "array":
		values, _ := value.([]any)
		d.array(schema, here)
		for i, item := range values {
			d.add(here.item(i), schema.Items, Null, "", nil, false)
			d.value(schema.Items, item, here.item(i))
		}
	case "object":
		object, _ := value.(map[string]any)
		d.object(schema, object, here)
	}
}

// types derives a value of every type other than the schema's.
func (d *deriver) types(schema *Schema, here location) {
	wrong := map[string]any{
		"text": "text", "number": json.Number("1"), "fraction": json.Number("1.5"), "huge": json.Number("1e400"), "boolean": true,
		"object": map[string]any{"a": "b"}, "array": []any{"a"},
	}
	switch schema.Type {
	case "string":
		delete(wrong, "text")
	case "integer":
		delete(wrong, "number")
	case "boolean":
		delete(wrong, "boolean")
		wrong["word"] = "true"
	case "object":
		delete(wrong, "object")
	case "array":
		delete(wrong, "array")
	}
	for _, detail := range slices.Sorted(maps.Keys(wrong)) {
		d.add(here, schema, WrongType, detail, wrong[detail], false)
	}
}

func (d *deriver) text(schema *Schema, here location) {
	if schema.Enum != nil {
		d.enum(schema, here)
		return
	}
	if schema.MinLength != nil && *schema.MinLength > 0 {
		d.add(here, schema, Length, "empty", "", false)
	}
	if schema.MaxLength != nil {
		for _, length := range []int{*schema.MaxLength, *schema.MaxLength + 1} {
			text, ok := strings.Repeat("a", length), true
			if d.samples.Text != nil {
				text, ok = d.samples.Text(here.place, length)
			}
			if ok {
				d.add(here, schema, Length, fmt.Sprint(length), text, length == *schema.MaxLength)
			}
		}
	}
	if schema.Pattern != "" {
		pattern := regexp.MustCompile(schema.Pattern)
		for _, text := range []string{"", "a", "A", "1", "-", "a1", "1a", "a-1", "a-", "-a", "a.b", "a_b", "a b", " a", "a\n", "xn--a", "ä", "ａ", "a\x00"} {
			d.add(here, schema, Pattern, fmt.Sprintf("%q", text), text, pattern.MatchString(text))
		}
	}
	for detail, text := range map[string][]string{
		"uri":    {"text", "/path", "//host/path", "https://", "https://[::1", "https:///path", "https://a b/", ":"},
		"arm-id": {"text", "/", "/subscriptions/s", "subscriptions/a", "/subscriptions//resourceGroups/g"},
		"uuid":   {"text", "00000000-0000-0000-0000-00000000000", "{00000000-0000-0000-0000-000000000000}", "00000000x0000-0000-0000-000000000000"},
	}[schema.Format] {
		d.add(here, schema, Format, fmt.Sprint(schema.Format, detail), text, false)
	}
	if schema.IDs != nil {
		const group = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/"
		for detail, id := range map[string]string{
			"another type": group + "Microsoft.Compute/virtualMachines/v", "a parent": group + "Microsoft.Network/virtualNetworks/v",
			"a child": group + schema.IDs[0] + "/a/b/c", "a slash": group + schema.IDs[0] + "/a/",
		} {
			d.add(here, schema, Format, detail, id, false)
		}
	}
	for detail, text := range map[string]string{"NUL": "a\x00b", "line": "a\nb", "C1": "a\u0085b"} {
		d.add(here, schema, ControlCharacters, detail, text, false)
	}
	d.add(here, schema, Unbounded, "text", strings.Repeat("a", sizeOfText), false)
}

func (d *deriver) enum(schema *Schema, here location) {
	for _, value := range schema.Enum {
		d.add(here, schema, EnumValue, value, value, true)
		for _, other := range []string{strings.ToLower(value), strings.ToUpper(value), value + " ", " " + value} {
			if !slices.Contains(schema.Enum, other) {
				d.add(here, schema, EnumValue, fmt.Sprintf("%q", other), other, false)
			}
		}
	}
	for _, value := range []string{"", "Unknown", strings.Repeat("a", sizeOfText)} {
		d.add(here, schema, EnumValue, fmt.Sprintf("%.9q", value), value, false)
	}
}

func (d *deriver) integer(schema *Schema, here location) {
	least, most := int64(math.MinInt32), int64(math.MaxInt32) // every integer of the documents is an int32
	if schema.Minimum != nil {
		least = *schema.Minimum
	}
	if schema.Maximum != nil {
		most = *schema.Maximum
	}
	for value, allowed := range map[int64]bool{least - 1: false, least: true, most: true, most + 1: false} {
		d.add(here, schema, Range, fmt.Sprint(value), json.Number(fmt.Sprint(value)), allowed)
	}
	for _, value := range []string{"9223372036854775808", "-9223372036854775809", "1e99999"} {
		d.add(here, schema, Range, value, json.Number(value), false)
	}
}

func (d *deriver) array(schema *Schema, here location) {
	if schema.MinItems != nil && *schema.MinItems > 0 {
		d.add(here, schema, ItemCount, "none", []any{}, false)
	}
	if d.samples.Item == nil {
		return
	}
	items := func(count int) []any {
		values := make([]any, count)
		for i := range values {
			values[i] = d.samples.Item(here.place, i)
		}
		return values
	}
	if schema.MaxItems != nil {
		d.add(here, schema, ItemCount, "most", items(*schema.MaxItems), true)
		d.add(here, schema, ItemCount, "too many", items(*schema.MaxItems+1), false)
		return
	}
	d.add(here, schema, Unbounded, "items", items(sizeOfList), false)
}
