package conformance

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// maxWorkStatements is the largest number of SQL statements for a work that is created, updated, and reported five times.
const maxWorkStatements = 30

// TestWorkStatements holds the number of SQL statements of a work. It does not count what the server reads at intervals.
func TestWorkStatements(t *testing.T) {
	t.Parallel()
	statements, counted := postgrestest.CountStatements(t, database.Migrated(t, store.Migrations()))
	r := &region{maestrotest.New(t, counted, logger(t)), t}
	r.Tune = func(c *app.Config) { c.SafetyPoll = time.Hour }
	_, consumer, agent, cs := r.withFakeAgent()
	work := func() {
		b := newBundle(consumer, "x")
		cs.must("create", b)
		agent.until("spec.create_request", b.ID, 1)
		report := func(version int64, sequence int, condition string) {
			agent.report(b.ID, version, sequence, condition)
			cs.until(b.ID, condition, func(st statusEvent) bool { return meta.IsStatusConditionTrue(st.Conditions, condition) })
		}
		for i, condition := range []string{"Applied", "Available", "Progressing"} {
			report(1, i+1, condition)
		}
		cs.must("update", b.with("y"))
		agent.until("spec.update_request", b.ID, 1)
		report(2, 4, "Degraded")
		report(2, 5, "Applied")
	}
	work() // what follows the start is not counted
	statements.Reset()
	work()
	statements.ExpectAtMost(t, maxWorkStatements, "select name from consumers", "select l.objid", "select pg_snapshot_xmin", "select consumer, time from heartbeats")
}
