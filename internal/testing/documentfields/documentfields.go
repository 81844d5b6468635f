// Package documentfields rewrites the fields of documents for tests, as somebody who can write to the database may. A test that calls Each covers the fields that
// are added to a document later.
package documentfields

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// later is the value of a time that had none.
var later = time.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC)

// Each calls each for the fields of a document of type T, with their names in JSON and with a function that gives the field of a document another value. The fields of
// a struct have names such as owner.objectId. values are the other values of fields for which any value is not enough.
func Each[T any](t testing.TB, values map[string]any, each func(name string, rewrite func(*T))) {
	t.Helper()
	unused := maps.Clone(values)
	eachField(reflect.TypeFor[T](), "", nil, func(name string, at []int) {
		value, special := values[name]
		delete(unused, name)
		each(name, func(document *T) {
			field := reflect.ValueOf(document).Elem()
			for _, index := range at {
				if field.Kind() == reflect.Pointer {
					// The copy of a document shares what its pointers lead to.
					copied := reflect.New(field.Type().Elem())
					if !field.IsNil() {
						copied.Elem().Set(field.Elem())
					}
					field.Set(copied)
					field = copied.Elem()
				}
				field = field.Field(index)
			}
			if special {
				field.Set(reflect.ValueOf(value).Convert(field.Type()))
				return
			}
			field.Set(another(field))
		})
	})
	if len(unused) > 0 {
		t.Fatalf("%s has no fields %q", reflect.TypeFor[T](), slices.Sorted(maps.Keys(unused)))
	}
}

// eachField calls each for the fields of a struct with the indexes that lead to them.
func eachField(structure reflect.Type, path string, index []int, each func(name string, at []int)) {
	for i := range structure.NumField() {
		field := structure.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		at := append(slices.Clone(index), i)
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() {
			eachField(inner, path+name+".", at, each)
			continue
		}
		each(path+name, at)
	}
}

// another returns a value that differs from a value.
func another(value reflect.Value) reflect.Value {
	result := reflect.New(value.Type()).Elem()
	switch known := value.Interface().(type) {
	case time.Time:
		if known.IsZero() {
			return reflect.ValueOf(later)
		}
		return reflect.ValueOf(known.Add(24 * time.Hour))
	case json.RawMessage:
		return reflect.ValueOf(json.RawMessage(`{"rewritten":true}`))
	}
	switch value.Kind() {
	case reflect.String:
		result.SetString("rewritten")
	case reflect.Bool:
		result.SetBool(!value.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		result.SetInt(value.Int() + 1)
	case reflect.Uint8:
		result.SetUint(value.Uint() + 1)
	case reflect.Pointer:
		inner := reflect.New(value.Type().Elem())
		if !value.IsNil() {
			inner.Elem().Set(value.Elem())
		}
		inner.Elem().Set(another(inner.Elem()))
		return inner
	case reflect.Slice:
		element := another(reflect.New(value.Type().Elem()).Elem())
		return reflect.Append(reflect.AppendSlice(result, value), element)
	case reflect.Struct:
		result.Set(value)
		result.Field(0).Set(another(value.Field(0)))
	default:
		panic(fmt.Sprintf("documentfields: the kind %s is not supported", value.Type()))
	}
	return result
}
