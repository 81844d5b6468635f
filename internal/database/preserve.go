package database

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/google/uuid"
)

// preserve returns the JSON of fresh, a value of type t, with the fields that old has in the same place and t does not
// know. Fields and list elements that fresh has dropped lose their unknown fields with them.
func preserve(t reflect.Type, fresh, old json.RawMessage) (json.RawMessage, error) {
	was, err := parse(old)
	if err != nil || !holdsUnknown(t, was) {
		return fresh, err
	}
	is, err := parse(fresh)
	if err != nil {
		return nil, err
	}
	return json.Marshal(graft(t, is, was))
}

// parse keeps numbers in their written form: a float64 does not hold every number that another release may write.
func parse(text []byte) (any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	return value, err
}

// holdsUnknown reports whether value contains a field that t does not know.
func holdsUnknown(t reflect.Type, value any) bool {
	t = concrete(t)
	switch v := value.(type) {
	case map[string]any:
		switch {
		case opaque(t):
		case t.Kind() == reflect.Struct:
			known := fieldsOf(t)
			for name, field := range v {
				inner, ok := known.find(name)
				if !ok || holdsUnknown(inner, field) {
					return true
				}
			}
		case t.Kind() == reflect.Map:
			for _, element := range v {
				if holdsUnknown(t.Elem(), element) {
					return true
				}
			}
		}
	case []any:
		if opaque(t) || t.Kind() != reflect.Slice {
			return false
		}
		for _, element := range v {
			if holdsUnknown(t.Elem(), element) {
				return true
			}
		}
	}
	return false
}

func graft(t reflect.Type, fresh, old any) any {
	t = concrete(t)
	if opaque(t) {
		return fresh
	}
	switch t.Kind() {
	case reflect.Struct:
		is, ok := fresh.(map[string]any)
		was, okToo := old.(map[string]any)
		if !ok || !okToo {
			return fresh
		}
		known := fieldsOf(t)
		for name, value := range was {
			inner, ours := known.find(name)
			kept, present := is[name]
			switch {
			case !ours:
				is[name] = value
			case present:
				is[name] = graft(inner, kept, value)
			}
		}
		return is
	case reflect.Map:
		is, ok := fresh.(map[string]any)
		was, okToo := old.(map[string]any)
		if !ok || !okToo {
			return fresh
		}
		for name, value := range is {
			if before, ok := was[name]; ok {
				is[name] = graft(t.Elem(), value, before)
			}
		}
		return is
	case reflect.Slice:
		is, ok := fresh.([]any)
		was, okToo := old.([]any)
		if !ok || !okToo {
			return fresh
		}
		graftElements(t.Elem(), is, was)
		return is
	}
	return fresh
}

// graftElements pairs the elements of two lists and grafts each pair. Elements with equal known content are pairs;
// otherwise elements with the same identity, if no other element of either list has it.
func graftElements(t reflect.Type, fresh, old []any) {
	if concrete(t).Kind() != reflect.Struct || opaque(concrete(t)) {
		return
	}
	used := make([]bool, len(old))
	matched := make([]bool, len(fresh))
	for _, same := range []func(a any) string{
		func(a any) string { return canonical(t, a) },
		unambiguous(fresh, old),
	} {
		for i, element := range fresh {
			if matched[i] || same(element) == "" {
				continue
			}
			for j, before := range old {
				if used[j] || same(before) != same(element) {
					continue
				}
				fresh[i], used[j], matched[i] = graft(t, element, before), true, true
				break
			}
		}
	}
}

// canonical returns the JSON of the part of value that t knows.
func canonical(t reflect.Type, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	typed := reflect.New(concrete(t))
	if json.Unmarshal(text, typed.Interface()) != nil {
		return ""
	}
	text, err = json.Marshal(typed.Interface())
	if err != nil {
		return ""
	}
	return string(text)
}

// unambiguous returns a function like identity that returns an empty string for identities that occur twice in a list.
// For example, all validation rules of one type have the same type.
func unambiguous(lists ...[]any) func(value any) string {
	repeated := map[string]bool{}
	for _, list := range lists {
		seen := map[string]bool{}
		for _, element := range list {
			name := identity(element)
			repeated[name] = repeated[name] || seen[name]
			seen[name] = true
		}
	}
	return func(value any) string {
		if name := identity(value); !repeated[name] {
			return name
		}
		return ""
	}
}

// identity returns the name of a list element, from the first naming field that it has.
func identity(value any) string {
	object, _ := value.(map[string]any)
	for _, name := range []string{"id", "name", "clientId", "type", "key", "layer", "source"} {
		if text, ok := object[name].(string); ok && text != "" {
			return name + "=" + text
		}
	}
	return ""
}

func concrete(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// opaque reports whether t encodes its own JSON, so that its fields are unknown here.
func opaque(t reflect.Type) bool {
	if t.Kind() == reflect.Interface {
		return true
	}
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// fields maps the JSON names of a struct's fields to their types.
type fields map[string]reflect.Type

// find returns the type of a field. Like encoding/json it ignores casing: a field that differs only by casing was
// decoded as the known field, and must not be kept as an unknown field.
func (f fields) find(name string) (reflect.Type, bool) {
	if t, ok := f[name]; ok {
		return t, true
	}
	for known, t := range f {
		if strings.EqualFold(known, name) {
			return t, true
		}
	}
	return nil, false
}

// fieldsOf returns a struct's fields, including embedded ones.
func fieldsOf(t reflect.Type) fields {
	fields := fields{}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous && name == "" && concrete(field.Type).Kind() == reflect.Struct:
			for inner, innerType := range fieldsOf(concrete(field.Type)) {
				fields[inner] = innerType
			}
		case name == "-" || !field.IsExported():
		case name == "":
			fields[field.Name] = field.Type
		default:
			fields[name] = field.Type
		}
	}
	return fields
}

func newUUID() string { return uuid.NewString() }
