package shape

import (
	"reflect"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// maxReadOnly is the most elements of a read-only list in a body in which UnknownField searches.
const maxReadOnly = 100

// Form returns the form of a body: the values that decoding and UnknownField read.
func (c *Converter[R, S]) Form() *wire.Form { return c.form }

// form returns the form of the value of n in a body.
func (n *node) form() *wire.Form {
	children := make(map[string]*wire.Form, len(n.fields))
	for _, child := range n.fields {
		if child.kind != implied {
			children[child.name] = child.form()
		}
	}
	switch {
	case n.kind == object:
		return wire.Fields(children)
	case n.kind == list:
		return wire.List(n.atMost, wire.Fields(children))
	case n.kind == mapping:
		return wire.Map(n.atMost, wire.Fields(children))
	case n.kind != value:
		return n.Field.readOnlyForm()
	case n.typ.Kind() == reflect.Slice:
		return wire.List(n.atMost, wire.Scalar())
	case n.typ.Kind() == reflect.Map && n.dropEmpty:
		return wire.Map(n.atMost, wire.Scalar()).DropEmpty()
	case n.typ.Kind() == reflect.Map:
		return wire.Map(n.atMost, wire.Scalar())
	}
	return wire.Scalar()
}

// readOnlyForm returns the form of a value that is not read. Its objects must not have unknown fields.
func (f Field) readOnlyForm() *wire.Form {
	if len(f.fields) == 0 {
		return wire.Scalar()
	}
	children := make(map[string]*wire.Form, len(f.fields))
	for _, child := range f.fields {
		if child.kind != implied {
			children[child.name] = child.readOnlyForm()
		}
	}
	if f.kind == list {
		return wire.List(maxReadOnly, wire.Fields(children))
	}
	return wire.Fields(children)
}
