package shape

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Converter leads between the hub's resource R, of which S is reported, and its form at one api-version. It is safe for
// concurrent use.
type Converter[R, S any] struct {
	root  *node
	paths map[string]string
	// newest is the table of the newest version, whose defaults a resource is made with.
	newest *node
}

// Bind joins a table to the hub's types. It panics when they do not fit, which whoever makes a version learns at once:
// tables are made when a process starts, and of constants only.
func Bind[R, S any](resource Field) *Converter[R, S] {
	c := &Converter[R, S]{root: bind(resource, reflect.TypeFor[R](), reflect.TypeFor[*S](), ""), paths: map[string]string{}}
	c.root.collect("", c.paths)
	return c
}

// WithDefaultsOf has a resource that is made at this version start with the defaults of the newest one, so that it has a value for
// what this version cannot say.
func (c *Converter[R, S]) WithDefaultsOf(newest *Converter[R, S]) *Converter[R, S] {
	under := *c
	under.newest = newest.root
	return &under
}

// Encode makes what is marshalled into an answer: the resource as this version has it. It must not be changed before.
func (c *Converter[R, S]) Encode(resource *R, state hub.ProvisioningState, status *S) any {
	return shownResource{c.root, reflect.ValueOf(resource).Elem(), report{state, status}}
}

// Decode reads a body over base, the resource as it stands, or, for a new one, with only its id, name and type. It returns
// a new resource, which shares with base what was not read. Malformed fields are noted in the body. Defaults are those of
// a PUT; a PATCH is decoded without, from the body merged over the resource as this version shows it.
func (c *Converter[R, S]) Decode(body *wire.Body, base *R, defaults bool) *R {
	resource := *base
	v := reflect.ValueOf(&resource).Elem()
	if c.newest != nil && v.FieldByName("Properties").IsZero() {
		c.newest.read(nil, v, true)
	}
	c.root.read(&body.Object, v, defaults)
	return &resource
}

// node is a Field that knows its place in the hub type.
type node struct {
	Field
	// index leads from the enclosing struct to the hub's value; empty is the enclosing struct itself.
	index []int
	// typ is the type of the hub's value, and within that of the struct that fields are in.
	typ, within reflect.Type
	fields      []*node
	// hub is the JSON path in the hub type.
	hub   string
	other *node

	fallback, without, implied reflect.Value
	// label is the quoted name with its colon.
	label string
	// shows says that an object has nothing to read: what a body says of it is ignored, like all that is only shown.
	shows bool
}

func (n *node) in(v reflect.Value) reflect.Value {
	for _, i := range n.index {
		v = v.Field(i)
	}
	return v
}

func bind(f Field, typ, status reflect.Type, hubPath string) *node {
	n := &node{Field: f, typ: typ, hub: hubPath, label: quoted(f.name) + ":"}
	n.fallback, n.without, n.implied = constant(f, typ, f.fallback), constant(f, typ, f.without), constant(f, typ, f.implied)
	switch f.kind {
	case object:
		n.within = typ
		if typ.Kind() == reflect.Pointer {
			n.within = typ.Elem()
		}
	case list, table:
		n.within = typ.Elem()
	case value:
		if _, ok := readers[typ]; !ok && typ.Kind() != reflect.String {
			panic(fmt.Sprintf("shape: %s is a %s, which no body can hold", hubPath, typ))
		}
		return n
	default:
		return n
	}
	if n.within.Kind() != reflect.Struct {
		panic(fmt.Sprintf("shape: %s is a %s, not a struct", hubPath, n.within))
	}
	for _, field := range f.fields {
		n.fields = append(n.fields, n.bindField(field, status))
	}
	for _, child := range n.fields {
		if child.rival != "" {
			child.other = n.fields[n.find(child.rival)]
		}
	}
	n.shows = f.kind == object && !slices.ContainsFunc(n.fields, func(child *node) bool {
		return !child.shows && child.kind != readOnly && child.kind != reported && child.kind != state
	})
	return n
}

func (n *node) bindField(field Field, status reflect.Type) *node {
	switch {
	case field.kind == state:
		return bind(field, nil, status, "")
	case field.kind == reported:
		if field.shown.status != status {
			panic(fmt.Sprintf("shape: %s is made of a %s, not of a %s", field.name, field.shown.status, status))
		}
		return bind(field, nil, status, "")
	case field.from == ".":
		child := bind(field, n.within, status, n.hub)
		return child
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

// find follows JSON names through structs.
func find(typ reflect.Type, path, hubPath string) (index []int, found reflect.Type) {
	for _, name := range strings.Split(path, ".") {
		visible := reflect.VisibleFields(typ)
		i := slices.IndexFunc(visible, func(f reflect.StructField) bool {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return tag == name && !f.Anonymous
		})
		if i < 0 {
			panic(fmt.Sprintf("shape: the hub has no %s", join(hubPath, path)))
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

// constant is a value of a table as one of the hub's type.
func constant(f Field, typ reflect.Type, value any) reflect.Value {
	if value == nil {
		return reflect.Value{}
	}
	v := reflect.ValueOf(value)
	if typ == nil || !v.CanConvert(typ) || (v.Kind() == reflect.String) != (typ.Kind() == reflect.String) {
		panic(fmt.Sprintf("shape: %v is not a value of %s", value, f.name))
	}
	return v.Convert(typ)
}
