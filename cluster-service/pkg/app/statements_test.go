package app_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// maxCreationStatements is more than a creation needs, because the number of statuses and of polls of Azure varies.
const maxCreationStatements = 120

// TestCreationStatements holds the number of SQL statements of a creation with Azure resources. It does not count scans for due work.
func TestCreationStatements(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{})
	r.quiet = true
	statements, counted := postgrestest.CountStatements(t, r.url)
	r.url = counted
	r.play()
	service := r.start(nil)
	create := func(name string) {
		request := azureRequest(name)
		if _, err := service.ApplyCluster(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		service.awaitCluster(t, request.Uid, clusterReady(1))
	}
	create("first") // what follows the start is not counted
	statements.Reset()
	create("second")

	counts, sum := statements.Reset(), 0
	var lines []string
	for _, statement := range slices.Sorted(maps.Keys(counts)) {
		if strings.HasPrefix(statement, "WITH taken AS") || strings.HasPrefix(statement, "UPDATE azure_resources SET due_time") {
			continue
		}
		sum += counts[statement]
		lines = append(lines, fmt.Sprintf("%3d %.120s", counts[statement], strings.Join(strings.Fields(statement), " ")))
	}
	t.Logf("a creation executed %d statements", sum)
	if sum > maxCreationStatements {
		t.Errorf("want at most %d statements:\n%s", maxCreationStatements, strings.Join(lines, "\n"))
	}
}
