package pictures

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"strings"
	"testing"
)

func labels(ts []tick) string {
	var out []string
	for _, t := range ts {
		if t.label != "" {
			out = append(out, strings.ReplaceAll(t.label, "\n", " "))
		}
	}
	return strings.Join(out, ", ")
}

func TestTicks(t *testing.T) {
	const day, at = 86400, 1772452800 // 2026-03-02 12:00 UTC
	for _, c := range []struct {
		ticks       func(least, most float64) []tick
		least, most float64
		want        string
	}{
		{decimals, 0, 1.02, "0.0, 0.2, 0.4, 0.6, 0.8, 1.0"},
		{decimals, .987, 1.184, "1.00, 1.05, 1.10, 1.15"},
		{decimals, -3, 3, "-3, -2, -1, 0, 1, 2, 3"},
		{decimals, 11999, 12001, "11999.0, 11999.5, 12000.0, 12000.5, 12001.0"},
		{clock, at, at + day, "03-02 12:00, 03-02 18:00, 03-03 00:00, 03-03 06:00, 03-03 12:00"},
		{clock, at - 1, at + 1, "03-02 11:59, 03-02 12:00, 03-02 12:00"},
		{decades, 1, 100, "1, 2, 5, 10, 20, 50, 100"},
		{decades, 1, 1e4, "1, 10, 100, 1000, 10000"},
		{sizes, 1024, 8192, "1 KiB, 2 KiB, 4 KiB, 8 KiB"},
	} {
		a := axis{Min: c.least, Max: c.most, ticks: c.ticks}
		if got := labels(a.within()); got != c.want {
			t.Errorf("%g to %g has ticks at %s, want %s", c.least, c.most, got, c.want)
		}
	}
	if n := len(clock(0, 1e11)); n < 2 || n > 8 {
		t.Errorf("three thousand years have %d ticks", n)
	}
}

func TestParts(t *testing.T) {
	linear, log := axis{Min: -1, Max: 3}, axis{Min: 1, Max: 1e4, log: true}
	for _, c := range []struct {
		a       *axis
		v, want float64
	}{{&linear, -1, 0}, {&linear, 0, .25}, {&linear, 3, 1}, {&log, 1, 0}, {&log, 10, .25}, {&log, 1e4, 1}} {
		if got := c.a.part(c.v); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%g lies at %g of the axis, want %g", c.v, got, c.want)
		}
	}
	for _, a := range []axis{{Min: math.Inf(1), Max: math.Inf(-1)}, {Min: 5, Max: 5}} {
		if a.widen(); !(a.Max > a.Min) {
			t.Errorf("nothing, or one place, gives the axis %g to %g", a.Min, a.Max)
		}
	}
}

// probe remembers what is drawn on it.
type probe struct {
	lines [][]xy
	fills [][]xy
	texts map[string]xy
}

func (p *probe) line(ps []xy, _ stroke)              { p.lines = append(p.lines, ps) }
func (p *probe) fill(ps []xy, _ color.RGBA)          { p.fills = append(p.fills, ps) }
func (p *probe) disc(at xy, _ float64, _ color.RGBA) { p.lines = append(p.lines, []xy{at}) }
func (p *probe) text(at xy, s string, _, _ float64, _ bool) {
	p.texts[s] = at
}

// TestDataLieAtTheirTicks: a point is drawn where the labels of its coordinates are.
func TestDataLieAtTheirTicks(t *testing.T) {
	ch := newChart("title", "x", "y")
	lines(ch, 0, "series", []xy{{4, 30}, {0, 10}, {2, 20}})
	p := &probe{texts: map[string]xy{}}
	ch.draw(p, 400, 300)
	found := false
	for _, l := range p.lines {
		found = found || len(l) == 1 && math.Abs(l[0].X-p.texts["2"].X) < 1e-9 &&
			math.Abs(l[0].Y-p.texts["20"].Y) < tickSize/2
	}
	if !found {
		t.Errorf("no point lies above 2 (%v) and beside 20 (%v): %v", p.texts["2"], p.texts["20"], p.lines)
	}
	for s, at := range p.texts {
		if at.X < 0 || at.X > 400 || at.Y < 0 || at.Y > 300 {
			t.Errorf("%q is written at %v, outside", s, at)
		}
	}
}

// TestStackedBars: bars begin where those before them end, and none is drawn of nothing.
func TestStackedBars(t *testing.T) {
	ch := newChart("", "", "")
	ch.names([]string{"a", "b"})
	ch.X.Min, ch.X.Max = 0, 1
	rowsOfBars(ch, 0, "first", []float64{0, 0}, []float64{.25, 0}, 10, 0, stroke{})
	rowsOfBars(ch, 1, "second", []float64{.25, 0}, []float64{1, .5}, 10, 0, stroke{})
	p := &probe{texts: map[string]xy{}}
	ch.draw(p, 400, 300)
	bars := p.fills[1 : len(p.fills)-2] // behind the paper, before the legend
	if len(bars) != 3 {
		t.Fatalf("%d bars, want 3", len(bars))
	}
	if bars[0][1] != bars[1][0] {
		t.Errorf("the second bar begins at %v, the first ends at %v", bars[1][0], bars[0][1])
	}
	if bars[2][0].Y >= bars[1][0].Y {
		t.Error("the second place is not above the first")
	}
}

// TestDashed: dashes go on around corners, and a line without any is whole.
func TestDashed(t *testing.T) {
	corner := []xy{{0, 0}, {10, 0}, {10, 10}}
	got := fmt.Sprint(dashed(corner, []float64{4, 2}))
	if want := "[[{0 0} {4 0}] [{6 0} {10 0}] [{10 2} {10 6}] [{10 8} {10 10}]]"; got != want {
		t.Errorf("dashes of 4 and 2 are %s, not %s", got, want)
	}
	if got := fmt.Sprint(dashed(corner, []float64{15, 100})); got != "[[{0 0} {10 0} {10 5}]]" {
		t.Errorf("a dash of 15 is %s", got)
	}
	if got := fmt.Sprint(dashed(corner, nil)); got != fmt.Sprint([][]xy{corner}) {
		t.Errorf("a solid line is %s", got)
	}
}

// TestTurnedText: text that is turned has its line where SVG has it, and reads upwards.
func TestTurnedText(t *testing.T) {
	c := newPNG(60, 60)
	c.fill([]xy{{0, 0}, {60, 0}, {60, 60}, {0, 60}}, paper)
	c.text(xy{30, 50}, "L.....", 20, 0, true)
	dark := func(left, top, right, bottom int) (n int) {
		for y := top; y < bottom; y++ {
			for x := left; x < right; x++ {
				if c.to.RGBAAt(x, y).R < 128 {
					n++
				}
			}
		}
		return n
	}
	if n := dark(30, 60, 60, 100); n < 40 { // the stem of the L is above its foot, which is turned to the left
		t.Errorf("the letter has %d dark pixels", n)
	}
	if n := dark(50, 0, 60, 70); n < 10 {
		t.Errorf("the dots have %d dark pixels above the letter, on the line", n)
	}
	if n := dark(0, 0, 28, 120) + dark(62, 0, 120, 120) + dark(0, 100, 120, 120); n > 0 {
		t.Errorf("%d dark pixels are where no text is", n)
	}
}

// TestPixels: what is drawn on pixels is where it is drawn in SVG.
func TestPixels(t *testing.T) {
	draw := func(c canvas) {
		c.fill([]xy{{0, 0}, {40, 0}, {40, 20}, {0, 20}}, paper)
		c.line([]xy{{0, 10}, {20, 10}}, stroke{color: series[0], width: 4})
		c.disc(xy{30, 10}, 3, series[1])
	}
	c := newPNG(40, 20)
	draw(c)
	var b bytes.Buffer
	if err := c.write(&b); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&b)
	if err != nil || img.Bounds() != image.Rect(0, 0, 80, 40) {
		t.Fatalf("%v, %v", img.Bounds(), err)
	}
	for at, want := range map[image.Point]color.RGBA{{10, 20}: series[0], {50, 20}: paper, {60, 20}: series[1],
		{10, 2}: paper} {
		if got := color.RGBAModel.Convert(img.At(at.X, at.Y)); got != want {
			t.Errorf("at %v is %v, want %v", at, got, want)
		}
	}
	s := newSVG(40, 20)
	draw(s)
	s.text(xy{1, 2}, "a < b", 9, .5, true)
	for _, want := range []string{`points="0.00,10.00 20.00,10.00" fill="none" stroke="#006DB0" stroke-width="4"`,
		`<circle cx="30.00" cy="10.00" r="3" fill="#C95500"/>`,
		`text-anchor="middle" transform="rotate(-90 1.00 2.00)" textLength="20.25" ` +
			`lengthAdjust="spacingAndGlyphs">a &lt; b<`} {
		if !strings.Contains(s.end(), want) {
			t.Errorf("%s is missing in\n%s", want, s.end())
		}
	}
}
