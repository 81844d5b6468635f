package sql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// maxNesting bounds the recursion of parsing and evaluation.
const maxNesting = 200

// parser is a recursive descent parser.
type parser struct {
	tokens []token
	pos    int
	depth  int
	roots  []token // the first names of paths
	params []string
}

// Parse parses a query and validates its names and functions.
func Parse(text string) (*Query, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens}
	q, err := p.query()
	if err != nil {
		return nil, err
	}
	q.params = p.params
	return q, nil
}

// peek returns the next token.
func (p *parser) peek() token { return p.tokens[p.pos] }

// next consumes the next token.
func (p *parser) next() token {
	t := p.tokens[p.pos]
	if t.kind != tokenEnd {
		p.pos++
	}
	return t
}

// accept consumes a keyword or punctuation.
func (p *parser) accept(text string) bool {
	found := p.peek().is(text)
	if found {
		p.pos++
	}
	return found
}

// expect consumes required keywords or punctuation.
func (p *parser) expect(texts ...string) error {
	for _, text := range texts {
		if !p.accept(text) {
			return syntaxError(p.peek())
		}
	}
	return nil
}

// name consumes a token of a kind.
func (p *parser) name(kind tokenKind) (string, error) {
	t := p.next()
	if t.kind != kind {
		return "", syntaxError(t)
	}
	return t.text, nil
}

// query parses the query.
func (p *parser) query() (*Query, error) {
	q := &Query{}
	err := p.expect("SELECT")
	if err == nil && !p.accept("*") {
		q.items, err = p.list(p.selected)
	}
	if err == nil {
		err = p.expect("FROM")
	}
	if err != nil {
		return nil, err
	}
	alias, err := p.name(tokenIdent)
	if err == nil && p.accept("WHERE") {
		q.where, err = p.condition()
	}
	if err == nil && p.accept("ORDER") {
		if err = p.expect("BY"); err == nil {
			q.order, err = p.path()
		}
		if q.desc = p.accept("DESC"); !q.desc {
			p.accept("ASC")
		}
	}
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokenEnd {
		return nil, syntaxError(t)
	}
	for _, root := range p.roots {
		if root.text != alias {
			return nil, &Error{Code: "SC2001", Message: fmt.Sprintf("Identifier '%s' could not be resolved.", root.text), At: root.at}
		}
	}
	return q, nil
}

// list parses items with different names, separated by commas.
func (p *parser) list(item func() (selectItem, error)) ([]selectItem, error) {
	var items []selectItem
	for {
		next, err := item()
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(items, func(i selectItem) bool { return i.name == next.name }) {
			return nil, &Error{Code: "SC2203", Message: fmt.Sprintf("The column '%s' is specified more than once in the SELECT list.", next.name), At: -1}
		}
		if items = append(items, next); !p.accept(",") {
			return items, nil
		}
	}
}

// selected parses a property or an object of the SELECT list, with its name.
func (p *parser) selected() (item selectItem, err error) {
	if p.accept("{") {
		var object objectOf
		if object, err = p.list(p.member); err == nil {
			err = p.expect("}", "AS")
		}
		if err == nil {
			item.name, err = p.name(tokenIdent)
		}
		item.expression = object
		return item, err
	}
	item.expression, err = p.path()
	item.name = p.tokens[max(0, p.pos-1)].text
	if err == nil && p.accept("AS") {
		item.name, err = p.name(tokenIdent)
	}
	return item, err
}

// member parses a member of an object.
func (p *parser) member() (item selectItem, err error) {
	if item.name, err = p.name(tokenString); err == nil {
		err = p.expect(":")
	}
	if err == nil {
		item.expression, err = p.path()
	}
	return item, err
}

// path parses the name of the container and the names of properties.
func (p *parser) path() (*path, error) {
	p.roots = append(p.roots, p.peek())
	if _, err := p.name(tokenIdent); err != nil {
		return nil, err
	}
	n := &path{}
	for p.accept(".") {
		name, err := p.name(tokenIdent)
		if err != nil {
			return nil, err
		}
		n.names = append(n.names, name)
	}
	return n, nil
}

// condition parses a condition: alternatives of conjunctions.
func (p *parser) condition() (expr, error) {
	return p.chain("OR", func() (expr, error) { return p.chain("AND", p.negation) })
}

// chain parses operands of AND or OR.
func (p *parser) chain(operator string, operand func() (expr, error)) (expr, error) {
	items, err := p.operands(operator, operand)
	if err != nil || len(items) == 1 {
		return items[0], err
	}
	return &chain{operator == "OR", items}, nil
}

// operands parses at least one operand. Separators are between them. The list is never empty.
func (p *parser) operands(separator string, operand func() (expr, error)) ([]expr, error) {
	var items []expr
	for {
		item, err := operand()
		if items = append(items, item); err != nil || !p.accept(separator) {
			return items, err
		}
	}
}

// negation parses a comparison with any number of NOTs.
func (p *parser) negation() (expr, error) {
	if p.depth++; p.depth > maxNesting {
		return nil, &Error{Code: "SC1003", Message: fmt.Sprintf("The query is nested deeper than %d levels.", maxNesting), At: p.peek().at}
	}
	defer func() { p.depth-- }()
	if p.accept("NOT") {
		operand, err := p.negation()
		return &not{operand}, err
	}
	return p.comparison()
}

// comparison parses an operand, or the comparison of operands.
func (p *parser) comparison() (expr, error) {
	left, err := p.operand()
	if err != nil {
		return nil, err
	}
	if p.accept("IN") {
		n := &in{operand: left}
		if err = p.expect("("); err == nil {
			n.list, err = p.operands(",", p.operand)
		}
		if err == nil {
			err = p.expect(")")
		}
		return n, err
	}
	for _, op := range []string{"=", "!=", "<", "<=", ">", ">="} {
		if p.accept(op) {
			right, err := p.operand()
			return &comparison{op, left, right}, err
		}
	}
	return left, nil
}

// operand parses a constant, a parameter, a property, a call or a condition in parentheses.
func (p *parser) operand() (expr, error) {
	t := p.next()
	switch {
	case t.kind == tokenString:
		return &literal{document.FromString(t.text)}, nil
	case t.is("TRUE"), t.is("FALSE"):
		return &literal{document.FromBool(t.text == "TRUE")}, nil
	case t.kind == tokenParam:
		p.params = append(p.params, t.text)
		return &param{t.text}, nil
	case t.is("("):
		e, err := p.condition()
		if err != nil {
			return nil, err
		}
		return e, p.expect(")")
	case t.kind == tokenIdent && p.accept("("):
		return p.call(t)
	case t.kind == tokenIdent:
		p.pos--
		return p.path()
	}
	return nil, syntaxError(t)
}

// call parses the arguments of a function.
func (p *parser) call(name token) (expr, error) {
	n := &call{name: strings.ToUpper(name.text)}
	known, ok := functions[n.name]
	if !ok {
		return nil, &Error{Code: "SC2005", Message: fmt.Sprintf("'%s' is not a recognized built-in function name. %s", name.text, supported), At: name.at}
	}
	var err error
	if n.args, err = p.operands(",", p.operand); err == nil {
		err = p.expect(")")
	}
	if err == nil && (len(n.args) < known.min || len(n.args) > known.max) {
		err = &Error{Code: "SC2050", Message: fmt.Sprintf("The function '%s' takes %d to %d arguments, not %d.", n.name, known.min, known.max, len(n.args)), At: name.at}
	}
	return n, err
}
