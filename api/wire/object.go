// Package wire reads JSON bodies of ARM requests into Go values, and finds everything that is wrong with them in one
// pass: a wrong type or an unknown word is noted with the field's path as the caller wrote it, and reading goes on.
//
// The api-version packages read with it. It knows JSON and paths, never what a field means; whether a well-formed value
// is acceptable is the frontend's validation. A value that is absent and one that is null read alike, as ARM has it.
package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Problem is one wrong field, in Kubernetes' wording.
type Problem struct {
	// Field is the JSON path, as in properties.clients[0].clientId.
	Field   string
	Message string
}

// Body is a request's content: a JSON object, with the problems that reading it has found so far.
type Body struct {
	Object
	problems []Problem
}

// NewBody wraps a decoded JSON object. Numbers in it are json.Number.
func NewBody(fields map[string]any) *Body {
	body := &Body{}
	body.Object = Object{body: body, fields: fields}
	return body
}

// Problems are those found so far, in the order of reading.
func (b *Body) Problems() []Problem { return b.problems }

// Object is a JSON object somewhere in a body. The nil Object is one that is absent: all its fields are absent too.
type Object struct {
	body   *Body
	parent *Object
	// step leads here from parent: a name, a name and an index, or the key of a map.
	step   string
	index  int
	key    bool
	fields map[string]any
}

// path joins the steps to o and then name. Only a problem needs it, so it is not built while all is well.
func (o *Object) path(name string) string {
	var steps []*Object
	for at := o; at.parent != nil; at = at.parent {
		steps = append(steps, at)
	}
	var path strings.Builder
	for i := len(steps) - 1; i >= 0; i-- {
		at := steps[i]
		switch {
		case at.key:
			path.WriteString("[" + at.step + "]")
		case path.Len() > 0:
			path.WriteString("." + at.step)
		default:
			path.WriteString(at.step)
		}
		if at.index >= 0 {
			path.WriteString("[" + strconv.Itoa(at.index) + "]")
		}
	}
	if path.Len() > 0 {
		path.WriteByte('.')
	}
	path.WriteString(name)
	return path.String()
}

func (o *Object) problem(field, format string, args ...any) {
	o.body.problems = append(o.body.problems, Problem{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (o *Object) wrongType(field string, value any, want string) {
	o.problem(field, "Invalid value: %s: must be %s", FormatValue(value), want)
}

// get is the value of a field, nil when it is absent or null.
func (o *Object) get(name string) any {
	if o == nil {
		return nil
	}
	return o.fields[name]
}

// Has reports whether the field is there, null included.
func (o *Object) Has(name string) bool {
	if o == nil {
		return false
	}
	_, ok := o.fields[name]
	return ok
}

// HasValue reports whether the field is there and not null.
func (o *Object) HasValue(name string) bool { return o.get(name) != nil }

// AddProblem notes that a field is wrong.
func (o *Object) AddProblem(name, message string) {
	o.body.problems = append(o.body.problems, Problem{Field: o.path(name), Message: message})
}

// String is the field, or absent when it is not there.
func (o *Object) String(name, absent string) string {
	switch value := o.get(name).(type) {
	case nil:
		return absent
	case string:
		return value
	default:
		o.wrongType(o.path(name), value, "a string")
		return absent
	}
}

// Enum is the field, which must be one of the words; an empty text is none of them.
func (o *Object) Enum(name, absent string, words ...string) string {
	value, isText := o.get(name).(string)
	if !isText {
		return o.String(name, absent)
	}
	if slices.Contains(words, value) {
		return value
	}
	o.problem(o.path(name), "%s", UnsupportedValue(value, words))
	return absent
}

// UnsupportedValue is the message for a word that is not one of words.
func UnsupportedValue(value string, words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = strconv.Quote(word)
	}
	return fmt.Sprintf("Unsupported value: %s: supported values: %s", FormatValue(value), strings.Join(quoted, ", "))
}

// Bool is the field, or absent when it is not there.
func (o *Object) Bool(name string, absent bool) bool {
	switch value := o.get(name).(type) {
	case nil:
		return absent
	case bool:
		return value
	default:
		o.wrongType(o.path(name), value, "a boolean")
		return absent
	}
}

// Int32 is the field, or absent when it is not there.
func (o *Object) Int32(name string, absent int32) int32 {
	if value := o.OptionalInt32(name); value != nil {
		return *value
	}
	return absent
}

// OptionalInt32 is the field, or nil when it is not there.
func (o *Object) OptionalInt32(name string) *int32 {
	value := o.get(name)
	if value == nil {
		return nil
	}
	number, ok := value.(json.Number)
	if !ok {
		o.wrongType(o.path(name), value, "an integer")
		return nil
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil || n < math.MinInt32 || n > math.MaxInt32 {
		o.wrongType(o.path(name), value, "a 32-bit integer")
		return nil
	}
	n32 := int32(n)
	return &n32
}

// Time is the field, an RFC 3339 time, or nil when it is not there.
func (o *Object) Time(name string) *time.Time {
	text := o.String(name, "")
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		o.wrongType(o.path(name), text, "an RFC 3339 time")
		return nil
	}
	return &t
}

// Child is the field, an object, or nil when it is not there.
func (o *Object) Child(name string) *Object {
	switch value := o.get(name).(type) {
	case nil:
		return nil
	case map[string]any:
		return &Object{body: o.body, parent: o, step: name, index: -1, fields: value}
	default:
		o.wrongType(o.path(name), value, "an object")
		return nil
	}
}

// Children is the field, an array of objects; nil when it is not there. A null element reads as an empty object.
func (o *Object) Children(name string) []*Object {
	values := o.array(name)
	if values == nil {
		return nil
	}
	objects := make([]*Object, 0, len(values))
	for i, value := range values {
		fields, ok := value.(map[string]any)
		if !ok && value != nil {
			o.wrongType(fmt.Sprintf("%s[%d]", o.path(name), i), value, "an object")
			continue
		}
		objects = append(objects, &Object{body: o.body, parent: o, step: name, index: i, fields: fields})
	}
	return objects
}

// Strings is the field, an array of strings; nil when it is not there, and not nil when it is.
func (o *Object) Strings(name string) []string {
	values := o.array(name)
	if values == nil {
		return nil
	}
	texts := make([]string, 0, len(values))
	for i, value := range values {
		text, ok := value.(string)
		if !ok {
			o.wrongType(fmt.Sprintf("%s[%d]", o.path(name), i), value, "a string")
			continue
		}
		texts = append(texts, text)
	}
	return texts
}

func (o *Object) array(name string) []any {
	switch value := o.get(name).(type) {
	case nil:
		return nil
	case []any:
		return value
	default:
		o.wrongType(o.path(name), value, "an array")
		return nil
	}
}

// StringMap is the field, an object whose values are strings; nil when it is not there, and not nil when it is. A null
// value counts as absent.
func (o *Object) StringMap(name string) map[string]string {
	object := o.Child(name)
	if object == nil {
		return nil
	}
	texts := make(map[string]string, len(object.fields))
	for _, key := range object.keys() {
		value := object.fields[key]
		if value == nil {
			continue
		}
		text, ok := value.(string)
		if !ok {
			o.wrongType(o.path(name)+"["+key+"]", value, "a string")
			continue
		}
		texts[key] = text
	}
	return texts
}

// keys are the names of the fields in order, so that the same body has the same problems in the same order.
func (o *Object) keys() []string { return slices.Sorted(maps.Keys(o.fields)) }

// EachObject calls read with every field of o that is an object or null, the latter as an empty object, in order of name.
func (o *Object) EachObject(read func(key string, value *Object)) {
	if o == nil {
		return
	}
	for _, key := range o.keys() {
		value := o.fields[key]
		fields, ok := value.(map[string]any)
		if !ok && value != nil {
			o.wrongType(strings.TrimSuffix(o.path(""), ".")+"["+key+"]", value, "an object")
			continue
		}
		read(key, &Object{body: o.body, parent: o, step: key, key: true, index: -1, fields: fields})
	}
}

// maxShown bounds how much of a wrong value a message repeats.
const maxShown = 512

// FormatValue renders a wrong value for a message, cut where it is long.
func FormatValue(value any) string {
	var text string
	switch value := value.(type) {
	case nil:
		return "null"
	case string:
		if len(value) > maxShown {
			value = strings.ToValidUTF8(value[:maxShown], "") + "…"
		}
		return strconv.Quote(value)
	case json.Number:
		text = value.String()
	case map[string]any:
		return "object"
	case []any:
		return "array"
	default:
		text = fmt.Sprint(value)
	}
	if len(text) > maxShown {
		text = text[:maxShown] + "…"
	}
	return text
}
