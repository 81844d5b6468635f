package slo

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// timeline is a test of an alert: series, and whether the alert fires at some times.
type timeline struct {
	series []testSeries
	checks []check
}

// testSeries is a series in the notation of promtool: a value each minute.
type testSeries struct{ series, values string }

// check is the expectation at a time.
type check struct {
	minute int
	fires  bool
}

// phase is a part of a timeline with a constant share of errors.
type phase struct {
	minutes int
	share   float64
}

// rate is the number of events a minute in tests. Numbers of errors need not be integers.
const rate = 1e5

// near is how far the shares of errors in tests are from the threshold.
const near = 0.03

// phases returns the timelines of the tests of an alert. In the first, there are errors just below the threshold, just above it for the time
// that the condition must hold, and none. With fewer samples than the long window, all samples count, so that the tests of long windows are
// short. The first alert has a second timeline in which both windows are full.
func (b burn) phases(o *Objective) (timelines [][]phase, checks [][]check) {
	below, above := b.threshold(o)*(1-near), b.threshold(o)*(1+near)
	if b == burns[0] {
		long, after := minutes(b.long), minutes(b.short+b.interval)+5
		return [][]phase{{{long, below}, {long, above}, {after, 0}}}, [][]check{{{long, false}, {2 * long, true}, {2*long + after, false}}}
	}
	// The parts of the long window are complete at multiples of their length.
	begin := minutes(parts[b.long])
	fires := begin + minutes(b.hold)
	return [][]phase{{{fires + 1, above}, {fires, 0}}, {{2 * fires, below}}},
		[][]check{{{begin - 1, false}, {fires - 1, false}, {fires, true}, {2 * fires, false}}, {{2 * fires, false}}}
}

// values returns the values of a counter that increases in each phase by increase of its share each minute.
func values(phases []phase, increase func(share float64) float64) string {
	value, parts := 0.0, []string(nil)
	for _, p := range phases {
		step := increase(p.share)
		parts = append(parts, fmt.Sprintf("%s+%sx%d", number9(value), number9(step), p.minutes-1))
		value += step * float64(p.minutes)
	}
	return strings.Join(parts, " ")
}

func (r Ratio) timelines(o *Objective, b burn) []timeline {
	var all []timeline
	phases, checks := b.phases(o)
	for i := range phases {
		all = append(all, timeline{[]testSeries{
			{example(r.All), values(phases[i], func(share float64) float64 { return rate * (1 - share) })},
			{example(r.Bad), values(phases[i], func(share float64) float64 { return rate * share })},
		}, checks[i]})
	}
	return all
}

func (l Latency) timelines(o *Objective, b burn) []timeline {
	var all []timeline
	phases, checks := b.phases(o)
	for i := range phases {
		all = append(all, timeline{[]testSeries{
			{example(l.part("_count")), values(phases[i], func(float64) float64 { return rate })},
			{l.bucket(), values(phases[i], func(share float64) float64 { return rate * (1 - share) })},
		}, checks[i]})
	}
	return all
}

// bucket returns the example of the bucket, with the bound as Prometheus 3 stores it.
func (l Latency) bucket() string {
	bound := fmt.Sprint(l.Bound)
	if !strings.Contains(bound, ".") {
		bound += ".0"
	}
	return fmt.Sprintf("%s_bucket{%s,le=%q}", l.Histogram.Metric, l.Histogram.Example, bound)
}

// timelines makes the condition bad for as many minutes of the long window as do not fire, and for one more. The window of days would need
// days of samples, so its condition is bad from the beginning.
func (s State) timelines(o *Objective, b burn) []timeline {
	long, below := minutes(b.long), int(math.Floor(b.threshold(o)*b.long.Minutes()))
	aligned := minutes(parts[b.long])
	more, after := 1+aligned+minutes(b.hold), minutes(b.short)+1+aligned
	if parts[b.long] > parts[burns[1].long] {
		long, below, more = 0, aligned-1, 1+minutes(b.hold)
	}
	return []timeline{{[]testSeries{{s.Example, strings.TrimSpace(fmt.Sprintf("0x%d %[2]sx%[3]d 0x%[4]d", long, number9(s.BadValue), below+more-1, after))}},
		[]check{{long + below, false}, {long + below + more, true}, {long + below + more + after, false}}}}
}

// few returns the tests of an alert in which one error less than MinErrors occurs, and in which as many occur. All events are errors, and their
// series did not exist before. It returns nothing for a State.
func (o *Objective) few(b burn) []timeline {
	const start = 60
	fires, ends := start+minutes(b.hold)+1, start+minutes(b.short)+6
	var all []timeline
	for _, errors := range []int{o.MinErrors - 1, o.MinErrors} {
		checks := []check{{start - 1, false}, {fires, errors == o.MinErrors}, {ends, false}}
		appears := func(value int) string { return fmt.Sprintf("_x%d %dx%d", start, value, ends-start) }
		switch indicator := o.Indicator.(type) {
		case Ratio:
			all = append(all, timeline{[]testSeries{{example(indicator.All), fmt.Sprintf("0x%d", ends)}, {example(indicator.Bad), appears(errors)}}, checks})
		case Latency:
			all = append(all, timeline{[]testSeries{{example(indicator.part("_count")), appears(errors)}, {indicator.bucket(), appears(0)}}, checks})
		}
	}
	return all
}

// Tests returns the unit tests of the alerts of an objective for promtool. rules is the name of the file with the rules.
func (o *Objective) Tests(rules string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "# Generated from tooling/alerts/pkg/slo. Do not edit.\nrule_files: [%s]\nevaluation_interval: 1m\ntests:\n", rules)
	for _, b := range burns {
		for _, timeline := range o.Indicator.timelines(o, b) {
			o.writeTest(&text, b, o.Alert+b.suffix, timeline)
		}
	}
	for _, b := range burns {
		for _, timeline := range o.few(b) {
			o.writeTest(&text, b, o.Alert+b.suffix+" with few errors", timeline)
		}
	}
	return text.String()
}

// writeTest writes a test. It asks for the firing alerts, because the summary of an alert has a value that a test cannot leave out.
func (o *Objective) writeTest(text *strings.Builder, b burn, name string, t timeline) {
	fmt.Fprintf(text, "- name: %s\n  interval: 1m\n  input_series:\n", name)
	for _, s := range t.series {
		fmt.Fprintf(text, "  - {series: '%s', values: '%s'}\n", s.series, s.values)
	}
	text.WriteString("  promql_expr_test:\n")
	for _, c := range t.checks {
		samples := ""
		if c.fires {
			samples = "{labels: '{}', value: 1}"
		}
		fmt.Fprintf(text, "  - {eval_time: %dm, expr: 'count(ALERTS{alertname=\"%s%s\",alertstate=\"firing\",severity=\"%s\"})', exp_samples: [%s]}\n",
			c.minute, o.Alert, b.suffix, b.severity(o), samples)
	}
}

// example returns the example of a counter.
func example(c Counter) string { return c.Metric + "{" + c.Example + "}" }

func minutes(d time.Duration) int { return int(d / time.Minute) }

// number9 returns a number with as many digits as tests need.
func number9(value float64) string { return fmt.Sprintf("%.9g", value) }
