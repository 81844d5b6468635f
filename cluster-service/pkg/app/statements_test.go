package app_test

import (
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
		request := r.azureRequest(name)
		service.applyUntilReady(t, request)
	}
	create("first") // what follows the start is not counted
	statements.Reset()
	create("second")
	statements.ExpectAtMost(t, maxCreationStatements, "WITH taken AS", "UPDATE azure_resources SET due_time")
}
