package sql

import (
	"math"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// undefined is the value of missing properties and invalid operations.
var undefined = document.Value{}

func (n *literal) eval(*env) document.Value { return n.value }
func (n *param) eval(e *env) document.Value { return e.params[n.name] }

func (n *ident) eval(e *env) document.Value {
	if n.slot == rootSlot {
		return e.vars[len(e.vars)-1]
	}
	return e.vars[n.slot]
}

func (n *property) eval(e *env) document.Value { return n.operand.eval(e).Get(n.name) }

func (n *index) eval(e *env) document.Value {
	of, at := n.operand.eval(e), n.index.eval(e)
	switch at.Kind {
	case document.String:
		return of.Get(at.Str)
	case document.Number:
		if at.Num == math.Trunc(at.Num) && math.Abs(at.Num) < 1<<31 {
			return of.Index(int(at.Num))
		}
	}
	return undefined
}

func (n *unary) eval(e *env) document.Value {
	v := n.operand.eval(e)
	switch {
	case n.op == "NOT" && v.Kind == document.Bool:
		return document.FromBool(!v.Bool)
	case v.Kind != document.Number:
		return undefined
	case n.op == "-":
		return document.FromNumber(-v.Num)
	case n.op == "+":
		return document.FromNumber(v.Num)
	case n.op == "~":
		return document.FromNumber(float64(^int32(int64(v.Num))))
	}
	return undefined
}

// eval of AND and OR returns the first decisive operand. Without one, an operand that is not a boolean makes the result
// undefined.
func (n *logical) eval(e *env) document.Value {
	decisive := n.op == "OR"
	unknown := false
	for _, item := range n.items {
		v := item.eval(e)
		if v.Kind != document.Bool {
			unknown = true
		} else if v.Bool == decisive {
			return v
		}
	}
	if unknown {
		return undefined
	}
	return document.FromBool(!decisive)
}

func (n *binary) eval(e *env) document.Value {
	left := n.left.eval(e)
	if n.op == "??" {
		if left.IsDefined() {
			return left
		}
		return n.right.eval(e)
	}
	right := n.right.eval(e)
	switch n.op {
	case "=", "!=", "<", "<=", ">", ">=":
		return compare(n.op, left, right)
	case "||":
		if left.Kind == document.String && right.Kind == document.String {
			return document.FromString(left.Str + right.Str)
		}
		return undefined
	}
	if left.Kind != document.Number || right.Kind != document.Number {
		return undefined
	}
	return arithmetic(n.op, left.Num, right.Num)
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

// arithmetic evaluates an arithmetic or bitwise operator.
func arithmetic(op string, a, b float64) document.Value {
	switch op {
	case "+":
		return document.FromNumber(a + b)
	case "-":
		return document.FromNumber(a - b)
	case "*":
		return document.FromNumber(a * b)
	case "/":
		return document.FromNumber(a / b)
	case "%":
		return document.FromNumber(math.Mod(a, b))
	}
	// Bitwise operators use 32-bit integers, as in JavaScript.
	x, y := int32(int64(a)), int32(int64(b))
	shift := uint32(y) & 31
	switch op {
	case "|":
		return document.FromNumber(float64(x | y))
	case "&":
		return document.FromNumber(float64(x & y))
	case "^":
		return document.FromNumber(float64(x ^ y))
	case "<<":
		return document.FromNumber(float64(x << shift))
	case ">>":
		return document.FromNumber(float64(x >> shift))
	case ">>>":
		return document.FromNumber(float64(uint32(x) >> shift))
	}
	return undefined
}

func (n *ternary) eval(e *env) document.Value {
	if n.cond.eval(e).IsTrue() {
		return n.yes.eval(e)
	}
	return n.no.eval(e)
}

// eval of IN is the OR of its equalities. An item of another type makes a result without a match undefined: then neither
// IN nor NOT IN is true.
func (n *in) eval(e *env) document.Value {
	v := n.operand.eval(e)
	unknown := false
	for _, item := range n.list {
		switch same := compare("=", v, item.eval(e)); {
		case same.IsTrue():
			return document.FromBool(!n.not)
		case !same.IsDefined():
			unknown = true
		}
	}
	if unknown {
		return undefined
	}
	return document.FromBool(n.not)
}

func (n *between) eval(e *env) document.Value {
	v := n.operand.eval(e)
	low, high := compare(">=", v, n.low.eval(e)), compare("<=", v, n.high.eval(e))
	if low.Kind != document.Bool || high.Kind != document.Bool {
		return undefined
	}
	return document.FromBool((low.Bool && high.Bool) != n.not)
}

func (n *like) eval(e *env) document.Value {
	v, pattern := n.operand.eval(e), n.pattern.eval(e)
	if v.Kind != document.String || pattern.Kind != document.String {
		return undefined
	}
	escape := rune(-1)
	if n.escape != nil {
		c := []rune(n.escape.eval(e).Str)
		if len(c) != 1 {
			return undefined
		}
		escape = c[0]
	}
	return document.FromBool(matchLike([]rune(v.Str), likeTokens(pattern.Str, escape)) != n.not)
}

// likeToken is one element of a LIKE pattern.
type likeToken struct {
	any, one bool
	char     rune
	set      []rune // pairs of bounds
	negated  bool
}

// likeTokens parses a LIKE pattern.
func likeTokens(pattern string, escape rune) []likeToken {
	var out []likeToken
	rs := []rune(pattern)
	for i := 0; i < len(rs); i++ {
		switch r := rs[i]; {
		case r == escape && i+1 < len(rs):
			i++
			out = append(out, likeToken{char: rs[i]})
		case r == '%':
			out = append(out, likeToken{any: true})
		case r == '_':
			out = append(out, likeToken{one: true})
		case r == '[':
			end := i + 1
			for end < len(rs) && rs[end] != ']' {
				end++
			}
			if end == len(rs) {
				out = append(out, likeToken{char: r})
				continue
			}
			t := likeToken{set: []rune{}}
			body := rs[i+1 : end]
			if len(body) > 0 && body[0] == '^' {
				t.negated, body = true, body[1:]
			}
			for j := 0; j < len(body); j++ {
				if j+2 < len(body) && body[j+1] == '-' {
					t.set = append(t.set, body[j], body[j+2])
					j += 2
					continue
				}
				t.set = append(t.set, body[j], body[j])
			}
			out = append(out, t)
			i = end
		default:
			out = append(out, likeToken{char: r})
		}
	}
	return out
}

// matches reports whether the element matches one character.
func (t likeToken) matches(r rune) bool {
	switch {
	case t.one:
		return true
	case t.set == nil:
		return t.char == r
	}
	for i := 0; i < len(t.set); i += 2 {
		if r >= t.set[i] && r <= t.set[i+1] {
			return !t.negated
		}
	}
	return t.negated
}

// matchLike backtracks only to the last '%', so its time is proportional to the product of the lengths.
func matchLike(s []rune, pattern []likeToken) bool {
	i, j, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case j < len(pattern) && pattern[j].any:
			star, mark = j, i
			j++
		case j < len(pattern) && pattern[j].matches(s[i]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = mark, star+1
		default:
			return false
		}
	}
	for j < len(pattern) && pattern[j].any {
		j++
	}
	return j == len(pattern)
}

func (n *arrayOf) eval(e *env) document.Value {
	out := make([]document.Value, 0, len(n.items))
	for _, item := range n.items {
		if v := item.eval(e); v.IsDefined() {
			out = append(out, v)
		}
	}
	return document.FromArray(out)
}

func (n *objectOf) eval(e *env) document.Value {
	out := document.Value{Kind: document.Object}
	for i, item := range n.items {
		if v := item.eval(e); v.IsDefined() {
			out = out.With(n.names[i], v)
		}
	}
	return out
}

func (n *call) eval(e *env) document.Value {
	args := make([]document.Value, len(n.args))
	for i, a := range n.args {
		args[i] = a.eval(e)
	}
	return n.fn(args)
}

func (n *aggregate) eval(e *env) document.Value { return e.aggregates[n.slot] }
func (n *groupRef) eval(e *env) document.Value  { return e.groups[n.slot] }

func (n *subquery) eval(e *env) document.Value {
	outer := *e
	outer.vars = e.vars[:n.query.depth:n.query.depth]
	switch n.kind {
	case "EXISTS":
		found := false
		n.query.runSubquery(&outer, func(document.Value) bool { found = true; return false })
		return document.FromBool(found)
	case "ARRAY":
		out := []document.Value{}
		n.query.runSubquery(&outer, func(v document.Value) bool { out = append(out, v); return true })
		return document.FromArray(out)
	default:
		var out document.Value
		count := 0
		n.query.runSubquery(&outer, func(v document.Value) bool { out = v; count++; return count < 2 })
		if count != 1 {
			return undefined
		}
		return out
	}
}

// typeName returns the name of a value's type in messages and for TYPE.
func typeName(v document.Value) string {
	return strings.ToLower([]string{"undefined", "null", "boolean", "number", "string", "array", "object"}[v.Kind])
}
