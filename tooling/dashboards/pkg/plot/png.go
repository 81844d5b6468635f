package plot

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"slices"

	"golang.org/x/image/font"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// maxDots bounds the memory of a PNG: 4 bytes each.
const maxDots = 64 << 20

// PNG returns a drawing of a width and height in pixels as an image with a number of dots for each pixel: 2 suits screens of high resolution.
// It returns an error if the image is larger than 64 million dots or has none.
func PNG(d Drawing, width, height int, dots float64) ([]byte, error) {
	w, h := int(math.Round(float64(width)*dots)), int(math.Round(float64(height)*dots))
	if w <= 0 || h <= 0 || w > maxDots/h {
		return nil, fmt.Errorf("an image of %d × %d dots cannot be drawn: it must have 1 to %d", w, h, maxDots)
	}
	c := &raster{fonts: newFonts(dots), image: image.NewRGBA(image.Rect(0, 0, w, h))}
	draw.Draw(c.image, c.image.Bounds(), image.White, image.Point{}, draw.Src)
	d.draw(c, rect{0, 0, float64(width), float64(height)})
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	err := encoder.Encode(&out, reduce(c.image))
	return out.Bytes(), err
}

// raster is a canvas that draws dots.
type raster struct {
	*fonts
	image *image.RGBA
}

func (c *raster) begin(string, string) {}
func (c *raster) end()                 {}

func (c *raster) fill(r rect, p paint) {
	c.area([]point{{r.x, r.y}, {r.right(), r.y}, {r.right(), r.bottom()}, {r.x, r.bottom()}}, p)
}

func (c *raster) area(points []point, p paint) { c.polygons([][]point{points}, p) }

// polygons fills the union of polygons of the same orientation.
func (c *raster) polygons(polygons [][]point, p paint) {
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, polygon := range polygons {
		for _, q := range polygon {
			low, high = point{min(low.x, q.x), min(low.y, q.y)}, point{max(high.x, q.x), max(high.y, q.y)}
		}
	}
	bounds := image.Rect(int(math.Floor(low.x*c.factor)), int(math.Floor(low.y*c.factor)), int(math.Ceil(high.x*c.factor)), int(math.Ceil(high.y*c.factor))).Intersect(c.image.Bounds())
	if bounds.Empty() {
		return
	}
	rasterizer := vector.NewRasterizer(bounds.Dx(), bounds.Dy())
	at := func(q point) (x, y float32) {
		return float32(q.x*c.factor - float64(bounds.Min.X)), float32(q.y*c.factor - float64(bounds.Min.Y))
	}
	for _, polygon := range polygons {
		for i, q := range polygon {
			if i == 0 {
				rasterizer.MoveTo(at(q))
				continue
			}
			rasterizer.LineTo(at(q))
		}
		rasterizer.ClosePath()
	}
	rasterizer.Draw(c.image, bounds, image.NewUniform(p.color), image.Point{})
}

func (c *raster) line(points []point, s stroke) {
	var polygons [][]point
	for _, dash := range dashes(points, s) {
		for i := 1; i < len(dash); i++ {
			from, to := dash[i-1], dash[i]
			length := math.Hypot(to.x-from.x, to.y-from.y)
			if length == 0 {
				continue
			}
			nx, ny := -(to.y-from.y)/length*s.width/2, (to.x-from.x)/length*s.width/2
			polygons = append(polygons, []point{{from.x - nx, from.y - ny}, {to.x - nx, to.y - ny}, {to.x + nx, to.y + ny}, {from.x + nx, from.y + ny}})
			if i < len(dash)-1 {
				polygons = append(polygons, disc(to, s.width/2))
			}
		}
	}
	c.polygons(polygons, s.paint)
}

// disc returns a polygon around a point with the orientation of the polygons of lines.
func disc(center point, radius float64) []point {
	const corners = 10
	var points []point
	for i := range corners {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / corners)
		points = append(points, point{center.x + radius*cos, center.y + radius*sin})
	}
	return points
}

// dashes returns the parts of a line that are drawn.
func dashes(points []point, s stroke) [][]point {
	if s.dash <= 0 || len(points) < 2 {
		return [][]point{points}
	}
	var parts [][]point
	part, drawn, rest := []point{points[0]}, true, s.dash
	for i := 1; i < len(points); i++ {
		from, to := points[i-1], points[i]
		for {
			length := math.Hypot(to.x-from.x, to.y-from.y)
			if length <= rest {
				rest -= length
				part = append(part, to)
				break
			}
			from = point{from.x + (to.x-from.x)*rest/length, from.y + (to.y-from.y)*rest/length}
			if drawn {
				parts = append(parts, append(part, from))
				rest = s.gap
			} else {
				rest = s.dash
			}
			part, drawn = []point{from}, !drawn
		}
	}
	if drawn {
		parts = append(parts, part)
	}
	return parts
}

func (c *raster) text(at point, style textStyle, text string) {
	face := c.face(style)
	x := at.x
	switch style.anchor {
	case middle:
		x -= c.width(style, text) / 2
	case end:
		x -= c.width(style, text)
	}
	drawer := font.Drawer{Dst: c.image, Src: image.NewUniform(style.color), Face: face, Dot: fixed.Point26_6{X: fixed.Int26_6(x * c.factor * 64), Y: fixed.Int26_6(at.y * c.factor * 64)}}
	drawer.DrawString(text)
}

// paletteSize is the number of colors of a PNG with one byte for each dot.
const paletteSize = 256

// reduce returns an image with at most 256 colors, which needs a third of the bytes: the most frequent ones, and for all others the nearest of
// them. Areas keep their exact colors, and the edges of texts change least.
func reduce(source *image.RGBA) image.Image {
	type rgb [3]uint8
	at := func(i int) rgb { return rgb(source.Pix[4*i : 4*i+3]) }
	counts := map[rgb]int{}
	for i := range len(source.Pix) / 4 {
		counts[at(i)]++
	}
	colors := slices.SortedFunc(maps.Keys(counts), func(a, b rgb) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), slices.Compare(a[:], b[:]))
	})
	var palette color.Palette
	for _, c := range colors[:min(len(colors), paletteSize)] {
		palette = append(palette, color.RGBA{c[0], c[1], c[2], 255})
	}
	index := make(map[rgb]uint8, len(colors))
	for _, c := range colors {
		index[c] = uint8(palette.Index(color.RGBA{c[0], c[1], c[2], 255})) //nolint:gosec // an index of the palette is below 256
	}
	reduced := image.NewPaletted(source.Bounds(), palette)
	for i := range reduced.Pix {
		reduced.Pix[i] = index[at(i)]
	}
	return reduced
}
