package sql

import (
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// undefined is the value of missing properties and invalid operations.
var undefined = document.Value{}

func (n *literal) eval(*env) document.Value { return n.value }
func (n *param) eval(e *env) document.Value { return e.params[n.name] }
func (n *path) eval(e *env) document.Value  { return e.doc.Path(n.names) }

func (n objectOf) eval(e *env) document.Value {
	out := document.Value{Kind: document.Object, Obj: make([]document.Member, 0, len(n))}
	for _, item := range n {
		if v := item.expression.eval(e); v.IsDefined() {
			out.Obj = append(out.Obj, document.Member{Name: item.name, Value: v})
		}
	}
	return out
}

func (n *not) eval(e *env) document.Value {
	v := n.operand.eval(e)
	if v.Kind != document.Bool {
		return undefined
	}
	return document.FromBool(!v.Bool)
}

// eval of AND and OR returns the first decisive operand. Without one, an operand that is not a boolean makes the result
// undefined.
func (n *chain) eval(e *env) document.Value {
	unknown := false
	for _, item := range n.items {
		v := item.eval(e)
		if v.Kind != document.Bool {
			unknown = true
		} else if v.Bool == n.or {
			return v
		}
	}
	if unknown {
		return undefined
	}
	return document.FromBool(!n.or)
}

func (n *comparison) eval(e *env) document.Value {
	return compare(n.op, n.left.eval(e), n.right.eval(e))
}

// compare compares values of the same type; otherwise the result is undefined. Objects and arrays support only equality.
func compare(op string, a, b document.Value) document.Value {
	if a.Kind != b.Kind || !a.IsDefined() {
		return undefined
	}
	if op == "=" {
		return document.FromBool(document.Equal(a, b))
	}
	if a.Kind == document.Array || a.Kind == document.Object {
		return undefined
	}
	c := document.Compare(a, b)
	switch op {
	case "!=":
		return document.FromBool(c != 0)
	case "<":
		return document.FromBool(c < 0)
	case "<=":
		return document.FromBool(c <= 0)
	case ">":
		return document.FromBool(c > 0)
	default:
		return document.FromBool(c >= 0)
	}
}

// eval of IN is the OR of its equalities. An item of another type makes a result without a match undefined.
func (n *in) eval(e *env) document.Value {
	v := n.operand.eval(e)
	result := document.False
	for _, item := range n.list {
		switch same := compare("=", v, item.eval(e)); {
		case same.IsTrue():
			return same
		case !same.IsDefined():
			result = undefined
		}
	}
	return result
}

// functions are the built-in functions, with their numbers of arguments.
var functions = map[string]struct {
	min, max int
	eval     func(args []document.Value) document.Value
}{
	"IS_DEFINED":   {1, 1, func(args []document.Value) document.Value { return document.FromBool(args[0].IsDefined()) }},
	"STARTSWITH":   {2, 3, stringTest(strings.HasPrefix)},
	"STRINGEQUALS": {2, 3, stringTest(func(a, b string) bool { return a == b })},
}

// stringTest returns a test of two strings with an optional argument to ignore case.
func stringTest(test func(a, b string) bool) func(args []document.Value) document.Value {
	return func(args []document.Value) document.Value {
		if args[0].Kind != document.String || args[1].Kind != document.String {
			return undefined
		}
		a, b := args[0].Str, args[1].Str
		if len(args) == 3 && args[2].IsDefined() {
			if args[2].Kind != document.Bool {
				return undefined
			}
			if args[2].Bool {
				a, b = strings.ToLower(a), strings.ToLower(b)
			}
		}
		return document.FromBool(test(a, b))
	}
}

func (n *call) eval(e *env) document.Value {
	args := make([]document.Value, len(n.args))
	for i, a := range n.args {
		args[i] = a.eval(e)
	}
	return functions[n.name].eval(args)
}
