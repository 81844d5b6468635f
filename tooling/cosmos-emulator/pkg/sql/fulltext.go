package sql

import (
	"slices"
	"strings"
	"unicode"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// fullText reports whether a text contains all of the words or phrases, or any of them.
func fullText(a []document.Value, all bool) document.Value {
	if !allKind(document.String, a) {
		return undefined
	}
	text := words(a[0].Str)
	for _, phrase := range a[1:] {
		if found := containsPhrase(text, words(phrase.Str)); found != all {
			return document.FromBool(!all)
		}
	}
	return document.FromBool(all)
}

// words returns the words of a text in lower case.
func words(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// containsPhrase reports whether the words of a phrase occur in sequence.
func containsPhrase(text, phrase []string) bool {
	for i := 0; len(phrase) > 0 && i+len(phrase) <= len(text); i++ {
		if slices.Equal(text[i:i+len(phrase)], phrase) {
			return true
		}
	}
	return false
}
