package sql

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenIdent
	tokenKeyword
	tokenString
	tokenParam
	tokenPunct
)

// token is one token of a query.
type token struct {
	kind tokenKind
	// text is the identifier, the keyword in upper case, the punctuation, or the value of the string.
	text string
	raw  string // the text in the query, for messages
	at   int
}

// is reports whether the token is a keyword or punctuation.
func (t token) is(text string) bool {
	return (t.kind == tokenKeyword || t.kind == tokenPunct) && t.text == text
}

// keywords are the reserved words of the service. They cannot be names.
var keywords = map[string]bool{
	"AND": true, "AS": true, "ASC": true, "BETWEEN": true, "BY": true, "DESC": true, "DISTINCT": true,
	"EXISTS": true, "FALSE": true, "FROM": true, "GROUP": true, "IN": true, "JOIN": true, "LIKE": true, "NOT": true,
	"NULL": true, "OR": true, "ORDER": true, "SELECT": true, "TOP": true, "TRUE": true, "UDF": true,
	"UNDEFINED": true, "VALUE": true, "WHERE": true,
}

const punctuation = "(){}.,:=<>*!"

// tokenPattern matches the token at the start of a text.
var tokenPattern = regexp.MustCompile(`^(?:[\pL_][\pL\d_]*|@[\pL\d_]+|'[^'\\]*'|[!<>]=|[(){}.,:=<>*])`)

// lex splits a query into tokens.
func lex(text string) ([]token, error) {
	var tokens []token
	for at := 0; ; {
		rest := strings.TrimLeft(text[at:], " \t\r\n")
		at = len(text) - len(rest)
		if rest == "" {
			return append(tokens, token{kind: tokenEnd, at: at}), nil
		}
		raw := tokenPattern.FindString(rest)
		t := token{tokenIdent, raw, raw, at}
		switch upper := strings.ToUpper(raw); {
		case raw == "":
			_, size := utf8.DecodeRuneInString(rest)
			return nil, syntaxError(token{kind: tokenPunct, raw: rest[:size], at: at})
		case raw[0] == '\'':
			t.kind, t.text = tokenString, raw[1:len(raw)-1]
		case raw[0] == '@':
			t.kind = tokenParam
		case strings.IndexByte(punctuation, raw[0]) >= 0:
			t.kind = tokenPunct
		case keywords[upper]:
			t.kind, t.text = tokenKeyword, upper
		}
		tokens = append(tokens, t)
		at += len(raw)
	}
}
