package plot

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"image/color"
	"strconv"
	"strings"
)

// SVG returns a drawing of a width and height in pixels as a document that can also be part of an HTML page. id begins the IDs of its
// elements and must be unique in the page; it consists of letters, digits and hyphens.
func SVG(d Drawing, id string, width, height int) []byte {
	c := &svg{fonts: newFonts(1), id: id}
	fmt.Fprintf(&c.out, `<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="RedHatText, system-ui, Helvetica, Arial, sans-serif"`, width, height)
	title, description := d.describe()
	role := "img"
	if _, ok := d.(*Page); ok {
		role = "group" // its drawings are the images
	}
	c.name(role, title, description)
	d.draw(c, rect{0, 0, float64(width), float64(height)})
	c.out.WriteString("</svg>\n")
	return c.out.Bytes()
}

// svg is a canvas that writes SVG.
type svg struct {
	*fonts
	out bytes.Buffer
	id  string
	// named counts the elements with an ID.
	named int
}

// name ends the start tag of an element with a role, and adds its title and description.
func (c *svg) name(role, title, description string) {
	c.named++
	id := fmt.Sprintf("%s-%d", c.id, c.named)
	fmt.Fprintf(&c.out, ` role="%[1]s" aria-labelledby="%[2]s-title" aria-describedby="%[2]s-desc"><title id="%[2]s-title">%[3]s</title><desc id="%[2]s-desc">%[4]s</desc>`+"\n",
		role, id, escape(title), escape(description))
}

func (c *svg) begin(title, description string) {
	c.out.WriteString("<g")
	c.name("img", title, description)
}

func (c *svg) end() { c.out.WriteString("</g>\n") }

func (c *svg) fill(r rect, p paint) {
	fmt.Fprintf(&c.out, `<rect class="%s" x="%s" y="%s" width="%s" height="%s" fill="%s"%s/>`+"\n", p.class, number(r.x), number(r.y), number(r.width), number(r.height), hex(p.color), opacity(p.color))
}

func (c *svg) area(points []point, p paint) {
	fmt.Fprintf(&c.out, `<path class="%s" d="%sZ" fill="%s"%s/>`+"\n", p.class, path(points), hex(p.color), opacity(p.color))
}

func (c *svg) line(points []point, s stroke) {
	dashes := ""
	if s.dash > 0 {
		dashes = fmt.Sprintf(` stroke-dasharray="%s %s"`, number(s.dash), number(s.gap))
	}
	fmt.Fprintf(&c.out, `<path class="%s" d="%s" fill="none" stroke="%s" stroke-width="%s" stroke-linejoin="round"%s/>`+"\n", s.class, path(points), hex(s.color), number(s.width), dashes)
}

func (c *svg) text(at point, style textStyle, text string) {
	weight := ""
	if style.bold {
		weight = ` font-weight="bold"`
	}
	if style.anchor != start && style.anchor != "" {
		weight += fmt.Sprintf(` text-anchor="%s"`, style.anchor)
	}
	fmt.Fprintf(&c.out, `<text class="%s" x="%s" y="%s" font-size="%s" fill="%s"%s>%s</text>`+"\n", style.class, number(at.x), number(at.y), number(style.size), hex(style.color), weight, escape(text))
}

// path returns the commands of a path through points.
func path(points []point) string {
	var text strings.Builder
	for i, p := range points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		text.WriteString(command + number(p.x) + " " + number(p.y))
	}
	return text.String()
}

// number returns a length with at most one decimal.
func number(value float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0")
}

func hex(c color.NRGBA) string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

func opacity(c color.NRGBA) string {
	if c.A == 255 {
		return ""
	}
	return fmt.Sprintf(` fill-opacity="%.2f"`, float64(c.A)/255)
}

// escape returns a text for an element of XML. Characters that XML does not permit are replaced.
func escape(text string) string {
	var out strings.Builder
	if err := xml.EscapeText(&out, []byte(text)); err != nil {
		panic(err) // a strings.Builder does not fail
	}
	return out.String()
}
