package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

// judge compares typed results with the responses.
type judge struct {
	// required maps types to their required fields, from the source of the client.
	required map[string]map[string]bool
}

// newJudge reads the required fields from the comments of the client's source, because the types do not contain them.
func newJudge(folder string) (*judge, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), filepath.Join(folder, "models.go"), nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("reading the client's models: %w", err)
	}
	j, found := &judge{required: map[string]map[string]bool{}}, 0
	ast.Inspect(syntax, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		structure, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		fields := map[string]bool{}
		for _, field := range structure.Fields.List {
			if len(field.Names) == 1 && strings.Contains(field.Doc.Text(), "REQUIRED;") {
				fields[field.Names[0].Name] = true
				found++
			}
		}
		j.required[spec.Name.Name] = fields
		return false
	})
	if found == 0 {
		return nil, errors.New("the client's models require nothing: their comments are read wrongly")
	}
	return j, nil
}

// check compares a typed result with its body. Encoding the result again must yield the body, so that the client has a field for
// everything, and all required fields must be present.
func (j *judge) check(value any, body []byte) error {
	again, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var got, want any
	if err := json.Unmarshal(again, &got); err != nil {
		return err
	}
	if err := json.Unmarshal(body, &want); err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	complaints := append(differences("", got, want), j.missing("", reflect.ValueOf(value))...)
	if len(complaints) > 0 {
		return fmt.Errorf("as %T:\n  %s\nthe body was %s", value, strings.Join(complaints, "\n  "), body)
	}
	return nil
}

// missing returns the missing required fields.
func (j *judge) missing(path string, value reflect.Value) []string {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return nil
		}
		return j.missing(path, value.Elem())
	case reflect.Slice:
		var complaints []string
		for i := range value.Len() {
			complaints = append(complaints, j.missing(fmt.Sprintf("%s[%d]", path, i), value.Index(i))...)
		}
		return complaints
	case reflect.Map:
		var complaints []string
		for _, key := range value.MapKeys() {
			complaints = append(complaints, j.missing(fmt.Sprintf("%s[%s]", path, key), value.MapIndex(key))...)
		}
		return complaints
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[time.Time]() {
			return nil
		}
		required := j.required[value.Type().Name()]
		var complaints []string
		for i := range value.NumField() {
			field := value.Type().Field(i)
			at := path + "." + field.Name
			if required[field.Name] && value.Field(i).IsNil() {
				complaints = append(complaints, at+" is required and not there")
			}
			complaints = append(complaints, j.missing(at, value.Field(i))...)
		}
		return complaints
	}
	return nil
}

// differences returns the differences between the body and the encoded result.
func differences(path string, got, want any) []string {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return []string{fmt.Sprintf("%s: %v became %v", path, want, got)}
		}
		var complaints []string
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if _, ok := object[name]; !ok {
				complaints = append(complaints, path+"."+name+": the client has no word for it")
				continue
			}
			complaints = append(complaints, differences(path+"."+name, object[name], want[name])...)
		}
		for _, name := range slices.Sorted(maps.Keys(object)) {
			if _, ok := want[name]; !ok {
				complaints = append(complaints, path+"."+name+": is not in the body")
			}
		}
		return complaints
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return []string{fmt.Sprintf("%s: %v became %v", path, want, got)}
		}
		var complaints []string
		for i := range want {
			complaints = append(complaints, differences(fmt.Sprintf("%s[%d]", path, i), list[i], want[i])...)
		}
		return complaints
	}
	if got == want || sameInstant(got, want) {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v became %v", path, want, got)}
}

// sameInstant reports whether two values are the same point in time in different notations.
func sameInstant(a, b any) bool {
	parse := func(value any) (time.Time, bool) {
		text, ok := value.(string)
		if !ok {
			return time.Time{}, false
		}
		at, err := time.Parse(time.RFC3339Nano, text)
		return at, err == nil
	}
	first, ok := parse(a)
	second, okay := parse(b)
	return ok && okay && first.Equal(second)
}
