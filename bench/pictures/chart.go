package pictures

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/internal/sorting"
)

// chart is data over two axes, with a title and a legend.
type chart struct {
	title string
	X, Y  axis
	// The legend's corner; without these at the top right.
	legendLeft, legendBottom bool

	marks  []func(*area)
	legend []entry
}

// axis is a range of numbers, from the least to the greatest that is drawn.
type axis struct {
	Min, Max float64
	label    string
	log      bool
	ticks    func(least, most float64) []tick
	nominal  bool // ticks are names, without strokes
}

// tick is a place of an axis; one without a label is a lesser one.
type tick struct {
	at    float64
	label string
}

// entry is a line of a legend: a sign that is drawn around a point, and a name.
type entry struct {
	name string
	sign func(c canvas, at xy)
}

// area is where a chart's data lie on a canvas.
type area struct {
	canvas
	*chart
	left, top, right, bottom float64
}

// Sizes of a chart's parts, in points.
const (
	titleSize, labelSize, tickSize = 12, 10, 9
	tickLength                     = 5
	gap                            = 4
	signWidth                      = 20
)

// newChart is an empty chart in the house's looks.
func newChart(title, x, y string) *chart {
	empty := func(label string) axis {
		return axis{Min: math.Inf(1), Max: math.Inf(-1), label: label, ticks: decimals}
	}
	return &chart{title: title, X: empty(x), Y: empty(y)}
}

// add draws a mark behind those before it; the axes reach to its points.
func (ch *chart) add(mark func(*area), points ...xy) {
	ch.marks = append(ch.marks, mark)
	for _, p := range points {
		ch.X.Min, ch.X.Max = min(ch.X.Min, p.X), max(ch.X.Max, p.X)
		ch.Y.Min, ch.Y.Max = min(ch.Y.Min, p.Y), max(ch.Y.Max, p.Y)
	}
}

// explain adds a line to the legend.
func (ch *chart) explain(name string, sign func(c canvas, at xy)) {
	ch.legend = append(ch.legend, entry{name, sign})
}

// part is where a value lies between the ends of an axis, 0 to 1.
func (a *axis) part(v float64) float64 {
	if a.log {
		return math.Log(v/a.Min) / math.Log(a.Max/a.Min)
	}
	return (v - a.Min) / (a.Max - a.Min)
}

// widen gives an axis an extent where what is drawn has none.
func (a *axis) widen() {
	switch {
	case a.Max > a.Min:
	case math.IsInf(a.Min, 0):
		a.Min, a.Max = 0, 1
	default:
		a.Min, a.Max = a.Min-1, a.Max+1
	}
}

// at is where a point of the data lies.
func (a *area) at(p xy) xy {
	return xy{a.left + a.X.part(p.X)*(a.right-a.left), a.bottom - a.Y.part(p.Y)*(a.bottom-a.top)}
}

func (a *area) all(ps []xy) []xy {
	out := make([]xy, len(ps))
	for i, p := range ps {
		out[i] = a.at(p)
	}
	return out
}

// within are the ticks that an axis shows.
func (a *axis) within() []tick {
	slack := 1e-9 * (a.Max - a.Min)
	return slices.DeleteFunc(a.ticks(a.Min, a.Max), func(t tick) bool { return t.at < a.Min-slack || t.at > a.Max+slack })
}

// draw draws a chart of a size.
func (ch *chart) draw(c canvas, width, height float64) {
	ch.X.widen()
	ch.Y.widen()
	xs, ys := ch.X.within(), ch.Y.within()
	c.fill([]xy{{0, 0}, {width, 0}, {width, height}, {0, height}}, paper)
	c.text(xy{width / 2, titleSize + gap}, ch.title, titleSize, .5, false)
	a := &area{canvas: c, chart: ch, left: gap + tickLength, top: titleSize + 4*gap, right: width - 2*gap,
		bottom: height - gap - tickLength}
	if ch.Y.label != "" {
		a.left += labelSize + gap
	}
	widest := 0.0
	for _, t := range ys {
		widest = max(widest, textWidth(t.label, tickSize))
	}
	a.left += widest + gap
	lines := 1
	for _, t := range xs {
		lines = max(lines, 1+strings.Count(t.label, "\n"))
	}
	a.bottom -= float64(lines)*(tickSize+1) + gap
	if ch.X.label != "" {
		a.bottom -= labelSize + gap
		c.text(xy{(a.left + a.right) / 2, height - gap}, ch.X.label, labelSize, .5, false)
	}
	if n := len(xs); n > 0 { // half of the last label is beside the axis
		a.right -= textWidth(xs[n-1].label, tickSize) / 2 * ch.X.part(xs[n-1].at)
	}
	if ch.Y.label != "" {
		c.text(xy{gap + labelSize, (a.top + a.bottom) / 2}, ch.Y.label, labelSize, .5, true)
	}
	a.axes(xs, ys)
	for _, mark := range ch.marks {
		mark(a)
	}
	a.explained()
}

// axes draws both axes and the grid of their labelled ticks.
func (a *area) axes(xs, ys []tick) {
	thin, grid := stroke{color: ink, width: .5}, stroke{color: faint, width: .25}
	length := func(axis *axis, t tick) float64 {
		switch {
		case axis.nominal:
			return 0
		case t.label == "":
			return tickLength / 2
		}
		return tickLength
	}
	for _, t := range xs {
		x := a.at(xy{t.at, a.Y.Min}).X
		if t.label != "" {
			a.line([]xy{{x, a.top}, {x, a.bottom}}, grid)
		}
		a.line([]xy{{x, a.bottom}, {x, a.bottom + length(&a.X, t)}}, thin)
		for i, s := range strings.Split(t.label, "\n") {
			a.text(xy{x, a.bottom + tickLength + float64(i+1)*(tickSize+1)}, s, tickSize, .5, false)
		}
	}
	for _, t := range ys {
		y := a.at(xy{a.X.Min, t.at}).Y
		if t.label != "" {
			a.line([]xy{{a.left, y}, {a.right, y}}, grid)
			a.text(xy{a.left - tickLength - gap/2, y + tickSize*.35}, t.label, tickSize, 1, false)
		}
		a.line([]xy{{a.left - length(&a.Y, t), y}, {a.left, y}}, thin)
	}
	a.line([]xy{{a.left, a.top}, {a.left, a.bottom}, {a.right, a.bottom}}, thin)
}

// explained draws the legend.
func (a *area) explained() {
	const high = tickSize + 3
	widest := 0.0
	for _, e := range a.legend {
		widest = max(widest, textWidth(e.name, tickSize))
	}
	x, y := a.right-widest-signWidth-2*gap, a.top+gap
	if a.legendLeft {
		x = a.left + gap
	}
	if a.legendBottom {
		y = a.bottom - gap - high*float64(len(a.legend))
	}
	for i, e := range a.legend {
		top := y + high*float64(i)
		e.sign(a, xy{x + signWidth/2, top + high/2})
		a.text(xy{x + signWidth + gap, top + high/2 + tickSize*.35}, e.name, tickSize, 0, false)
	}
}

// decimals labels a linear axis at about five round numbers.
func decimals(least, most float64) []tick {
	power := math.Pow(10, math.Floor(math.Log10((most-least)/5)))
	step := atMost(least, most, power, 2*power, 5*power, 10*power)
	digits := max(0, int(math.Ceil(-math.Log10(step)-1e-9)))
	return every(least, most, step, func(v float64) string { return fmt.Sprintf("%.*f", digits, v) })
}

// clock labels an axis of seconds since 1970 by days and times of the day, in UTC.
func clock(least, most float64) []tick {
	const minute, hour, day = 60, 3600, 86400
	step := atMost(least, most, 1, 5, 15, minute, 5*minute, 15*minute, hour, 3*hour, 6*hour, 12*hour, day, 2*day, 7*day,
		14*day, 28*day, 91*day, 182*day, 364*day)
	return every(least, most, step, func(v float64) string {
		return time.Unix(int64(v), 0).UTC().Format("01-02\n15:04")
	})
}

// atMost is the first of rising steps that makes no more than seven parts of an axis; behind the last come its doubles.
func atMost(least, most float64, steps ...float64) float64 {
	step := steps[0]
	for i := 1; most-least > 7*step; i++ {
		if step *= 2; i < len(steps) {
			step = steps[i]
		}
	}
	return step
}

// every labels the multiples of a step.
func every(least, most, step float64, label func(float64) string) []tick {
	var out []tick
	for k := math.Ceil(least/step - 1e-9); k*step <= most+1e-9*step; k++ {
		v := k*step + 0 // not -0
		out = append(out, tick{v, label(v)})
	}
	return out
}

// percents labels an axis of parts of a whole.
func percents(_, _ float64) []tick {
	var out []tick
	for i := range 11 {
		t := tick{at: float64(i) / 10}
		if i%2 == 0 {
			t.label = fmt.Sprintf("%d %%", 10*i)
		}
		out = append(out, t)
	}
	return out
}

// sizes labels an axis of bytes by powers of two.
func sizes(least, most float64) []tick {
	var out []tick
	first, last := int(math.Floor(math.Log2(max(least, 1)))), int(math.Ceil(math.Log2(max(most, 2))))
	every := 1 + (last-first)/12
	for e := first; e <= last; e++ {
		t := tick{at: math.Exp2(float64(e))}
		if e%every == 0 {
			t.label = Size(t.at)
		}
		out = append(out, t)
	}
	return out
}

// decades labels a logarithmic axis at 1, 2 and 5 of each power of ten.
func decades(least, most float64) []tick {
	var out []tick
	few := math.Log10(most/least) < 2.5
	for e := math.Floor(math.Log10(least)); e <= math.Ceil(math.Log10(most)); e++ {
		for m := 1.0; m < 10; m++ {
			t := tick{at: m * math.Pow(10, e)}
			if m == 1 || few && (m == 2 || m == 5) {
				t.label = fmt.Sprintf("%.5g", t.at)
			}
			out = append(out, t)
		}
	}
	return out
}

// logY makes the axis logarithmic, over what is drawn with a little room.
func logY(ch *chart) { ch.Y.log, ch.Y.ticks = true, decades; room(&ch.Y) }

// logX makes the axis logarithmic, over what is drawn. A single place gets room: it would be
// widened by one on either side, below zero.
func logX(ch *chart, ticks func(least, most float64) []tick) {
	ch.X.log, ch.X.ticks = true, ticks
	if ch.X.Max <= ch.X.Min {
		room(&ch.X)
	}
}

func room(a *axis) {
	if a.Min > 0 && a.Max >= a.Min {
		a.Min, a.Max = a.Min/1.25, a.Max*1.25
	}
}

// names labels the places 0, 1, … of the y axis, from the bottom.
func (ch *chart) names(list []string) {
	ch.Y.Min, ch.Y.Max, ch.Y.nominal = -.5, float64(len(list))-.5, true
	ch.Y.ticks = func(float64, float64) []tick {
		var out []tick
		for i, s := range list {
			out = append(out, tick{float64(i), s})
		}
		return out
	}
}

// lines adds a series of points joined by lines.
func lines(ch *chart, i int, name string, ps []xy) {
	sorting.Sort(ps, func(a, b xy) int { return cmp.Compare(a.X, b.X) })
	s := stroke{colour(i), 1.4, dashes(i)}
	const radius = 1.8
	ch.add(func(a *area) {
		at := a.all(ps)
		a.line(at, s)
		for _, p := range at {
			a.disc(p, radius, s.color)
		}
	}, ps...)
	ch.explain(name, func(c canvas, at xy) {
		c.line([]xy{{at.X - signWidth/2, at.Y}, {at.X + signWidth/2, at.Y}}, s)
		c.disc(at, radius, s.color)
	})
}

// scatter adds a series of signs.
func scatter(ch *chart, i int, name string, ps []xy) {
	ch.add(func(a *area) {
		for _, p := range a.all(ps) {
			glyph(a, i, p)
		}
	}, ps...)
	ch.explain(name, func(c canvas, at xy) { glyph(c, i, at) })
}

// segment adds a line without points of its own.
func segment(ch *chart, from, to xy, s stroke) {
	ch.add(func(a *area) { a.line(a.all([]xy{from, to}), s) }, from, to)
}

// rule adds the i-th vertical line with a word at its foot, each a line higher than the last.
func rule(ch *chart, i int, x float64, word string) {
	if !(x > ch.X.Min) || !(x < ch.X.Max) {
		return
	}
	ch.add(func(a *area) {
		foot := a.at(xy{x, a.Y.Min})
		a.line([]xy{foot, {foot.X, a.top}}, stroke{ink, .8, []float64{3, 3}})
		a.text(xy{foot.X + 3, foot.Y - 3 - (tickSize+2)*float64(i%4)}, word, tickSize, 0, false)
	})
}

// word writes a word that ends above a point.
func word(ch *chart, p xy, text string) {
	ch.add(func(a *area) {
		at := a.at(p)
		a.text(xy{at.X, at.Y - 3}, text, tickSize, 1, false)
	}, p)
}

// rowsOfBars adds horizontal bars at the places 0, 1, … of the y axis, from one value to another, so thick and so
// far above their places in points.
func rowsOfBars(ch *chart, i int, name string, from, to []float64, thick, above float64, edge stroke) {
	box := func(c canvas, left, right, middle, thick float64) {
		corners := []xy{{left, middle - thick/2}, {right, middle - thick/2}, {right, middle + thick/2},
			{left, middle + thick/2}}
		c.fill(corners, colour(i))
		if edge.width > 0 {
			c.line(append(corners, corners[0]), edge)
		}
	}
	ch.add(func(a *area) {
		for k := range to {
			if to[k] > from[k] {
				l, r := a.at(xy{from[k], float64(k)}), a.at(xy{to[k], float64(k)})
				box(a, l.X, r.X, l.Y-above, thick)
			}
		}
	})
	ch.explain(name, func(c canvas, at xy) { box(c, at.X-signWidth/2, at.X+signWidth/2, at.Y, tickSize) })
}

// spread is an interval around a point's y.
type spread struct {
	at        xy
	low, high float64
}

// intervals adds the intervals of a series' points.
func intervals(ch *chart, i int, list []spread) {
	var ends []xy
	for _, s := range list {
		ends = append(ends, xy{s.at.X, s.low}, xy{s.at.X, s.high})
	}
	ch.add(func(a *area) {
		st, at := stroke{color: colour(i), width: .5}, a.all(ends)
		for k := 0; k < len(at); k += 2 {
			a.line(at[k:k+2], st)
			for _, p := range at[k : k+2] {
				a.line([]xy{{p.X - 1.5, p.Y}, {p.X + 1.5, p.Y}}, st)
			}
		}
	}, ends...)
}

// glyph draws the i-th sign around a point.
func glyph(c canvas, i int, at xy) {
	const r = 3.2
	paint := colour(i)
	s := stroke{color: paint, width: 1}
	ring := func(n int, radius, turn float64) []xy { // a polygon's corners, closed
		var out []xy
		for k := range n + 1 {
			sin, cos := math.Sincos(turn + 2*math.Pi*float64(k)/float64(n))
			out = append(out, xy{at.X + radius*cos, at.Y + radius*sin})
		}
		return out
	}
	cross := func(turn float64) {
		p := ring(4, r, turn)
		c.line([]xy{p[0], p[2]}, s)
		c.line([]xy{p[1], p[3]}, s)
	}
	switch i % 8 {
	case 0:
		c.disc(at, r, paint)
	case 1:
		c.line(ring(3, r, -math.Pi/2), s)
	case 2:
		c.fill(ring(4, r*1.2, math.Pi/4), paint)
	case 3:
		c.fill(ring(3, r*1.2, -math.Pi/2), paint)
	case 4:
		c.line(ring(24, r, 0), s)
	case 5:
		c.line(ring(4, r*1.2, math.Pi/4), s)
	case 6:
		cross(math.Pi / 4)
	case 7:
		cross(0)
	}
}

// colour is the i-th series' colour.
func colour(i int) color.RGBA { return series[i%len(series)] }

// dashes tell series apart where colours come again.
func dashes(i int) []float64 {
	switch i / len(series) % 3 {
	case 1:
		return []float64{5, 3}
	case 2:
		return []float64{1.5, 2.5}
	}
	return nil
}
