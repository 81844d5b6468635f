package sql

import (
	"fmt"
	"strings"
)

// maxNesting bounds the recursion of parsing and evaluation.
const maxNesting = 200

// maxJoins is the service's limit for one FROM clause.
const maxJoins = 10

// parser is a recursive descent parser.
type parser struct {
	tokens []token
	pos    int
	depth  int
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
	if p.peek().kind != tokenEnd {
		return nil, syntaxError(p.peek())
	}
	if err := q.bind(nil, false); err != nil {
		return nil, err
	}
	return q, nil
}

// ParseCondition parses the condition of a conditional patch: "from c where …".
func ParseCondition(text string) (*Query, error) {
	return Parse("SELECT VALUE true " + text)
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

// acceptKeyword consumes a keyword, or an identifier that is a keyword only in some places (OFFSET, LIMIT, ESCAPE,
// ARRAY).
func (p *parser) acceptKeyword(w string) bool {
	t := p.peek()
	if (t.kind == tokenKeyword || t.kind == tokenIdent) && strings.EqualFold(t.text, w) {
		p.pos++
		return true
	}
	return false
}

// acceptPunct consumes punctuation.
func (p *parser) acceptPunct(s string) bool {
	if t := p.peek(); t.kind == tokenPunct && t.text == s {
		p.pos++
		return true
	}
	return false
}

// expectPunct consumes required punctuation.
func (p *parser) expectPunct(s string) error {
	if !p.acceptPunct(s) {
		return syntaxError(p.peek())
	}
	return nil
}

// expectKeyword consumes a required keyword.
func (p *parser) expectKeyword(w string) error {
	if !p.acceptKeyword(w) {
		return syntaxError(p.peek())
	}
	return nil
}

// name consumes an identifier.
func (p *parser) name() (string, error) {
	if t := p.peek(); t.kind == tokenIdent {
		p.pos++
		return t.text, nil
	}
	return "", syntaxError(p.peek())
}

// enter counts a level of nesting.
func (p *parser) enter() error {
	p.depth++
	if p.depth > maxNesting {
		return &Error{Code: "SC1003", Message: fmt.Sprintf("The query is nested deeper than %d levels.", maxNesting), At: p.peek().at}
	}
	return nil
}

// query parses a query or a subquery.
func (p *parser) query() (*Query, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	if err := p.expectKeyword("SELECT"); err != nil {
		return nil, err
	}
	q := &Query{}
	q.distinct = p.acceptKeyword("DISTINCT")
	if p.acceptKeyword("TOP") {
		n, err := p.count()
		if err != nil {
			return nil, err
		}
		q.top = n
	}
	if err := p.projection(q); err != nil {
		return nil, err
	}
	if p.acceptKeyword("FROM") {
		if err := p.from(q); err != nil {
			return nil, err
		}
	}
	var err error
	if p.acceptKeyword("WHERE") {
		if q.where, err = p.expr(); err != nil {
			return nil, err
		}
	}
	if p.acceptKeyword("GROUP") {
		if err := p.expectKeyword("BY"); err != nil {
			return nil, err
		}
		if q.groupBy, err = p.list(); err != nil {
			return nil, err
		}
	}
	if p.acceptKeyword("ORDER") {
		if err := p.order(q); err != nil {
			return nil, err
		}
	}
	if p.acceptKeyword("OFFSET") {
		if q.offset, err = p.count(); err != nil {
			return nil, err
		}
		if err := p.expectKeyword("LIMIT"); err != nil {
			return nil, err
		}
		if q.limit, err = p.count(); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// count parses the operand of TOP, OFFSET and LIMIT: a number or a parameter.
func (p *parser) count() (expr, error) {
	switch t := p.next(); t.kind {
	case tokenNumber:
		v, err := parseNumber(t)
		if err != nil {
			return nil, err
		}
		return &literal{v}, nil
	case tokenParam:
		return &param{t.text}, nil
	default:
		return nil, syntaxError(t)
	}
}

// projection parses the SELECT list.
func (p *parser) projection(q *Query) error {
	if p.acceptPunct("*") {
		q.star = true
		return nil
	}
	if p.acceptKeyword("VALUE") {
		q.value = true
		e, err := p.expr()
		if err != nil {
			return err
		}
		q.items = []selectItem{{expression: e}}
		return nil
	}
	unnamed := 0
	seen := map[string]bool{}
	for {
		e, err := p.expr()
		if err != nil {
			return err
		}
		item := selectItem{expression: e}
		if p.acceptKeyword("AS") {
			if item.name, err = p.alias(); err != nil {
				return err
			}
		} else if t := p.peek(); t.kind == tokenIdent && !strings.EqualFold(t.text, "OFFSET") {
			item.name, _ = p.name()
		} else {
			item.name = implicitName(e)
		}
		if item.name == "" {
			unnamed++
			item.name = fmt.Sprintf("$%d", unnamed)
		}
		if seen[item.name] {
			return &Error{Code: "SC2203", Message: fmt.Sprintf("The column '%s' is specified more than once in the SELECT list.", item.name), At: -1}
		}
		seen[item.name] = true
		q.items = append(q.items, item)
		if !p.acceptPunct(",") {
			return nil
		}
	}
}

// alias parses a name after AS, which may be a string.
func (p *parser) alias() (string, error) {
	if t := p.peek(); t.kind == tokenString {
		p.pos++
		return t.text, nil
	}
	return p.name()
}

// implicitName returns the name of a SELECT item without AS, or "".
func implicitName(e expr) string {
	switch n := e.(type) {
	case *ident:
		return n.name
	case *property:
		return n.name
	}
	return ""
}

// from parses the FROM clause.
func (p *parser) from(q *Query) error {
	for {
		s, err := p.source()
		if err != nil {
			return err
		}
		q.sources = append(q.sources, s)
		if !p.acceptKeyword("JOIN") {
			return nil
		}
		if len(q.sources) > maxJoins {
			return unsupportedError("The query has more than %d JOINs.", maxJoins)
		}
	}
}

// source parses one input of FROM or JOIN.
func (p *parser) source() (source, error) {
	if p.acceptPunct("(") {
		sub, err := p.query()
		if err != nil {
			return source{}, err
		}
		if err := p.expectPunct(")"); err != nil {
			return source{}, err
		}
		p.acceptKeyword("AS")
		alias, err := p.name()
		return source{alias: alias, sub: sub, each: true}, err
	}
	first, err := p.name()
	if err != nil {
		return source{}, err
	}
	if p.acceptKeyword("IN") {
		of, err := p.collection()
		return source{alias: first, expression: of, each: true}, err
	}
	p.pos--
	of, err := p.collection()
	if err != nil {
		return source{}, err
	}
	s := source{expression: of, alias: implicitName(of)}
	if p.acceptKeyword("AS") {
		s.alias, err = p.name()
	} else if t := p.peek(); t.kind == tokenIdent && !strings.EqualFold(t.text, "OFFSET") {
		s.alias, err = p.name()
	}
	return s, err
}

// collection parses a container name or variable with a path, or a subquery after IN.
func (p *parser) collection() (expr, error) {
	if p.acceptPunct("(") {
		sub, err := p.query()
		if err != nil {
			return nil, err
		}
		return &subquery{kind: "ARRAY", query: sub}, p.expectPunct(")")
	}
	name, err := p.name()
	if err != nil {
		return nil, err
	}
	return p.postfix(&ident{name: name})
}

// order parses the ORDER BY clause.
func (p *parser) order(q *Query) error {
	if err := p.expectKeyword("BY"); err != nil {
		return err
	}
	if t := p.peek(); t.kind == tokenIdent && strings.EqualFold(t.text, "RANK") {
		return unsupportedError("ORDER BY RANK is not supported.")
	}
	for {
		e, err := p.expr()
		if err != nil {
			return err
		}
		item := orderItem{expression: e}
		if p.acceptKeyword("DESC") {
			item.desc = true
		} else {
			p.acceptKeyword("ASC")
		}
		q.orderBy = append(q.orderBy, item)
		if !p.acceptPunct(",") {
			return nil
		}
	}
}
