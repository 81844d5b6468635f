// Package patch implements partial document updates: a list of add, set, replace, remove, incr and move operations with
// an optional condition. The operations are applied in order, and all or none take effect. The package never changes the
// document that it is given.
package patch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/sql"
)

// MaxOperations is the service's limit of operations in a patch.
const MaxOperations = 10

// ErrConditionNotMet is returned if the document does not meet the condition of the patch.
var ErrConditionNotMet = errors.New("the patch's condition is not met")

// Patch is a parsed patch.
type Patch struct {
	condition  *sql.Query
	operations []operation
}

// operation is one operation of a patch.
type operation struct {
	op    string
	path  []string
	from  []string
	value document.Value
	text  string // the path in the request, for messages
}

// Parse parses the body of a patch request: {"condition": …, "operations": […]}, or only the operations. It rejects
// operations on the forbidden paths, which are those of the partition key.
func Parse(body document.Value, forbidden [][]string) (*Patch, error) {
	list := body
	p := &Patch{}
	if body.Kind == document.Object {
		list = body.Get("operations")
		if c := body.Get("condition"); c.IsDefined() && c.Kind != document.Null {
			if c.Kind != document.String {
				return nil, errors.New("the patch's condition is not a string")
			}
			q, err := sql.ParseCondition(c.Str)
			if err != nil {
				return nil, fmt.Errorf("the patch's condition: %w", err)
			}
			p.condition = q
		}
	}
	if list.Kind != document.Array || len(list.Arr) == 0 {
		return nil, errors.New("the patch has no operations")
	}
	if len(list.Arr) > MaxOperations {
		return nil, fmt.Errorf("the patch has %d operations; the maximum is %d", len(list.Arr), MaxOperations)
	}
	for _, v := range list.Arr {
		o, err := parseOperation(v)
		if err != nil {
			return nil, err
		}
		if err := o.validate(forbidden); err != nil {
			return nil, err
		}
		p.operations = append(p.operations, o)
	}
	return p, nil
}

// parseOperation parses one operation.
func parseOperation(v document.Value) (operation, error) {
	o := operation{op: strings.ToLower(v.Get("op").Str), text: v.Get("path").Str, value: v.Get("value")}
	var err error
	if o.path, err = parsePointer(o.text); err != nil {
		return o, err
	}
	switch o.op {
	case "add", "set", "replace":
		if !o.value.IsDefined() {
			return o, fmt.Errorf("the patch operation %s on %q has no value", o.op, o.text)
		}
	case "incr", "increment":
		o.op = "incr"
		if o.value.Kind != document.Number {
			return o, fmt.Errorf("the patch operation incr on %q needs a number", o.text)
		}
	case "remove":
	case "move":
		if o.from, err = parsePointer(v.Get("from").Str); err != nil {
			return o, err
		}
		if len(o.path) > len(o.from) && slices.Equal(o.path[:len(o.from)], o.from) {
			return o, fmt.Errorf("the patch operation move cannot move %q into itself", v.Get("from").Str)
		}
	default:
		return o, fmt.Errorf("unknown patch operation %q", v.Get("op").Str)
	}
	return o, nil
}

// parsePointer splits a JSON pointer (RFC 6901).
func parsePointer(s string) ([]string, error) {
	if len(s) < 2 || s[0] != '/' {
		return nil, fmt.Errorf("the patch path %q must start with '/' and name a property", s)
	}
	parts := strings.Split(s[1:], "/")
	for i, p := range parts {
		if p == "" {
			return nil, fmt.Errorf("the patch path %q has an empty segment", s)
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

// validate rejects operations on system properties, the ID and forbidden paths.
func (o operation) validate(forbidden [][]string) error {
	for _, path := range [][]string{o.path, o.from} {
		if len(path) == 0 {
			continue
		}
		switch path[0] {
		case "id", "_rid", "_self", "_etag", "_ts", "_attachments":
			return fmt.Errorf("the property %q cannot be patched", path[0])
		}
		for _, f := range forbidden {
			n := min(len(f), len(path))
			if slices.Equal(f[:n], path[:n]) {
				return fmt.Errorf("the partition key %q cannot be patched", "/"+strings.Join(f, "/"))
			}
		}
	}
	return nil
}

// Apply returns the patched document.
func (p *Patch) Apply(doc document.Value) (document.Value, error) {
	if p.condition != nil {
		src := func(_ []byte, visit func([]byte, document.Value) (bool, error)) error {
			_, err := visit(nil, doc)
			return err
		}
		page, err := p.condition.Run(src, nil, nil, 1, math.MaxInt)
		if err != nil {
			return doc, err
		}
		if len(page.Rows) == 0 {
			return doc, ErrConditionNotMet
		}
	}
	for _, o := range p.operations {
		var err error
		if o.op == "move" {
			moved, ok := lookup(doc, o.from)
			if !ok {
				return doc, fmt.Errorf("the patch operation move: no value at %q", "/"+strings.Join(o.from, "/"))
			}
			if doc, err = applyAt(doc, o.from, operation{op: "remove", text: "/" + strings.Join(o.from, "/")}); err != nil {
				return doc, err
			}
			o.op, o.value = "add", moved
		}
		if doc, err = applyAt(doc, o.path, o); err != nil {
			return doc, err
		}
	}
	return doc, nil
}

// lookup returns the value at a path and whether it exists.
func lookup(v document.Value, path []string) (document.Value, bool) {
	for _, p := range path {
		if v.Kind == document.Array {
			i, err := strconv.Atoi(p)
			if err != nil {
				return v, false
			}
			v = v.Index(i)
		} else {
			v = v.Get(p)
		}
	}
	return v, v.IsDefined()
}

// applyAt returns a copy of v with o applied at path. The copy shares unchanged values with v.
func applyAt(v document.Value, path []string, o operation) (document.Value, error) {
	name, last := path[0], len(path) == 1
	switch v.Kind {
	case document.Object:
		old := v.Get(name)
		if !last {
			if !old.IsDefined() {
				return v, fmt.Errorf("the patch operation %s: the parent of %q does not exist", o.op, o.text)
			}
			next, err := applyAt(old, path[1:], o)
			return v.With(name, next), err
		}
		if o.op == "remove" {
			if !old.IsDefined() {
				return v, fmt.Errorf("the patch operation remove: no value at %q", o.text)
			}
			return v.Without(name), nil
		}
		next, err := o.newValue(old)
		return v.With(name, next), err
	case document.Array:
		return applyToElement(v, path, o)
	}
	return v, fmt.Errorf("the patch operation %s: a parent of %q is neither an object nor an array", o.op, o.text)
}

// applyToElement is applyAt for an array.
func applyToElement(v document.Value, path []string, o operation) (document.Value, error) {
	i, err := strconv.Atoi(path[0])
	if path[0] == "-" && len(path) == 1 && (o.op == "add" || o.op == "set") {
		i, err = len(v.Arr), nil
	}
	if err != nil || i < 0 || i > len(v.Arr) {
		return v, fmt.Errorf("the patch operation %s: %q is not an index of the array", o.op, o.text)
	}
	if i == len(v.Arr) && (len(path) > 1 || o.op != "add" && o.op != "set") {
		return v, fmt.Errorf("the patch operation %s: no value at %q", o.op, o.text)
	}
	arr := slices.Clone(v.Arr)
	switch {
	case len(path) > 1:
		if arr[i], err = applyAt(arr[i], path[1:], o); err != nil {
			return v, err
		}
	case o.op == "remove":
		arr = slices.Delete(arr, i, i+1)
	case o.op == "add" || i == len(arr):
		arr = slices.Insert(arr, i, o.value)
	default:
		if arr[i], err = o.newValue(arr[i]); err != nil {
			return v, err
		}
	}
	return document.FromArray(arr), nil
}

// newValue returns the value at the path after the operation.
func (o operation) newValue(old document.Value) (document.Value, error) {
	switch o.op {
	case "replace":
		if !old.IsDefined() {
			return old, fmt.Errorf("the patch operation replace: no value at %q", o.text)
		}
	case "incr":
		if !old.IsDefined() {
			return o.value, nil
		}
		if old.Kind != document.Number {
			return old, fmt.Errorf("the patch operation incr: %q is not a number", o.text)
		}
		return document.FromNumber(old.Num + o.value.Num), nil
	}
	return o.value, nil
}
