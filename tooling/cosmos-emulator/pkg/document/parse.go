package document

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is the maximum nesting that the service accepts.
const MaxDepth = 128

var errUnexpectedEnd = errors.New("unexpected end of JSON")

// Parse parses exactly one JSON value. If a property occurs twice, the last value is used.
func Parse(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return Value{}, errors.New("JSON is not valid UTF-8")
	}
	p := parser{data: data}
	p.skipSpace()
	v, err := p.value(0)
	if err != nil {
		return Value{}, err
	}
	p.skipSpace()
	if p.pos != len(p.data) {
		return Value{}, fmt.Errorf("unexpected %q after the JSON value at offset %d", p.data[p.pos], p.pos)
	}
	return v, nil
}

// parser is a JSON parser at a position.
type parser struct {
	data []byte
	pos  int
}

// skipSpace skips white space.
func (p *parser) skipSpace() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// value parses a value at a depth.
func (p *parser) value(depth int) (Value, error) {
	if depth > MaxDepth {
		return Value{}, fmt.Errorf("JSON is nested deeper than %d levels", MaxDepth)
	}
	if p.pos >= len(p.data) {
		return Value{}, errUnexpectedEnd
	}
	switch c := p.data[p.pos]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		s, err := p.string()
		if err != nil {
			return Value{}, err
		}
		return FromString(s), nil
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	case c == 't':
		return True, p.literal("true")
	case c == 'f':
		return False, p.literal("false")
	case c == 'n':
		return Value{Kind: Null}, p.literal("null")
	default:
		return Value{}, fmt.Errorf("unexpected %q at offset %d", c, p.pos)
	}
}

// literal parses true, false or null.
func (p *parser) literal(w string) error {
	if len(p.data)-p.pos < len(w) || string(p.data[p.pos:p.pos+len(w)]) != w {
		return fmt.Errorf("unexpected word at offset %d, expected %s", p.pos, w)
	}
	p.pos += len(w)
	return nil
}

// object parses an object.
func (p *parser) object(depth int) (Value, error) {
	p.pos++
	v := Value{Kind: Object}
	p.skipSpace()
	if p.pos < len(p.data) && p.data[p.pos] == '}' {
		p.pos++
		return v, nil
	}
	v.Obj = make([]Member, 0, 8)
	// Only large objects need a map; small ones are searched.
	var seen map[string]int
	for {
		p.skipSpace()
		if p.pos >= len(p.data) {
			return Value{}, errUnexpectedEnd
		}
		if p.data[p.pos] != '"' {
			return Value{}, fmt.Errorf("expected a property name at offset %d", p.pos)
		}
		name, err := p.string()
		if err != nil {
			return Value{}, err
		}
		p.skipSpace()
		if p.pos >= len(p.data) || p.data[p.pos] != ':' {
			return Value{}, fmt.Errorf("expected ':' at offset %d", p.pos)
		}
		p.pos++
		p.skipSpace()
		member, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		if seen == nil && len(v.Obj) >= 16 {
			seen = make(map[string]int, 2*len(v.Obj))
			for i := range v.Obj {
				seen[v.Obj[i].Name] = i
			}
		}
		at := -1
		if seen != nil {
			if i, ok := seen[name]; ok {
				at = i
			}
		} else {
			for i := range v.Obj {
				if v.Obj[i].Name == name {
					at = i
					break
				}
			}
		}
		if at >= 0 {
			v.Obj[at].Value = member
		} else {
			if seen != nil {
				seen[name] = len(v.Obj)
			}
			v.Obj = append(v.Obj, Member{Name: name, Value: member})
		}
		p.skipSpace()
		if p.pos >= len(p.data) {
			return Value{}, errUnexpectedEnd
		}
		switch p.data[p.pos] {
		case ',':
			p.pos++
		case '}':
			p.pos++
			return v, nil
		default:
			return Value{}, fmt.Errorf("expected ',' or '}' at offset %d", p.pos)
		}
	}
}

// array parses an array.
func (p *parser) array(depth int) (Value, error) {
	p.pos++
	v := Value{Kind: Array}
	p.skipSpace()
	if p.pos < len(p.data) && p.data[p.pos] == ']' {
		p.pos++
		return v, nil
	}
	for {
		p.skipSpace()
		e, err := p.value(depth + 1)
		if err != nil {
			return Value{}, err
		}
		v.Arr = append(v.Arr, e)
		p.skipSpace()
		if p.pos >= len(p.data) {
			return Value{}, errUnexpectedEnd
		}
		switch p.data[p.pos] {
		case ',':
			p.pos++
		case ']':
			p.pos++
			return v, nil
		default:
			return Value{}, fmt.Errorf("expected ',' or ']' at offset %d", p.pos)
		}
	}
}

// digits skips digits and reports whether there were any.
func (p *parser) digits() bool {
	start := p.pos
	for p.pos < len(p.data) && p.data[p.pos] >= '0' && p.data[p.pos] <= '9' {
		p.pos++
	}
	return p.pos > start
}

// number parses a number.
func (p *parser) number() (Value, error) {
	start := p.pos
	bad := func() (Value, error) { return Value{}, fmt.Errorf("malformed number at offset %d", start) }
	if p.data[p.pos] == '-' {
		p.pos++
	}
	if p.pos < len(p.data) && p.data[p.pos] == '0' {
		p.pos++
	} else if !p.digits() {
		return bad()
	}
	if p.pos < len(p.data) && p.data[p.pos] == '.' {
		p.pos++
		if !p.digits() {
			return bad()
		}
	}
	if p.pos < len(p.data) && (p.data[p.pos] == 'e' || p.data[p.pos] == 'E') {
		p.pos++
		if p.pos < len(p.data) && (p.data[p.pos] == '+' || p.data[p.pos] == '-') {
			p.pos++
		}
		if !p.digits() {
			return bad()
		}
	}
	text := string(p.data[start:p.pos])
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Value{}, fmt.Errorf("number %s is out of range", text)
	}
	return Value{Kind: Number, Num: n, Str: text}, nil
}

// string parses a string.
func (p *parser) string() (string, error) {
	p.pos++
	start := p.pos
	for p.pos < len(p.data) {
		switch c := p.data[p.pos]; {
		case c == '"':
			s := string(p.data[start:p.pos])
			p.pos++
			return s, nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", fmt.Errorf("control character in a string at offset %d", p.pos)
		}
		p.pos++
	}
	return "", errUnexpectedEnd
}

// escaped parses the rest of a string from its first escape. The string begins at start.
func (p *parser) escaped(start int) (string, error) {
	out := append(make([]byte, 0, 2*(p.pos-start)+16), p.data[start:p.pos]...)
	for p.pos < len(p.data) {
		c := p.data[p.pos]
		switch {
		case c == '"':
			p.pos++
			return string(out), nil
		case c < 0x20:
			return "", fmt.Errorf("control character in a string at offset %d", p.pos)
		case c != '\\':
			out = append(out, c)
			p.pos++
			continue
		}
		if p.pos+1 >= len(p.data) {
			return "", errUnexpectedEnd
		}
		e := p.data[p.pos+1]
		p.pos += 2
		switch e {
		case '"', '\\', '/':
			out = append(out, e)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, err := p.hex4()
			if err != nil {
				return "", err
			}
			if utf16.IsSurrogate(r) {
				r = p.lowSurrogate(r)
			}
			out = utf8.AppendRune(out, r)
		default:
			return "", fmt.Errorf("unknown escape \\%c at offset %d", e, p.pos-2)
		}
	}
	return "", errUnexpectedEnd
}

// hex4 parses four hexadecimal digits.
func (p *parser) hex4() (rune, error) {
	if p.pos+4 > len(p.data) {
		return 0, errUnexpectedEnd
	}
	n, err := strconv.ParseUint(string(p.data[p.pos:p.pos+4]), 16, 32)
	if err != nil {
		return 0, fmt.Errorf("malformed \\u escape at offset %d", p.pos)
	}
	p.pos += 4
	return rune(n), nil
}

// lowSurrogate parses the second half of a surrogate pair. A single half becomes U+FFFD, as in encoding/json.
func (p *parser) lowSurrogate(high rune) rune {
	if p.pos+6 > len(p.data) || p.data[p.pos] != '\\' || p.data[p.pos+1] != 'u' {
		return utf8.RuneError
	}
	at := p.pos
	p.pos += 2
	low, err := p.hex4()
	if err != nil {
		p.pos = at
		return utf8.RuneError
	}
	r := utf16.DecodeRune(high, low)
	if r == utf8.RuneError {
		p.pos = at
	}
	return r
}
