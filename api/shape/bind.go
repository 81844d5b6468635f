package shape

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Converter converts between the hub's resource R, whose reported status is S, and its wire form at one api-version. It
// is safe for concurrent use.
type Converter[R, S any] struct {
	root *node
	// paths maps hub paths to wire paths.
	paths map[string]string
	// newest is the table of the newest version, which supplies the defaults of a new resource; see WithDefaultsOf.
	newest *node
	form   *wire.Form
}

// Bind connects a table to the hub's types and returns its Converter. It panics if the table and the types do not match.
// Tables consist of constants and are bound when a process starts, so that such a mistake cannot depend on input.
func Bind[R, S any](resource Field) *Converter[R, S] {
	c := &Converter[R, S]{root: bind(resource, reflect.TypeFor[R](), reflect.TypeFor[*S](), ""), paths: map[string]string{}}
	c.root.collect("", c.paths)
	c.form = c.root.form()
	return c
}

// WithDefaultsOf returns a copy of c that applies the defaults of the newest version to a new resource before its own. The
// resource then has a value for every field, including fields that c's version does not have.
func (c *Converter[R, S]) WithDefaultsOf(newest *Converter[R, S]) *Converter[R, S] {
	copied := *c
	copied.newest = newest.root
	return &copied
}

// Encode returns a json.Marshaler for the resource's wire form at this version. Callers must not change the resource and
// the status before they marshal the result.
func (c *Converter[R, S]) Encode(resource *R, state hub.ProvisioningState, status *S) any {
	return encodedResource{c.root, reflect.ValueOf(resource).Elem(), report{state: state, status: status}}
}

// Decode applies a body to base and returns the result. base is the stored resource or, for a new one, a resource with an
// ID, name and type only. The result is a new value that shares the fields without an entry in the table with base.
// Malformed fields are added to the body's problems.
//
// defaults is set for a PUT. A PATCH is decoded without defaults, from the merge of the patch and the resource's wire form.
func (c *Converter[R, S]) Decode(body *wire.Body, base *R, defaults bool) *R {
	resource := *base
	v := reflect.ValueOf(&resource).Elem()
	if c.newest != nil && v.FieldByName("Properties").IsZero() {
		c.newest.read(nil, v, reflect.Value{}, true)
	}
	c.root.read(&body.Object, v, reflect.Value{}, defaults)
	return &resource
}

// node is a Field with its location in the hub type.
type node struct {
	Field
	// index is the path of struct field indices from the enclosing struct to the hub's value; empty for the struct itself.
	index []int
	// typ is the type of the hub's value, and within the type of the struct that holds the fields.
	typ, within reflect.Type
	fields      []*node
	// hub is the JSON path in the hub type.
	hub string
	// other is the node of the field that Field.other names.
	other *node

	defaultValue, implied reflect.Value
	// label is the quoted name with its colon.
	label string
	// readOnly is set for an object without any field to read. Its value in a body is ignored, like a read-only field's.
	readOnly bool
}

// in returns the node's value within the enclosing struct v.
func (n *node) in(v reflect.Value) reflect.Value {
	for _, i := range n.index {
		v = v.Field(i)
	}
	return v
}

// isCollection reports whether a body can set the node and it has entries: a list, a map, or a list or map of strings.
func (n *node) isCollection() bool {
	return n.kind == list || n.kind == mapping || n.kind == value && (n.typ.Kind() == reflect.Slice || n.typ.Kind() == reflect.Map)
}

func bind(f Field, typ, status reflect.Type, hubPath string) *node {
	n := &node{Field: f, typ: typ, hub: hubPath, label: quoted(f.name) + ":"}
	if n.isCollection() && n.atMost <= 0 {
		panic(fmt.Sprintf("shape: %s can have any number of entries; limit it with AtMost", hubPath))
	}
	n.defaultValue, n.implied = constant(f, typ, f.defaultValue), constant(f, typ, f.implied)
	switch f.kind {
	case object:
		n.within = typ
		if typ.Kind() == reflect.Pointer {
			n.within = typ.Elem()
		}
	case list, mapping:
		n.within = typ.Elem()
	case value:
		if _, ok := readers[typ]; !ok && typ.Kind() != reflect.String {
			panic(fmt.Sprintf("shape: %s has type %s, which a body cannot hold", hubPath, typ))
		}
		return n
	default:
		return n
	}
	if n.within.Kind() != reflect.Struct {
		panic(fmt.Sprintf("shape: %s has type %s, not a struct", hubPath, n.within))
	}
	for _, field := range f.fields {
		n.fields = append(n.fields, n.bindField(field, status))
	}
	for _, child := range n.fields {
		if child.Field.other != "" {
			child.other = n.fields[n.find(child.Field.other)]
		}
	}
	n.readOnly = f.kind == object && !slices.ContainsFunc(n.fields, func(child *node) bool {
		return !child.readOnly && child.kind != readOnly && child.kind != reported && child.kind != state
	})
	return n
}

func (n *node) bindField(field Field, status reflect.Type) *node {
	switch {
	case field.kind == state:
		return bind(field, nil, status, "")
	case field.kind == reported:
		field.fromStatus.require(status, field.name)
		return bind(field, nil, status, "")
	case field.shown != nil:
		field.shown.require(status, field.name)
	case field.from == ".":
		return bind(field, n.within, status, n.hub)
	}
	path := field.name
	if field.from != "" {
		path = field.from
	}
	index, typ := find(n.within, path, n.hub)
	child := bind(field, typ, status, join(n.hub, path))
	child.index = index
	return child
}

// require panics if a field is not computed from the type of the resource's status.
func (f *fromStatus) require(status reflect.Type, name string) {
	if f.status != status {
		panic(fmt.Sprintf("shape: %s is computed from a %s, not from a %s", name, f.status, status))
	}
}

// find returns the index and the type of the struct field at a path of JSON names.
func find(typ reflect.Type, path, hubPath string) (index []int, found reflect.Type) {
	for _, name := range strings.Split(path, ".") {
		visible := reflect.VisibleFields(typ)
		i := slices.IndexFunc(visible, func(f reflect.StructField) bool {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return tag == name && !f.Anonymous
		})
		if i < 0 {
			panic(fmt.Sprintf("shape: the hub type has no field %s", join(hubPath, path)))
		}
		index, typ = append(index, visible[i].Index...), visible[i].Type
	}
	return index, typ
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// constant converts a value of a table to the hub's type.
func constant(f Field, typ reflect.Type, value any) reflect.Value {
	if value == nil {
		return reflect.Value{}
	}
	v := reflect.ValueOf(value)
	if typ == nil || !v.CanConvert(typ) || (v.Kind() == reflect.String) != (typ.Kind() == reflect.String) {
		panic(fmt.Sprintf("shape: %v has the wrong type for %s", value, f.name))
	}
	return v.Convert(typ)
}
