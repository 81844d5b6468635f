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
		switch n := e.(type) {
		case *binary:
			if n.op != "=" {
				continue
			}
			equalities := Equalities{}
			q.addEqualities(n, params, equalities)
			for _, values := range equalities {
				if len(values) == 1 && values[0].Kind == document.String {
					substrings = append(substrings, document.Append(nil, values[0]))
				}
			}
		case *call:
			if n.name == "STARTSWITH" && len(n.args) == 2 {
				substrings = q.addPrefix(n, params, substrings)
			}
		}
	}
	// Short texts are searched faster.
	slices.SortFunc(substrings, func(a, b []byte) int { return len(a) - len(b) })
	return substrings
}

// addPrefix adds the required text of a STARTSWITH.
func (q *Query) addPrefix(n *call, params map[string]document.Value, substrings [][]byte) [][]byte {
	equalities := Equalities{}
	if !q.addEquality(n.args[0], n.args[1:], params, equalities) {
		return substrings
	}
	for _, values := range equalities {
		v := values[0]
		// A prefix with other characters could end within an escape sequence.
		if v.Kind == document.String && v.Str != "" && isASCII(v.Str) {
			substrings = append(substrings, bytes.TrimSuffix(document.Append(nil, v), []byte(`"`)))
		}
	}
	return substrings
}

// RequiredFolders returns the prefixes that the filter requires of top-level properties and that begin and end with a
// slash.
func (q *Query) RequiredFolders(params map[string]document.Value) []string {
	var folders []string
	for _, e := range q.conjuncts() {
		n, ok := e.(*call)
		if !ok || n.name != "STARTSWITH" || len(n.args) != 2 {
			continue
		}
		equalities := Equalities{}
		q.addEquality(n.args[0], n.args[1:], params, equalities)
		for path, values := range equalities {
			if text := values[0].Str; values[0].Kind == document.String && !strings.Contains(path, "\x00") &&
				strings.HasPrefix(text, "/") && strings.HasSuffix(text, "/") {
				folders = append(folders, text)
			}
		}
	}
	return folders
}

// conjuncts returns the conditions that all matching documents meet.
func (q *Query) conjuncts() []expr {
	if q.where == nil {
		return nil
	}
	if chain, ok := q.where.(*logical); ok && chain.op == "AND" {
		return chain.items
	}
	return []expr{q.where}
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
