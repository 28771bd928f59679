// Package pictures draws what was measured: bandwidth and latency over size,
// rooflines, history with its noise, devices beside each other, and the kernels of
// a step. A picture carries the figures that it was drawn from.
package pictures

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
)

// Picture is one plot with the figures behind it.
type Picture struct {
	Name    string // of its kind: one of Names
	Title   string
	Caption string // what is seen, in a sentence or two
	Head    []string
	Rows    [][]string // the figures, a row a point

	plot          *plot.Plot
	width, height vg.Length
}

// kinds are the pictures that there are, in the order of the page.
var kinds = []struct {
	name string
	draw func([]point) []*Picture
}{
	{"bandwidth", bandwidth},
	{"latency", latency},
	{"roofline", rooflines},
	{"step", steps},
	{"devices", devices},
	{"history", histories},
}

// Names lists the kinds of pictures.
func Names() []string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Draw draws the pictures of one kind, or of all where name is "". Results that
// are not OK are left out. There may be none, for want of results.
func Draw(name string, entries []store.Entry) ([]*Picture, error) {
	if name != "" && !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("picture %q is not known; there are %s", name, strings.Join(Names(), ", "))
	}
	pts := points(entries)
	var out []*Picture
	for _, k := range kinds {
		if name == "" || name == k.name {
			out = append(out, k.draw(pts)...)
		}
	}
	return out, nil
}

// Write writes the picture as "svg" or "png", in colours for a light page.
func (p *Picture) Write(w io.Writer, kind string) error {
	switch kind {
	case "svg":
		_, err := io.WriteString(w, light.Replace(p.svg()))
		return err
	case "png":
		c := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(p.width, p.height), vgimg.UseDPI(144))}
		p.plot.Draw(draw.New(c))
		_, err := c.WriteTo(w)
		return err
	}
	return fmt.Errorf("a picture is written as svg or png, not as %q", kind)
}

// svg draws with the colours of ink, grid and series as CSS variables.
func (p *Picture) svg() string {
	c := vgsvg.New(p.width, p.height)
	p.plot.Draw(draw.New(c))
	var b bytes.Buffer
	c.WriteTo(&b) // into memory: cannot fail
	s := b.String()
	if i := strings.Index(s, "<svg"); i > 0 {
		s = s[i:]
	}
	return themed.Replace(s)
}

// Colours. A drawing holds these; a page replaces them by variables, so that one
// drawing serves light and dark.
var (
	ink    = color.RGBA{0x1f, 0x24, 0x28, 0xff}
	faint  = color.RGBA{0xd9, 0xdc, 0xde, 0xff}
	paper  = color.RGBA{0xfd, 0xfd, 0xfc, 0xff}
	series = []color.RGBA{
		{0x00, 0x6d, 0xb0, 0xff}, {0xc9, 0x55, 0x00, 0xff}, {0x00, 0x8a, 0x63, 0xff}, {0xa6, 0x3d, 0x8f, 0xff},
		{0x8a, 0x6d, 0x00, 0xff}, {0x2a, 0x8f, 0xc4, 0xff}, {0xb0, 0x2a, 0x3a, 0xff}, {0x5c, 0x5f, 0x66, 0xff},
	}
	themed, light = replacers()
)

func hex(c color.RGBA) string { return fmt.Sprintf("#%02X%02X%02X", c.R, c.G, c.B) }

func replacers() (themed, light *strings.Replacer) {
	vars := []string{hex(ink), "var(--ink)", hex(faint), "var(--faint)", hex(paper), "var(--paper)"}
	for i, c := range series {
		vars = append(vars, hex(c), fmt.Sprintf("var(--s%d)", i))
	}
	back := make([]string, len(vars))
	for i := 0; i < len(vars); i += 2 {
		back[i], back[i+1] = vars[i+1], vars[i]
	}
	return strings.NewReplacer(vars...), strings.NewReplacer(back...)
}

func colour(i int) color.RGBA { return series[i%len(series)] }

// dashes tell series apart where colours come again.
func dashes(i int) []vg.Length {
	switch i / len(series) % 3 {
	case 1:
		return []vg.Length{vg.Points(5), vg.Points(3)}
	case 2:
		return []vg.Length{vg.Points(1.5), vg.Points(2.5)}
	}
	return nil
}

const (
	wide = 23 * vg.Centimeter
	high = 11 * vg.Centimeter
)

// newPlot is an empty plot in the house's looks.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = paper
	style := func(t *text.Style, size vg.Length) {
		t.Font.Typeface, t.Font.Variant, t.Font.Size, t.Color = font.Typeface("Liberation"), "Sans", size, ink
	}
	p.Title.Text = title
	style(&p.Title.TextStyle, 12)
	p.Title.Padding = vg.Points(6)
	style(&p.Legend.TextStyle, 9)
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		style(&a.Label.TextStyle, 10)
		style(&a.Tick.Label, 9)
		a.LineStyle.Color, a.Tick.LineStyle.Color = ink, ink
	}
	p.X.Label.Text, p.Y.Label.Text = x, y
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = faint, faint
	p.Add(g)
	return p
}

// point is a result that is worth drawing, with what is often asked of it.
type point struct {
	*record.Result
	run    *record.Run
	device string // backend and device, as legends name it
	time   stats.Summary
}

// gbs is the rate of bytes, gflops that of flops, by the median.
func (p *point) gbs() float64    { return p.Bytes / p.time.Median / 1e9 }
func (p *point) gflops() float64 { return p.Flops / p.time.Median / 1e9 }

func points(entries []store.Entry) []point {
	var out []point
	for i := range entries {
		e := &entries[i]
		if e.Verdict != record.OK || len(e.Samples) == 0 || e.Run.Checked() {
			continue
		}
		s := stats.Summarize(e.Samples)
		if !(s.Median > 0) {
			continue
		}
		out = append(out, point{&e.Result, e.Run, e.Run.Env.On(), s})
	}
	slices.SortStableFunc(out, func(a, b point) int { return a.run.Started.Compare(b.run.Started) })
	return out
}

// latest keeps the last result of each benchmark on each device.
func latest(pts []point) []point {
	type key struct{ device, name, clock string }
	at := map[key]int{}
	var out []point
	for _, p := range pts {
		k := key{p.device, p.Result.Name(), p.Clock}
		if i, ok := at[k]; ok {
			out[i] = p
			continue
		}
		at[k] = len(out)
		out = append(out, p)
	}
	return out
}

// groups divides points by a key, in order of first appearance.
func groups(pts []point, by func(point) string) (keys []string, of map[string][]point) {
	of = map[string][]point{}
	for _, p := range pts {
		k := by(p)
		if of[k] == nil {
			keys = append(keys, k)
		}
		of[k] = append(of[k], p)
	}
	return keys, of
}

func g(x float64) string { return fmt.Sprintf("%.4g", x) }

// sizes labels an axis of bytes by powers of two.
type sizes struct{}

// Ticks implements plot.Ticker.
func (sizes) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	first, last := int(math.Floor(math.Log2(max(low, 1)))), int(math.Ceil(math.Log2(max(high, 2))))
	every := 1 + (last-first)/12
	for e := first; e <= last; e++ {
		t := plot.Tick{Value: math.Exp2(float64(e))}
		if e%every == 0 {
			t.Label = Size(t.Value)
		}
		out = append(out, t)
	}
	return out
}

// Size writes a number of bytes with a binary unit: "64 KiB".
func Size(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for bytes >= 1024 && i < len(units)-1 {
		bytes, i = bytes/1024, i+1
	}
	return fmt.Sprintf("%.3g %s", bytes, units[i])
}

// decades labels a logarithmic axis at 1, 2 and 5 of each power of ten.
type decades struct{ unit string }

// Ticks implements plot.Ticker.
func (d decades) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	if !(low > 0) || !(high > low) {
		return []plot.Tick{{Value: 1, Label: "1"}}
	}
	few := math.Log10(high/low) < 2.5
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for m := 1.0; m < 10; m++ {
			t := plot.Tick{Value: m * math.Pow(10, e)}
			if m == 1 || few && (m == 2 || m == 5) {
				t.Label = strings.TrimSuffix(fmt.Sprintf("%.5g", t.Value), ".0") + d.unit
			}
			out = append(out, t)
		}
	}
	return out
}

// logY makes the axis logarithmic, over what is drawn with a little room.
func logY(p *plot.Plot) { p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}; room(&p.Y) }

// logX makes the axis logarithmic, over what is drawn. A single place gets room: plot
// would widen it by one on either side, below zero.
func logX(p *plot.Plot, ticks plot.Ticker) {
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks
	if p.X.Max <= p.X.Min {
		room(&p.X)
	}
}

func room(a *plot.Axis) {
	if a.Min > 0 && a.Max >= a.Min {
		a.Min, a.Max = a.Min/1.25, a.Max*1.25
	}
}

// lines adds a series of points joined by lines.
func lines(p *plot.Plot, i int, name string, xy plotter.XYs) {
	slices.SortFunc(xy, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	l, s, err := plotter.NewLinePoints(xy)
	if err != nil { // no points, or no numbers: results with these are left out before
		return
	}
	l.Color, l.Width, l.Dashes = colour(i), vg.Points(1.4), dashes(i)
	s.Color, s.Shape, s.Radius = colour(i), draw.CircleGlyph{}, vg.Points(1.8)
	p.Add(l, s)
	p.Legend.Add(name, l, s)
}

// rule adds the i-th vertical line with a word at its foot, each a line higher than the last.
func rule(p *plot.Plot, i int, x float64, word string) {
	if !(x > p.X.Min) || !(x < p.X.Max) {
		return
	}
	l, err := plotter.NewLine(plotter.XYs{{X: x, Y: p.Y.Min}, {X: x, Y: p.Y.Max}})
	if err != nil {
		return
	}
	l.Color, l.Width, l.Dashes = ink, vg.Points(0.8), []vg.Length{vg.Points(3), vg.Points(3)}
	p.Add(l)
	if label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: p.Y.Min}},
		Labels: []string{word}}); err == nil {
		label.TextStyle[0] = p.X.Tick.Label
		label.TextStyle[0].XAlign, label.TextStyle[0].YAlign = text.XLeft, text.YBottom
		label.Offset = vg.Point{X: vg.Points(3), Y: vg.Points(3 + 11*float64(i%4))}
		p.Add(label)
	}
}

// nameOf is a benchmark as people read it: without the folder of its kind.
func nameOf(p *point) string {
	_, rest, ok := strings.Cut(p.Bench, "/")
	if !ok {
		rest = p.Bench
	}
	if len(p.Params) > 0 {
		rest += " " + format.Params(p.Params)
	}
	return rest
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }
