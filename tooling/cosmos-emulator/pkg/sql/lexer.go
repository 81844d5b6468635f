package sql

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenIdent
	tokenKeyword
	tokenNumber
	tokenString
	tokenParam
	tokenPunct
)

// token is one token of a query.
type token struct {
	kind tokenKind
	// text is the identifier, the keyword in upper case, the punctuation, the value of the string or the number.
	text string
	raw  string // the text in the query, for messages
	at   int
}

// keywords are reserved: they can be used as names only in brackets.
var keywords = map[string]bool{
	"AND": true, "AS": true, "ASC": true, "BETWEEN": true, "BY": true, "DESC": true, "DISTINCT": true,
	"EXISTS": true, "FALSE": true, "FROM": true, "GROUP": true, "IN": true, "JOIN": true, "LIKE": true, "NOT": true,
	"NULL": true, "OR": true, "ORDER": true, "SELECT": true, "TOP": true, "TRUE": true, "UDF": true,
	"UNDEFINED": true, "VALUE": true, "WHERE": true,
}

// Error is the error of a query that cannot be run. The service responds to it with 400.
type Error struct {
	// Code is the service's code: SC1001 for syntax, SC2001 for names, SC2005 for functions, SC2103 and above for the
	// shape.
	Code    string
	Message string
	At      int // byte offset; -1 means the whole query
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// syntaxError returns the error for an unexpected token.
func syntaxError(t token) error {
	if t.kind == tokenEnd {
		return &Error{Code: "SC1001", Message: "Syntax error, unexpected end of the query.", At: t.at}
	}
	return &Error{Code: "SC1001", Message: fmt.Sprintf("Syntax error, incorrect syntax near '%s'.", t.raw), At: t.at}
}

// unsupportedError returns the error for a feature that this package does not support.
func unsupportedError(format string, args ...any) error {
	return &Error{Code: "SC2900", Message: fmt.Sprintf(format, args...), At: -1}
}

// maxQueryBytes is the service's limit for the text of a query.
const maxQueryBytes = 512 << 10

// lex splits a query into tokens.
func lex(text string) ([]token, error) {
	if len(text) > maxQueryBytes {
		return nil, &Error{Code: "SC1002", Message: fmt.Sprintf("The query is longer than %d bytes.", maxQueryBytes), At: -1}
	}
	if !utf8.ValidString(text) {
		return nil, &Error{Code: "SC1001", Message: "The query is not valid UTF-8.", At: -1}
	}
	var out []token
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case strings.HasPrefix(text[i:], "--"):
			for i < len(text) && text[i] != '\n' {
				i++
			}
		case strings.HasPrefix(text[i:], "/*"):
			end := strings.Index(text[i+2:], "*/")
			if end < 0 {
				return nil, &Error{Code: "SC1001", Message: "Syntax error, a comment is not terminated.", At: i}
			}
			i += end + 4
		case c == '\'' || c == '"':
			s, n, err := lexString(text[i:])
			if err != nil {
				return nil, &Error{Code: "SC1001", Message: "Syntax error, invalid string literal: " + err.Error(), At: i}
			}
			out = append(out, token{tokenString, s, text[i : i+n], i})
			i += n
		case c >= '0' && c <= '9' || c == '.' && i+1 < len(text) && text[i+1] >= '0' && text[i+1] <= '9':
			n := numberLength(text[i:])
			out = append(out, token{tokenNumber, text[i : i+n], text[i : i+n], i})
			i += n
		case c == '@':
			n := 1 + identLength(text[i+1:])
			if n == 1 {
				return nil, syntaxError(token{tokenPunct, "@", "@", i})
			}
			out = append(out, token{tokenParam, text[i : i+n], text[i : i+n], i})
			i += n
		default:
			if n := identLength(text[i:]); n > 0 {
				word := text[i : i+n]
				t := token{tokenIdent, word, word, i}
				if up := strings.ToUpper(word); keywords[up] {
					t.kind, t.text = tokenKeyword, up
				}
				out = append(out, t)
				i += n
				continue
			}
			p := punctuation(text[i:])
			if p == "" {
				r, size := utf8.DecodeRuneInString(text[i:])
				return nil, syntaxError(token{tokenPunct, string(r), text[i : i+size], i})
			}
			out = append(out, token{tokenPunct, p, p, i})
			i += len(p)
		}
	}
	return append(out, token{kind: tokenEnd, at: len(text)}), nil
}

// identLength returns the length of the identifier at the start of s, or 0.
func identLength(s string) int {
	n := 0
	for n < len(s) {
		r, size := utf8.DecodeRuneInString(s[n:])
		if r != '_' && !unicode.IsLetter(r) && (n == 0 || !unicode.IsDigit(r)) {
			break
		}
		n += size
	}
	return n
}

// numberLength returns the length of the number at the start of s.
func numberLength(s string) int {
	if len(s) > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X') {
		n := 2
		for n < len(s) && strings.IndexByte("0123456789abcdefABCDEF", s[n]) >= 0 {
			n++
		}
		return n
	}
	n := 0
	for n < len(s) && (s[n] >= '0' && s[n] <= '9' || s[n] == '.') {
		n++
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		m := n + 1
		if m < len(s) && (s[m] == '+' || s[m] == '-') {
			m++
		}
		if m < len(s) && s[m] >= '0' && s[m] <= '9' {
			for m < len(s) && s[m] >= '0' && s[m] <= '9' {
				m++
			}
			n = m
		}
	}
	return n
}

// parseNumber returns the value of a number token.
func parseNumber(t token) (document.Value, error) {
	if strings.HasPrefix(t.text, "0x") || strings.HasPrefix(t.text, "0X") {
		n, err := strconv.ParseUint(t.text[2:], 16, 63)
		if err != nil {
			return document.Value{}, syntaxError(t)
		}
		return document.FromNumber(float64(n)), nil
	}
	n, err := strconv.ParseFloat(t.text, 64)
	if err != nil {
		return document.Value{}, syntaxError(t)
	}
	return document.FromNumber(n), nil
}

// lexString parses a string literal with single or double quotes and backslash escapes. It returns the value and the
// length of the literal.
func lexString(s string) (value string, length int, err error) {
	quote := s[0]
	var b strings.Builder
	for i := 1; i < len(s); {
		switch c := s[i]; {
		case c == quote:
			return b.String(), i + 1, nil
		case c != '\\':
			b.WriteByte(c)
			i++
		case i+1 >= len(s):
			return "", 0, fmt.Errorf("it is not terminated")
		case s[i+1] == 'u':
			if i+6 > len(s) {
				return "", 0, fmt.Errorf("an escape is incomplete")
			}
			end := i + 6
			// A pair of surrogates is one character.
			if end+6 <= len(s) && s[end] == '\\' && s[end+1] == 'u' {
				if v, err := document.Parse([]byte(`"` + s[i:end+6] + `"`)); err == nil && utf8.RuneCountInString(v.Str) == 1 {
					b.WriteString(v.Str)
					i = end + 6
					continue
				}
			}
			v, err := document.Parse([]byte(`"` + s[i:end] + `"`))
			if err != nil {
				return "", 0, err
			}
			b.WriteString(v.Str)
			i = end
		default:
			r, ok := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'b': '\b', 'f': '\f', '\\': '\\', '/': '/', '\'': '\'', '"': '"'}[s[i+1]]
			if !ok {
				return "", 0, fmt.Errorf("unknown escape \\%c", s[i+1])
			}
			b.WriteByte(r)
			i += 2
		}
	}
	return "", 0, fmt.Errorf("it is not terminated")
}

// punctuation returns the operator or punctuation at the start of s, or "".
func punctuation(s string) string {
	for _, p := range []string{">>>", "!=", "<>", "<=", ">=", "<<", ">>", "??", "||"} {
		if strings.HasPrefix(s, p) {
			return p
		}
	}
	if strings.IndexByte("()[]{},.:*+-/%=<>?&|^~", s[0]) >= 0 {
		return s[:1]
	}
	return ""
}
