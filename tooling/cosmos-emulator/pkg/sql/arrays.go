package sql

import (
	"slices"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// arrayContains is ARRAY_CONTAINS. It compares whole elements or, if the third argument is true, parts of objects.
func arrayContains(a []document.Value) document.Value {
	if a[0].Kind != document.Array || !a[1].IsDefined() {
		return undefined
	}
	partial := len(a) == 3 && a[2].IsTrue()
	for _, v := range a[0].Arr {
		if document.Equal(v, a[1]) || partial && containsProperties(v, a[1]) {
			return document.True
		}
	}
	return document.False
}

// containsProperties reports whether v has all properties of part, recursively.
func containsProperties(v, part document.Value) bool {
	if v.Kind != document.Object || part.Kind != document.Object {
		return document.Equal(v, part)
	}
	for _, m := range part.Obj {
		if !containsProperties(v.Get(m.Name), m.Value) {
			return false
		}
	}
	return true
}

// arrayContainsAny is ARRAY_CONTAINS_ALL if all is true, and ARRAY_CONTAINS_ANY otherwise.
func arrayContainsAny(a []document.Value, all bool) document.Value {
	if a[0].Kind != document.Array {
		return undefined
	}
	for _, want := range a[1:] {
		found := slices.ContainsFunc(a[0].Arr, func(v document.Value) bool { return document.Equal(v, want) })
		if found != all {
			return document.FromBool(!all)
		}
	}
	return document.FromBool(all)
}

// arraySlice is ARRAY_SLICE. A negative start counts from the end.
func arraySlice(a []document.Value) document.Value {
	start, ok := integer(a[1])
	if a[0].Kind != document.Array || !ok {
		return undefined
	}
	n := len(a[0].Arr)
	if start < 0 {
		start += n
	}
	start = min(max(start, 0), n)
	length := n - start
	if len(a) == 3 {
		want, ok := integer(a[2])
		if !ok {
			return undefined
		}
		length = min(max(want, 0), length)
	}
	return document.FromArray(slices.Clone(a[0].Arr[start : start+length]))
}

// setOperation is SETINTERSECT if intersect is true, and SETUNION otherwise.
func setOperation(a []document.Value, intersect bool) document.Value {
	if !allKind(document.Array, a) {
		return undefined
	}
	has := func(vs []document.Value, w document.Value) bool {
		return slices.ContainsFunc(vs, func(v document.Value) bool { return document.Equal(v, w) })
	}
	out := []document.Value{}
	for _, v := range a[0].Arr {
		if (!intersect || has(a[1].Arr, v)) && !has(out, v) {
			out = append(out, v)
		}
	}
	if !intersect {
		for _, v := range a[1].Arr {
			if !has(out, v) {
				out = append(out, v)
			}
		}
	}
	return document.FromArray(out)
}

// objectToArray is OBJECTTOARRAY.
func objectToArray(a []document.Value) document.Value {
	if a[0].Kind != document.Object || !allKind(document.String, a[1:]) {
		return undefined
	}
	key, value := "k", "v"
	if len(a) > 1 {
		key = a[1].Str
	}
	if len(a) > 2 {
		value = a[2].Str
	}
	out := []document.Value{}
	for _, m := range a[0].Obj {
		out = append(out, document.Value{Kind: document.Object, Obj: []document.Member{
			{Name: key, Value: document.FromString(m.Name)}, {Name: value, Value: m.Value}}})
	}
	return document.FromArray(out)
}
