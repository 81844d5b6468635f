package sql

import (
	"bytes"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// RequiredSubstrings returns texts that the JSON of every matching document contains, in the form of document.Append: the
// strings and the prefixes that the filter requires of properties. A search for them is much faster than parsing a
// document that does not match.
func (q *Query) RequiredSubstrings(params map[string]document.Value) [][]byte {
	var substrings [][]byte
	for _, e := range q.conjuncts() {
		if n, ok := e.(*comparison); ok && n.op == "=" {
			if _, text, ok := condition(n.left, n.right, params); ok {
				substrings = append(substrings, document.AppendString(nil, text))
			}
		}
		// A prefix with other characters could end within an escape sequence.
		if _, text, ok := prefix(e, params); ok && text != "" && isASCII(text) {
			substrings = append(substrings, bytes.TrimSuffix(document.AppendString(nil, text), []byte(`"`)))
		}
	}
	// Short texts are searched faster.
	slices.SortFunc(substrings, func(a, b []byte) int { return len(a) - len(b) })
	return substrings
}

// RequiredFolders returns the prefixes that the filter requires of top-level properties and that begin and end with a
// slash.
func (q *Query) RequiredFolders(params map[string]document.Value) []string {
	var folders []string
	for _, e := range q.conjuncts() {
		of, text, ok := prefix(e, params)
		if ok && len(of.names) == 1 && strings.HasPrefix(text, "/") && strings.HasSuffix(text, "/") {
			folders = append(folders, text)
		}
	}
	return folders
}

// conjuncts returns the conditions that all matching documents meet.
func (q *Query) conjuncts() []expr {
	if n, ok := q.where.(*chain); ok && !n.or {
		return n.items
	}
	return []expr{q.where}
}

// prefix returns the property and the prefix of a STARTSWITH that considers case.
func prefix(e expr, params map[string]document.Value) (of *path, text string, ok bool) {
	if n, isCall := e.(*call); isCall && n.name == "STARTSWITH" && len(n.args) == 2 {
		return condition(n.args[0], n.args[1], params)
	}
	return nil, "", false
}

// condition returns the property and the string of a condition. ok is false for other operands.
func condition(left, right expr, params map[string]document.Value) (of *path, text string, ok bool) {
	of, ok = left.(*path)
	var v document.Value
	switch n := right.(type) {
	case *literal:
		v = n.value
	case *param:
		v = params[n.name]
	}
	return of, v.Str, ok && v.Kind == document.String
}

// isASCII reports whether s contains only ASCII characters.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
