// Package shape describes the wire form of resources at an api-version: a table with an entry for each field. Request
// bodies are decoded and responses are encoded with these tables. The table of a version is the table of the version
// before it with the entries replaced that differ, so that a version's package contains exactly its changes.
//
// An entry names a field by its JSON name. The hub type stores the value under the same name, unless From gives another
// one. The type of the hub's field determines the kind of JSON value. Bind connects a table to the hub's types and panics
// if they do not match.
//
// Decoding starts from the stored resource. Fields without an entry keep their values, so that a PUT or PATCH at an older
// version preserves what that version does not have. Elements of lists are the exception: they are always created from
// the body. Encoding omits empty strings, lists and objects, and zeros that an absent field would be decoded to.
package shape

import (
	"fmt"
	"slices"
	"strings"
)

// Field is an entry of a table: a field of a JSON object and its properties at one version. It is a value; each method
// returns a changed copy.
type Field struct {
	name           string
	from           string
	kind           kind
	enum           []string
	atMost         int
	supported      []string
	defaultValue   any
	implied        any
	defaultIfNull  bool
	requiredIfNull bool
	keepIfAbsent   bool
	keepIfNull     bool
	immutable      bool
	mandatory      bool
	dropEmpty      bool
	notShown       bool
	writeZero      bool
	// other is the field of the same object that ImpliedFrom names.
	other      string
	fromStatus *fromStatus
	fields     []Field
	// shown computes the value of an entry of a map in responses, if it is not the stored one.
	shown *fromStatus
}

type kind string

const (
	value    kind = "value"
	object   kind = "object"
	list     kind = "list"
	mapping  kind = "map"
	readOnly kind = "readOnly"
	reported kind = "reported"
	state    kind = "state"
	implied  kind = "implied"
)

// Resource returns the table of a whole resource.
func Resource(fields ...Field) Field { return Field{kind: object, fields: fields} }

// Value returns a string, number or boolean, a list of strings, or a map of strings.
func Value(name string) Field { return Field{name: name, kind: value} }

// Object returns a JSON object. The hub's field is a struct, or a pointer to a struct if absence differs from an empty object.
func Object(name string, fields ...Field) Field {
	return Field{name: name, kind: object, fields: fields}
}

// List returns an array of objects. A PATCH replaces it as a whole, so that the defaults of its elements apply to PATCH too.
func List(name string, fields ...Field) Field { return Field{name: name, kind: list, fields: fields} }

// Map returns an object of objects with ARM IDs as keys. Comparison with the stored keys ignores case.
func Map(name string, fields ...Field) Field { return Field{name: name, kind: mapping, fields: fields} }

// ReadOnly returns a value of the resource that the service sets. It is written and never read.
func ReadOnly(name string) Field { return Field{name: name, kind: readOnly} }

// State returns the provisioning state. It is written and never read.
func State(name string) Field { return Field{name: name, kind: state} }

// Implied returns a field of the hub that this version does not have. Decoding sets it to value if it is not set yet.
func Implied(name string, value any) Field { return Field{name: name, kind: implied, implied: value} }

// ImpliedFrom is like Implied with the value of another field of the same object. The other entry must come first.
func ImpliedFrom(name, other string) Field { return Field{name: name, kind: implied, other: other} }

// From sets the hub's name of the field: a path from the hub's value of the enclosing object.
func (f Field) From(path string) Field { f.from = path; return f }

// Inline stores the fields of an object in the hub's value of the enclosing object.
func (f Field) Inline() Field { return f.From(".") }

// Holding lists the fields of a read-only object or list, so that a body with another field in it is rejected.
func (f Field) Holding(fields ...Field) Field { f.fields = fields; return f }

// OneOf lists the values that a string may have in a body; any other one is a problem of the body. A stored value that is
// not in the list, which another version set, is omitted from responses and kept while a body omits the field.
func (f Field) OneOf(values ...string) Field { f.enum = values; return f }

// Supported lists the values of OneOf that the service supports. Any other value in a body is a problem of the body, except
// the stored one: a resource that has such a value keeps it.
func (f Field) Supported(values ...string) Field { f.supported = values; return f }

// AtMost sets the most entries of a list or a map. If a body has more, they are neither parsed nor decoded, unless the stored
// value has as many. Bind requires it for each list and map that a body can set.
func (f Field) AtMost(entries int) Field { f.atMost = entries; return f }

// Mandatory makes the empty string in a body a missing value too, in addition to a value that OneOf does not list.
func (f Field) Mandatory() Field { f.mandatory = true; return f }

// DropEmpty ignores the entries of a map of strings whose value is the empty string.
func (f Field) DropEmpty() Field { f.dropEmpty = true; return f }

// Default sets the value of a field that a PUT omits. For a PATCH it applies only in elements of lists; see DefaultIfNull.
func (f Field) Default(value any) Field { f.defaultValue = value; return f }

// DefaultIfNull makes a PATCH with null return a field that has a value to its default.
func (f Field) DefaultIfNull() Field { f.defaultIfNull = true; return f }

// NotShown omits the field from responses.
func (f Field) NotShown() Field { f.notShown = true; return f }

// RequiredIfNull rejects a PATCH with null at a field that has a value and, unless the field has a default, a PUT without it.
func (f Field) RequiredIfNull() Field { f.requiredIfNull = true; return f }

// KeepIfAbsent keeps the stored value if a PUT omits the field.
func (f Field) KeepIfAbsent() Field { f.keepIfAbsent = true; return f }

// KeepIfNull keeps the stored value if a PATCH has null.
func (f Field) KeepIfNull() Field { f.keepIfNull = true; return f }

// Immutable rejects changes of the field at this version after it has a value. Package validation of the frontend checks
// the fields that no version may change.
func (f Field) Immutable() Field { f.immutable = true; return f }

// WriteZero writes the field even if it is zero or empty. It writes an object of a pointer that is set.
func (f Field) WriteZero() Field { f.writeZero = true; return f }

// With returns the table with fields added to the object at path, or replaced if it has fields of the same name. The empty
// path is the table itself.
func (f Field) With(path string, fields ...Field) Field {
	return f.edit(path, path, func(f Field) Field {
		f.fields = slices.Clone(f.fields)
		for _, field := range fields {
			if i := f.find(field.name); i >= 0 {
				f.fields[i] = field
				continue
			}
			f.fields = append(f.fields, field)
		}
		return f
	})
}

// Without returns the table without the named fields of the object at path. It panics if there is no such field.
func (f Field) Without(path string, names ...string) Field {
	return f.edit(path, path, func(f Field) Field {
		f.fields = slices.Clone(f.fields)
		for _, name := range names {
			i := f.find(name)
			if i < 0 {
				panic(fmt.Sprintf("shape: the table has no field %s.%s to remove", path, name))
			}
			f.fields = slices.Delete(f.fields, i, i+1)
		}
		return f
	})
}

// edit applies change to the object at the path rest below f. path is the complete path, for the message of a panic.
func (f Field) edit(rest, path string, change func(Field) Field) Field {
	if rest == "" {
		return change(f)
	}
	name, rest, _ := strings.Cut(rest, ".")
	i := f.find(name)
	if i < 0 {
		panic(fmt.Sprintf("shape: the table has no object %s to change", path))
	}
	f.fields = slices.Clone(f.fields)
	f.fields[i] = f.fields[i].edit(rest, path, change)
	return f
}

func (f Field) find(name string) int {
	return slices.IndexFunc(f.fields, func(field Field) bool { return field.name == name })
}
