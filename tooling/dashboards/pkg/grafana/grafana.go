// Package grafana renders dashboards as JSON for Grafana, with the library of Grafana for its schema.
package grafana

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"

	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

// sourceVariable is the variable with which the reader chooses the source of the metrics: the same file suits all environments.
const sourceVariable = "datasource"

// The grid of Grafana has 24 columns. A row of panels has graphs of a third.
const (
	panelWidth  = 8
	panelHeight = 8
)

// units are the units of Grafana.
var units = map[plot.Unit]string{
	plot.Count: "short", plot.PerSecond: "cps", plot.Share: "percentunit", plot.Seconds: "s", plot.Bytes: "bytes", plot.YesOrNo: "bool_yes_no",
}

// JSON returns a dashboard as a file that Grafana can import.
func JSON(d *dashboard.Dashboard) ([]byte, error) {
	b := grafana.NewDashboardBuilder(d.Title).
		Uid("hcpmesh-"+d.Name).
		Description(d.Question).
		Tags([]string{"hcpmesh"}).
		Readonly().
		Time("now-6h", "now").
		Refresh("1m").
		Timezone("utc").
		Tooltip(grafana.DashboardCursorSyncCrosshair).
		WithVariable(grafana.NewDatasourceVariableBuilder(sourceVariable).Label("Metrics").Type("prometheus"))
	for _, v := range d.Variables {
		b = b.WithVariable(variable(v))
	}
	id := uint32(0)
	for _, row := range d.Rows {
		id++
		b = b.WithRow(grafana.NewRowBuilder(row.Title).Id(id))
		for _, p := range row.Panels {
			id++
			built, err := panel(id, p)
			if err != nil {
				return nil, fmt.Errorf("dashboard %s, panel %s: %w", d.Name, p.Title, err)
			}
			b = b.WithPanel(built)
		}
	}
	built, err := b.Build()
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", d.Name, err)
	}
	text, err := json.MarshalIndent(built, "", "  ")
	return append(text, '\n'), err
}

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: new("prometheus"), Uid: new("${" + sourceVariable + "}")}
}

// variable returns a choice of one, several or all values of a label.
func variable(v dashboard.Variable) cog.Builder[grafana.VariableModel] {
	values := fmt.Sprintf("label_values(%s, %s)", v.Metric, v.Label)
	return grafana.NewQueryVariableBuilder(v.Name).
		Label(v.Name).
		Datasource(source()).
		Query(grafana.StringOrMap{String: &values}).
		Refresh(grafana.VariableRefreshOnTimeRangeChanged).
		Sort(grafana.VariableSortAlphabeticalAsc).
		Multi(true).
		IncludeAll(true).
		AllValue(".*").
		Current(grafana.VariableOption{Text: grafana.StringOrArrayOfString{String: new("All")}, Value: grafana.StringOrArrayOfString{String: new("$__all")}})
}

// panel returns a panel with an ID that is unique in its dashboard.
func panel(id uint32, p dashboard.Panel) (cog.Builder[grafana.Panel], error) {
	unit, ok := units[p.Unit]
	if !ok {
		return nil, fmt.Errorf("the unit %q is unknown", p.Unit)
	}
	description := p.Meaning
	if p.Runbook != "" {
		description += " Runbook: " + p.Runbook
	}
	switch p.Kind {
	case dashboard.Graph:
		b := timeseries.NewPanelBuilder().Id(id).Title(p.Title).Description(description).Unit(unit).Datasource(source()).
			Span(panelWidth).Height(panelHeight).
			Legend(common.NewVizLegendOptionsBuilder().DisplayMode(common.LegendDisplayModeTable).Placement(common.LegendPlacementBottom).ShowLegend(true).Calcs([]string{"lastNotNull", "max"})).
			Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
			Thresholds(thresholds(p.Limit))
		if p.Limit != nil {
			b = b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeLine))
		}
		for i, q := range p.Queries {
			b = b.WithTarget(target(i, q).Range())
		}
		return b, nil
	case dashboard.Number:
		b := stat.NewPanelBuilder().Id(id).Title(p.Title).Description(description).Unit(unit).Datasource(source()).
			Span(panelWidth).Height(panelHeight).
			ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
			Thresholds(thresholds(p.Limit))
		for i, q := range p.Queries {
			b = b.WithTarget(target(i, q).Instant())
		}
		return b, nil
	}
	return nil, fmt.Errorf("the kind %q is unknown", p.Kind)
}

// target returns the query with an index in its panel.
func target(i int, q dashboard.Query) *prometheus.DataqueryBuilder {
	b := prometheus.NewDataqueryBuilder().RefId(string(rune('A' + i))).Datasource(source()).Expr(q.Expression)
	if q.Legend != "" {
		b = b.LegendFormat(q.Legend)
	}
	return b
}

// thresholds returns the colors of values.
func thresholds(limit *plot.Limit) cog.Builder[grafana.ThresholdsConfig] {
	const good, wrong = "green", "red"
	steps := []grafana.Threshold{{Color: good}}
	switch {
	case limit == nil:
	case limit.Below:
		steps = []grafana.Threshold{{Color: wrong}, {Color: good, Value: &limit.Value}}
	default:
		steps = append(steps, grafana.Threshold{Color: wrong, Value: &limit.Value})
	}
	return grafana.NewThresholdsConfigBuilder().Mode(grafana.ThresholdsModeAbsolute).Steps(steps)
}
