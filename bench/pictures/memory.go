package pictures

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/sorting"
)

// bytesOf is the size over which a benchmark of memory is swept: its parameter
// "bytes", else its working set; 0 where it has neither.
func bytesOf(p *point) float64 {
	if b, err := strconv.ParseFloat(p.Params["bytes"], 64); err == nil && b > 0 {
		return b
	}
	return p.WorkingSet
}

// sweep names the series that a result belongs to: its benchmark with all
// parameters that do not follow from the size.
func sweep(p *point) string {
	rest := map[string]string{}
	for k, v := range p.Params {
		if k != "bytes" && k != "n" && k != "chunks" && k != "blocks" {
			rest[k] = v
		}
	}
	name := strings.TrimPrefix(p.Bench, "platform/")
	if len(rest) > 0 {
		name += " " + format.Params(rest)
	}
	return name
}

// bandwidth draws a rate over the size of what is read, a picture a device.
func bandwidth(all []point) []*Picture {
	pts := slices.DeleteFunc(latest(all), func(p point) bool {
		return !strings.HasPrefix(p.Bench, "platform/") || strings.HasPrefix(p.Bench, "platform/roof") ||
			strings.HasPrefix(p.Bench, "platform/library") || p.Bytes <= 0 || bytesOf(&p) <= 0
	})
	devs, of := groups(pts, func(p point) string { return p.device })
	var out []*Picture
	for _, dev := range devs {
		pic := &Picture{Name: "bandwidth", Title: "Bandwidth over size: " + dev, width: wide, height: high,
			Head: []string{"benchmark", "size", "GB/s", "95 %"}}
		pic.plot = newChart(pic.Title, "bytes that are gone through", "GB/s")
		names, by := groups(of[dev], func(p point) string { return sweep(&p) })
		drawn := 0
		for _, name := range names {
			list := by[name]
			var ps []xy
			distinct := map[float64]bool{}
			for i := range list {
				ps = append(ps, xy{bytesOf(&list[i]), list[i].gbs()})
				distinct[bytesOf(&list[i])] = true
			}
			if len(distinct) < 4 { // one size, or a few: no curve
				continue
			}
			sorting.Sort(list, func(a, b point) int { return cmp.Compare(bytesOf(&a), bytesOf(&b)) })
			for i := range list {
				p := &list[i]
				pic.Rows = append(pic.Rows, []string{name, Size(bytesOf(p)), g(p.gbs()),
					g(p.Bytes/p.time.Hi/1e9) + " to " + g(p.Bytes/p.time.Lo/1e9)})
			}
			lines(pic.plot, drawn, name, ps)
			drawn++
		}
		if drawn == 0 {
			continue
		}
		logX(pic.plot, sizes)
		logY(pic.plot)
		marks := levels(all, dev)
		for i, l := range marks {
			rule(pic.plot, i, l.bytes, l.word)
		}
		pic.plot.X.Max *= 64 // the legend's place
		pic.Caption = "Bytes moved a second by the device's clock, medians. " + explain(marks)
		out = append(out, pic)
	}
	return out
}

// level is a size at which a cache ends.
type level struct {
	bytes float64
	word  string
}

// levels are the ends of caches on a device: the last one's as the device says, and
// those at which the measured latency steps up by a quarter or more.
func levels(all []point, dev string) []level {
	var out []level
	var last float64
	var ps []xy
	for _, p := range latest(all) {
		if p.device != dev {
			continue
		}
		last = max(last, p.Roofs.LastCache)
		if isLatency(&p) {
			ps = append(ps, xy{bytesOf(&p), p.time.Median})
		}
	}
	sorting.Sort(ps, func(a, b xy) int { return cmp.Compare(a.X, b.X) })
	best, at := 0.0, -1
	flush := func() {
		if at >= 0 {
			out = append(out, level{math.Sqrt(ps[at-1].X * ps[at].X), "latency steps"})
		}
		best, at = 0, -1
	}
	for i := 1; i < len(ps); i++ {
		up := ps[i].Y / ps[i-1].Y
		if at >= 0 && ps[i].X > 2.5*ps[at].X {
			flush()
		}
		if up > 1.25 && up > best {
			best, at = up, i
		}
	}
	flush()
	if last > 0 {
		out = slices.DeleteFunc(out, func(l level) bool { return l.bytes > last/1.5 && l.bytes < last*1.5 })
		out = append(out, level{last, "last cache"})
	}
	return out
}

func explain(marks []level) string {
	if len(marks) == 0 {
		return "No cache's size is known."
	}
	var words []string
	for _, m := range marks {
		words = append(words, fmt.Sprintf("%s (%s)", Size(m.bytes), m.word))
	}
	return "Dashed: where caches end, " + strings.Join(words, "; ") + "."
}

func isLatency(p *point) bool {
	return strings.HasPrefix(p.Bench, "platform/latency") && bytesOf(p) > 0
}

// latency draws the time of a dependent load over the size that it jumps about in.
func latency(all []point) []*Picture {
	pts := slices.DeleteFunc(latest(all), func(p point) bool { return !isLatency(&p) })
	if len(pts) == 0 {
		return nil
	}
	pic := &Picture{Name: "latency", Title: "Latency of a dependent load", width: wide, height: high,
		Caption: "A pointer chase through one random cycle, one load in flight, over the size of the cycle.",
		Head:    []string{"device", "size", "ns", "cycles", "95 %, ns"}}
	pic.plot = newChart(pic.Title, "bytes that are gone through", "ns")
	devs, of := groups(pts, func(p point) string { return p.device })
	for i, dev := range devs {
		var ps []xy
		list := of[dev]
		sorting.Sort(list, func(a, b point) int { return cmp.Compare(bytesOf(&a), bytesOf(&b)) })
		for k := range list {
			p := &list[k]
			ps = append(ps, xy{bytesOf(p), p.time.Median * 1e9})
			cycles := ""
			if c := p.Metrics["cycles"]; c > 0 {
				cycles = g(c)
			}
			pic.Rows = append(pic.Rows, []string{dev, Size(bytesOf(p)), g(p.time.Median * 1e9), cycles,
				g(p.time.Lo*1e9) + " to " + g(p.time.Hi*1e9)})
		}
		lines(pic.plot, i, dev, ps)
	}
	logX(pic.plot, sizes)
	logY(pic.plot)
	pic.plot.legendLeft = true
	return []*Picture{pic}
}

// roof is a line that a device cannot pass.
type roof struct {
	name string
	rate float64 // GB/s or GFLOP/s
}

// roofsOf collects a device's roofs from its results, the highest of each name.
func roofsOf(pts []point) (memory, compute []roof) {
	put := func(list []roof, r roof) []roof {
		if !(r.rate > 0) {
			return list
		}
		for i := range list {
			if list[i].name == r.name {
				list[i].rate = max(list[i].rate, r.rate)
				return list
			}
		}
		return append(list, r)
	}
	for i := range pts {
		p := &pts[i]
		if p.Cache == record.Cold || strings.HasPrefix(p.Bench, "platform/roof/read") {
			memory = put(memory, roof{"memory, modelled", p.Roofs.ReadGBs})
		}
		switch {
		case p.Bench == "platform/roof/read":
			memory = put(memory, roof{"memory, measured", p.gbs()})
		case strings.HasPrefix(p.Bench, "platform/roof/") && p.Flops > 0:
			name := strings.TrimSpace(strings.TrimPrefix(p.Bench, "platform/roof/") + " " + p.Params["type"])
			compute = put(compute, roof{name + ", measured", p.gflops()})
			compute = put(compute, roof{name + ", modelled", p.Roofs.GFlops})
		case strings.HasPrefix(p.Bench, "op/"):
			name := "compute"
			if t := p.Params["type"]; t != "" && p.run.Env.Backend == "cpu" { // each type has arithmetic of its own there
				name = t
			}
			compute = put(compute, roof{name + ", modelled", p.Roofs.GFlops})
			if name != "compute" {
				compute = put(compute, roof{name + ", measured", p.Roofs.MeasuredGFlops})
			}
			memory = put(memory, roof{"memory, measured", p.Roofs.MeasuredReadGBs})
		}
	}
	return memory, compute
}

// chains begins the name of the series that platform/roofline makes.
const chains = "multiply-adds, "

// rooflines draws operators under the roofs of their device, a picture a device.
func rooflines(all []point) []*Picture {
	pts := latest(all)
	devs, of := groups(pts, func(p point) string { return p.device })
	var out []*Picture
	for _, dev := range devs {
		memory, compute := roofsOf(of[dev])
		inRoofline := func(p point) bool {
			ok := strings.HasPrefix(p.Bench, "op/") && !strings.HasSuffix(p.Bench, "/e2e") || p.Bench == "platform/roofline"
			return ok && p.Flops > 0 && p.Bytes > 0
		}
		pts := slices.DeleteFunc(slices.Clone(of[dev]), func(p point) bool { return !inRoofline(p) })
		if len(pts) == 0 || len(memory)+len(compute) == 0 {
			continue
		}
		pic := &Picture{Name: "roofline", Title: "Roofline: " + dev, width: wide, height: high * 1.15,
			Caption: "What kernels reach over the flops that they do for a byte. Left of a corner memory binds, right of it " +
				"arithmetic. Roofs: solid where measured, dashed where modelled from the device's attributes.",
			Head: []string{"kernel", "flop/byte", "GFLOP/s", "GB/s", "of modelled roof", "of measured roof"}}
		pic.plot = newChart(pic.Title, "flop/byte", "GFLOP/s")
		names, by := groups(pts, func(p point) string {
			if p.Bench == "platform/roofline" {
				return strings.TrimSpace(chains + p.Params["type"])
			}
			return strings.TrimPrefix(p.Bench, "op/")
		})
		lowX, highX := math.Inf(1), 0.0
		for i, name := range names {
			list := by[name]
			var ps []xy
			for k := range list {
				p := &list[k]
				x := p.Intensity()
				lowX, highX = min(lowX, x), max(highX, x)
				ps = append(ps, xy{x, p.gflops()})
				pic.Rows = append(pic.Rows, []string{nameOf(p), g(x), g(p.gflops()), g(p.gbs()), share(p, false), share(p, true)})
			}
			if strings.HasPrefix(name, chains) {
				lines(pic.plot, i, name, ps)
				continue
			}
			scatter(pic.plot, i, name, ps)
		}
		for _, c := range compute { // the corners are part of the picture
			for _, m := range memory {
				highX, lowX = max(highX, 4*c.rate/m.rate), min(lowX, c.rate/m.rate/4)
			}
		}
		if highX < 4*lowX { // one kernel, and no corner: a roof is a line all the same
			lowX, highX = lowX/2, 2*highX
		}
		drawRoofs(pic, memory, compute, lowX, highX)
		logX(pic.plot, decades)
		logY(pic.plot)
		pic.plot.legendBottom = true
		out = append(out, pic)
	}
	return out
}

// share is the part of the roof that a result reaches, as people read it.
func share(p *point, measured bool) string {
	least, binds := p.Roofs.Least(p.Bytes, p.Flops, measured)
	if binds == "" {
		return ""
	}
	return fmt.Sprintf("%.1f %% (%s)", 100*least/p.time.Median, binds)
}

// named gives each roof the word that is written at its line: roofs that lie too
// near to each other for words between them share one, at the highest.
func named(list []roof) (sorted []roof, words []string) {
	sorted = slices.Clone(list)
	sorting.Sort(sorted, func(a, b roof) int { return cmp.Compare(a.rate, b.rate) })
	words = make([]string, len(sorted))
	var group []string
	for i, r := range sorted {
		base, _, _ := strings.Cut(r.name, ",")
		if !slices.Contains(group, base) {
			group = append(group, base)
		}
		if i+1 == len(sorted) || sorted[i+1].rate > 1.35*r.rate {
			words[i], group = strings.Join(group, ", "), nil
		}
	}
	return sorted, words
}

func drawRoofs(pic *Picture, memory, compute []roof, lowX, highX float64) {
	for _, m := range memory {
		pic.Rows = append(pic.Rows, []string{"roof: " + m.name, "", "", g(m.rate), "", ""})
	}
	for _, c := range compute {
		pic.Rows = append(pic.Rows, []string{"roof: " + c.name, "", g(c.rate), "", "", ""})
	}
	highest := 0.0
	for _, c := range compute {
		highest = max(highest, c.rate)
	}
	line := func(r roof, name string, from, to xy) {
		s := stroke{color: ink, width: 1}
		if !strings.HasSuffix(r.name, "measured") {
			s.dashes = []float64{4, 3}
		}
		segment(pic.plot, from, to, s)
		if level := from.Y == to.Y; name != "" && level {
			word(pic.plot, to, name)
		} else if name != "" {
			word(pic.plot, xy{math.Sqrt(from.X * to.X), math.Sqrt(from.Y * to.Y)}, name)
		}
	}
	steepest := 0.0
	for _, m := range memory {
		steepest = max(steepest, m.rate)
	}
	memory, words := named(memory)
	for i, m := range memory {
		end := highX
		if highest > 0 {
			end = min(highX, highest/m.rate)
		}
		line(m, words[i], xy{lowX, lowX * m.rate}, xy{end, end * m.rate})
	}
	compute, words = named(compute)
	for i, c := range compute {
		start := lowX
		if steepest > 0 {
			start = max(lowX, min(c.rate/steepest, highX/2))
		}
		line(c, words[i], xy{start, c.rate}, xy{highX, c.rate})
	}
}
