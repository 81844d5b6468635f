package sql

import (
	"bytes"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
)

// RequiredSubstrings are texts that occur in the JSON (as document.Append writes it) of every document that passes the filter: the
// strings that it demands of properties, and what it demands that they start with. Looking for them takes a small part
// of the time of parsing a document to find out that the filter is not for it.
func (q *Query) RequiredSubstrings(params map[string]document.Value) [][]byte {
	var needles [][]byte
	for _, e := range q.conjuncts() {
		switch n := e.(type) {
		case *binary:
			if n.op != "=" {
				continue
			}
			pins := Equalities{}
			q.addEqualities(n, params, pins)
			for _, values := range pins {
				if len(values) == 1 && values[0].Kind == document.String {
					needles = append(needles, document.Append(nil, values[0]))
				}
			}
		case *call:
			if n.name == "STARTSWITH" && len(n.args) == 2 {
				needles = q.addPrefix(n, params, needles)
			}
		}
	}
	// Short ones are found, or not, much faster.
	slices.SortFunc(needles, func(a, b []byte) int { return len(a) - len(b) })
	return needles
}

func (q *Query) addPrefix(n *call, params map[string]document.Value, needles [][]byte) [][]byte {
	pins := Equalities{}
	if !q.addEquality(n.args[0], n.args[1:], params, pins) {
		return needles
	}
	for _, values := range pins {
		v := values[0]
		// Beyond ASCII a prefix may end within what is written as one.
		if v.Kind == document.String && v.Str != "" && isASCII(v.Str) {
			needles = append(needles, bytes.TrimSuffix(document.Append(nil, v), []byte(`"`)))
		}
	}
	return needles
}

// RequiredFolders are the strings, beginning and ending with a slash, that the filter demands some property of a document, not within
// another, to begin with.
func (q *Query) RequiredFolders(params map[string]document.Value) []string {
	var found []string
	for _, e := range q.conjuncts() {
		n, ok := e.(*call)
		if !ok || n.name != "STARTSWITH" || len(n.args) != 2 {
			continue
		}
		pins := Equalities{}
		q.addEquality(n.args[0], n.args[1:], params, pins)
		for path, values := range pins {
			if text := values[0].Str; values[0].Kind == document.String && !strings.Contains(path, "\x00") &&
				strings.HasPrefix(text, "/") && strings.HasSuffix(text, "/") {
				found = append(found, text)
			}
		}
	}
	return found
}

// conjuncts are what must all be true of a document that passes the filter.
func (q *Query) conjuncts() []expr {
	if q.where == nil {
		return nil
	}
	if chain, ok := q.where.(*logical); ok && chain.op == "AND" {
		return chain.items
	}
	return []expr{q.where}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
