// Package document is the JSON value every other package of the emulator speaks: an item's body, a query's
// parameter, a partition key component. Unlike encoding/json's maps it keeps the order of an object's properties
// and the text of its numbers, so what a client wrote is what it reads back; and it knows "undefined", the value
// of a property that is not there, which the query language tells apart from null. Values are treated as
// immutable once built; only the patch package changes them, on its own copies.
package document

import (
	"cmp"
	"math"
	"strings"
)

// Kind is the type of a Value. The order of the constants is the order of types in ORDER BY.
type Kind uint8

// The kinds, in the order in which the query language sorts values of different types.
const (
	Undefined Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// Value is one JSON value. The zero Value is undefined.
type Value struct {
	Kind Kind
	Bool bool
	// Num is the number's value; Str holds the text it was written in, empty for a computed number.
	Num float64
	Str string
	Arr []Value
	Obj []Member
}

// Member is one property of an object.
type Member struct {
	Name  string
	Value Value
}

// NullValue, True and False are the constants of JSON.
var (
	NullValue = Value{Kind: Null}
	True      = Value{Kind: Bool, Bool: true}
	False     = Value{Kind: Bool}
)

// FromBool, FromNumber, FromString and FromArray build values.
func FromBool(b bool) Value { return Value{Kind: Bool, Bool: b} }

// FromNumber builds a number; NaN and the infinities have no JSON form and are undefined.
func FromNumber(n float64) Value {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return Value{}
	}
	return Value{Kind: Number, Num: n}
}

// FromString builds a string.
func FromString(s string) Value { return Value{Kind: String, Str: s} }

// FromArray builds an array that takes ownership of vs.
func FromArray(vs []Value) Value { return Value{Kind: Array, Arr: vs} }

// IsDefined says whether the value is there at all.
func (v Value) IsDefined() bool { return v.Kind != Undefined }

// IsTrue says whether the value is the boolean true.
func (v Value) IsTrue() bool { return v.Kind == Bool && v.Bool }

// Get returns the property, undefined when v is not an object or has none of that name.
func (v Value) Get(name string) Value {
	if v.Kind != Object {
		return Value{}
	}
	for i := range v.Obj {
		if v.Obj[i].Name == name {
			return v.Obj[i].Value
		}
	}
	return Value{}
}

// Index returns the array's element, undefined when v is not an array or has no such element.
func (v Value) Index(i int) Value {
	if v.Kind != Array || i < 0 || i >= len(v.Arr) {
		return Value{}
	}
	return v.Arr[i]
}

// Path follows property names (and, in arrays, nothing: a path never selects inside an array).
func (v Value) Path(names []string) Value {
	for _, n := range names {
		v = v.Get(n)
	}
	return v
}

// With returns a copy of the object with the property set; an existing one keeps its place.
func (v Value) With(name string, value Value) Value {
	out := Value{Kind: Object, Obj: make([]Member, len(v.Obj), len(v.Obj)+1)}
	copy(out.Obj, v.Obj)
	for i := range out.Obj {
		if out.Obj[i].Name == name {
			out.Obj[i].Value = value
			return out
		}
	}
	out.Obj = append(out.Obj, Member{Name: name, Value: value})
	return out
}

// Without returns a copy of the object without the named properties.
func (v Value) Without(names ...string) Value {
	out := Value{Kind: Object, Obj: make([]Member, 0, len(v.Obj))}
next:
	for _, m := range v.Obj {
		for _, n := range names {
			if m.Name == n {
				continue next
			}
		}
		out.Obj = append(out.Obj, m)
	}
	return out
}

// Equal is deep equality: numbers by value, objects without regard to the order of properties.
// Undefined equals only undefined.
func Equal(a, b Value) bool {
	if a.Kind != b.Kind {
		return false
	}
	switch a.Kind {
	case Bool:
		return a.Bool == b.Bool
	case Number:
		return a.Num == b.Num
	case String:
		return a.Str == b.Str
	case Array:
		if len(a.Arr) != len(b.Arr) {
			return false
		}
		for i := range a.Arr {
			if !Equal(a.Arr[i], b.Arr[i]) {
				return false
			}
		}
	case Object:
		if len(a.Obj) != len(b.Obj) {
			return false
		}
		for _, m := range a.Obj {
			if other := b.Get(m.Name); !other.IsDefined() || !Equal(m.Value, other) {
				return false
			}
		}
	}
	return true
}

// Compare is the total order of ORDER BY, MIN and MAX: first by kind, then by value. Arrays compare element by
// element, objects by their sorted properties (the service defines no order for these two; this one is stable).
func Compare(a, b Value) int {
	if a.Kind != b.Kind {
		return cmp.Compare(a.Kind, b.Kind)
	}
	switch a.Kind {
	case Bool:
		switch {
		case a.Bool == b.Bool:
			return 0
		case b.Bool:
			return -1
		}
		return 1
	case Number:
		return cmp.Compare(a.Num, b.Num)
	case String:
		return strings.Compare(a.Str, b.Str)
	case Array:
		for i := 0; i < len(a.Arr) && i < len(b.Arr); i++ {
			if c := Compare(a.Arr[i], b.Arr[i]); c != 0 {
				return c
			}
		}
		return cmp.Compare(len(a.Arr), len(b.Arr))
	case Object:
		return strings.Compare(Canonical(a), Canonical(b))
	}
	return 0
}
