// Package shape describes how resources stand on the wire at an api-version: as a table with an entry for each field, from
// which bodies are read and answers are written. A version is the table of the version before it with the entries changed
// that differ, so that reading a version's package is reading what it changed.
//
// An entry names a field by its JSON name. The hub type keeps the value under the same name, unless From says otherwise;
// what kind of JSON value it is follows from the type of the hub's field. Bind joins a table to the hub's types and fails
// at once when they do not fit.
//
// Reading goes over the resource as it stands: what a table has no entry for stays as it was, so that an older version's
// PUT and PATCH keep what they cannot say. Elements of lists are the exception; they are made anew. Writing leaves out
// what is empty: texts, lists, objects without a field to show, and zeros that would be read as zeros when left out.
package shape

import (
	"fmt"
	"slices"
	"strings"
)

// Field is an entry of a table: a field of a JSON object, with what this version says about it. It is a value; each method
// returns a changed copy.
type Field struct {
	name     string
	from     string
	kind     kind
	words    []string
	fallback any
	without  any
	implied  any
	kept     bool
	fixed    bool
	always   bool
	// rival is the other field of the same object that AloneShown and UnsaidLike name.
	rival  string
	shown  *shown
	fields []Field
}

type kind string

const (
	value    kind = "value"
	object   kind = "object"
	list     kind = "list"
	table    kind = "map"
	readOnly kind = "readOnly"
	reported kind = "reported"
	state    kind = "state"
	unsaid   kind = "unsaid"
)

// Resource is the table of a whole resource.
func Resource(fields ...Field) Field { return Field{kind: object, fields: fields} }

// Value is a text, number or truth value, a list of texts, or a map of texts.
func Value(name string) Field { return Field{name: name, kind: value} }

// Object is a JSON object. The hub's field is a struct, or a pointer to one where being there is a statement of its own.
func Object(name string, fields ...Field) Field {
	return Field{name: name, kind: object, fields: fields}
}

// List is an array of objects. A PATCH replaces it as a whole, so defaults are applied to its elements in any case.
func List(name string, fields ...Field) Field { return Field{name: name, kind: list, fields: fields} }

// Map is an object of objects, whose keys are ARM ids: they find what is stored in any casing.
func Map(name string, fields ...Field) Field { return Field{name: name, kind: table, fields: fields} }

// ReadOnly is a value of the resource that the service decides: shown, never read.
func ReadOnly(name string) Field { return Field{name: name, kind: readOnly} }

// State is the provisioning state: shown, never read.
func State(name string) Field { return Field{name: name, kind: state} }

// Implied is a field of the hub that the version cannot say: it becomes the value when its object is read and nothing is
// stored.
func Implied(name string, implied any) Field {
	return Field{name: name, kind: unsaid, implied: implied}
}

// ImpliedFrom is Unsaid, with the value of another field of the same object, which stands before it.
func ImpliedFrom(name, other string) Field { return Field{name: name, kind: unsaid, rival: other} }

// From names the hub's field where its name is another: a path from the hub's value of the enclosing object.
func (f Field) From(path string) Field { f.from = path; return f }

// Inline gives an object no hub value of its own: its fields are those of the enclosing one.
func (f Field) Inline() Field { return f.From(".") }

// OneOf lists the words that a text may be. What is stored and not among them is not shown, and stays.
func (f Field) OneOf(words ...string) Field { f.words = words; return f }

// Default is the value of a field that a PUT leaves out. A PATCH applies it in the elements of lists only, which it replaces.
func (f Field) Default(fallback any) Field { f.fallback = fallback; return f }

// IfObjectAbsent is the value when the object that the field is in is not there at all.
func (f Field) IfObjectAbsent(value any) Field { f.without = value; return f }

// KeepIfAbsent fields that a PUT leaves out stay as they are stored.
func (f Field) KeepIfAbsent() Field { f.kept = true; return f }

// Immutable fields cannot be changed at this version once they have a value. What no version may change is not for tables to say.
func (f Field) Immutable() Field { f.fixed = true; return f }

// WriteZero shows a field even when it is zero or empty.
func (f Field) WriteZero() Field { f.always = true; return f }

// WriteZeroUnless shows a field even when it is zero, if the other field of the same object is not there.
func (f Field) WriteZeroUnless(unless string) Field { f.rival = unless; return f }

// With is the table with fields added to the object at path ("" is the table itself), or put in the place of those of the
// same name.
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

// Without is the table without some fields of the object at path.
func (f Field) Without(path string, names ...string) Field {
	return f.edit(path, path, func(f Field) Field {
		f.fields = slices.Clone(f.fields)
		for _, name := range names {
			i := f.find(name)
			if i < 0 {
				panic(fmt.Sprintf("shape: there is no %s.%s to take away", path, name))
			}
			f.fields = slices.Delete(f.fields, i, i+1)
		}
		return f
	})
}

// edit changes the object at rest below f; path is the whole of it.
func (f Field) edit(rest, path string, change func(Field) Field) Field {
	if rest == "" {
		return change(f)
	}
	name, rest, _ := strings.Cut(rest, ".")
	i := f.find(name)
	if i < 0 {
		panic(fmt.Sprintf("shape: there is no %s to change", path))
	}
	f.fields = slices.Clone(f.fields)
	f.fields[i] = f.fields[i].edit(rest, path, change)
	return f
}

func (f Field) find(name string) int {
	return slices.IndexFunc(f.fields, func(field Field) bool { return field.name == name })
}
