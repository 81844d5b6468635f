// Package plot draws measured values: series over time as lines, last values as numbers, and pages of both. One layout has two outputs: SVG
// for web pages and PNG for documents.
//
// SVG needs no script, font or style sheet, so it is allowed by the strictest content security policy: colors are attributes, and the class
// of each element names what it shows, so that the style sheet of a page can replace them. Every drawing has a title and a description in
// words for assistive technology, and Rows returns its values for a table next to it. The package draws what it gets. It never queries.
package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Drawing is a Chart, Numbers or a Page.
type Drawing interface {
	// Rows returns the summaries of the series, for a table.
	Rows() []Row
	// describe returns the title, and the values in words.
	describe() (title, description string)
	// draw draws into a rectangle of a canvas.
	draw(c canvas, r rect)
}

// Chart shows series over time.
type Chart struct {
	Title string
	// Meaning explains in sentences what the values are.
	Meaning string
	Unit    Unit
	// From and To are the period of the chart. Points outside of it are not drawn.
	From, To time.Time
	// Step is the time between two points of a series. If two points are further apart, no line connects them. 0 connects all.
	Step   time.Duration
	Series []Series
	// Limit is the bound of good values; nil if there is none.
	Limit *Limit
}

// Series is a named sequence of points in order of time.
type Series struct {
	Name   string
	Points []Point
}

// Point is a value at a time. NaN and infinite values are not drawn.
type Point struct {
	Time  time.Time
	Value float64
}

// Numbers shows the last value of each of some series.
type Numbers struct {
	Title, Meaning string
	Unit           Unit
	Values         []Value
	Limit          *Limit
}

// Value is a named value.
type Value struct {
	Name  string
	Value float64
}

// Limit is a bound of good values.
type Limit struct {
	Value float64
	// Below states that values below the limit are bad. Otherwise those that are equal or above are.
	Below bool
}

// Bad reports whether a value is beyond the limit. A nil Limit has no bad values, and NaN is none.
func (l *Limit) Bad(value float64) bool {
	return l != nil && (l.Below && value < l.Value || !l.Below && value >= l.Value)
}

// Text returns which values are bad, as in "from 85 %", "below 4 h" or "if yes". It is empty for a nil Limit.
func (l *Limit) Text(unit Unit) string {
	switch {
	case l == nil:
		return ""
	case unit == YesOrNo && l.Below:
		return "if no"
	case unit == YesOrNo:
		return "if yes"
	case l.Below:
		return "below " + unit.Format(l.Value)
	}
	return "from " + unit.Format(l.Value)
}

// Row is the summary of a series.
type Row struct {
	Name string
	// Last is the value at the end of the period and Max the largest one, formatted in the unit. A series that ended before has no Last, so that
	// what is over is not shown as current.
	Last, Max string
	// Bad is true if the last value is beyond the limit.
	Bad bool

	index     int // the series' place in order of name, which determines its color
	last, max float64
}

// maxLines is the number of series that a chart draws: those with the largest values.
const maxLines = 24

// Rows returns the summaries of all series: those beyond the limit first, and then those with the largest last values, or the smallest ones if
// values below the limit are bad.
func (c *Chart) Rows() []Row {
	series := slices.Clone(c.Series)
	slices.SortStableFunc(series, func(a, b Series) int { return cmp.Compare(a.Name, b.Name) })
	rows := make([]Row, len(series))
	for i, s := range series {
		row := Row{Name: s.Name, index: i, last: math.NaN(), max: math.NaN()}
		for _, p := range s.Points {
			if !finite(p.Value) || p.Time.Before(c.From) || p.Time.After(c.To) {
				continue
			}
			row.last = p.Value
			if c.ended(p.Time) {
				row.last = math.NaN()
			}
			if !(row.max >= p.Value) {
				row.max = p.Value
			}
		}
		row.Last, row.Max, row.Bad = c.Unit.Format(row.last), c.Unit.Format(row.max), c.Limit.Bad(row.last)
		rows[i] = row
	}
	sortRows(rows, c.Limit)
	return rows
}

// ended reports whether a series with the last point at a time ended before the end of the period.
func (c *Chart) ended(at time.Time) bool { return c.Step > 0 && c.To.Sub(at) > c.Step+c.Step/2 }

// Rows returns the values in the order of the rows of a Chart.
func (n *Numbers) Rows() []Row {
	rows := make([]Row, len(n.Values))
	for i, v := range n.Values {
		rows[i] = Row{Name: v.Name, Last: n.Unit.Format(v.Value), Bad: n.Limit.Bad(v.Value), index: i, last: v.Value, max: v.Value}
	}
	sortRows(rows, n.Limit)
	return rows
}

// sortRows sorts the worst values first: those beyond the limit, and then the largest, or the smallest if values below the limit are bad.
// Rows without a value are last.
func sortRows(rows []Row, limit *Limit) {
	rank := func(r Row) int {
		switch {
		case r.Bad:
			return 0
		case math.IsNaN(r.last):
			return 2
		}
		return 1
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		first, second := a, b
		if limit != nil && limit.Below {
			first, second = b, a
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(second.last, first.last), cmp.Compare(second.max, first.max), cmp.Compare(a.Name, b.Name))
	})
}

// finite reports whether a value can be drawn.
func finite(value float64) bool { return !math.IsNaN(value) && !math.IsInf(value, 0) }

func (c *Chart) describe() (title, description string) {
	text := c.Meaning
	if !c.From.IsZero() {
		text = join(text, "From "+stamp(c.From)+" to "+stamp(c.To)+" UTC.")
	}
	return c.Title, join(text, describeRows(c.Rows(), c.Unit, c.Limit))
}

func (n *Numbers) describe() (title, description string) {
	return n.Title, join(n.Meaning, describeRows(n.Rows(), n.Unit, n.Limit))
}

// describedRows is the number of series that a description has. A table next to the drawing has all.
const describedRows = 8

func describeRows(rows []Row, unit Unit, limit *Limit) string {
	if len(rows) == 0 {
		return "No data."
	}
	var text strings.Builder
	for i, row := range rows {
		if i == describedRows {
			fmt.Fprintf(&text, "%d more series. ", len(rows)-i)
			break
		}
		fmt.Fprintf(&text, "%s: %s", row.Name, row.Last)
		if row.Max != "" {
			fmt.Fprintf(&text, ", at most %s", row.Max)
		}
		if row.Bad {
			text.WriteString(", beyond the limit")
		}
		text.WriteString(". ")
	}
	if limit != nil {
		text.WriteString("Values are bad " + limit.Text(unit) + ".")
	}
	return strings.TrimSpace(text.String())
}

// join joins sentences.
func join(sentences ...string) string {
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), " ")
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }
