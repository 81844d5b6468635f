// Package schemamutation derives, from the OpenAPI document of an api-version, every way in which a valid body can break one thing
// that the document says, and every way in which it can go to the edge of it.
//
// The walk goes through the schema and a body together: what the body lacks is not tried, so Missing tells which properties
// of the schema none of the bodies has. A constraint of a kind that the package does not know is an error. So a document
// cannot gain a property or a constraint that nothing tries. It is meant for tests of whoever judges requests.
package schemamutation

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Kind is what a change tries.
type Kind string

// The kinds.
const (
	Absent            Kind = "absent"
	Null              Kind = "null"
	WrongType         Kind = "type"
	EnumValue         Kind = "word"
	Range             Kind = "bound"
	Length            Kind = "length"
	Pattern           Kind = "pattern"
	ItemCount         Kind = "count"
	Format            Kind = "format"
	ControlCharacters Kind = "control characters"
	ReadOnly          Kind = "read-only"
	UnknownProperty   Kind = "unknown"
	MapKey            Kind = "key"
	Unbounded         Kind = "unbounded"
)

// What is this large must be refused, though the document sets no bound: something behind the service has one.
const (
	sizeOfText = 70_000
	sizeOfList = 5_000
)

// Mutation is one change of a valid body.
type Mutation struct {
	Kind Kind
	// Path is where the change is, as errors name it, and Place the same with [] after arrays and [*] after maps.
	Path, Place string
	// Detail tells changes of a place apart.
	Detail string
	// Value takes the place of what is there; Drop takes that away instead.
	Value any
	Drop  bool
	// Allowed says that the document allows the body with the change.
	Allowed bool
	// Schema is that of the value.
	Schema *Schema

	steps []any
}

// String names the change in a test.
func (c Mutation) String() string {
	return fmt.Sprintf("%s %s %s", c.Path, c.Kind, c.Detail)
}

// Apply gives the body with the change.
func (c Mutation) Apply(body map[string]any) map[string]any {
	changed, _ := Clone(body).(map[string]any)
	return put(changed, c.steps, c.Value, c.Drop).(map[string]any)
}

// Current is what a body has where the change is; nil when it has nothing there.
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

// Patch is a merge patch that makes the change; false when there is none. A patch replaces an array as a whole.
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

// Clone copies a JSON value.
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

// Samples are the valid values that a schema does not tell how to make.
type Samples struct {
	// Text is a valid text of a length at a place; false when there is none, and the edge is not tried.
	Text func(place string, length int) (string, bool)
	// Item is a valid i-th element, different from all others, of the array at a place.
	Item func(place string, i int) any
}

// Mutations gives all changes of a body. Those of what the body lacks are left out.
func (s *Schema) Mutations(body map[string]any, samples Samples) []Mutation {
	w := &walk{samples: samples}
	w.object(s, body, at{})
	slices.SortStableFunc(w.changes, func(a, b Mutation) int { return strings.Compare(a.String(), b.String()) })
	return w.changes
}

// Uncovered are the writable places of the schema that none of the bodies has, in order.
func (s *Schema) Uncovered(bodies ...map[string]any) []string {
	there := map[string]bool{}
	for _, body := range bodies {
		for _, change := range s.Mutations(body, Samples{}) {
			there[change.Place] = true
		}
	}
	var missing []string
	for _, place := range slices.Sorted(maps.Keys(s.Writable())) {
		if !there[place] {
			missing = append(missing, place)
		}
	}
	return missing
}

// at is a place in a body.
type at struct {
	path, place string
	steps       []any
}

func (a at) field(name string) at {
	inner := at{path: a.path + "." + name, place: a.place + "." + name, steps: append(slices.Clone(a.steps), name)}
	inner.path, inner.place = strings.TrimPrefix(inner.path, "."), strings.TrimPrefix(inner.place, ".")
	return inner
}

func (a at) key(key string) at {
	return at{path: a.path + "[" + key + "]", place: a.place + "[*]", steps: append(slices.Clone(a.steps), key)}
}

func (a at) item(i int) at {
	return at{path: fmt.Sprintf("%s[%d]", a.path, i), place: a.place + "[]", steps: append(slices.Clone(a.steps), i)}
}

type walk struct {
	samples Samples
	changes []Mutation
}

func (w *walk) add(at at, schema *Schema, kind Kind, detail string, value any, allowed bool) {
	w.changes = append(w.changes, Mutation{Kind: kind, Path: at.path, Place: at.place, Detail: detail, Value: value, Allowed: allowed, Schema: schema, steps: at.steps})
}

func (w *walk) object(schema *Schema, body map[string]any, here at) {
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		property, place := schema.Properties[name], here.field(name)
		if property.ReadOnly {
			for detail, value := range map[string]any{"text": "mine", "number": json.Number("1"), "object": map[string]any{}} {
				w.add(place, property, ReadOnly, detail, value, true)
			}
			continue
		}
		value, there := body[name]
		if !there {
			continue
		}
		optional := !slices.Contains(schema.Required, name)
		w.add(place, property, Absent, "", nil, optional)
		w.changes[len(w.changes)-1].Drop = true
		w.add(place, property, Null, "", nil, optional)
		w.value(property, value, place)
	}
	if schema.Values != nil {
		w.entries(schema, body, here)
		return
	}
	w.add(here.field("surprise"), &Schema{}, UnknownProperty, "", map[string]any{"a": []any{json.Number("1")}}, true)
}

// entries are those of a map.
func (w *walk) entries(schema *Schema, body map[string]any, here at) {
	keys := slices.Sorted(maps.Keys(body))
	for _, key := range keys {
		w.add(here.key(key), schema.Values, Null, "", nil, false)
		w.value(schema.Values, body[key], here.key(key))
	}
	if len(keys) == 0 {
		return
	}
	entry := body[keys[0]]
	for detail, key := range map[string]string{"empty": "", "NUL": "a\x00b", "line": "a\nb", "long": strings.Repeat("a", sizeOfText)} {
		w.add(here.key(key), schema.Values, MapKey, detail, entry, false)
	}
	many := make(map[string]any, sizeOfList)
	for i := range sizeOfList {
		many[fmt.Sprintf("key-%d", i)] = entry
	}
	w.add(here, schema, Unbounded, "entries", many, false)
}

func (w *walk) value(schema *Schema, value any, here at) {
	w.types(schema, here)
	switch schema.Type {
	case "string":
		w.text(schema, here)
	case "integer":
		w.integer(schema, here)
	case "array":
		values, _ := value.([]any)
		w.array(schema, here)
		for i, item := range values {
			w.add(here.item(i), schema.Items, Null, "", nil, false)
			w.value(schema.Items, item, here.item(i))
		}
	case "object":
		object, _ := value.(map[string]any)
		w.object(schema, object, here)
	}
}

// types tries every type but the schema's.
func (w *walk) types(schema *Schema, here at) {
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
		w.add(here, schema, WrongType, detail, wrong[detail], false)
	}
}

func (w *walk) text(schema *Schema, here at) {
	if schema.Enum != nil {
		w.words(schema, here)
		return
	}
	if schema.MinLength != nil && *schema.MinLength > 0 {
		w.add(here, schema, Length, "empty", "", false)
	}
	if schema.MaxLength != nil {
		for _, length := range []int{*schema.MaxLength, *schema.MaxLength + 1} {
			text, ok := strings.Repeat("a", length), true
			if w.samples.Text != nil {
				text, ok = w.samples.Text(here.place, length)
			}
			if ok {
				w.add(here, schema, Length, fmt.Sprint(length), text, length == *schema.MaxLength)
			}
		}
	}
	if schema.Pattern != "" {
		pattern := regexp.MustCompile(schema.Pattern)
		for _, text := range []string{"", "a", "A", "1", "-", "a1", "1a", "a-1", "a-", "-a", "a.b", "a_b", "a b", " a", "a\n", "xn--a", "ä", "ａ", "a\x00"} {
			w.add(here, schema, Pattern, fmt.Sprintf("%q", text), text, pattern.MatchString(text))
		}
	}
	for detail, text := range map[string][]string{
		"uri":    {"text", "/path", "//host/path", "https://", "https://[::1", "https:///path", "https://a b/", ":"},
		"arm-id": {"text", "/", "/subscriptions/s", "subscriptions/a", "/subscriptions//resourceGroups/g"},
		"uuid":   {"text", "00000000-0000-0000-0000-00000000000", "{00000000-0000-0000-0000-000000000000}", "00000000x0000-0000-0000-000000000000"},
	}[schema.Format] {
		w.add(here, schema, Format, fmt.Sprint(schema.Format, detail), text, false)
	}
	if schema.IDs != nil {
		const group = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g/providers/"
		for detail, id := range map[string]string{
			"another type": group + "Microsoft.Compute/virtualMachines/v", "a parent": group + "Microsoft.Network/virtualNetworks/v",
			"a child": group + schema.IDs[0] + "/a/b/c", "a slash": group + schema.IDs[0] + "/a/",
		} {
			w.add(here, schema, Format, detail, id, false)
		}
	}
	for detail, text := range map[string]string{"NUL": "a\x00b", "line": "a\nb", "C1": "a\u0085b"} {
		w.add(here, schema, ControlCharacters, detail, text, false)
	}
	w.add(here, schema, Unbounded, "text", strings.Repeat("a", sizeOfText), false)
}

func (w *walk) words(schema *Schema, here at) {
	for _, word := range schema.Enum {
		w.add(here, schema, EnumValue, word, word, true)
		for _, other := range []string{strings.ToLower(word), strings.ToUpper(word), word + " ", " " + word} {
			if !slices.Contains(schema.Enum, other) {
				w.add(here, schema, EnumValue, fmt.Sprintf("%q", other), other, false)
			}
		}
	}
	for _, word := range []string{"", "Surprise", strings.Repeat("a", sizeOfText)} {
		w.add(here, schema, EnumValue, fmt.Sprintf("%.9q", word), word, false)
	}
}

// The edges of int32, which every integer of the documents is.
const (
	leastInt32 = -1 << 31
	mostInt32  = 1<<31 - 1
)

func (w *walk) integer(schema *Schema, here at) {
	least, most := int64(leastInt32), int64(mostInt32)
	if schema.Minimum != nil {
		least = *schema.Minimum
	}
	if schema.Maximum != nil {
		most = *schema.Maximum
	}
	for value, allowed := range map[int64]bool{least - 1: false, least: true, most: true, most + 1: false} {
		w.add(here, schema, Range, fmt.Sprint(value), json.Number(fmt.Sprint(value)), allowed)
	}
	for _, value := range []string{"9223372036854775808", "-9223372036854775809", "1e99999"} {
		w.add(here, schema, Range, value, json.Number(value), false)
	}
}

func (w *walk) array(schema *Schema, here at) {
	if schema.MinItems != nil && *schema.MinItems > 0 {
		w.add(here, schema, ItemCount, "none", []any{}, false)
	}
	if w.samples.Item == nil {
		return
	}
	items := func(count int) []any {
		values := make([]any, count)
		for i := range values {
			values[i] = w.samples.Item(here.place, i)
		}
		return values
	}
	if schema.MaxItems != nil {
		w.add(here, schema, ItemCount, "most", items(*schema.MaxItems), true)
		w.add(here, schema, ItemCount, "too many", items(*schema.MaxItems+1), false)
		return
	}
	w.add(here, schema, Unbounded, "items", items(sizeOfList), false)
}
