package plot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// The lengths of the layout, in pixels.
const (
	border       = 12.0
	titleSize    = 13.0
	textSize     = 11.0
	smallSize    = 10.0
	lineHeight   = 15.0
	plotLeast    = 80.0 // the height that the legend leaves to the plot
	tickDistance = 34.0 // of values
	timeDistance = 64.0 // of times
	columnWidth  = 66.0 // of numbers in the legend
)

// heading draws the frame, title and meaning of a panel, and returns the rest of its rectangle.
func heading(c canvas, r rect, title, meaning string) rect {
	c.fill(r, surface)
	corners := []point{{r.x, r.y}, {r.right(), r.y}, {r.right(), r.bottom()}, {r.x, r.bottom()}, {r.x, r.y}}
	c.line(corners, stroke{paint: frame, width: 1})
	r = r.inset(border)
	style := textStyle{paint: ink, size: titleSize, bold: true}
	y := r.y + titleSize - 2
	c.text(point{r.x, y}, style, cut(c, style, title, r.width))
	style = textStyle{paint: muted, size: textSize}
	for _, line := range wrap(c, style, meaning, r.width, 2) {
		y += lineHeight
		c.text(point{r.x, y}, style, line)
	}
	y += 8
	return rect{r.x, y, r.width, r.bottom() - y}
}

// noData draws the text for a panel without values.
func noData(c canvas, r rect) {
	c.text(point{r.x + r.width/2, r.y + r.height/2}, textStyle{paint: muted, size: titleSize, anchor: middle}, "No data")
}

func (c *Chart) draw(on canvas, r rect) {
	r = heading(on, r, c.Title, c.Meaning)
	rows := c.Rows()
	if !slices.ContainsFunc(rows, func(row Row) bool { return finite(row.max) }) {
		noData(on, r)
		return
	}
	rows = slices.DeleteFunc(rows, func(row Row) bool { return !finite(row.max) })
	drawn := slices.Clone(rows)
	slices.SortStableFunc(drawn, func(a, b Row) int { return cmp.Compare(b.max, a.max) })
	drawn = drawn[:min(len(drawn), maxLines)]

	const axisHeight = lineHeight + 2
	fit := max(1, int((r.height-plotLeast-axisHeight-lineHeight)/lineHeight))
	legend := min(len(rows), fit)
	height := float64(legend+1) * lineHeight
	plot := rect{r.x, r.y, r.width, r.height - height - axisHeight}
	c.plot(on, plot, drawn)
	c.legend(on, rect{r.x, r.bottom() - height, r.width, height}, rows, legend)
}

// plot draws the axes and the lines of some series.
func (c *Chart) plot(on canvas, r rect, drawn []Row) {
	low, high := math.Inf(1), math.Inf(-1)
	series := c.sorted()
	for _, row := range drawn {
		for _, p := range series[row.index].Points {
			if c.draws(p) {
				low, high = math.Min(low, p.Value), math.Max(high, p.Value)
			}
		}
	}
	axis := newValueAxis(low, high, c.Unit, c.Limit, max(2, int(r.height/tickDistance)))
	style := textStyle{paint: muted, size: smallSize, anchor: end}
	labels := 0.0
	for _, t := range axis.ticks {
		labels = math.Max(labels, on.width(style, t.text))
	}
	inner := rect{r.x + labels + 6, r.y + 4, r.width - labels - 6, r.height - 4}
	y := func(value float64) float64 {
		return inner.bottom() - (value-axis.low)/(axis.high-axis.low)*inner.height
	}
	period := c.To.Sub(c.From).Seconds()
	x := func(seconds float64) float64 { return inner.x + seconds/period*inner.width }

	for _, t := range axis.ticks {
		at := math.Round(y(t.at)) + 0.5
		on.line([]point{{inner.x, at}, {inner.right(), at}}, stroke{paint: grid, width: 1})
		on.text(point{inner.x - 6, at + smallSize/3}, style, t.text)
	}
	c.limit(on, inner, axis, y)
	for _, t := range timeTicks(c.From, c.To, max(1, int(inner.width/timeDistance))) {
		at := math.Round(x(t.at)) + 0.5
		on.line([]point{{at, inner.bottom()}, {at, inner.bottom() + 4}}, stroke{paint: muted, width: 1})
		anchored := style.at(middle)
		half := on.width(style, t.text) / 2
		on.text(point{math.Min(math.Max(at, inner.x+half), inner.right()-half), inner.bottom() + lineHeight}, anchored, t.text)
	}
	for i := len(drawn) - 1; i >= 0; i-- { // the first series is on top
		s := seriesStroke(drawn[i].index)
		for _, part := range c.parts(series[drawn[i].index].Points) {
			line, s := make([]point, len(part)), s
			for j, p := range part {
				line[j] = point{x(p.Time.Sub(c.From).Seconds()), y(p.Value)}
			}
			if len(line) == 1 { // a point without neighbors is a short line
				line = []point{{line[0].x - 2, line[0].y}, {line[0].x + 2, line[0].y}}
				s.width, s.dash = 3, 0
			} else if len(drawn) == 1 {
				zero := y(math.Max(axis.low, 0))
				below := s.paint
				below.class, below.color.A = "chart-series-area", 24
				on.area(slices.Concat(line, []point{{line[len(line)-1].x, zero}, {line[0].x, zero}}), below)
			}
			on.line(line, s)
		}
	}
}

// limitStroke is the line of a limit.
var limitStroke = stroke{paint: bad, width: 1.2, dash: 4, gap: 2}

// limit draws the limit and the area of bad values, if they are on the axis.
func (c *Chart) limit(on canvas, inner rect, axis valueAxis, y func(float64) float64) {
	if c.Limit == nil || c.Limit.Value > axis.high || c.Limit.Value < axis.low {
		return
	}
	at := y(c.Limit.Value)
	area := rect{inner.x, inner.y, inner.width, at - inner.y}
	if c.Limit.Below {
		area = rect{inner.x, at, inner.width, inner.bottom() - at}
	}
	if area.height > 0 {
		on.fill(area, badArea)
	}
	on.line([]point{{inner.x, at}, {inner.right(), at}}, limitStroke)
}

// note draws the limit and the number of series, from left to right.
func (c *Chart) note(on canvas, at point, series int) {
	style := textStyle{paint: muted, size: smallSize}
	if c.Limit != nil {
		on.line([]point{{at.x, at.y - smallSize/3}, {at.x + 14, at.y - smallSize/3}}, limitStroke)
		text := "bad " + c.Limit.Text(c.Unit)
		on.text(point{at.x + 20, at.y}, textStyle{paint: bad, size: smallSize}, text)
		at.x += 20 + on.width(style, text) + 14
	}
	switch {
	case series > maxLines:
		on.text(at, style, fmt.Sprintf("%d series, the %d largest are drawn", series, maxLines))
	case series > 1:
		on.text(at, style, fmt.Sprintf("%d series", series))
	}
}

// legend draws the names, last and largest values of the first rows.
func (c *Chart) legend(on canvas, r rect, rows []Row, fit int) {
	style := textStyle{paint: muted, size: smallSize}
	y := r.y + lineHeight - 4
	on.text(point{r.right() - columnWidth, y}, style.at(end), "last")
	on.text(point{r.right(), y}, style.at(end), "max")
	hidden := len(rows) - fit
	if hidden > 0 { // the last line has their number
		hidden++
	}
	c.note(on, point{r.x, y}, len(rows))
	for i, row := range rows {
		y += lineHeight
		if i == len(rows)-hidden {
			on.text(point{r.x + 20, y}, textStyle{paint: muted, size: textSize}, fmt.Sprintf("and %d more", hidden))
			return
		}
		on.line([]point{{r.x, y - textSize/3}, {r.x + 14, y - textSize/3}}, seriesStroke(row.index))
		name := textStyle{paint: ink, size: textSize}
		on.text(point{r.x + 20, y}, name, shorten(on, name, row.Name, r.width-2*columnWidth-24))
		last := textStyle{paint: ink, size: textSize, anchor: end}
		if row.Bad {
			last.paint, last.bold = bad, true
		}
		on.text(point{r.right() - columnWidth, y}, last, row.Last)
		on.text(point{r.right(), y}, textStyle{paint: ink, size: textSize, anchor: end}, row.Max)
	}
}

// sorted returns the series in order of name, which is that of Row.index.
func (c *Chart) sorted() []Series {
	series := slices.Clone(c.Series)
	slices.SortStableFunc(series, func(a, b Series) int { return cmp.Compare(a.Name, b.Name) })
	return series
}

// draws reports whether a point is part of the drawing.
func (c *Chart) draws(p Point) bool {
	return finite(p.Value) && !p.Time.Before(c.From) && !p.Time.After(c.To)
}

// parts returns the sequences of points that lines connect.
func (c *Chart) parts(points []Point) [][]Point {
	var parts [][]Point
	var part []Point
	for _, p := range points {
		if !c.draws(p) {
			continue
		}
		if n := len(part); n > 0 && c.Step > 0 && p.Time.Sub(part[n-1].Time) > c.Step+c.Step/2 {
			parts, part = append(parts, part), nil
		}
		part = append(part, p)
	}
	if len(part) == 0 {
		return parts
	}
	return append(parts, part)
}

// periodText returns a period for people.
func periodText(from, to time.Time) string {
	from, to = from.UTC(), to.UTC()
	if from.Format(time.DateOnly) == to.Format(time.DateOnly) {
		return from.Format("2 January 2006, 15:04") + " to " + to.Format("15:04") + " UTC"
	}
	return from.Format("2 January 2006, 15:04") + " to " + to.Format("2 January 2006, 15:04") + " UTC"
}
