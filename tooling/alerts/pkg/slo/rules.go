package slo

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// burn is an alert on the speed at which an objective spends its error budget. It fires if a share of the budget was spent within the long
// window and the budget is still spent at this speed within the short one, so it ends soon after the errors do.
type burn struct {
	// suffix is the end of the alert's name.
	suffix      string
	long, short time.Duration
	// spent is the share of the budget.
	spent float64
	// interval is the time between two evaluations, hold the time for which the condition must hold.
	interval, hold time.Duration
	page           bool
}

// burns are the alerts of each objective. A budget that is spent evenly lasts for Window.
var burns = []burn{
	{suffix: "Fast", long: time.Hour, short: 5 * time.Minute, spent: 0.02, interval: time.Minute, hold: 2 * time.Minute, page: true},
	{suffix: "Slow", long: 6 * time.Hour, short: 30 * time.Minute, spent: 0.05, interval: 5 * time.Minute, hold: 10 * time.Minute, page: true},
	{suffix: "3d", long: 72 * time.Hour, short: 6 * time.Hour, spent: 0.1, interval: 15 * time.Minute, hold: time.Hour},
}

// factor is the speed of the alert: 1 spends the budget in exactly Window.
func (b burn) factor() float64 { return b.spent * float64(Window) / float64(b.long) }

// threshold is the share of errors above which the alert of an objective fires.
func (b burn) threshold(o *Objective) float64 { return b.factor() * o.Budget() }

// severity returns the severity of the alert of an objective.
func (b burn) severity(o *Objective) rule.Severity {
	if b.page && o.Page {
		return rule.Page
	}
	return rule.Ticket
}

// The names of the recorded metrics, without their window.
const (
	eventsRecord = "slo:events:increase"
	errorsRecord = "slo:errors:increase"
	// budgetRecord is the share of the error budget of Window that is left; below 0, the objective is missed.
	budgetRecord = "slo:error_budget:ratio"
)

// parts are the windows that longer windows add, so that no evaluation reads days of samples. All others are counted from the programs'
// counters. A part of a long window is late by at most its own length.
var parts = map[time.Duration]time.Duration{6 * time.Hour: 5 * time.Minute, 72 * time.Hour: 30 * time.Minute, Window: 6 * time.Hour}

// Groups returns the rules of an objective, in the order in which they are evaluated.
func (o *Objective) Groups() []rule.Group {
	groups := make([]rule.Group, len(burns))
	for i, b := range burns {
		group := rule.Group{Name: fmt.Sprintf("slo-%s-%s", o.Name, duration(b.long)), Interval: duration(b.interval)}
		if state, ok := o.Indicator.(State); ok && i == 0 {
			group.Rules = append(group.Rules, o.record(badRecord, state.Bad))
		}
		for _, window := range []time.Duration{b.short, b.long} {
			if window == b.short && i == len(burns)-1 {
				continue // the long window of the alert before
			}
			group.Rules = append(group.Rules, o.record(eventsRecord+duration(window), o.count(eventsRecord, window)), o.record(errorsRecord+duration(window), o.count(errorsRecord, window)))
		}
		group.Rules = append(group.Rules, o.alert(b))
		groups[i] = group
	}
	last := &groups[len(groups)-1]
	last.Rules = append(last.Rules, o.record(budgetRecord, fmt.Sprintf("1 - %s / (%s * %s)", o.sum(errorsRecord, Window), o.sum(eventsRecord, Window), number(o.Budget()))))
	return groups
}

func (o *Objective) record(name, expression string) rule.Rule {
	return rule.Rule{Record: name, Expr: expression, Labels: map[string]string{"slo": o.Name}}
}

// count returns the expression of a recorded count.
func (o *Objective) count(record string, window time.Duration) string {
	switch {
	case parts[window] > 0:
		return o.sum(record, window)
	case record == eventsRecord:
		return o.Indicator.Events(o, duration(window))
	}
	return o.Indicator.Errors(o, duration(window))
}

// sum returns the expression that adds the counts of the parts of a window.
func (o *Objective) sum(record string, window time.Duration) string {
	part := duration(parts[window])
	return fmt.Sprintf("sum_over_time(%s[%s:%s])", o.series(record+part), duration(window), part)
}

// alert returns an alert of the objective.
func (o *Objective) alert(b burn) rule.Rule {
	above := func(window time.Duration) string {
		return fmt.Sprintf("%s / %s > %s * %s", o.series(errorsRecord+duration(window)), o.series(eventsRecord+duration(window)), number(b.factor()), number(o.Budget()))
	}
	where := ""
	for _, label := range o.By {
		where += fmt.Sprintf("{{ with $labels.%s }} {{ . }}{{ end }}", label)
	}
	condition := above(b.long) + " and " + above(b.short)
	if o.MinErrors > 0 {
		condition += fmt.Sprintf(" and %s >= %d", o.series(errorsRecord+duration(b.long)), o.MinErrors)
	}
	labels := map[string]string{"severity": string(b.severity(o))}
	if slices.Contains(o.By, "consumer") { // Maestro's name of a provision shard
		labels["shard"] = "{{ $labels.consumer }}"
	}
	return rule.Rule{
		Alert:  o.Alert + b.suffix,
		Expr:   condition,
		For:    duration(b.hold),
		Labels: labels,
		Annotations: map[string]string{
			"summary":   fmt.Sprintf("%s: {{ $value | humanizePercentage }} within %s%s", o.Summary, duration(b.long), where),
			"impact":    fmt.Sprintf("%s At this speed the errors of %d days are spent in %s.", o.Impact, int(Window.Hours()/24), spentIn(b)),
			"command":   o.Command,
			"runbook":   o.Runbook,
			"dashboard": "objectives",
		},
	}
}

// spentIn returns the time in which the whole budget is spent at the speed of an alert.
func spentIn(b burn) string {
	hours := Window.Hours() / b.factor()
	if hours < 72 {
		return fmt.Sprintf("%.0f hours", hours)
	}
	return fmt.Sprintf("%.0f days", hours/24)
}

// duration returns a duration in the notation of Prometheus.
func duration(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dm", d/time.Minute)
}

// rounded returns a number without the digits that only the binary representation adds.
func rounded(value float64) float64 {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 6, 64), 64)
	return short
}

// number returns the rounded number as text.
func number(value float64) string { return strconv.FormatFloat(rounded(value), 'f', -1, 64) }
