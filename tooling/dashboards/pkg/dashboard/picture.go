package dashboard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
)

// The bounds of the queries of a dashboard.
const (
	// points is the number of points of a series: one for two pixels of a graph.
	points = 240
	// minStep is the interval of scrapes. minWindow has enough of them for a rate although one is missing.
	minStep   = 15 * time.Second
	minWindow = 4 * minStep
	// maxSeries is the number of series that a query returns.
	maxSeries = 1000
	// concurrent is the number of concurrent queries.
	concurrent = 4
	// timeout bounds the evaluation of a query.
	timeout = 30 * time.Second
)

// Source answers queries. promv1.API implements it.
type Source interface {
	Query(ctx context.Context, query string, at time.Time, options ...promv1.Option) (model.Value, promv1.Warnings, error)
	QueryRange(ctx context.Context, query string, period promv1.Range, options ...promv1.Option) (model.Value, promv1.Warnings, error)
	LabelValues(ctx context.Context, label string, matches []string, from, to time.Time, options ...promv1.Option) (model.LabelValues, promv1.Warnings, error)
}

// Selection is the period of a dashboard and the choice of its variables.
type Selection struct {
	From, To time.Time
	// Variables are the chosen values by the name of the variable. A variable without values has all of them.
	Variables map[string][]string
}

// Problem is an invalid selection.
type Problem struct {
	// Field is the part of the selection: from, or the name of a variable.
	Field, Text string
}

// Error returns the field and what is wrong with it.
func (p *Problem) Error() string { return p.Field + ": " + p.Text }

// Fill returns a dashboard with the values of its panels. It returns a *Problem for an invalid selection, and the error of Prometheus with the
// panel if a query fails: a page never lacks a part silently.
func Fill(ctx context.Context, source Source, d *Dashboard, s Selection) (*plot.Page, error) {
	if !s.From.Before(s.To) {
		return nil, &Problem{"from", fmt.Sprintf("%s is not before the end %s", s.From.UTC().Format(time.RFC3339), s.To.UTC().Format(time.RFC3339))}
	}
	if err := checkVariables(ctx, source, d, &s); err != nil {
		return nil, err
	}
	page := &plot.Page{Title: d.Title, Question: d.Question, From: s.From, To: s.To}
	if chosen := choice(s.Variables); chosen != "" {
		page.Question += " Selected: " + chosen + "."
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(concurrent)
	for _, row := range d.Rows {
		section := plot.Section{Title: row.Title, Drawings: make([]plot.Drawing, len(row.Panels))}
		for i, panel := range row.Panels {
			work.Go(func() error {
				drawing, err := draw(ctx, source, d, &panel, &s)
				if err != nil {
					return fmt.Errorf("dashboard %s, panel %s: %w", d.Name, panel.Title, err)
				}
				section.Drawings[i] = drawing
				return nil
			})
		}
		page.Sections = append(page.Sections, section)
	}
	return page, work.Wait()
}

// choice returns the chosen values for people.
func choice(variables map[string][]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if len(variables[name]) > 0 {
			parts = append(parts, name+" "+strings.Join(variables[name], ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// checkVariables checks that each variable exists and has the chosen values in the period.
func checkVariables(ctx context.Context, source Source, d *Dashboard, s *Selection) error {
	for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
		i := slices.IndexFunc(d.Variables, func(v Variable) bool { return v.Name == name })
		if i < 0 {
			return &Problem{name, fmt.Sprintf("the dashboard %s has no such variable", d.Name)}
		}
		v := d.Variables[i]
		known, _, err := source.LabelValues(ctx, v.Label, []string{v.Metric}, s.From, s.To, promv1.WithTimeout(timeout))
		if err != nil {
			return fmt.Errorf("reading the values of the variable %s: %w", name, err)
		}
		for _, value := range s.Variables[name] {
			if !slices.Contains(known, model.LabelValue(value)) {
				return &Problem{name, fmt.Sprintf("no series of %s has %s=%q in the period", v.Metric, v.Label, value)}
			}
		}
	}
	return nil
}

// draw returns the drawing of a panel.
func draw(ctx context.Context, source Source, d *Dashboard, p *Panel, s *Selection) (plot.Drawing, error) {
	step := max(minStep, s.To.Sub(s.From)/points).Round(time.Second)
	window := max(minWindow, step+minStep)
	switch p.Kind {
	case Graph:
		c := &plot.Chart{Title: p.Title, Meaning: p.Meaning, Unit: p.Unit, From: s.From, To: s.To, Step: step, Limit: p.Limit}
		for _, q := range p.Queries {
			series, err := evaluateRange(ctx, source, d.Expand(q.Expression, window.String(), s.Variables), promv1.Range{Start: s.From, End: s.To, Step: step}, &q)
			if err != nil {
				return nil, err
			}
			c.Series = append(c.Series, series...)
		}
		return c, nil
	case Number:
		n := &plot.Numbers{Title: p.Title, Meaning: p.Meaning, Unit: p.Unit, Limit: p.Limit}
		for _, q := range p.Queries {
			values, err := evaluate(ctx, source, d.Expand(q.Expression, window.String(), s.Variables), s.To, &q)
			if err != nil {
				return nil, err
			}
			n.Values = append(n.Values, values...)
		}
		return n, nil
	}
	return nil, fmt.Errorf("the kind %q is unknown", p.Kind)
}

// errTooMany is the error for queries with more series than a drawing can have.
var errTooMany = errors.New("the query has too many series: choose values of the variables")

// evaluateRange returns the series of an expression over a period.
func evaluateRange(ctx context.Context, source Source, expression string, period promv1.Range, q *Query) ([]plot.Series, error) {
	value, _, err := source.QueryRange(ctx, expression, period, promv1.WithTimeout(timeout), promv1.WithLimit(maxSeries+1))
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", expression, err)
	}
	matrix, ok := value.(model.Matrix)
	switch {
	case !ok:
		return nil, fmt.Errorf("query %s: the answer is a %s, not a matrix", expression, value.Type())
	case len(matrix) > maxSeries:
		return nil, fmt.Errorf("query %s: %w", expression, errTooMany)
	}
	series := make([]plot.Series, len(matrix))
	for i, stream := range matrix {
		series[i] = plot.Series{Name: q.Name(labelsOf(stream.Metric)), Points: make([]plot.Point, len(stream.Values))}
		for j, sample := range stream.Values {
			series[i].Points[j] = plot.Point{Time: sample.Timestamp.Time(), Value: float64(sample.Value)}
		}
	}
	return series, nil
}

// evaluate returns the values of an expression at a time.
func evaluate(ctx context.Context, source Source, expression string, at time.Time, q *Query) ([]plot.Value, error) {
	value, _, err := source.Query(ctx, expression, at, promv1.WithTimeout(timeout), promv1.WithLimit(maxSeries+1))
	if err != nil {
		return nil, fmt.Errorf("query %s: %w", expression, err)
	}
	vector, ok := value.(model.Vector)
	switch {
	case !ok:
		return nil, fmt.Errorf("query %s: the answer is a %s, not a vector", expression, value.Type())
	case len(vector) > maxSeries:
		return nil, fmt.Errorf("query %s: %w", expression, errTooMany)
	}
	var values []plot.Value
	for _, sample := range vector {
		if math.IsNaN(float64(sample.Value)) { // a ratio of zeros, which is no value
			continue
		}
		values = append(values, plot.Value{Name: q.Name(labelsOf(sample.Metric)), Value: float64(sample.Value)})
	}
	return values, nil
}

func labelsOf(metric model.Metric) map[string]string {
	labels := make(map[string]string, len(metric))
	for name, value := range metric {
		labels[string(name)] = string(value)
	}
	return labels
}
