// Package boards has the dashboards of a region. Each file has one dashboard.
package boards

import (
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

// All returns the dashboards of a region.
func All() []*dashboard.Dashboard {
	return []*dashboard.Dashboard{region(), hosted(), objectives(), operations(), shards(), transport(), capacity(), access()}
}

// graph returns a panel with values over time.
func graph(title, meaning string, unit plot.Unit, queries ...dashboard.Query) dashboard.Panel {
	return dashboard.Panel{Title: title, Meaning: meaning, Kind: dashboard.Graph, Unit: unit, Queries: queries}
}

// number returns a panel with the last values.
func number(title, meaning string, unit plot.Unit, queries ...dashboard.Query) dashboard.Panel {
	panel := graph(title, meaning, unit, queries...)
	panel.Kind = dashboard.Number
	return panel
}

// bad returns a panel with a limit and the runbook for values beyond it.
func bad(panel dashboard.Panel, limit *plot.Limit, runbook string) dashboard.Panel {
	panel.Limit, panel.Runbook = limit, runbook
	return panel
}

// query returns a query.
func query(expression, legend string) dashboard.Query {
	return dashboard.Query{Expression: expression, Legend: legend}
}
