package feedback

import (
	"encoding/json"
	"slices"
	"strings"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// maxForeignReport is the maximum size of a report of foreign fields, in bytes.
const maxForeignReport = 16 << 10

// readForeignFields returns the fields in a report of an agent that maestroapi.SelectForeignFields selects.
func readForeignFields(report string) []maestroapi.ForeignField {
	var all []maestroapi.ForeignField
	if len(report) > maxForeignReport || json.Unmarshal([]byte(report), &all) != nil {
		return nil
	}
	all = slices.DeleteFunc(all, func(f maestroapi.ForeignField) bool { return !strings.HasPrefix(f.Path, "spec.") })
	var fields []maestroapi.ForeignField
	for _, f := range maestroapi.SelectForeignFields(all) {
		fields = append(fields, maestroapi.ForeignField{Path: clip(f.Path), Manager: clip(f.Manager), Value: clip(f.Value)})
	}
	return fields
}

// ForeignText returns which fields of the main object other clients set, as sentences; empty if there are none.
func (o *Observed) ForeignText() string {
	var sentences []string
	for _, f := range o.ForeignFields {
		text := f.Manager + " set " + f.Path
		if f.Value != "" {
			text += " to " + f.Value
		}
		if f.Path == maestroapi.PathPausedUntil && f.Value != "false" {
			text += ", which stops HyperShift"
		}
		sentences = append(sentences, text+".")
	}
	return strings.Join(sentences, " ")
}
