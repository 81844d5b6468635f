package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// report prints one line per figure.
type report struct{ out io.Writer }

func newReport(out io.Writer) *report { return &report{out: out} }

// The widths of the columns of the table.
const nameWidth, figureWidth = 58, 34

// line prints a figure with its goal or baseline.
func (r *report) line(what, figure, against string) {
	fmt.Fprintf(r.out, "%-*s %-*s %s\n", nameWidth, what, figureWidth, figure, against)
}

// durations prints the median and the 99th percentile of samples.
func (r *report) durations(what string, samples []time.Duration, against string) {
	r.line(fmt.Sprintf("%s (%d runs)", what, len(samples)), "p50 "+round(quantile(samples, 0.50))+", p99 "+round(quantile(samples, 0.99)), against)
}

// quantile returns a quantile of samples by the nearest-rank method, or 0 if there are none.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func round(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}
