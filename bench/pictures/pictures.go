// Package pictures draws what was measured: bandwidth and latency over size,
// rooflines, history with its noise, devices beside each other, and the kernels of
// a step. A picture carries the figures that it was drawn from.
package pictures

import (
	"fmt"
	"image/color"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/sorting"
)

// Picture is one plot with the figures behind it.
type Picture struct {
	Name    string // of its kind: one of Names
	Title   string
	Caption string // what is seen, in a sentence or two
	Head    []string
	Rows    [][]string // the figures, a row a point

	plot          *chart
	width, height float64 // points
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
		c := newPNG(p.width, p.height)
		p.plot.draw(c, p.width, p.height)
		return c.write(w)
	}
	return fmt.Errorf("a picture is written as svg or png, not as %q", kind)
}

// svg draws with the colours of ink, grid and series as CSS variables.
func (p *Picture) svg() string {
	c := newSVG(p.width, p.height)
	p.plot.draw(c, p.width, p.height)
	return themed.Replace(c.end())
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

const (
	centimetre = 72 / 2.54 // points
	wide       = 23 * centimetre
	high       = 11 * centimetre
)

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
	sorting.Sort(out, func(a, b point) int { return a.run.Started.Compare(b.run.Started) })
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

// Size writes a number of bytes with a binary unit: "64 KiB".
func Size(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for bytes >= 1024 && i < len(units)-1 {
		bytes, i = bytes/1024, i+1
	}
	return fmt.Sprintf("%.3g %s", bytes, units[i])
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
