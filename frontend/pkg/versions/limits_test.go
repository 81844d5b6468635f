package versions_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/versions"
)

// TestTooManyEntriesAreNotDecoded decodes a body for each list and map of each version: one with 100,000 malformed entries, and
// one with as many as the field may have. The first one needs as many allocations as the second, and a few for its message.
func TestTooManyEntriesAreNotDecoded(t *testing.T) {
	all := versions.All()
	for version, schemas := range tables() {
		v := all[version]
		decoders := map[string]func(*wire.Body){
			"HcpOpenShiftCluster": func(b *wire.Body) { v.DecodeCluster(b, &hub.Cluster{}, true) },
			"NodePool":            func(b *wire.Body) { v.DecodeNodePool(b, &hub.NodePool{}, true) },
			"ExternalAuth":        func(b *wire.Body) { v.DecodeExternalAuth(b, &hub.ExternalAuth{}, true) },
		}
		for schema, entries := range schemas {
			for _, entry := range entries {
				if entry.AtMost == 0 {
					continue
				}
				allocations := func(count int) (needed float64, problems []wire.Problem) {
					fields := entriesAt(entry.Path, entry.Type, count)
					needed = testing.AllocsPerRun(1, func() {
						body := wire.NewBody(fields)
						decoders[schema](body)
						problems = body.Problems()
					})
					return needed, problems
				}
				accepted, _ := allocations(entry.AtMost)
				refused, problems := allocations(100_000)
				path := strings.ReplaceAll(entry.Path, "[]", "[0]")
				if refused > accepted+10 || len(problems) != 1 || problems[0].Field != path || problems[0].Message != wire.TooMany(100_000, entry.AtMost) {
					t.Errorf("%s, %s: 100,000 entries need %.0f allocations, %d entries %.0f; the problems are %v", version, entry.Path, refused, entry.AtMost, accepted, problems)
				}
			}
		}
	}
}

// entriesAt returns a body with count malformed entries at the path of an entry.
func entriesAt(path, entryType string, count int) map[string]any {
	var value any
	if entryType == "strings" || entryType == "list" {
		value = slices.Repeat([]any{json.Number("1")}, count)
	} else {
		entries := map[string]any{}
		for i := range count {
			entries[fmt.Sprint(i)] = json.Number("1")
		}
		value = entries
	}
	for _, name := range slices.Backward(strings.Split(path, ".")) {
		if list, isList := strings.CutSuffix(name, "[]"); isList {
			name, value = list, []any{value}
		}
		value = map[string]any{name: value}
	}
	return value.(map[string]any)
}
