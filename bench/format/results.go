package format

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

// Results is the report of operators, or of anything else that has bytes, flops
// and roofs.
func Results(run *record.Run, results []record.Result) *Report {
	r := &Report{Run: run, Results: results, People: []*Table{people(results)}, Notes: notes(results),
		Full: full(run, results)}
	if t := steps(results); len(t.Rows) > 0 {
		r.People = append(r.People, t)
	}
	return r
}

// launches prints these counts: "pp512 32×, tg_d512 32×".
func launches(r *record.Result) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(r.Metrics)) {
		if step, ok := strings.CutPrefix(k, record.InStep); ok {
			parts = append(parts, fmt.Sprintf("%s %.0f×", step, r.Metrics[k]))
		}
	}
	return strings.Join(parts, ", ")
}

// steps adds up what a step of a model would take if it were its kernels, one
// after the other: cold ones, where there are cold and warm figures.
func steps(results []record.Result) *Table {
	type sum struct{ launches, seconds, missing float64 }
	sums := map[string]*sum{}
	counts := record.InSums(func(yield func(*record.Result) bool) {
		for i := range results {
			if !yield(&results[i]) {
				return
			}
		}
	})
	for i := range results {
		r := &results[i]
		if !counts(r) {
			continue
		}
		for k, n := range r.Metrics {
			step, ok := strings.CutPrefix(k, record.InStep)
			if !ok {
				continue
			}
			if sums[step] == nil {
				sums[step] = &sum{}
			}
			s := sums[step]
			s.launches += n
			if r.Verdict != record.OK {
				s.missing += n
			}
			s.seconds += n * stats.Summarize(r.Samples).Median
		}
	}
	t := &Table{Columns: []Column{{"step", true}, {"launches", false}, {"without a figure", false},
		{"sum of the kernels", false}}}
	for _, step := range slices.Sorted(maps.Keys(sums)) {
		s := sums[step]
		var missing any
		if s.missing > 0 {
			missing = int(s.missing)
		}
		t.Rows = append(t.Rows, []any{step, int(s.launches), missing, Seconds(s.seconds)})
	}
	t.dropEmpty()
	return t
}

// notes say why results are not OK, and that a measured roof cannot be one.
func notes(results []record.Result) []string {
	var all []string
	for i := range results {
		r := &results[i]
		if r.Verdict != record.OK {
			all = append(all, fmt.Sprintf("%s %s: %s", strings.ToUpper(string(r.Verdict)), r.Name(), r.Reason))
		}
		if short := r.ShortText(); short != "" {
			all = append(all, r.Name()+": "+short)
		}
		if by := r.Disturbed(); by != "" {
			all = append(all, fmt.Sprintf("DISTURBED %s: %s; it is not compared with what was measured undisturbed", r.Name(),
				by))
		}
	}
	if note := AboveRoof(results); note != "" {
		all = append(all, note)
	}
	return all
}

// AboveRoof says how many results are more than 5 % faster than their measured roof; "" if
// none is.
func AboveRoof(results []record.Result) string {
	above := 0
	for i := range results {
		if share, _ := Share(&results[i], true); results[i].Verdict == record.OK && share > 1.05 {
			above++
		}
	}
	if above == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d results are faster than the measured roof: when that was measured, something else "+
		"used the machine, or its clocks were lower", above, len(results))
}

// Seconds prints a time with three digits and a unit.
func Seconds(s float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}} {
		if s >= u.size {
			return digits(s/u.size) + " " + u.name
		}
	}
	return digits(s*1e9) + " ns"
}

// digits prints three significant digits, more before the point, no exponent.
func digits(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100:
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	case a >= 1 || a == 0:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// Share is the part of a roof's rate that a median time reaches: the least time
// that the roofs allow divided by it; 0 where no roof is known, or only the modelled
// one of arithmetic where memory binds.
func Share(r *record.Result, measured bool) (share float64, binds string) {
	least, binds := r.Roofs.Least(r.Bytes, r.Flops, measured)
	if bound := Bound(r); binds != "" && bound != binds {
		return 0, "" // the roof that binds is not known of this kind
	}
	median := stats.Summarize(r.Samples).Median
	if median <= 0 {
		return 0, binds
	}
	return least / median, binds
}

// Bound names the roof that binds: by the measured rate of each, where it is known, else by the
// modelled one.
func Bound(r *record.Result) string {
	x := r.Roofs
	x.MeasuredReadGBs, x.MeasuredGFlops = cmp.Or(x.MeasuredReadGBs, x.ReadGBs), cmp.Or(x.MeasuredGFlops, x.GFlops)
	_, binds := x.Least(r.Bytes, r.Flops, true)
	return binds
}

func percent(x float64) string {
	switch {
	case x == 0:
		return ""
	case x < 0.0005:
		return "< 0.1 %"
	}
	return fmt.Sprintf("%.1f %%", 100*x)
}

// Params prints parameters in order: "k=4096 m=1".
func Params(p map[string]string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(p)) {
		parts = append(parts, k+"="+p[k])
	}
	return strings.Join(parts, " ")
}

// people is the table for people. A time that means nothing is not printed:
// instead of it stands what is wrong. Columns in which nothing stands are left out.
func people(results []record.Result) *Table {
	t := &Table{Columns: []Column{
		{"benchmark", true}, {"sizes", true}, {"launches", true}, {"kernel", true}, {"cache", true}, {"clock", true},
		{"n", false}, {"median", false}, {"95 %", true}, {"p95", false},
		{"host", false}, {"GB/s", false}, {"GFLOP/s", false}, {"of modelled", false}, {"of measured", false}, {"binds", true},
		{"figures", true}, {"rel L2", false}, {"verdict", true},
	}}
	for i := range results {
		r := &results[i]
		name := strings.TrimPrefix(r.Bench, "op/")
		row := []any{name, Params(r.Params), launches(r), r.Kernel, r.Cache, r.Clock}
		if r.Config != "" {
			row[3] = r.Kernel + " " + r.Config
		}
		if r.Verdict != record.OK {
			row = append(row, len(r.Samples), nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, relL2(r), verdict(r))
			t.Rows = append(t.Rows, row)
			continue
		}
		s := stats.Summarize(r.Samples)
		modelled, _ := Share(r, false)
		measured, _ := Share(r, true)
		row = append(row, s.N, Seconds(s.Median), interval(s), percentile(r.Samples, Seconds), host(r),
			rate(r.Bytes, s.Median), rate(r.Flops, s.Median),
			percent(modelled), percent(measured), Bound(r), figures(r), relL2(r), verdict(r))
		t.Rows = append(t.Rows, row)
	}
	t.dropEmpty()
	return t
}

// figures prints what a benchmark says beside its time: "clock_MHz 1980, cycles 32".
// Those of operators say how they were measured, and are for programs.
func figures(r *record.Result) string {
	if strings.HasPrefix(r.Bench, "op/") {
		return ""
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(r.Metrics)) {
		parts = append(parts, fmt.Sprintf("%s %.4g", k, r.Metrics[k]))
	}
	return strings.Join(parts, ", ")
}

func interval(s stats.Summary) string {
	text := Seconds(s.Lo) + " to " + Seconds(s.Hi)
	if !s.Sure {
		text += " (range)"
	}
	return text
}

// percentile is the 95th, or nothing where there are too few samples for one.
func percentile(samples []float64, print func(float64) string) any {
	p, err := stats.Percentile(samples, 0.95)
	if err != nil {
		return nil
	}
	return print(p)
}

func host(r *record.Result) any {
	if len(r.Host) == 0 {
		return nil
	}
	return Seconds(stats.Summarize(r.Host).Median)
}

func rate(work, seconds float64) any {
	if work <= 0 || seconds <= 0 {
		return nil
	}
	return digits(work / seconds / 1e9)
}

func relL2(r *record.Result) any {
	if r.Check.Against == "" {
		return nil
	}
	return fmt.Sprintf("%.1e", r.Check.RelL2)
}

// verdict is in capitals where it is not ok; a note has the reason.
func verdict(r *record.Result) string {
	if r.Verdict == record.OK {
		return "ok"
	}
	return strings.ToUpper(string(r.Verdict))
}

// full is the table for programs. Times are seconds.
func full(run *record.Run, results []record.Result) *Table {
	t := &Table{Name: "results"}
	for _, name := range []string{
		"run", "kind", "started", "commit_id", "host", "backend", "device", "level", "driver", "threads",
		"bench", "params", "config", "kernel", "cache", "clock", "n", "median_s", "lo_s", "hi_s", "interval_is_sure",
		"mean_s", "stddev_s", "p95_s", "host_median_s",
		"bytes", "flops", "gb_per_s", "gflop_per_s", "share_of_modelled", "share_of_measured", "binds", "modelled_gb_per_s",
		"modelled_gflop_per_s",
		"working_set_bytes", "check_against", "rel_l2", "max_abs", "limit_of_rel_l2", "verdict", "reason", "metrics",
		"samples_s", "host_samples_s",
	} {
		t.Columns = append(t.Columns, Column{Name: name})
	}
	for i := range results {
		r := &results[i]
		s := stats.Summarize(r.Samples)
		var p95, hostMedian any
		if p, err := stats.Percentile(r.Samples, 0.95); err == nil {
			p95 = p
		}
		if len(r.Host) > 0 {
			hostMedian = stats.Summarize(r.Host).Median
		}
		modelled, _ := Share(r, false)
		measured, _ := Share(r, true)
		e := &run.Env
		metrics := make([]string, 0, len(r.Metrics))
		for _, k := range slices.Sorted(maps.Keys(r.Metrics)) {
			metrics = append(metrics, fmt.Sprintf("%s=%g", k, r.Metrics[k]))
		}
		t.Rows = append(t.Rows, []any{
			run.ID, run.Kind, run.Started.UTC().Format("2006-01-02T15:04:05Z"), e.Commit, e.Host, e.Backend, e.Device, e.Level,
			e.Driver, e.Threads,
			r.Bench, Params(r.Params), r.Config, r.Kernel, r.Cache, r.Clock, s.N, known(s.Median), known(s.Lo), known(s.Hi),
			s.Sure, known(s.Mean), s.Stddev, p95, hostMedian,
			r.Bytes, r.Flops, known(per(r.Bytes, s.Median)), known(per(r.Flops, s.Median)), known(modelled), known(measured),
			Bound(r), known(r.Roofs.ReadGBs), known(r.Roofs.GFlops),
			known(r.WorkingSet), r.Check.Against, r.Check.RelL2, r.Check.MaxAbs, r.Check.Limit, string(r.Verdict), r.Reason,
			strings.Join(metrics, " "), r.Samples, r.Host,
		})
	}
	return t
}

// known is nil for what is not: a figure of nothing measured.
func known(x float64) any {
	if x == 0 {
		return nil
	}
	return x
}

func per(work, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return work / seconds / 1e9
}
