// Package slo has the service level objectives of a region as one table, Objectives. Rules renders an objective as recording rules and as
// alerts on the speed at which its error budget is spent, Tests renders their unit tests, and Table the page for readers. The package has no
// other input: an objective is changed in the table, and nowhere else.
package slo

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Window is the time over which an objective is met or missed.
const Window = 28 * 24 * time.Hour

// Objective is a share of events that must be good.
type Objective struct {
	// Name is the value of the label slo.
	Name string
	// Alert is the beginning of the names of the alerts.
	Alert string
	// Promise states what customers can rely on.
	Promise string
	// Target is the least share of good events within Window, between 0 and 1.
	Target    float64
	Indicator Indicator
	// By are the labels for which the objective holds separately.
	By []string
	// MinErrors are the least errors within the longer window of an alert. Fewer never fire, so that one error at night does not page. 0 if
	// the number of events does not depend on customers.
	MinErrors int
	// Page decides whether burning the budget fast wakes an engineer. Otherwise all alerts are tickets.
	Page bool
	// Summary and Impact are annotations of the alerts, Command and Runbook as well. The summary ends before the share of errors.
	Summary, Impact, Command, Runbook string
}

// Budget returns the share of events that may be bad.
func (o *Objective) Budget() float64 { return rounded(1 - o.Target) }

// Indicator counts events and errors. The expressions have the labels By of the objective. An expression without result means that nothing was
// counted.
type Indicator interface {
	// Events returns the expression that counts the events of a window before its evaluation.
	Events(o *Objective, window string) string
	// Errors returns the expression that counts those of the events that are bad. It is 0 if there are events and none is bad.
	Errors(o *Objective, window string) string
	// Describe returns what a good event is, for the page.
	Describe() string
	// timelines returns the timelines of the tests of an alert.
	timelines(o *Objective, b burn) []timeline
}

// Counter selects series of a counter. A matcher is one of PromQL.
type Counter struct {
	Metric   string
	Matchers []string
	// Example are the labels of a series that the matchers select, for tests.
	Example string
}

// selector returns the selector of the counter, with further matchers.
func (c Counter) selector(further ...string) string {
	matchers := slices.Concat(c.Matchers, further)
	if len(matchers) == 0 {
		return c.Metric
	}
	return c.Metric + "{" + strings.Join(matchers, ",") + "}"
}

// count returns the expression that adds the increases of counters within a window. A series that did not exist before the window counts
// from 0, because increase sees only later changes: without that, the first error of each combination of labels would be lost.
func count(by []string, selector, window string) string {
	return fmt.Sprintf("sum%s((%[2]s unless %[2]s offset %[3]s) or increase(%[2]s[%[3]s]))", grouping(by), selector, window)
}

// series returns the selector of a recorded metric of the objective.
func (o *Objective) series(record string) string { return fmt.Sprintf("%s{slo=%q}", record, o.Name) }

// grouping returns the clause by, or nothing.
func grouping(by []string) string {
	if len(by) == 0 {
		return ""
	}
	return " by (" + strings.Join(by, ",") + ") "
}

// Ratio is an indicator of two counters. The series of Bad are a part of those of All.
type Ratio struct {
	All, Bad Counter
	// Good describes a good event.
	Good string
}

// Events implements Indicator.
func (r Ratio) Events(o *Objective, window string) string {
	return count(o.By, r.All.selector(), window)
}

// Errors implements Indicator.
func (r Ratio) Errors(o *Objective, window string) string {
	return fmt.Sprintf("%s or 0 * %s", count(o.By, r.Bad.selector(), window), r.Events(o, window))
}

// Describe implements Indicator.
func (r Ratio) Describe() string {
	return fmt.Sprintf("%s. Events: `%s`; bad: `%s`", r.Good, r.All.selector(), r.Bad.selector())
}

// Latency is an indicator of a histogram: an event is good if it was observed below a bound.
type Latency struct {
	Histogram Counter
	// Bound is the upper bound of a bucket in seconds.
	Bound float64
}

// Events implements Indicator.
func (l Latency) Events(o *Objective, window string) string {
	return count(o.By, l.part("_count").selector(), window)
}

// Errors implements Indicator.
func (l Latency) Errors(o *Objective, window string) string {
	return fmt.Sprintf("clamp_min(%s - %s, 0)", l.Events(o, window), count(o.By, l.part("_bucket").selector(l.le()), window))
}

// Describe implements Indicator.
func (l Latency) Describe() string {
	return fmt.Sprintf("observed in at most %s. Events: `%s`", time.Duration(l.Bound*float64(time.Second)), l.Histogram.selector())
}

// part returns the counter of a part of the histogram.
func (l Latency) part(suffix string) Counter {
	return Counter{Metric: l.Histogram.Metric + suffix, Matchers: l.Histogram.Matchers, Example: l.Histogram.Example}
}

// le returns the matcher of the bucket. Prometheus 3 stores the bound 1 as 1.0, other servers as 1.
func (l Latency) le() string {
	bound := fmt.Sprint(l.Bound)
	if strings.Contains(bound, ".") {
		return fmt.Sprintf("le=%q", bound)
	}
	return fmt.Sprintf(`le=~"%s(\\.0)?"`, bound)
}

// State is an indicator of a condition that is evaluated each minute: an event is a minute.
type State struct {
	// Bad is an expression with the value 1 if the condition is bad and else 0, with the labels By.
	Bad string
	// Good describes a good minute.
	Good string
	// Example is a series of the metric of Bad, and BadValue one of its values that is bad, for tests. It is good at 0.
	Example  string
	BadValue float64
}

// badRecord is the name under which the condition of a State is recorded.
const badRecord = "slo:bad:state"

// Events implements Indicator.
func (s State) Events(o *Objective, window string) string {
	return fmt.Sprintf("count_over_time(%s[%s])", o.series(badRecord), window)
}

// Errors implements Indicator.
func (s State) Errors(o *Objective, window string) string {
	return fmt.Sprintf("sum_over_time(%s[%s])", o.series(badRecord), window)
}

// Describe implements Indicator.
func (s State) Describe() string { return fmt.Sprintf("%s. Bad: `%s`", s.Good, s.Bad) }
