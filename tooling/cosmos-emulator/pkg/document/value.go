// Package document implements the JSON values of the emulator: bodies of items, parameters of queries and components of
// partition keys.
//
// Unlike maps of encoding/json, a Value preserves the order of properties and the text of numbers, so that clients read
// exactly what they wrote. It also represents undefined, the value of a missing property, which the query language
// distinguishes from null. Values are immutable after they are built.
package document

import (
	"cmp"
	"math"
	"strings"
)

// Kind is the type of a Value.
type Kind uint8

// The kinds, in the order in which ORDER BY sorts values of different types.
const (
	Undefined Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// Value is a JSON value. The zero Value is undefined.
type Value struct {
	Kind Kind
	Bool bool
	// Num is the value of a number. Str is its text in the document, or empty for a computed number.
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

// The booleans.
var (
	True  = Value{Kind: Bool, Bool: true}
	False = Value{Kind: Bool}
)

// FromBool returns a boolean.
func FromBool(b bool) Value { return Value{Kind: Bool, Bool: b} }

// FromNumber returns a number. NaN and the infinities have no JSON form and become undefined.
func FromNumber(n float64) Value {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return Value{}
	}
	return Value{Kind: Number, Num: n}
}

// FromString returns a string.
func FromString(s string) Value { return Value{Kind: String, Str: s} }

// FromArray returns an array that takes ownership of vs.
func FromArray(vs []Value) Value { return Value{Kind: Array, Arr: vs} }

// IsDefined reports whether the value is not undefined.
func (v Value) IsDefined() bool { return v.Kind != Undefined }

// IsTrue reports whether the value is the boolean true.
func (v Value) IsTrue() bool { return v.Kind == Bool && v.Bool }

// Get returns a property. It is undefined if v is not an object or has no such property.
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

// Path returns the value at a path of property names. A path never selects elements of arrays.
func (v Value) Path(names []string) Value {
	for _, n := range names {
		v = v.Get(n)
	}
	return v
}

// With returns a copy of the object with a property set. An existing property keeps its position.
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

// Equal reports deep equality. Numbers are compared by value and objects regardless of the order of their properties.
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

// Compare is the order of ORDER BY: by kind, then by value. Arrays are equal to each other, and so are objects, because the service defines
// no order for them.
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
	}
	return 0
}
