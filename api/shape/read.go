package shape

import (
	"reflect"
	"slices"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// read takes the object's fields out of o, which is nil when it is absent, and puts them over what v holds.
func (n *node) read(o *wire.Object, v reflect.Value, defaults bool) {
	for _, field := range n.fields {
		switch field.kind {
		case value:
			field.readValue(o, field.in(v), defaults)
		case object:
			if field.shows {
				continue
			}
			field.readObject(o, field.in(v), defaults)
		case list:
			field.readList(o, field.in(v))
		case table:
			field.readMap(o, field.in(v))
		case unsaid:
			field.imply(v)
		}
	}
}

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
	if inner == nil && n.kept && defaults && !v.IsZero() {
		return
	}
	if v.Kind() != reflect.Pointer {
		n.read(inner, v, defaults)
		return
	}
	if inner == nil {
		v.SetZero()
		return
	}
	// What v points to belongs to base.
	fresh := reflect.New(n.within)
	if !v.IsNil() {
		fresh.Elem().Set(v.Elem())
	}
	n.read(inner, fresh.Elem(), defaults)
	v.Set(fresh)
}

func (n *node) readList(o *wire.Object, v reflect.Value) {
	elements := o.Children(n.name)
	if len(elements) == 0 {
		v.SetZero()
		return
	}
	fresh := reflect.MakeSlice(n.typ, len(elements), len(elements))
	for i, element := range elements {
		n.read(element, fresh.Index(i), true)
	}
	v.Set(fresh)
}

func (n *node) readMap(o *wire.Object, v reflect.Value) {
	stored := map[string]reflect.Value{}
	for each := v.MapRange(); each.Next(); {
		stored[hub.Key(each.Key().String())] = each.Value()
	}
	v.SetZero()
	o.Child(n.name).EachObject(func(key string, element *wire.Object) {
		fresh := reflect.New(n.within).Elem()
		if before, ok := stored[hub.Key(key)]; ok {
			fresh.Set(before)
		}
		n.read(element, fresh, true)
		if v.IsNil() {
			v.Set(reflect.MakeMap(n.typ))
		}
		v.SetMapIndex(reflect.ValueOf(key), fresh)
	})
}

func (n *node) readValue(o *wire.Object, v reflect.Value, defaults bool) {
	if !o.HasValue(n.name) {
		if stays := n.stays(o, v, defaults); !stays {
			n.setAbsent(o, v, defaults)
		}
		return
	}
	if n.typ.Kind() == reflect.String {
		n.readText(o, v, defaults)
		return
	}
	n.setAbsent(o, v, defaults)
	readers[n.typ](o, n.name, v)
}

func (n *node) readText(o *wire.Object, v reflect.Value, defaults bool) {
	before := v.String()
	n.setAbsent(o, v, defaults)
	text := v.String()
	if n.words == nil {
		text = o.String(n.name, text)
	} else {
		text = o.Enum(n.name, text, n.words...)
	}
	if n.fixed && before != "" && text != before {
		o.AddProblem(n.name, "Forbidden: field is immutable")
		text = before
	}
	v.SetString(text)
}

// stays says whether a field that is not in the body keeps what is stored.
func (n *node) stays(o *wire.Object, v reflect.Value, defaults bool) bool {
	if v.IsZero() {
		return false
	}
	unsayable := n.words != nil && !slices.Contains(n.words, v.String()) && !n.without.IsValid()
	return unsayable || n.kept && defaults
}

func (n *node) setAbsent(o *wire.Object, v reflect.Value, defaults bool) {
	switch {
	case o == nil && n.without.IsValid():
		v.Set(n.without)
	case defaults && n.fallback.IsValid():
		v.Set(n.fallback)
	default:
		v.SetZero()
	}
}

// readers read what is no text, leaving what is there when the body's value is malformed.
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
