// Package wire decodes JSON bodies of ARM requests into Go values and collects all problems in one pass: a wrong type or
// an unsupported value is recorded with the field's path as the caller wrote it, and decoding continues.
//
// An object that has a field twice is an error of the whole body. A Form names the values of a body that are decoded: the rest of a body that is refused costs
// no more than checking that it is JSON.
//
// Packages shape and version decode with it. It knows JSON and paths and not the meaning of fields; the frontend's
// validation judges well-formed values. A null value is the same as an absent one, as ARM requires.
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

// Problem describes one malformed field, in Kubernetes' wording.
type Problem struct {
	// Field is the JSON path, for example properties.clients[0].clientId.
	Field   string
	Message string
	// Decoded is set if the field has the right type, so that its value was decoded: it is not one of the supported values,
	// or it is missing. Other rules apply to the value too.
	Decoded bool
}

// MaxProblems is the most problems that a Body records. It is one more than the problems that a response lists, so that the
// response can state that there are more.
const MaxProblems = 101

// Body is a request's content: a JSON object with the problems that were found while decoding it. It records the first
// MaxProblems problems, so that the work for a malformed body does not depend on how many problems it has.
type Body struct {
	Object
	problems []Problem
}

// NewBody returns a Body of a decoded JSON object. Its numbers must be json.Number.
func NewBody(fields map[string]any) *Body {
	body := &Body{}
	body.Object = Object{body: body, fields: fields}
	return body
}

// Problems returns the problems found so far, in the order of decoding.
func (b *Body) Problems() []Problem { return b.problems }

// Full reports whether the body has MaxProblems problems or more. Fields that were decoded afterwards may have others.
func (b *Body) Full() bool { return len(b.problems) >= MaxProblems }

// record adds a problem unless the body is full.
func (b *Body) record(p Problem) {
	if !b.Full() {
		b.problems = append(b.problems, p)
	}
}

// Malformed reports whether a field has a value that could not be decoded.
func (b *Body) Malformed() bool {
	return slices.ContainsFunc(b.problems, func(p Problem) bool { return !p.Decoded })
}

// Object is a JSON object within a body. A nil Object is an absent object: all its fields are absent too.
type Object struct {
	body   *Body
	parent *Object
	// step is the path from parent: a field's name, a name with an index, or, if key is set, the key of a map.
	step   string
	index  int
	key    bool
	fields map[string]any
}

// path returns the path of the field name of o. It is computed for problems only, and is empty if the body records no more.
func (o *Object) path(name string) string {
	if o.body.Full() {
		return ""
	}
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

func (o *Object) wrongType(field string, value any, want string) {
	if !o.body.Full() {
		o.body.record(Problem{Field: field, Message: fmt.Sprintf("Invalid value: %s: must be %s", FormatValue(value), want)})
	}
}

// get returns the value of a field, or nil if it is absent or null.
func (o *Object) get(name string) any {
	if o == nil {
		return nil
	}
	return o.fields[name]
}

// Has reports whether the field is present, with any value including null.
func (o *Object) Has(name string) bool {
	if o == nil {
		return false
	}
	_, ok := o.fields[name]
	return ok
}

// HasValue reports whether the field is present and not null.
func (o *Object) HasValue(name string) bool { return o.get(name) != nil }

// Len returns the number of entries of a field that is an array or an object, and 0 for any other value.
func (o *Object) Len(name string) int {
	switch value := o.get(name).(type) {
	case []any:
		return len(value)
	case map[string]any:
		return len(value)
	case Long:
		return value.count
	}
	return 0
}

// LenOfStrings is Len for a field that StringMap reads: entries with the value null do not count, and if dropEmpty is set, those
// with the empty string do not either.
func (o *Object) LenOfStrings(name string, dropEmpty bool) int {
	if long, isLong := o.get(name).(Long); isLong {
		return long.values
	}
	entries, isObject := o.get(name).(map[string]any)
	if !isObject {
		return 0
	}
	count := 0
	for _, value := range entries {
		if value != nil && (value != "" || !dropEmpty) {
			count++
		}
	}
	return count
}

// TooMany returns the message for an array or an object with more entries than it may have.
func TooMany(count, most int) string {
	return fmt.Sprintf("Too many: %d: must have at most %d items", count, most)
}

// Limit records the problem of a field that has count entries, more than most. They are not decoded: Limit returns an object in which the
// field has fewer entries and whose problems are not recorded: the first entries of an array, because rules of other fields
// use them, and none of an object, because its entries have no order.
func (o *Object) Limit(name string, count, most int) *Object {
	var kept any = map[string]any{}
	switch value := o.get(name).(type) {
	case []any:
		kept = value[:most]
	case Long:
		if value.form.kind == listForm {
			kept = o.decodeLong(name, value, most)
		}
	}
	o.AddProblem(name, TooMany(count, most))
	return &Object{body: &Body{}, index: -1, fields: map[string]any{name: kept}}
}

// Keep decodes all entries of a field that has more than its form permits.
func (o *Object) Keep(name string) {
	if long, isLong := o.get(name).(Long); isLong {
		o.fields[name] = o.decodeLong(name, long, long.count)
	}
}

// decodeLong decodes the first entries of a Long. An entry that has a field twice is a problem of the field.
func (o *Object) decodeLong(name string, long Long, most int) any {
	value, err := long.decode(most)
	if err != nil {
		o.AddProblem(name, DuplicateMessage)
		return nil
	}
	return value
}

// AddProblem records a problem of a field.
func (o *Object) AddProblem(name, message string) {
	o.body.record(Problem{Field: o.path(name), Message: message})
}

// String returns a string field, or absent if it is absent or not a string.
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

// Enum returns a string field, or absent if it is absent or not a string. A string that is not one of the supported values is
// a problem, and is returned nevertheless: other rules apply to it too. The empty string is supported only if it is listed.
func (o *Object) Enum(name, absent string, supported ...string) string {
	value, isText := o.get(name).(string)
	if !isText {
		return o.String(name, absent)
	}
	if !slices.Contains(supported, value) {
		o.decoded(name, UnsupportedValue(value, supported))
	}
	return value
}

// MandatoryEnum is Enum for a field that must have a value: the empty string is a missing value too.
func (o *Object) MandatoryEnum(name, absent string, supported ...string) string {
	text := o.Enum(name, absent, supported...)
	if value, isText := o.get(name).(string); isText && value == "" {
		o.decoded(name, "Required value")
	}
	return text
}

// decoded records a problem of a field whose value was decoded.
func (o *Object) decoded(name, message string) {
	o.body.record(Problem{Field: o.path(name), Message: message, Decoded: true})
}

// UnsupportedValue returns the message for a value that is not one of the supported ones.
func UnsupportedValue(value string, supported []string) string {
	quoted := make([]string, len(supported))
	for i, one := range slices.Sorted(slices.Values(supported)) {
		quoted[i] = strconv.Quote(one)
	}
	return fmt.Sprintf("Unsupported value: %s: supported values: %s", FormatValue(value), strings.Join(quoted, ", "))
}

// Bool returns a boolean field, or absent if it is absent or not a boolean.
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

// Int32 returns an integer field, or absent if it is absent or not a 32-bit integer.
func (o *Object) Int32(name string, absent int32) int32 {
	if value := o.OptionalInt32(name); value != nil {
		return *value
	}
	return absent
}

// OptionalInt32 returns an integer field, or nil if it is absent or not a 32-bit integer.
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

// Time returns a field with an RFC 3339 time, or nil if it is absent or malformed.
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

// Child returns a field that is an object, or nil if it is absent or not an object.
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

// Children returns a field that is an array of objects, or nil if it is absent or not an array. A null element becomes an
// empty object.
func (o *Object) Children(name string) []*Object {
	values := o.array(name)
	if values == nil {
		return nil
	}
	objects := make([]*Object, 0, len(values))
	for i, value := range values {
		fields, ok := value.(map[string]any)
		if !ok && value != nil {
			if o.body.Full() {
				break
			}
			o.wrongType(fmt.Sprintf("%s[%d]", o.path(name), i), value, "an object")
			continue
		}
		objects = append(objects, &Object{body: o.body, parent: o, step: name, index: i, fields: fields})
	}
	return objects
}

// Strings returns a field that is an array of strings. It is nil if the field is absent or not an array, and only then.
func (o *Object) Strings(name string) []string {
	values := o.array(name)
	if values == nil {
		return nil
	}
	texts := make([]string, 0, len(values))
	for i, value := range values {
		text, ok := value.(string)
		if !ok {
			if o.body.Full() {
				break
			}
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

// StringMap returns a field that is an object with string values. It is nil if the field is absent or not an object, and
// only then. Entries with the value null are absent.
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
			if o.body.Full() {
				break
			}
			o.wrongType(o.path(name)+"["+key+"]", value, "a string")
			continue
		}
		texts[key] = text
	}
	return texts
}

// keys returns the names of the fields in order, so that the order of problems does not vary.
func (o *Object) keys() []string { return slices.Sorted(maps.Keys(o.fields)) }

// EachObject calls read for every field of o, in order of name. The value must be an object; null is an empty object.
func (o *Object) EachObject(read func(key string, value *Object)) {
	if o == nil {
		return
	}
	for _, key := range o.keys() {
		value := o.fields[key]
		fields, ok := value.(map[string]any)
		if !ok && value != nil {
			if o.body.Full() {
				break
			}
			o.wrongType(strings.TrimSuffix(o.path(""), ".")+"["+key+"]", value, "an object")
			continue
		}
		read(key, &Object{body: o.body, parent: o, step: key, key: true, index: -1, fields: fields})
	}
}

// maxFormatted is the most bytes of a malformed value that a message contains.
const maxFormatted = 512

// FormatValue returns the text of a malformed value for a message. Long values are truncated.
func FormatValue(value any) string {
	var text string
	switch value := value.(type) {
	case nil:
		return "null"
	case string:
		if len(value) > maxFormatted {
			value = strings.ToValidUTF8(value[:maxFormatted], "") + "…"
		}
		return strconv.Quote(value)
	case json.Number:
		text = value.String()
	case map[string]any:
		return "object"
	case []any:
		return "array"
	case Long:
		if value.form.kind == mapForm {
			return "object"
		}
		return "array"
	default:
		text = fmt.Sprint(value)
	}
	if len(text) > maxFormatted {
		text = text[:maxFormatted] + "…"
	}
	return text
}
