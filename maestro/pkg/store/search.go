package store

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxSearchDepth bounds the nesting of an expression, maxSearchBytes its length.
const (
	maxSearchDepth = 32
	maxSearchBytes = 64 << 10
)

// searchFields maps the names in an expression to SQL columns.
type searchFields struct {
	Text    map[string]string
	Integer map[string]string
	// Labels is the SQL expression of a jsonb object with labels. LabelPath is its name in an expression.
	Labels, LabelPath string
}

// Condition returns the SQL condition of an expression and its parameters, which are numbered from first.
func (f searchFields) Condition(expression string, first int) (sql string, args []any, err error) {
	if len(expression) > maxSearchBytes {
		return "", nil, fmt.Errorf("the search is longer than %d bytes", maxSearchBytes)
	}
	tokens, err := scanSearch(expression)
	if err != nil {
		return "", nil, err
	}
	p := &searchParser{fields: f, tokens: tokens, next: first}
	sql, err = p.or(0)
	if err == nil && len(p.tokens) > 0 {
		err = fmt.Errorf("unexpected %q", p.tokens[0])
	}
	return sql, p.args, err
}

// searchToken matches a token: a quoted string, an arrow or containment operator, a comparison, a bracket, a comma or a word.
var searchToken = regexp.MustCompile(`^(?:'(?:[^']|'')*'|->>|->|@>|<>|!=|<=|>=|=|<|>|\(|\)|,|[A-Za-z0-9_.%+-]+)`)

func scanSearch(s string) ([]string, error) {
	var tokens []string
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		// A word may end with the first character of an arrow.
		t := searchToken.FindString(s)
		if i := strings.Index(t, "->"); i > 0 && t[0] != '\'' {
			t = t[:i]
		} else if strings.HasSuffix(t, "-") && strings.HasPrefix(s[len(t):], ">") {
			t = strings.TrimSuffix(t, "-")
		}
		if t == "" {
			return nil, fmt.Errorf("syntax error at %.20q", s)
		}
		tokens = append(tokens, t)
		s = s[len(t):]
	}
	return tokens, nil
}

type searchParser struct {
	fields searchFields
	tokens []string
	args   []any
	next   int
}

func (p *searchParser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return strings.ToLower(p.tokens[0])
}

func (p *searchParser) take() string {
	if len(p.tokens) == 0 {
		return ""
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

func (p *searchParser) expect(want string) error {
	if got := p.take(); !strings.EqualFold(got, want) {
		return fmt.Errorf("expected %q, found %q", want, got)
	}
	return nil
}

func (p *searchParser) param(v any) string {
	p.args = append(p.args, v)
	p.next++
	return "$" + strconv.Itoa(p.next-1)
}

func (p *searchParser) or(depth int) (string, error) {
	return p.chain(depth, "or", p.and)
}

func (p *searchParser) and(depth int) (string, error) {
	return p.chain(depth, "and", p.term)
}

func (p *searchParser) chain(depth int, word string, part func(int) (string, error)) (string, error) {
	sql, err := part(depth)
	if err != nil {
		return "", err
	}
	parts := []string{sql}
	for p.peek() == word {
		p.take()
		if sql, err = part(depth); err != nil {
			return "", err
		}
		parts = append(parts, sql)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return "(" + strings.Join(parts, " "+word+" ") + ")", nil
}

func (p *searchParser) term(depth int) (string, error) {
	if depth > maxSearchDepth {
		return "", fmt.Errorf("the search is nested deeper than %d", maxSearchDepth)
	}
	switch p.peek() {
	case "not":
		p.take()
		sql, err := p.term(depth + 1)
		return "not " + sql, err
	case "(":
		p.take()
		sql, err := p.or(depth + 1)
		if err != nil {
			return "", err
		}
		return "(" + sql + ")", p.expect(")")
	}
	return p.comparison()
}

func (p *searchParser) comparison() (string, error) {
	name := p.take()
	if p.fields.LabelPath != "" && name == strings.Split(p.fields.LabelPath, "->")[0] {
		return p.label()
	}
	if column, ok := p.fields.Text[name]; ok {
		return p.compare(column, p.text)
	}
	if column, ok := p.fields.Integer[name]; ok {
		return p.compare(column, p.integer)
	}
	return "", fmt.Errorf("unknown field %q", name)
}

// label parses the rest of the label path and the operator that follows it.
func (p *searchParser) label() (string, error) {
	for _, part := range strings.Split(p.fields.LabelPath, "->")[1:] {
		if err := p.expect("->"); err != nil {
			return "", err
		}
		if err := p.expect(part); err != nil {
			return "", err
		}
	}
	switch p.take() {
	case "@>":
		object, err := p.text()
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("(%s @> %s::jsonb)", p.fields.Labels, p.param(object)), nil
	case "->>":
		key, err := p.text()
		if err != nil {
			return "", err
		}
		column := fmt.Sprintf("(%s ->> %s)", p.fields.Labels, p.param(key))
		if len(p.tokens) > 1 && p.tokens[0] == "<>" && strings.EqualFold(p.tokens[1], "null") {
			p.tokens = p.tokens[2:]
			return "(" + column + " is not null)", nil
		}
		return p.compare(column, p.text)
	}
	return "", fmt.Errorf("labels support only the operators @> and ->>")
}

func (p *searchParser) compare(column string, value func() (any, error)) (string, error) {
	op := strings.ToLower(p.take())
	switch op {
	case "=", "<", ">", "<=", ">=":
	case "<>", "!=":
		// An absent label differs from every value.
		v, err := value()
		return fmt.Sprintf("(%s is distinct from %s)", column, p.param(v)), err
	case "like", "ilike":
		if p.fields.isIntegerColumn(column) {
			return "", fmt.Errorf("%s needs a text field", op)
		}
	case "in":
		return p.in(column, value)
	default:
		return "", fmt.Errorf("unknown operator %q", op)
	}
	v, err := value()
	return fmt.Sprintf("(%s %s %s)", column, op, p.param(v)), err
}

func (f searchFields) isIntegerColumn(column string) bool {
	for _, c := range f.Integer {
		if c == column {
			return true
		}
	}
	return false
}

func (p *searchParser) in(column string, value func() (any, error)) (string, error) {
	if err := p.expect("("); err != nil {
		return "", err
	}
	var params []string
	for {
		v, err := value()
		if err != nil {
			return "", err
		}
		params = append(params, p.param(v))
		if p.peek() != "," {
			break
		}
		p.take()
	}
	return fmt.Sprintf("(%s in (%s))", column, strings.Join(params, ", ")), p.expect(")")
}

func (p *searchParser) text() (any, error) {
	t := p.take()
	if len(t) < 2 || t[0] != '\'' {
		return nil, fmt.Errorf("expected a quoted text, found %q", t)
	}
	if strings.ContainsRune(t, 0) {
		return nil, fmt.Errorf("texts cannot contain a zero byte")
	}
	return strings.ReplaceAll(t[1:len(t)-1], "''", "'"), nil
}

func (p *searchParser) integer() (any, error) {
	n, err := strconv.ParseInt(strings.Trim(p.take(), "'"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("expected an integer")
	}
	return n, nil
}

// Order returns the SQL order of an orderBy parameter. The tie-breaker makes paging stable.
func (f searchFields) Order(orderBy, tieBreaker string) (string, error) {
	var parts []string
	for _, part := range strings.Split(orderBy, ",") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		column, ok := f.Text[words[0]]
		if !ok {
			column, ok = f.Integer[words[0]]
		}
		direction := "asc"
		if len(words) == 2 {
			direction = strings.ToLower(words[1])
		}
		if !ok || len(words) > 2 || direction != "asc" && direction != "desc" {
			return "", fmt.Errorf("invalid order %q", strings.TrimSpace(part))
		}
		parts = append(parts, column+" "+direction)
	}
	return strings.Join(append(parts, tieBreaker), ", "), nil
}
