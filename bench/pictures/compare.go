package pictures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/greta-project/greta/bench/compare"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/sorting"
)

// steps draws what a step of a model is made of, a bar a step, by the results of
// greta bench op --model: how long each kernel takes, times how often it is launched.
// It is in one piece: sums, then bars.
func steps(all []point) []*Picture {
	type part struct {
		name             string
		launches, micros float64
	}
	type bar struct {
		name, device string
		parts        []part
	}
	var bars []*bar
	at := map[string]*bar{}
	runs, ofRun := groups(all, func(p point) string { return p.run.ID })
	counts := map[string]func(*record.Result) bool{}
	for _, id := range runs {
		counts[id] = record.InSums(func(yield func(*record.Result) bool) {
			for _, p := range ofRun[id] {
				if !yield(p.Result) {
					return
				}
			}
		})
	}
	for i := range all {
		p := &all[i]
		if !counts[p.run.ID](p.Result) {
			continue
		}
		for k, n := range p.Metrics {
			step, ok := strings.CutPrefix(k, record.InStep)
			if !ok || n <= 0 {
				continue
			}
			key := p.device + "\x00" + step
			b := at[key]
			if b == nil || !strings.HasSuffix(b.name, p.run.ID) {
				nb := &bar{name: step + "\x00" + p.run.ID, device: p.device}
				if b == nil {
					bars = append(bars, nb)
				} else { // a newer run takes the older one's place
					bars[slices.Index(bars, b)] = nb
				}
				b, at[key] = nb, nb
			}
			name := strings.TrimPrefix(p.Bench, "op/")
			j := slices.IndexFunc(b.parts, func(x part) bool { return x.name == name })
			if j < 0 {
				b.parts, j = append(b.parts, part{name: name}), len(b.parts)
			}
			b.parts[j].launches += n
			b.parts[j].micros += n * p.time.Median * 1e6
		}
	}
	devs, of := []string{}, map[string][]*bar{}
	for _, b := range bars {
		if of[b.device] == nil {
			devs = append(devs, b.device)
		}
		of[b.device] = append(of[b.device], b)
	}
	var out []*Picture
	for _, dev := range devs {
		list := of[dev]
		sorting.Sort(list, func(a, b *bar) int { return cmp.Compare(a.name, b.name) })
		pic := &Picture{Name: "step", Title: "Kernels of a step: " + dev, width: wide,
			height: (3 + 1.8*float64(len(list))) * centimetre,
			Caption: "How the time of a step is divided among its kernels: each kernel's time by itself, operands from " +
				"memory where that was measured, times its launches in the step, as a share of their sum.",
			Head: []string{"step", "kernel", "launches", "µs in all", "share"}}
		pic.plot = newChart(pic.Title, "share of the step's kernels", "")
		pic.plot.X.ticks = percents
		var ops []string
		totals := map[string]float64{}
		for _, b := range list {
			for _, x := range b.parts {
				if totals[x.name] == 0 {
					ops = append(ops, x.name)
				}
				totals[x.name] += x.micros
			}
		}
		sorting.Sort(ops, func(a, b string) int { return cmp.Compare(totals[b], totals[a]) })
		below := make([]float64, len(list))
		for i, op := range ops {
			above := slices.Clone(below)
			for k, b := range list {
				sum := 0.0
				for _, x := range b.parts {
					sum += x.micros
				}
				for _, x := range b.parts {
					if x.name == op {
						above[k] += x.micros / sum
						name, _, _ := strings.Cut(b.name, "\x00")
						pic.Rows = append(pic.Rows, []string{name, op, g(x.launches), g(x.micros),
							fmt.Sprintf("%.1f %%", 100*x.micros/sum)})
					}
				}
			}
			rowsOfBars(pic.plot, i, op, below, above, 22, 0, stroke{color: paper, width: .8})
			below = above
		}
		var names []string
		for _, b := range list {
			name, _, _ := strings.Cut(b.name, "\x00")
			sum := 0.0
			for _, x := range b.parts {
				sum += x.micros
			}
			names = append(names, fmt.Sprintf("%s, %s µs", name, g(sum)))
		}
		pic.plot.names(names)
		pic.plot.X.Min, pic.plot.X.Max = 0, 1.45 // room for the legend at the right
		sorting.Sort(pic.Rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
		out = append(out, pic)
	}
	return out
}

// devices draws benchmarks that several devices ran, each device's speed as a
// part of the fastest one's.
// It is in one piece: sums, then bars.
func devices(all []point) []*Picture {
	const most = 14
	pts := slices.DeleteFunc(latest(all), func(p point) bool {
		return strings.HasPrefix(p.Bench, "platform/roofline") || isLatency(&p) || strings.HasSuffix(p.Bench, "/e2e")
	})
	names, by := groups(pts, func(p point) string { return p.Result.Name() })
	seen := map[string]int{}
	type row struct {
		name  string
		times map[string]float64
		turn  int
	}
	var rows []row
	var devs []string
	for _, n := range names {
		times := map[string]float64{}
		for _, p := range by[n] {
			times[p.device] = p.time.Median
		}
		if len(times) < 2 {
			continue
		}
		first := by[n][0]
		rows = append(rows, row{nameOf(&first), times, seen[first.Bench]})
		seen[first.Bench]++
		for _, p := range by[n] {
			if !slices.Contains(devs, p.device) {
				devs = append(devs, p.device)
			}
		}
	}
	if len(rows) == 0 {
		return nil
	}
	shown := slices.Clone(rows)
	if len(shown) > most { // the first of each benchmark, then the second, …
		sorting.Sort(shown, func(a, b row) int { return cmp.Compare(a.turn, b.turn) })
		shown = shown[:most]
		sorting.Sort(shown, func(a, b row) int { return cmp.Compare(a.name, b.name) })
	}
	slices.Reverse(shown)                                                // the first at the top
	each, legend := .5+.36*float64(len(devs)), .2+.45*float64(len(devs)) // heights in centimetres
	pic := &Picture{Name: "devices", Title: "Devices compared", width: wide,
		height: (2.3 + float64(len(shown))*each + legend) * centimetre,
		Caption: "Speed as a part of the fastest device's, by medians of the last results. Every benchmark that two " +
			"devices ran is in the table; a selection is drawn.",
		Head: append([]string{"benchmark"}, devs...)}
	pic.plot = newChart(pic.Title, "speed, the fastest is 1", "")
	const thick = 9
	for i, d := range devs {
		vals := make([]float64, len(shown))
		for k, r := range shown {
			if t := r.times[d]; t > 0 {
				fastest := math.Inf(1)
				for _, x := range r.times {
					fastest = min(fastest, x)
				}
				vals[k] = fastest / t
			}
		}
		above := 1.05 * thick * (float64(len(devs)-1)/2 - float64(i))
		rowsOfBars(pic.plot, i, d, make([]float64, len(shown)), vals, thick, above, stroke{})
	}
	var labels []string
	for _, r := range shown {
		labels = append(labels, r.name)
	}
	pic.plot.names(labels)
	pic.plot.X.Min, pic.plot.X.Max = 0, 1.02
	pic.plot.Y.Max += legend / each
	for _, r := range rows {
		line := []string{r.name}
		for _, d := range devs {
			cell := ""
			if t := r.times[d]; t > 0 {
				cell = format.Seconds(t)
			}
			line = append(line, cell)
		}
		pic.Rows = append(pic.Rows, line)
	}
	return []*Picture{pic}
}

// histories draws medians over time against the best ever, a picture a device and
// driver, the benchmarks with most results first.
func histories(all []point) []*Picture {
	const most = 8
	places, at := groups(all, func(p point) string {
		return strings.TrimSuffix(p.device+", "+p.run.Env.Driver, ", ")
	})
	var out []*Picture
	for _, place := range places {
		names, by := groups(at[place], func(p point) string { return p.Result.Name() + " " + p.Clock })
		names = slices.DeleteFunc(names, func(n string) bool {
			runs := map[string]bool{}
			for _, p := range by[n] {
				runs[p.run.ID] = true
			}
			return len(runs) < 2
		})
		if len(names) == 0 {
			continue
		}
		sorting.Sort(names, func(a, b string) int { return cmp.Compare(len(by[b]), len(by[a])) })
		pic := &Picture{Name: "history", Title: "History: " + place, width: wide, height: high,
			Caption: fmt.Sprintf("Median time of each run over the best ever, with its 95 %% interval. Between the lines "+
				"lies the band of %.0f %% that counts as noise. The %d benchmarks with most results are drawn, all are in "+
				"the table.", 100*compare.DefaultBand, min(most, len(names))),
			Head: []string{"benchmark", "when", "commit", "median", "of the best"}}
		pic.plot = newChart(pic.Title, "", "time, the best is 1")
		pic.plot.X.ticks = clock
		first, last := math.Inf(1), math.Inf(-1)
		for i, n := range names {
			best := math.Inf(1)
			for _, p := range by[n] {
				best = min(best, p.time.Median)
			}
			var medians []xy
			var ends []spread
			for k := range by[n] {
				p := &by[n][k]
				x := float64(p.run.Started.Unix())
				first, last = min(first, x), max(last, x)
				at := xy{x, p.time.Median / best}
				medians = append(medians, at)
				ends = append(ends, spread{at, p.time.Lo / best, p.time.Hi / best})
				pic.Rows = append(pic.Rows, []string{nameOf(p), when(p.run.Started), p.run.Env.Commit,
					format.Seconds(p.time.Median), fmt.Sprintf("%.3f", p.time.Median/best)})
			}
			if i >= most {
				continue
			}
			lines(pic.plot, i, nameOf(&by[n][0]), medians)
			intervals(pic.plot, i, ends)
		}
		for _, y := range []float64{1, 1 + compare.DefaultBand} {
			segment(pic.plot, xy{first, y}, xy{last, y}, stroke{ink, .8, []float64{3, 3}})
		}
		pic.plot.Y.Min = min(pic.plot.Y.Min, 0.99)
		pic.plot.Y.Max += 0.6 * (pic.plot.Y.Max - pic.plot.Y.Min) // the legend's place
		out = append(out, pic)
	}
	return out
}
