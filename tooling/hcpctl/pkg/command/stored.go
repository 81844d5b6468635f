package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
)

// checkStored returns an error that names each property of a merge patch (RFC 7396) that a resource does not have after the operation
// of the patch.
func checkStored(k kind, patch, stored armclient.Resource) error {
	fields := map[string]shape.Entry{}
	for _, entry := range k.fields() {
		fields[entry.Path] = entry
	}
	wanted, err := asJSON(patch)
	if err != nil {
		return err
	}
	c := comparison{fields: fields}
	c.object("", "", wanted, stored)
	if len(c.differences) == 0 {
		return nil
	}
	return fmt.Errorf("the operation succeeded, but the %s does not have what was requested; another request may have changed it:\n  %s",
		k.noun, strings.Join(c.differences, "\n  "))
}

// asJSON returns a resource with the types that JSON is decoded to, so that values can be compared.
func asJSON(resource armclient.Resource) (map[string]any, error) {
	text, err := json.Marshal(resource)
	if err != nil {
		return nil, err
	}
	var decoded map[string]any
	return decoded, json.Unmarshal(text, &decoded)
}

// comparison collects the properties of a patch that a resource does not have.
type comparison struct {
	// fields holds the fields of the resource by their path, with [] after lists and [*] after maps.
	fields      map[string]shape.Entry
	differences []string
}

// object compares an object, or a map. field is its path in fields, and shown its path in messages.
func (c *comparison) object(field, shown string, want, got map[string]any) {
	isMap := c.isMap(field)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		child, path := name, name
		switch {
		case isMap:
			child, path = field+"[*]", shown+"["+name+"]"
		case field != "":
			child, path = field+"."+name, shown+"."+name
		}
		value := got[name]
		if isMap {
			value = valueFold(got, name)
		}
		c.value(child, path, want[name], value)
	}
}

// isMap reports whether a field maps names to values. Its names are compared without case: they are tags, identities or operators.
func (c *comparison) isMap(field string) bool {
	kind := c.fields[field].Type
	return kind == "map" || kind == "string map"
}

// value compares a value.
func (c *comparison) value(field, shown string, want, got any) {
	entry := c.fields[field]
	if entry.ReadOnly || entry.NotStored {
		return
	}
	switch want := want.(type) {
	case nil:
		c.removed(field, shown, got)
		return
	case map[string]any:
		object, _ := got.(map[string]any)
		c.object(field, shown, want, object)
		return
	case []any:
		list, _ := got.([]any)
		if len(list) == len(want) {
			for i := range want {
				c.value(field+"[]", fmt.Sprintf("%s[%d]", shown, i), want[i], list[i])
			}
			return
		}
	default:
		if equalScalars(field, want, got) {
			return
		}
	}
	c.differences = append(c.differences, fmt.Sprintf("%s is %s, not %s", shown, inJSON(got), inJSON(want)))
}

// removed compares a value that was removed, so that it is absent, empty or the default.
func (c *comparison) removed(field, shown string, got any) {
	if object, ok := got.(map[string]any); ok && !c.isMap(field) {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			c.value(field+"."+name, shown+"."+name, nil, object[name])
		}
		return
	}
	if isZero(got) || fmt.Sprint(got) == c.fields[field].Default {
		return
	}
	c.differences = append(c.differences, fmt.Sprintf("%s is %s, not removed", shown, inJSON(got)))
}

// equalScalars reports whether ARM treats two scalars of a field as equal. Resource IDs and locations have no case, and an absent value is an
// empty one.
func equalScalars(field string, want, got any) bool {
	if want == got || isZero(want) && isZero(got) {
		return true
	}
	a, isText := want.(string)
	b, both := got.(string)
	switch {
	case !isText || !both:
		return false
	case field == "location":
		a, b = strings.ReplaceAll(a, " ", ""), strings.ReplaceAll(b, " ", "")
	case !strings.HasPrefix(a, "/"):
		return false
	}
	return strings.EqualFold(a, b)
}

// isZero reports whether a value is absent or empty.
func isZero(value any) bool {
	if value == nil {
		return true
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.Map || v.Kind() == reflect.Slice {
		return v.Len() == 0
	}
	return reflect.ValueOf(value).IsZero()
}

// inJSON returns a value as it is written in JSON, or "absent".
func inJSON(value any) string {
	if value == nil {
		return "absent"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(text)
}
