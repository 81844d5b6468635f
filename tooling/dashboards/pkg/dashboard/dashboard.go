// Package dashboard describes dashboards independently of the program that displays them: what each one answers, its rows of panels, and
// the PromQL expressions of each panel. Package grafana renders them for Grafana, and Page renders the page for readers.
package dashboard

import "strings"

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

// Unit is the unit of values.
type Unit string

// The units.
const (
	Count     Unit = "count"
	PerSecond Unit = "per second"
	Share     Unit = "share"
	Seconds   Unit = "seconds"
	Bytes     Unit = "bytes"
	YesOrNo   Unit = "1 or 0"
)

// Panel shows the results of some queries, which have the same unit.
type Panel struct {
	Title string
	// Meaning explains what is shown, in sentences.
	Meaning string
	Kind    Kind
	Unit    Unit
	Queries []Query
	// Limit is the value beyond which the panel shows that something is wrong; nil if there is none.
	Limit *Limit
	// Runbook is the path of the page, with an optional #anchor, that helps when the limit is exceeded.
	Runbook string
}

// Limit is a bound of good values.
type Limit struct {
	Value float64
	// Below states that values below the limit are bad. Otherwise those that are equal or above are.
	Below bool
}

// From returns a limit at and above which values are bad.
func From(value float64) *Limit { return &Limit{Value: value} }

// Below returns a limit below which values are bad.
func Below(value float64) *Limit { return &Limit{Value: value, Below: true} }

// Query is a PromQL expression.
type Query struct {
	Expression string
	// Legend is the name of a series. {{label}} stands for the value of a label; empty shows all labels.
	Legend string
}

// Window is the range of rates. The program that displays the dashboard replaces it with one that suits the interval of scrapes.
const Window = "$__rate_interval"

// Plain returns an expression with values in place of Window and variables, so that a PromQL parser accepts it.
func (d *Dashboard) Plain(expression string) string {
	expression = strings.ReplaceAll(expression, Window, "5m")
	for _, v := range d.Variables {
		expression = strings.ReplaceAll(expression, "$"+v.Name, ".*")
	}
	return expression
}
