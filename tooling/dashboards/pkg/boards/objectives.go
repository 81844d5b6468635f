package boards

import (
	"fmt"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/slo"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

// objectives has a row for each service level objective.
func objectives() *dashboard.Dashboard {
	d := &dashboard.Dashboard{Name: "objectives", Title: "Service level objectives", Question: "Which promises to customers are kept, and how much of each error budget is left?"}
	// The budget is recorded every 15 minutes, and a query finds only values of the last 5 minutes.
	for _, o := range slo.Objectives() {
		legend := "region"
		if len(o.By) > 0 {
			legend = "{{" + strings.Join(o.By, "}} {{") + "}}"
		}
		d.Rows = append(d.Rows, dashboard.Row{Title: o.Promise, Panels: []dashboard.Panel{
			bad(number(o.Name+": budget", fmt.Sprintf("Share of the error budget of %d days that is left. It is known within 6 hours after the first events.", int(slo.Window.Hours()/24)), plot.Share,
				query(fmt.Sprintf(`last_over_time(slo:error_budget:ratio{slo=%q}[30m])`, o.Name), legend)),
				dashboard.Below(0), o.Runbook),
			bad(graph(o.Name+": errors", "Share of events within an hour that were errors. At the limit, the budget would be spent in exactly its period.", plot.Share,
				query(fmt.Sprintf(`slo:errors:increase1h{slo=%[1]q} / slo:events:increase1h{slo=%[1]q}`, o.Name), legend)),
				dashboard.From(o.Budget()), o.Runbook),
			graph(o.Name+": events", "Events within an hour.", plot.Count,
				query(fmt.Sprintf(`slo:events:increase1h{slo=%q}`, o.Name), legend)),
		}})
	}
	return d
}
