package feedback

import (
	"encoding/json"
	"slices"
	"strings"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

const (
	// maxForeignFields is the number of foreign fields of one object that are stored.
	maxForeignFields = 8
	// maxForeignReport is the maximum size of a report of foreign fields, in bytes.
	maxForeignReport = 16 << 10
	// pathPausedUntil is the field that stops HyperShift.
	pathPausedUntil = "spec.pausedUntil"
)

// hyperShiftManagers are the prefixes of the field managers of HyperShift, whose operators complete the spec.
var hyperShiftManagers = []string{"hypershift-operator", "control-plane-operator"}

// readForeignFields returns the fields in a report of the agent, without those of HyperShift. spec.pausedUntil, which stops HyperShift, is
// never cut off.
func readForeignFields(report string) []maestroapi.ForeignField {
	var all []maestroapi.ForeignField
	if len(report) > maxForeignReport || json.Unmarshal([]byte(report), &all) != nil {
		return nil
	}
	all = slices.DeleteFunc(all, func(f maestroapi.ForeignField) bool {
		return !strings.HasPrefix(f.Path, "spec.") || slices.ContainsFunc(hyperShiftManagers, func(prefix string) bool { return strings.HasPrefix(f.Manager, prefix) })
	})
	slices.SortStableFunc(all, func(a, b maestroapi.ForeignField) int { return order(a) - order(b) })
	var fields []maestroapi.ForeignField
	for _, f := range all[:min(len(all), maxForeignFields)] {
		fields = append(fields, maestroapi.ForeignField{Path: clip(f.Path), Manager: clip(f.Manager), Value: clip(f.Value)})
	}
	return fields
}

func order(f maestroapi.ForeignField) int {
	if f.Path == pathPausedUntil {
		return 0
	}
	return 1
}

// ForeignText returns which fields of the main object other clients set, as sentences; empty if there are none.
func (o *Observed) ForeignText() string {
	var sentences []string
	for _, f := range o.ForeignFields {
		text := f.Manager + " set " + f.Path
		if f.Value != "" {
			text += " to " + f.Value
		}
		if f.Path == pathPausedUntil && f.Value != "false" {
			text += ", which stops HyperShift"
		}
		sentences = append(sentences, text+".")
	}
	return strings.Join(sentences, " ")
}
