// Package hostedreport defines what programs on a management cluster report about a hosted control plane, in annotations of its
// HostedCluster, which Cluster Service reads with its status. A program maintains its report, and writes the annotation when the report
// changes. Reports are bounded. Their values come from outside, so that the functions that decode them ignore what is invalid.
package hostedreport

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// Again is the time after which another use of a reported credential, or another failure of a reported target, is reported again.
	Again = time.Hour
	// Kept is the time for which a credential stays in the report after its last known use, and a target after its last known failure.
	// Certificates of the control plane's signers are valid for at most 36 hours, so they have expired by then.
	Kept = 48 * time.Hour
)

// latestFirst returns the entries of a report by the time of their last event, latest first, and then by key.
func latestFirst[V any](report map[string]V, last func(V) time.Time) []V {
	entries := make([]V, 0, len(report))
	for _, key := range slices.Sorted(maps.Keys(report)) {
		entries = append(entries, report[key])
	}
	slices.SortStableFunc(entries, func(a, b V) int { return last(b).Compare(last(a)) })
	return entries
}

// encode returns an annotation's value. what names it in the error.
func encode(what string, value any) (string, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", what, err)
	}
	return string(text), nil
}

// decode reads an annotation's value of at most limit bytes, and reports whether there is a valid one.
func decode(text string, limit int, into any) bool {
	return text != "" && len(text) <= limit && json.Unmarshal([]byte(text), into) == nil
}
