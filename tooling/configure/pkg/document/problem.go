package document

import (
	"cmp"
	"slices"
	"strings"
)

// Problem is one error in the configuration.
type Problem struct {
	Origin Origin
	// Key is the path of the key, for example frontend.image.digest. It is empty if the file as a whole is wrong.
	Key     string
	Message string
}

// Error returns "FILE:LINE: KEY: MESSAGE (layer LAYER)".
func (p Problem) Error() string {
	text := p.Origin.String() + ": "
	if p.Key != "" {
		text += p.Key + ": "
	}
	text += p.Message
	if p.Origin.Layer != "" {
		text += " (layer " + p.Origin.Layer + ")"
	}
	return text
}

// Problems are errors in the configuration.
type Problems []Problem

// Error returns one line for each problem.
func (p Problems) Error() string {
	var lines []string
	for _, problem := range p {
		lines = append(lines, problem.Error())
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems as an error, sorted by file and line and without duplicates; nil if there are none.
func (p Problems) Err() error {
	if len(p) == 0 {
		return nil
	}
	return p.Sorted()
}

// Sorted returns the problems by file, line and key, without duplicates.
func (p Problems) Sorted() Problems {
	sorted := slices.Clone(p)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Origin.File, b.Origin.File), cmp.Compare(a.Origin.Line, b.Origin.Line),
			cmp.Compare(a.Key, b.Key), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(sorted)
}
