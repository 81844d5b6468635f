package plot

import (
	"math"
	"time"
)

// Page shows drawings in sections, for example a dashboard.
type Page struct {
	Title string
	// Question is what the page answers.
	Question string
	// From and To are the period of the page.
	From, To time.Time
	Sections []Section
}

// Section is a part of a page.
type Section struct {
	Title    string
	Drawings []Drawing
}

// The lengths of a page, in pixels. PageWidth suits a page of documents.
const (
	PageWidth = 1240

	margin        = 20.0
	space         = 12.0
	pageHeading   = 58.0
	sectionHeight = 34.0
	panelHeight   = 262.0
	columns       = 3
)

// rows returns how many drawings each row has: as few rows as possible, with almost the same number of drawings.
func (s *Section) rows() []int {
	n := len(s.Drawings)
	count := (n + columns - 1) / columns
	rows := make([]int, count)
	for i := range n {
		rows[i%count]++
	}
	return rows
}

// Height returns the height of the page.
func (p *Page) Height() int {
	height := margin + pageHeading
	for _, s := range p.Sections {
		height += sectionHeight + float64(len(s.rows()))*(panelHeight+space)
	}
	return int(math.Ceil(height + margin - space))
}

// Rows returns the rows of all drawings.
func (p *Page) Rows() []Row {
	var rows []Row
	for _, s := range p.Sections {
		for _, d := range s.Drawings {
			rows = append(rows, d.Rows()...)
		}
	}
	return rows
}

func (p *Page) describe() (title, description string) {
	return p.Title, join(p.Question, periodText(p.From, p.To)+".")
}

func (p *Page) draw(c canvas, r rect) {
	c.fill(r, background)
	r = r.inset(margin)
	c.text(point{r.x, r.y + 18}, textStyle{paint: ink, size: 20, bold: true}, p.Title)
	style := textStyle{paint: muted, size: titleSize}
	c.text(point{r.x, r.y + 40}, style, cut(c, style, p.Question, r.width))
	c.text(point{r.right(), r.y + 18}, style.at(end), periodText(p.From, p.To))
	y := r.y + pageHeading
	for _, s := range p.Sections {
		style := textStyle{paint: ink, size: 15, bold: true}
		c.text(point{r.x, y + sectionHeight - 14}, style, cut(c, style, s.Title, r.width))
		y += sectionHeight
		next := 0
		for _, n := range s.rows() {
			width := (r.width - float64(n-1)*space) / float64(n)
			for i := range n {
				d := s.Drawings[next]
				next++
				c.begin(d.describe())
				d.draw(c, rect{r.x + float64(i)*(width+space), y, width, panelHeight})
				c.end()
			}
			y += panelHeight + space
		}
	}
}
