package plot

import (
	"image/color"
	"math"
	"strings"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// point is a place on a canvas, in pixels from the upper left corner.
type point struct{ x, y float64 }

// rect is a rectangle of a canvas.
type rect struct{ x, y, width, height float64 }

func (r rect) right() float64  { return r.x + r.width }
func (r rect) bottom() float64 { return r.y + r.height }

// inset returns the rectangle without a border.
func (r rect) inset(border float64) rect {
	return rect{r.x + border, r.y + border, r.width - 2*border, r.height - 2*border}
}

// canvas is an output of the layout.
type canvas interface {
	// begin begins a part that assistive technology presents as one image, and end ends it.
	begin(title, description string)
	end()
	fill(r rect, p paint)
	area(points []point, p paint)
	line(points []point, s stroke)
	text(at point, style textStyle, text string)
	// width returns the width of a text in pixels.
	width(style textStyle, text string) float64
}

// paint is the color of an element. class names its meaning in SVG.
type paint struct {
	class string
	color color.NRGBA
}

// stroke is the form of a line.
type stroke struct {
	paint
	width float64
	// dash and gap are the lengths of dashes and of the gaps between them. A dash of 0 is a solid line.
	dash, gap float64
}

// textStyle is the form of a text.
type textStyle struct {
	paint
	size   float64
	bold   bool
	anchor anchor
}

// anchor is the part of a text that is at its place.
type anchor string

const (
	start  anchor = "start"
	middle anchor = "middle"
	end    anchor = "end"
)

func (s textStyle) at(a anchor) textStyle {
	s.anchor = a
	return s
}

func opaque(rgb uint32) color.NRGBA {
	return color.NRGBA{uint8(rgb >> 16), uint8(rgb >> 8), uint8(rgb), 255} //nolint:gosec // each part is a byte
}

func translucent(rgb uint32, alpha uint8) color.NRGBA {
	c := opaque(rgb)
	c.A = alpha
	return c
}

// The colors. Texts have a contrast of at least 4.5 to 1 with the surface, lines of at least 3 to 1.
var (
	background = paint{"chart-background", opaque(0xf2f2f2)}
	surface    = paint{"chart-surface", opaque(0xffffff)}
	frame      = paint{"chart-frame", opaque(0xc7c7c7)}
	grid       = paint{"chart-grid", opaque(0xe0e0e0)}
	ink        = paint{"chart-text", opaque(0x151515)}
	muted      = paint{"chart-muted", opaque(0x5a5a5a)}
	bad        = paint{"chart-bad", opaque(0xb1380b)}
	badArea    = paint{"chart-bad-area", translucent(0xb1380b, 20)}
)

// seriesColors are distinguishable with the common forms of color blindness. Series after the last one have the same colors with dashes.
var seriesColors = []uint32{0x0066cc, 0xca6c0f, 0x3d7317, 0x876fd4, 0x8f4700, 0x147878, 0xb0398f, 0x4d4d4d}

// seriesStroke returns the line of the series with an index.
func seriesStroke(i int) stroke {
	s := stroke{paint: paint{"chart-series", opaque(seriesColors[i%len(seriesColors)])}, width: 1.6}
	switch i / len(seriesColors) % 3 {
	case 1:
		s.dash, s.gap = 6, 3
	case 2:
		s.dash, s.gap = 2, 2.5
	}
	return s
}

// fonts measures texts in the fonts of Go's project, which PNG has. Browsers use the fonts of the reader, which are rarely wider.
type fonts struct {
	regular, bold *opentype.Font
	// factor is the number of dots of a pixel.
	factor float64
	faces  map[faceKey]font.Face
}

type faceKey struct {
	size float64
	bold bool
}

func newFonts(factor float64) *fonts {
	return &fonts{regular: parse(goregular.TTF), bold: parse(gobold.TTF), factor: factor, faces: map[faceKey]font.Face{}}
}

func parse(data []byte) *opentype.Font {
	parsed, err := opentype.Parse(data)
	if err != nil {
		panic(err) // the font is part of the program
	}
	return parsed
}

// face returns the font of a style.
func (f *fonts) face(style textStyle) font.Face {
	key := faceKey{style.size, style.bold}
	if face, ok := f.faces[key]; ok {
		return face
	}
	chosen := f.regular
	if style.bold {
		chosen = f.bold
	}
	face, err := opentype.NewFace(chosen, &opentype.FaceOptions{Size: style.size * f.factor, DPI: 72, Hinting: font.HintingNone})
	if err != nil {
		panic(err) // NewFace fails only for fonts without metrics
	}
	f.faces[key] = face
	return face
}

func (f *fonts) width(style textStyle, text string) float64 {
	return float64(font.MeasureString(f.face(style), text)) / 64 / f.factor
}

// shorten returns a text that is at most as wide as a number of pixels. It replaces the middle, because names differ at both ends.
func shorten(c canvas, style textStyle, text string, width float64) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if c.width(style, text) <= width {
		return text
	}
	runes := []rune(text)
	low, high := 0, len(runes)
	for low < high { // the largest number of runes that fits
		kept := (low + high + 1) / 2
		if c.width(style, elide(runes, kept)) <= width {
			low = kept
		} else {
			high = kept - 1
		}
	}
	return elide(runes, low)
}

// elide returns the first and last runes with an ellipsis between them.
func elide(runes []rune, kept int) string {
	head := int(math.Ceil(float64(kept) / 2))
	return string(runes[:head]) + "…" + string(runes[len(runes)-(kept-head):])
}

// wrap returns a text in at most a number of lines of a width. The last line is cut.
func wrap(c canvas, style textStyle, text string, width float64, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		longer := strings.TrimSpace(line + " " + word)
		switch {
		case line == "" || c.width(style, longer) <= width:
			line = longer
		case len(lines) == most-1:
			return append(lines, cut(c, style, longer, width))
		default:
			lines, line = append(lines, line), word
		}
	}
	if line == "" {
		return lines
	}
	return append(lines, cut(c, style, line, width))
}

// cut returns the beginning of a text that fits a width, with an ellipsis if the text does not fit.
func cut(c canvas, style textStyle, text string, width float64) string {
	if c.width(style, text) <= width {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && c.width(style, string(runes)+"…") > width {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimSpace(string(runes)) + "…"
}
