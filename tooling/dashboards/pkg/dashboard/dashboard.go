// Package dashboard describes dashboards independently of the program that displays them: what each one answers, its rows of panels, and
// the PromQL expressions of each panel. Package grafana renders them for Grafana, and Page renders the page for readers. Fill fills them with the
// values of a Prometheus, so that package plot can draw them. It evaluates the same expressions as Grafana does: over a period for graphs, and
// at its end for numbers.
package dashboard

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

// Dashboard answers one question about a region.
type Dashboard struct {
	// Name is the name of the file and the UID in Grafana: lower-case letters and hyphens.
	Name  string
	Title string
	// Question is what the dashboard answers.
	Question  string
	Variables []Variable
	Rows      []Row
}

// Variable is a choice of the reader. Expressions use it as label=~"$name".
type Variable struct {
	Name string
	// The choices are the values of a label of a metric, and all of them together.
	Metric, Label string
}

// Row is a group of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Kind is the form of a panel.
type Kind string

// The kinds.
const (
	// Graph shows values over time.
	Graph Kind = "graph"
	// Number shows the last value of each series.
	Number Kind = "number"
)

// Panel shows the results of some queries, which have the same unit.
type Panel struct {
	Title string
	// Meaning explains what is shown, in sentences.
	Meaning string
	Kind    Kind
	Unit    plot.Unit
	Queries []Query
	// Limit is the value beyond which the panel shows that something is wrong; nil if there is none.
	Limit *plot.Limit
	// Runbook is the path of the page, with an optional #anchor, that helps when the limit is exceeded.
	Runbook string
}

// From returns a limit at and above which values are bad.
func From(value float64) *plot.Limit { return &plot.Limit{Value: value} }

// Below returns a limit below which values are bad.
func Below(value float64) *plot.Limit { return &plot.Limit{Value: value, Below: true} }

// Query is a PromQL expression.
type Query struct {
	Expression string
	// Legend is the name of a series. {{label}} stands for the value of a label; empty shows all labels.
	Legend string
}

// Window is the range of rates. The program that displays the dashboard replaces it with one that suits the interval of scrapes.
const Window = "$__rate_interval"

// Plain returns an expression with values in place of Window and variables, so that a PromQL parser accepts it.
func (d *Dashboard) Plain(expression string) string { return d.Expand(expression, "5m", nil) }

// Expand returns an expression with a range in place of Window, and with chosen values in place of each variable. A variable without a
// choice has all values.
func (d *Dashboard) Expand(expression, window string, chosen map[string][]string) string {
	expression = strings.ReplaceAll(expression, Window, window)
	return variableUsed.ReplaceAllStringFunc(expression, func(used string) string {
		name := used[1:]
		if !slices.ContainsFunc(d.Variables, func(v Variable) bool { return v.Name == name }) {
			return used
		}
		return matcher(chosen[name])
	})
}

// matcher returns a regular expression for some values, as part of a string of PromQL. It matches everything if there are none.
func matcher(values []string) string {
	if len(values) == 0 {
		return ".*"
	}
	quoted := make([]string, len(values))
	for i, value := range values {
		quoted[i] = regexp.QuoteMeta(value)
	}
	text := strconv.Quote(strings.Join(quoted, "|"))
	return text[1 : len(text)-1]
}

// Name returns the name of a series with some labels.
func (q *Query) Name(labels map[string]string) string {
	if q.Legend != "" {
		return legendLabel.ReplaceAllStringFunc(q.Legend, func(label string) string { return labels[legendLabel.FindStringSubmatch(label)[1]] })
	}
	parts := make([]string, 0, len(labels))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, name+"="+labels[name])
	}
	return strings.Join(parts, " ")
}
