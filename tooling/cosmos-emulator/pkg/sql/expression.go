package sql

import (
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// list parses expressions separated by commas.
func (p *parser) list() ([]expr, error) {
	var out []expr
	for {
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		out = append(out, e)
		if !p.acceptPunct(",") {
			return out, nil
		}
	}
}

// expr parses an expression.
func (p *parser) expr() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	cond, err := p.binaryLevel(0)
	if err != nil || !p.acceptPunct("?") {
		return cond, err
	}
	yes, err := p.expr()
	if err != nil {
		return nil, err
	}
	if err := p.expectPunct(":"); err != nil {
		return nil, err
	}
	no, err := p.expr()
	return &ternary{cond, yes, no}, err
}

// precedence lists the binary operators from the weakest to the strongest. NOT binds between AND and the comparisons.
var precedence = [][]string{{"??"}, {"OR"}, {"AND"}, nil, {"=", "!=", "<>", "<", "<=", ">", ">="}, {"|"}, {"^"}, {"&"},
	{"<<", ">>", ">>>"}, {"||"}, {"+", "-"}, {"*", "/", "%"}}

const (
	levelNot        = 3
	levelComparison = 4
)

// binaryLevel parses a chain of binary operators of the l-th level of precedence.
func (p *parser) binaryLevel(l int) (expr, error) {
	if l == len(precedence) {
		return p.unary()
	}
	if l == levelNot {
		if p.acceptKeyword("NOT") {
			if err := p.enter(); err != nil {
				return nil, err
			}
			defer func() { p.depth-- }()
			e, err := p.binaryLevel(levelNot)
			return &unary{"NOT", e}, err
		}
		return p.binaryLevel(l + 1)
	}
	left, err := p.binaryLevel(l + 1)
	if err != nil {
		return nil, err
	}
	for n := 0; ; n++ {
		// Every operator adds a level of nesting, except in the flat chains of AND and OR.
		if n > maxNesting && l >= levelComparison {
			return nil, &Error{Code: "SC1003", Message: fmt.Sprintf("More than %d operators follow each other.", maxNesting), At: p.peek().at}
		}
		if l == levelComparison {
			more, ok, err := p.predicate(left)
			if err != nil {
				return nil, err
			}
			if ok {
				left = more
				continue
			}
		}
		op := p.operator(precedence[l])
		if op == "" {
			return left, nil
		}
		right, err := p.binaryLevel(l + 1)
		if err != nil {
			return nil, err
		}
		if op == "<>" {
			op = "!="
		}
		left = combine(op, left, right)
	}
}

// combine builds a binary expression. It keeps chains of AND and OR flat, because a query of ReadMany has a thousand
// alternatives.
func combine(op string, left, right expr) expr {
	if op == "AND" || op == "OR" {
		if l, ok := left.(*logical); ok && l.op == op {
			l.items = append(l.items, right)
			return l
		}
		return &logical{op: op, items: []expr{left, right}}
	}
	return &binary{op, left, right}
}

// operator consumes one of the operators and returns it, or "".
func (p *parser) operator(ops []string) string {
	t := p.peek()
	for _, op := range ops {
		if (t.kind == tokenPunct || t.kind == tokenKeyword) && t.text == op {
			p.pos++
			return op
		}
	}
	return ""
}

// predicate parses IN, BETWEEN and LIKE after their left operand.
func (p *parser) predicate(of expr) (expr, bool, error) {
	start := p.pos
	not := p.acceptKeyword("NOT")
	switch {
	case p.acceptKeyword("IN"):
		if err := p.expectPunct("("); err != nil {
			return nil, false, err
		}
		if t := p.peek(); t.kind == tokenKeyword && t.text == "SELECT" {
			return nil, false, syntaxError(t)
		}
		list, err := p.list()
		if err != nil {
			return nil, false, err
		}
		return &in{of, list, not}, true, p.expectPunct(")")
	case p.acceptKeyword("BETWEEN"):
		low, err := p.binaryLevel(levelComparison + 1)
		if err != nil {
			return nil, false, err
		}
		if err := p.expectKeyword("AND"); err != nil {
			return nil, false, err
		}
		high, err := p.binaryLevel(levelComparison + 1)
		return &between{of, low, high, not}, true, err
	case p.acceptKeyword("LIKE"):
		pattern, err := p.binaryLevel(levelComparison + 1)
		if err != nil {
			return nil, false, err
		}
		n := &like{operand: of, pattern: pattern, not: not}
		if p.acceptKeyword("ESCAPE") {
			if n.escape, err = p.binaryLevel(levelComparison + 1); err != nil {
				return nil, false, err
			}
		}
		return n, true, nil
	}
	p.pos = start
	return nil, false, nil
}

// unary parses a unary expression.
func (p *parser) unary() (expr, error) {
	for _, op := range []string{"-", "+", "~"} {
		if p.acceptPunct(op) {
			if err := p.enter(); err != nil {
				return nil, err
			}
			defer func() { p.depth-- }()
			e, err := p.unary()
			return &unary{op, e}, err
		}
	}
	e, err := p.primary()
	if err != nil {
		return nil, err
	}
	return p.postfix(e)
}

// postfix parses the property and index accesses after e.
func (p *parser) postfix(e expr) (expr, error) {
	for {
		switch {
		case p.acceptPunct("."):
			name, err := p.name()
			if err != nil {
				return nil, err
			}
			e = &property{e, name}
		case p.acceptPunct("["):
			at, err := p.expr()
			if err != nil {
				return nil, err
			}
			if err := p.expectPunct("]"); err != nil {
				return nil, err
			}
			if l, ok := at.(*literal); ok && l.value.Kind == document.String {
				e = &property{e, l.value.Str}
			} else {
				e = &index{e, at}
			}
		default:
			return e, nil
		}
	}
}

// primary parses an operand.
func (p *parser) primary() (expr, error) {
	t := p.next()
	switch t.kind {
	case tokenNumber:
		v, err := parseNumber(t)
		return &literal{v}, err
	case tokenString:
		return &literal{document.FromString(t.text)}, nil
	case tokenParam:
		return &param{t.text}, nil
	case tokenKeyword:
		return p.keyword(t)
	case tokenIdent:
		if strings.EqualFold(t.text, "ARRAY") && p.peek().text == "(" && p.tokens[p.pos+1].text == "SELECT" {
			return p.subquery("ARRAY")
		}
		if p.acceptPunct("(") {
			return p.call(t)
		}
		return &ident{name: t.text}, nil
	case tokenPunct:
		switch t.text {
		case "(":
			if s := p.peek(); s.kind == tokenKeyword && s.text == "SELECT" {
				p.pos--
				return p.subquery("SCALAR")
			}
			e, err := p.expr()
			if err != nil {
				return nil, err
			}
			return e, p.expectPunct(")")
		case "[":
			return p.array()
		case "{":
			return p.object()
		}
	}
	return nil, syntaxError(t)
}

// keyword parses an operand that begins with a keyword.
func (p *parser) keyword(t token) (expr, error) {
	switch t.text {
	case "TRUE":
		return &literal{document.True}, nil
	case "FALSE":
		return &literal{document.False}, nil
	case "NULL":
		return &literal{document.NullValue}, nil
	case "UNDEFINED":
		return &literal{document.Value{}}, nil
	case "EXISTS":
		return p.subquery("EXISTS")
	case "UDF":
		return nil, unsupportedError("User-defined functions are not supported.")
	}
	return nil, syntaxError(t)
}

// subquery parses a subquery in parentheses.
func (p *parser) subquery(kind string) (expr, error) {
	if err := p.expectPunct("("); err != nil {
		return nil, err
	}
	q, err := p.query()
	if err != nil {
		return nil, err
	}
	return &subquery{kind, q}, p.expectPunct(")")
}

// array parses the rest of an array constructor.
func (p *parser) array() (expr, error) {
	n := &arrayOf{}
	if p.acceptPunct("]") {
		return n, nil
	}
	var err error
	if n.items, err = p.list(); err != nil {
		return nil, err
	}
	return n, p.expectPunct("]")
}

// object parses the rest of an object constructor.
func (p *parser) object() (expr, error) {
	n := &objectOf{}
	if p.acceptPunct("}") {
		return n, nil
	}
	for {
		t := p.next()
		if t.kind != tokenString && t.kind != tokenIdent && t.kind != tokenKeyword {
			return nil, syntaxError(t)
		}
		name := t.text
		if t.kind == tokenKeyword {
			name = t.raw
		}
		if err := p.expectPunct(":"); err != nil {
			return nil, err
		}
		e, err := p.expr()
		if err != nil {
			return nil, err
		}
		n.names, n.items = append(n.names, name), append(n.items, e)
		if !p.acceptPunct(",") {
			return n, p.expectPunct("}")
		}
	}
}

// call parses the arguments of a function or an aggregate.
func (p *parser) call(name token) (expr, error) {
	var args []expr
	if !p.acceptPunct(")") {
		var err error
		if args, err = p.list(); err != nil {
			return nil, err
		}
		if err := p.expectPunct(")"); err != nil {
			return nil, err
		}
	}
	up := strings.ToUpper(name.text)
	switch up {
	case "COUNT", "SUM", "MIN", "MAX", "AVG":
		if len(args) != 1 {
			return nil, arityError(name.text, 1, 1, len(args))
		}
		return &aggregate{name: up, operand: args[0], slot: -1}, nil
	}
	f, ok := functions[up]
	if !ok {
		return nil, &Error{Code: "SC2005", Message: fmt.Sprintf("'%s' is not a recognized built-in function name.", name.text), At: name.at}
	}
	if len(args) < f.min || f.max >= 0 && len(args) > f.max {
		return nil, arityError(name.text, f.min, f.max, len(args))
	}
	return &call{name: up, args: args, fn: f.fn}, nil
}

// arityError returns the error for a wrong number of arguments.
func arityError(name string, low, high, got int) error {
	want := fmt.Sprintf("%d", low)
	switch {
	case high < 0:
		want += " or more"
	case high != low:
		want = fmt.Sprintf("%d to %d", low, high)
	}
	return &Error{Code: "SC2050", Message: fmt.Sprintf("The function '%s' takes %s arguments, not %d.", name, want, got), At: -1}
}
