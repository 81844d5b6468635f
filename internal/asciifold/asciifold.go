// Package asciifold compares text without regard to the case of ASCII letters, and of no others. Routes, keywords of ARM resource IDs and
// names of resource types are ASCII. The functions of package strings also fold letters outside ASCII to ASCII letters: for them
// reſourceGroups equals resourceGroups, and a component in front of the service that compares bytes would have seen another path.
package asciifold

import "unicode"

// Equal reports whether two texts are equal apart from the case of ASCII letters.
func Equal(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// Lower returns the text with ASCII letters in lower case.
func Lower(text string) string {
	for i := range len(text) {
		if lower(text[i]) != text[i] {
			folded := []byte(text)
			for ; i < len(folded); i++ {
				folded[i] = lower(folded[i])
			}
			return string(folded)
		}
	}
	return text
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Ambiguous reports whether a letter outside ASCII has an ASCII letter as its upper or lower case. A name with such a letter would be
// equal to another name for the functions of package strings, while Azure distinguishes the names.
func Ambiguous(r rune) bool {
	return r > unicode.MaxASCII && (unicode.ToLower(r) <= unicode.MaxASCII || unicode.ToUpper(r) <= unicode.MaxASCII)
}
