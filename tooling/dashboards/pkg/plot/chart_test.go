package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var update = flag.Bool("update", false, "write the golden files")

// noon is the begin of the periods of tests.
var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// wave returns a series of an hour with a point each minute.
func wave(name string, base, amplitude, phase float64) Series {
	s := Series{Name: name}
	for i := range 61 {
		s.Points = append(s.Points, Point{noon.Add(time.Duration(i) * time.Minute), base + amplitude*math.Sin(phase+float64(i)/8)})
	}
	return s
}

// hour returns a chart of an hour.
func hour(title string, unit Unit, limit *Limit, series ...Series) *Chart {
	return &Chart{Title: title, Meaning: "Requests to ARM that the frontend has completed, by status.", Unit: unit, From: noon, To: noon.Add(time.Hour), Step: time.Minute, Series: series, Limit: limit}
}

// gaps returns a series without the points between two minutes, and with one point alone.
func gaps(s Series, from, to, alone int) Series {
	var kept []Point
	for i, p := range s.Points {
		if i < from || i > to || i == alone {
			kept = append(kept, p)
		}
	}
	s.Points = kept
	return s
}

// drawings are the drawings of the golden files.
func drawings() map[string]Drawing {
	many := hour("Many series", Seconds, nil)
	for i := range 30 {
		many.Series = append(many.Series, wave(fmt.Sprintf("/subscriptions/11111111-0000-0000-0000-000000000001/resourceGroups/demo/clusters/cluster-%02d", i), float64(i), 0.5, float64(i)))
	}
	return map[string]Drawing{
		"lines":   hour("Requests", PerSecond, nil, wave("200", 12, 3, 0), wave("201", 4, 1, 1), gaps(wave("503", 1, 1, 2), 20, 40, 30)),
		"limit":   hour("Failed requests", Share, &Limit{Value: 0.01}, wave("region", 0.006, 0.006, 0)),
		"below":   hour("First end of a certificate", Seconds, &Limit{Value: 14400, Below: true}, wave("frontend", 80000, 3000, 0), wave("backend", 12000, 1000, 0)),
		"many":    many,
		"no-data": hour("Requests", PerSecond, nil),
		"numbers": &Numbers{Title: "Budget", Meaning: "Share of the error budget of 28 days that is left.", Unit: Share, Limit: &Limit{Below: true}, Values: []Value{{"region", 0.973}, {"mgmt-1", -0.2}}},
		"table": &Numbers{Title: "State", Meaning: "The state of the shard for new clusters.", Unit: YesOrNo, Values: []Value{{"mgmt-1 Active", 1}, {"mgmt-2 Cordoned", 1},
			{"mgmt-3 Active", 1}, {"mgmt-4 <b>&\x00", 0}, {"mgmt-5", math.NaN()}}},
	}
}

// TestSVG compares drawings with golden files, and checks what documents and assistive technology need: valid XML, a role, a title and a
// description, no attribute style and no script.
func TestSVG(t *testing.T) {
	for name, d := range drawings() {
		t.Run(name, func(t *testing.T) {
			got := SVG(d, name, 420, 262)
			golden := filepath.Join("testdata", name+".svg")
			if *update {
				must.Do(t, os.WriteFile(golden, got, 0o600))
			}
			want := must.Get(os.ReadFile(golden))(t)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			checkDocument(t, got)
		})
	}
}

// checkDocument checks an SVG document.
func checkDocument(t *testing.T, text []byte) {
	t.Helper()
	decoder, ids := xml.NewDecoder(bytes.NewReader(text)), map[string]bool{}
	var references []string
	images := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		switch element.Name.Local {
		case "svg", "g", "title", "desc", "rect", "path", "text":
		default:
			t.Errorf("the document has an element %s", element.Name.Local)
		}
		for _, a := range element.Attr {
			switch a.Name.Local {
			case "id":
				if ids[a.Value] {
					t.Errorf("two elements have the ID %s", a.Value)
				}
				ids[a.Value] = true
			case "role":
				if a.Value == "img" {
					images++
				}
			case "aria-labelledby", "aria-describedby":
				references = append(references, a.Value)
			case "style":
				t.Errorf("%s has a style, which content security policies forbid", element.Name.Local)
			}
		}
	}
	if images == 0 || len(references) < 2 {
		t.Errorf("the document has %d images and the references %v", images, references)
	}
	for _, id := range references {
		if !ids[id] {
			t.Errorf("no element has the ID %s", id)
		}
	}
}

// TestPage checks that a page has each of its drawings as one image, inside of its height.
func TestPage(t *testing.T) {
	d := drawings()
	page := &Page{Title: "Region", Question: "Are customers served?", From: noon, To: noon.Add(time.Hour), Sections: []Section{
		{"One", []Drawing{d["lines"]}},
		{"Four", []Drawing{d["limit"], d["below"], d["many"], d["no-data"]}},
		{"Two", []Drawing{d["numbers"], d["table"]}},
	}}
	text := SVG(page, "region", PageWidth, page.Height())
	checkDocument(t, text)
	if got := bytes.Count(text, []byte(`<g role="img"`)); got != 7 {
		t.Errorf("the page has %d images, want 7", got)
	}
	if diff := cmp.Diff([]int{2, 2}, page.Sections[1].rows()); diff != "" {
		t.Error(diff)
	}
	image := must.Get(PNG(page, PageWidth, page.Height(), 1))(t)
	decoded := must.Get(png.Decode(bytes.NewReader(image)))(t)
	if size := decoded.Bounds().Size(); size.X != PageWidth || size.Y != page.Height() {
		t.Errorf("the image has %v dots", size)
	}
	if file := os.Getenv("CHART_PNG"); file != "" {
		must.Do(t, os.WriteFile(file, image, 0o600))
	}
}

// TestPNGHasLines checks that PNG draws the line of a series at its value, in its color.
func TestPNGHasLines(t *testing.T) {
	c := hour("", Share, nil, wave("constant", 0.5, 0, 0))
	c.Meaning = ""
	text := must.Get(PNG(c, 400, 300, 2))(t)
	decoded := must.Get(png.Decode(bytes.NewReader(text)))(t)
	want, x, rows := color.RGBAModel.Convert(opaque(seriesColors[0])), 500, []int{}
	for y := range decoded.Bounds().Dy() {
		if color.RGBAModel.Convert(decoded.At(x, y)) == want {
			rows = append(rows, y)
		}
	}
	if len(rows) < 2 || rows[len(rows)-1]-rows[0] > 4 {
		t.Errorf("the column %d has the color of the line in the rows %v", x, rows)
	}
}

func TestPNGRefusesSizes(t *testing.T) {
	for _, width := range []int{0, -1, 1 << 20} {
		if _, err := PNG(hour("", Count, nil), width, 1000, 1); err == nil {
			t.Errorf("an image with a width of %d is drawn", width)
		}
	}
}

func TestRows(t *testing.T) {
	at := func(minute int, value float64) Point {
		return Point{noon.Add(time.Duration(minute) * time.Minute), value}
	}
	c := hour("", Seconds, &Limit{Value: 2}, Series{"b", []Point{at(0, 3), at(60, 1)}}, Series{"a", []Point{at(0, 1), at(59, 2.5), at(120, 9)}}, Series{"ended", []Point{at(0, 4), at(58, 3)}},
		Series{"none", nil}, Series{"not a number", []Point{at(60, math.NaN())}})
	var got []string
	for _, row := range c.Rows() {
		got = append(got, fmt.Sprintf("%s %s %s %v", row.Name, row.Last, row.Max, row.Bad))
	}
	want := []string{"a 2.5 s 2.5 s true", "b 1 s 3 s false", "ended – 4 s false", "none – – false", "not a number – – false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestRowsBeginWithWorst(t *testing.T) {
	for name, tc := range map[string]struct {
		limit *Limit
		want  string
	}{
		"no limit":    {nil, "large medium small none"},
		"from":        {&Limit{Value: 2}, "large medium small none"},
		"below":       {&Limit{Value: 2, Below: true}, "small medium large none"},
		"below all":   {&Limit{Value: 9, Below: true}, "small medium large none"},
		"below none":  {&Limit{Value: 0, Below: true}, "small medium large none"},
		"beyond none": {&Limit{Value: 9}, "large medium small none"},
	} {
		n := &Numbers{Limit: tc.limit, Values: []Value{{"none", math.NaN()}, {"medium", 2}, {"large", 3}, {"small", 1}}}
		var got []string
		for _, row := range n.Rows() {
			got = append(got, row.Name)
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
	}
}

func TestLimitBad(t *testing.T) {
	tests := map[string]struct {
		limit *Limit
		value float64
		want  bool
	}{
		"no limit":         {nil, 5, false},
		"below from":       {&Limit{Value: 1}, 0.99, false},
		"at from":          {&Limit{Value: 1}, 1, true},
		"at below":         {&Limit{Value: 1, Below: true}, 1, false},
		"below below":      {&Limit{Value: 1, Below: true}, 0.99, true},
		"not a number":     {&Limit{Value: 1}, math.NaN(), false},
		"not a number low": {&Limit{Value: 1, Below: true}, math.NaN(), false},
	}
	for name, tc := range tests {
		if got := tc.limit.Bad(tc.value); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

func TestLimitText(t *testing.T) {
	for _, tc := range []struct {
		limit *Limit
		unit  Unit
		want  string
	}{
		{nil, Count, ""}, {&Limit{Value: 0.85}, Share, "from 85 %"}, {&Limit{Value: 14400, Below: true}, Seconds, "below 4 h"},
		{&Limit{Value: 1}, YesOrNo, "if yes"}, {&Limit{Value: 1, Below: true}, YesOrNo, "if no"},
	} {
		if got := tc.limit.Text(tc.unit); got != tc.want {
			t.Errorf("%+v %s: %q, want %q", tc.limit, tc.unit, got, tc.want)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, tc := range []struct {
		unit  Unit
		value float64
		want  string
	}{
		{Count, 0, "0"}, {Count, 1, "1"}, {Count, 1.0345, "1.03"}, {Count, 9999, "9999"}, {Count, 12345, "12.3 k"}, {Count, 2.5e6, "2.5 M"}, {Count, -3, "−3"}, {Count, math.Copysign(0, -1), "0"},
		{PerSecond, 0.0123, "0.012 /s"}, {PerSecond, 25000, "25 k/s"},
		{Share, 0.0005, "0.05 %"}, {Share, 0.973, "97.3 %"}, {Share, 1, "100 %"}, {Share, 0.9999, "100 %"},
		{Seconds, 0, "0 s"}, {Seconds, 0.000123, "123 µs"}, {Seconds, 0.25, "250 ms"}, {Seconds, 90, "90 s"}, {Seconds, 1200, "20 min"}, {Seconds, 86400, "24 h"}, {Seconds, 30 * 86400, "30 d"},
		{Bytes, 512, "512 B"}, {Bytes, 1536, "1.5 KiB"}, {Bytes, 3 << 30, "3 GiB"},
		{YesOrNo, 1, "yes"}, {YesOrNo, 0, "no"}, {YesOrNo, 0.5, "0.5"},
		{Count, math.NaN(), "–"}, {Count, math.Inf(1), "∞"}, {Count, math.Inf(-1), "−∞"},
	} {
		if got := tc.unit.Format(tc.value); got != tc.want {
			t.Errorf("%s %v: %q, want %q", tc.unit, tc.value, got, tc.want)
		}
	}
}

func TestValueAxis(t *testing.T) {
	tests := map[string]struct {
		low, high float64
		unit      Unit
		limit     *Limit
		want      string
	}{
		"zero":                    {0, 0, Count, nil, "0 1"},
		"zero share":              {0, 0, Share, nil, "0 % 0.5 % 1 %"},
		"zero with a limit":       {0, 0, Seconds, &Limit{Value: 30}, "0 s 15 s 30 s 45 s"},
		"counts are whole":        {0, 2.2, Count, nil, "0 1 2 3"},
		"rates are not":           {0, 0.3, PerSecond, nil, "0 /s 0.1 /s 0.2 /s 0.3 /s"},
		"limit near":              {0, 0.5, Share, &Limit{Value: 1}, "0 % 50 % 100 % 150 %"},
		"limit far":               {0, 1, Seconds, &Limit{Value: 300}, "0 s 0.5 s 1 s"},
		"milliseconds":            {0, 0.031, Seconds, nil, "0 ms 20 ms 40 ms"},
		"minutes":                 {0, 1300, Seconds, nil, "0 min 10 min 20 min 30 min"},
		"days":                    {0, 30 * 86400, Seconds, nil, "0 d 10 d 20 d 30 d"},
		"a year":                  {0, 365 * 86400, Seconds, nil, "0 d 200 d 400 d"},
		"bytes":                   {0, 3 << 20, Bytes, nil, "0 B 1 MiB 2 MiB 3 MiB"},
		"negative":                {-0.4, 1, Share, nil, "−50 % 0 % 50 % 100 %"},
		"yes or no":               {1, 1, YesOrNo, &Limit{Value: 1, Below: true}, "no yes"},
		"negative limit is shown": {0, 0, Share, &Limit{Below: true}, "0 % 0.5 % 1 %"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			axis := newValueAxis(tc.low, tc.high, tc.unit, tc.limit, 3)
			for _, tick := range axis.ticks {
				got = append(got, tick.text)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if axis.low > tc.low || axis.high < tc.high {
				t.Errorf("the axis from %v to %v lacks values between %v and %v", axis.low, axis.high, tc.low, tc.high)
			}
		})
	}
}

func TestTimeTicks(t *testing.T) {
	tests := map[string]struct {
		from   time.Time
		period time.Duration
		want   string
	}{
		"minutes": {noon.Add(90 * time.Second), 10 * time.Minute, "12:02 12:04 12:06 12:08 12:10"},
		"hour":    {noon, time.Hour, "12:00 12:15 12:30 12:45 13:00"},
		"day":     {noon, 24 * time.Hour, "12:00 18:00 25 Nov 06:00 12:00"},
		"week":    {noon, 7 * 24 * time.Hour, "25 Nov 27 Nov 29 Nov 1 Dec"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, tick := range timeTicks(tc.from, tc.from.Add(tc.period), 5) {
				got = append(got, tick.text)
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestColorsHaveContrast checks the contrast that WCAG 2.2 requires: 4.5 to 1 for text and 3 to 1 for lines.
func TestColorsHaveContrast(t *testing.T) {
	for least, colors := range map[float64][]color.NRGBA{4.5: {ink.color, muted.color, bad.color}, 3: nil} {
		if least == 3 {
			for _, rgb := range seriesColors {
				colors = append(colors, opaque(rgb))
			}
		}
		for _, c := range colors {
			if got := (luminance(surface.color) + 0.05) / (luminance(c) + 0.05); got < least {
				t.Errorf("%s has a contrast of %.2f, want at least %v", hex(c), got, least)
			}
		}
	}
}

// luminance returns the relative luminance of a color, as WCAG defines it.
func luminance(c color.NRGBA) float64 {
	channel := func(v uint8) float64 {
		f := float64(v) / 255
		if f <= 0.04045 {
			return f / 12.92
		}
		return math.Pow((f+0.055)/1.055, 2.4)
	}
	return 0.2126*channel(c.R) + 0.7152*channel(c.G) + 0.0722*channel(c.B)
}

func TestShortenKeepsBothEnds(t *testing.T) {
	c, style := &svg{fonts: newFonts(1)}, textStyle{size: 11}
	const name = "/subscriptions/11111111-0000-0000-0000-000000000001/clusters/one"
	for _, width := range []float64{40, 100, 200} {
		got := shorten(c, style, name, width)
		if c.width(style, got) > width || !strings.Contains(got, "…") || got[0] != '/' || !strings.HasSuffix(got, "e") {
			t.Errorf("for %v pixels: %q with a width of %v", width, got, c.width(style, got))
		}
	}
	if got := shorten(c, style, "short", 200); got != "short" {
		t.Errorf("a text that fits becomes %q", got)
	}
}

// FuzzSVG checks that any name results in a valid document.
func FuzzSVG(f *testing.F) {
	f.Add("name", 1.0, 2.0)
	f.Add("</text><script>", math.NaN(), math.Inf(1))
	f.Add("\xff\x00", 1e300, -1e300)
	f.Fuzz(func(t *testing.T, name string, first, second float64) {
		for _, unit := range []Unit{Count, PerSecond, Share, Seconds, Bytes, YesOrNo} {
			c := hour(name, unit, &Limit{Value: first}, Series{name, []Point{{noon, first}, {noon.Add(time.Minute), second}}})
			checkDocument(t, SVG(c, "fuzz", 420, 262))
			checkDocument(t, SVG(&Numbers{Title: name, Unit: unit, Values: []Value{{name, first}, {name, second}}}, "fuzz", 420, 262))
		}
	})
}
