package plot

import "fmt"

// The sizes of a few and of many numbers.
const (
	largeNumber  = 26.0
	largeNumbers = 3
	tableLine    = 19.0
)

func (n *Numbers) draw(c canvas, r rect) {
	r = heading(c, r, n.Title, n.Meaning)
	rows := n.Rows()
	if n.Limit != nil {
		style := textStyle{paint: muted, size: smallSize}
		c.text(point{r.x, r.bottom()}, style, "bad "+n.Limit.Text(n.Unit))
		r.height -= lineHeight
	}
	switch {
	case len(rows) == 0:
		noData(c, r)
	case len(rows) <= largeNumbers && float64(len(rows))*2*largeNumber <= r.height:
		n.large(c, r, rows)
	default:
		n.table(c, r, rows)
	}
}

// paintOf returns the color of a value.
func paintOf(row Row) paint {
	if row.Bad {
		return bad
	}
	return ink
}

// large draws each value in the middle of its own part, with its name below.
func (n *Numbers) large(c canvas, r rect, rows []Row) {
	height := r.height / float64(len(rows))
	for i, row := range rows {
		x, y := r.x+r.width/2, r.y+float64(i)*height+height/2
		value := textStyle{paint: paintOf(row), size: largeNumber, bold: true, anchor: middle}
		c.text(point{x, y}, value, cut(c, value, mark(row), r.width))
		name := textStyle{paint: muted, size: textSize, anchor: middle}
		c.text(point{x, y + lineHeight + 3}, name, shorten(c, name, row.Name, r.width))
	}
}

// mark returns the value of a row. The sign and the color both state that it is bad.
func mark(row Row) string {
	if row.Bad {
		return "! " + row.Last
	}
	return row.Last
}

// table draws a line for each value.
func (n *Numbers) table(c canvas, r rect, rows []Row) {
	fit := max(1, int(r.height/tableLine))
	for i, row := range rows {
		y := r.y + float64(i)*tableLine + tableLine/2 + textSize/3
		if i == fit-1 && len(rows) > fit {
			c.text(point{r.x, y}, textStyle{paint: muted, size: textSize}, fmt.Sprintf("and %d more", len(rows)-i))
			return
		}
		if i > 0 {
			at := r.y + float64(i)*tableLine + 0.5
			c.line([]point{{r.x, at}, {r.right(), at}}, stroke{paint: grid, width: 1})
		}
		name := textStyle{paint: ink, size: textSize}
		c.text(point{r.x, y}, name, shorten(c, name, row.Name, r.width-columnWidth-8))
		c.text(point{r.right(), y}, textStyle{paint: paintOf(row), size: textSize, bold: true, anchor: end}, mark(row))
	}
}
