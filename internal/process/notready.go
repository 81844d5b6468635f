package process

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// ParseNotReady returns the reasons in the body of a response to a readiness probe: a Readiness, or the verbose lines of a
// Kubernetes API server. text is one line; it is empty if the body contains no reason. reasons contains the reason for each
// dependency; it is nil unless the body is a Readiness.
func ParseNotReady(body []byte) (reasons map[string]string, text string) {
	var readiness Readiness
	if json.Unmarshal(body, &readiness) == nil && len(readiness.NotReady) > 0 {
		var parts []string
		for _, dependency := range slices.Sorted(maps.Keys(readiness.NotReady)) {
			parts = append(parts, dependency+": "+readiness.NotReady[dependency])
		}
		return readiness.NotReady, strings.Join(parts, "; ")
	}
	for line := range strings.Lines(string(body)) {
		if failed, ok := strings.CutPrefix(line, "[-]"); ok {
			return nil, strings.TrimSpace(failed)
		}
	}
	return nil, ""
}
