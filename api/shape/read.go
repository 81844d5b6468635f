package shape

import (
	"reflect"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// read stores the fields of the body's object o in v. o is nil if the object is absent. stored is a slice of the stored values
// of v if v is a new element of a list, and else invalid.
func (n *node) read(o *wire.Object, v, stored reflect.Value, defaults bool) {
	for _, field := range n.fields {
		switch field.kind {
		case value:
			field.readValue(field.limit(o, v, stored), field.in(v), defaults)
		case object:
			if field.readOnly {
				continue
			}
			field.readObject(o, field.in(v), defaults)
		case list:
			field.readList(field.limit(o, v, stored), field.in(v))
		case mapping:
			field.readMap(field.limit(o, v, stored), field.in(v))
		case implied:
			field.imply(v)
		}
	}
}

// limit returns o, or an object with fewer entries if the body has too many for the list or map n, which is a problem of the
// body. An update may keep as many entries as are stored. An element of a list has no stored value of its own: it may have as
// many as any stored element.
func (n *node) limit(o *wire.Object, v, stored reflect.Value) *wire.Object {
	if n.atMost == 0 || o.Len(n.name) <= n.atMost {
		return o
	}
	count := o.Len(n.name)
	if n.kind == value && n.typ.Kind() == reflect.Map {
		count = o.LenOfStrings(n.name, n.dropEmpty)
	}
	most := max(n.atMost, n.in(v).Len())
	if stored.IsValid() {
		for i := range stored.Len() {
			most = max(most, n.in(stored.Index(i)).Len())
		}
	}
	if count <= most {
		o.Keep(n.name)
		return o
	}
	return o.Limit(n.name, count, n.atMost)
}

// imply sets an implied field that is not set.
func (n *node) imply(v reflect.Value) {
	at := n.in(v)
	switch {
	case !at.IsZero():
	case n.other != nil:
		at.Set(n.other.in(v))
	default:
		at.Set(n.implied)
	}
}

func (n *node) readObject(o *wire.Object, v reflect.Value, defaults bool) {
	inner := o.Child(n.name)
	if inner == nil && n.keepIfAbsent && defaults && !v.IsZero() {
		return
	}
	if v.Kind() != reflect.Pointer {
		n.read(inner, v, reflect.Value{}, defaults)
		return
	}
	if inner == nil {
		v.SetZero()
		return
	}
	// The value that v points to belongs to base and must not change.
	copied := reflect.New(n.within)
	if !v.IsNil() {
		copied.Elem().Set(v.Elem())
	}
	n.read(inner, copied.Elem(), reflect.Value{}, defaults)
	v.Set(copied)
}

func (n *node) readList(o *wire.Object, v reflect.Value) {
	elements := o.Children(n.name)
	if len(elements) == 0 {
		v.SetZero()
		return
	}
	values := reflect.MakeSlice(n.typ, len(elements), len(elements))
	for i, element := range elements {
		n.read(element, values.Index(i), v, true)
	}
	v.Set(values)
}

func (n *node) readMap(o *wire.Object, v reflect.Value) {
	stored := map[string]reflect.Value{}
	for each := v.MapRange(); each.Next(); {
		stored[hub.Key(each.Key().String())] = each.Value()
	}
	v.SetZero()
	o.Child(n.name).EachObject(func(key string, element *wire.Object) {
		entry := reflect.New(n.within).Elem()
		if before, ok := stored[hub.Key(key)]; ok {
			entry.Set(before)
		}
		n.read(element, entry, reflect.Value{}, true)
		if v.IsNil() {
			v.Set(reflect.MakeMap(n.typ))
		}
		v.SetMapIndex(reflect.ValueOf(key), entry)
	})
}

func (n *node) readValue(o *wire.Object, v reflect.Value, defaults bool) {
	if !o.HasValue(n.name) {
		switch {
		case n.keeps(v, defaults):
		case n.requiredIfNull && o != nil && !(defaults && n.defaultValue.IsValid()) && !v.IsZero():
			o.AddProblem(n.name, "Required value")
		default:
			n.setAbsent(v, defaults)
		}
		return
	}
	if n.typ.Kind() == reflect.String {
		n.readText(o, v, defaults)
		return
	}
	n.setAbsent(v, defaults)
	readers[n.typ](o, n.name, v)
	if n.dropEmpty {
		for each := v.MapRange(); each.Next(); {
			if each.Value().IsZero() {
				v.SetMapIndex(each.Key(), reflect.Value{})
			}
		}
	}
}

func (n *node) readText(o *wire.Object, v reflect.Value, defaults bool) {
	before := v.String()
	n.setAbsent(v, defaults)
	text := v.String()
	switch {
	case n.enum == nil:
		text = o.String(n.name, text)
	case n.mandatory:
		text = o.MandatoryEnum(n.name, text, n.valuesInBody(before)...)
	default:
		text = o.Enum(n.name, text, n.valuesInBody(before)...)
	}
	if n.immutable && before != "" && text != before {
		o.AddProblem(n.name, "Forbidden: field is immutable")
		text = before
	}
	v.SetString(text)
}

// keeps reports whether a field that is not in the body keeps its stored value v.
func (n *node) keeps(v reflect.Value, defaults bool) bool {
	if v.IsZero() {
		return false
	}
	ofAnotherVersion := n.enum != nil && !slices.Contains(n.enum, v.String())
	return ofAnotherVersion || n.keepIfAbsent && defaults || n.keepIfNull && !defaults
}

// valuesInBody returns the values that a body may have if before is the stored one.
func (n *node) valuesInBody(before string) []string {
	switch {
	case n.supported == nil:
		return n.enum
	case slices.Contains(n.enum, before) && !slices.Contains(n.supported, before):
		return append(slices.Clone(n.supported), before)
	}
	return n.supported
}

// setAbsent sets v to the value of a field that is not in the body.
func (n *node) setAbsent(v reflect.Value, defaults bool) {
	switch {
	case n.defaultValue.IsValid() && (defaults || n.defaultIfNull && !v.IsZero()):
		v.Set(n.defaultValue)
	default:
		v.SetZero()
	}
}

// readers decode the types other than string. They keep the value that is set if the body's value is malformed.
var readers = map[reflect.Type]func(o *wire.Object, name string, v reflect.Value){
	reflect.TypeFor[bool]():  func(o *wire.Object, name string, v reflect.Value) { v.SetBool(o.Bool(name, v.Bool())) },
	reflect.TypeFor[int32](): func(o *wire.Object, name string, v reflect.Value) { v.SetInt(int64(o.Int32(name, int32(v.Int())))) },
	reflect.TypeFor[*int32](): func(o *wire.Object, name string, v reflect.Value) {
		v.Set(reflect.ValueOf(o.OptionalInt32(name)))
	},
	reflect.TypeFor[[]string](): func(o *wire.Object, name string, v reflect.Value) { v.Set(reflect.ValueOf(o.Strings(name))) },
	reflect.TypeFor[map[string]string](): func(o *wire.Object, name string, v reflect.Value) {
		v.Set(reflect.ValueOf(o.StringMap(name)))
	},
}
