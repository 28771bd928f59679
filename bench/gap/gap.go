// Package gap sets greta's kernels against the vendor's library and the roofs of the
// device, from stored results.
package gap

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/bench/store"
	"github.com/greta-project/greta/internal/sorting"
)

// Row is one kernel on one device. Seconds are medians; zero is unknown.
type Row struct {
	Device  string
	Bench   string
	Params  map[string]string
	Kernel  string
	Cache   string
	Seconds float64
	Rate    float64 // of flops or bytes a second, whichever binds
	Unit    string  // of Rate: "GFLOP/s" or "GB/s"
	// Library is the vendor's product of the same sizes and type on the same card.
	Library        string // its file
	LibrarySeconds float64
	// Modelled and Measured are the parts of the roofs that are reached.
	Modelled, Measured float64
	// "memory" or "compute", by the measured rates of both, where they are known, else by the modelled
	// ones
	Binds string
}

// card tells devices apart through whatever backend they were reached.
func card(r *record.Run) string { return cmp.Or(r.Env.DeviceID, r.Env.Device, r.Env.CPU) }

// Rows makes the table: the last good result of every operator at every size on
// every device, backend, level and number of threads, by device, operator and sizes.
func Rows(entries []store.Entry) []Row {
	library := map[string]*store.Entry{} // by card and product
	ours := map[string]*store.Entry{}
	var order []string
	for i := range entries {
		e := &entries[i]
		if e.Verdict != record.OK || len(e.Samples) == 0 || e.Run.Checked() {
			continue
		}
		switch {
		case strings.HasPrefix(e.Bench, "platform/library"):
			k := card(e.Run) + "\x00" + product(e.Params)
			if old := library[k]; old == nil || stats.Summarize(e.Samples).Median < stats.Summarize(old.Samples).Median {
				library[k] = e // of several layouts the fastest is the one to reach
			}
		case strings.HasPrefix(e.Bench, "op/") && !strings.HasSuffix(e.Bench, "/e2e"):
			k := card(e.Run) + "\x00" + e.Run.Env.On() + "\x00" + e.Name()
			if ours[k] == nil {
				order = append(order, k)
			}
			if old := ours[k]; old == nil || !e.Run.Started.Before(old.Run.Started) {
				ours[k] = e
			}
		}
	}
	var rows []Row
	for _, k := range order {
		e := ours[k]
		r := Row{Device: e.Run.Env.On(), Bench: e.Bench, Params: e.Params, Kernel: e.Kernel, Cache: e.Cache,
			Seconds: stats.Summarize(e.Samples).Median}
		r.Modelled, _ = format.Share(&e.Result, false)
		r.Measured, _ = format.Share(&e.Result, true)
		r.Binds = format.Bound(&e.Result)
		r.Rate, r.Unit = e.Bytes/r.Seconds/1e9, "GB/s"
		if r.Binds == "compute" || e.Bytes == 0 {
			r.Rate, r.Unit = e.Flops/r.Seconds/1e9, "GFLOP/s"
		}
		if strings.HasPrefix(e.Bench, "op/linear") {
			if l := library[card(e.Run)+"\x00"+product(e.Params)]; l != nil {
				r.Library, r.LibrarySeconds = l.Kernel, stats.Summarize(l.Samples).Median
			}
		}
		rows = append(rows, r)
	}
	sorting.Sort(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Bench, b.Bench),
			cmp.Compare(format.Params(a.Params), format.Params(b.Params)))
	})
	return rows
}

// product is what two results must share to be the same product.
func product(p map[string]string) string {
	return fmt.Sprintf("%s %s %s %s", p["m"], p["n"], p["k"], p["type"])
}

// Table lays rows out for package format.
func Table(rows []Row) *format.Table {
	t := &format.Table{Name: "gap", Columns: []format.Column{{Name: "device", Left: true}, {Name: "operator", Left: true},
		{Name: "sizes", Left: true},
		{Name: "cache", Left: true}, {Name: "kernel", Left: true}, {Name: "time"}, {Name: "rate"}, {Name: "of modelled roof"},
		{Name: "of measured roof"}, {Name: "binds", Left: true},
		{Name: "library"}, {Name: "of the library"}}}
	for _, r := range rows {
		row := []any{r.Device, strings.TrimPrefix(r.Bench, "op/"), format.Params(r.Params), r.Cache, r.Kernel,
			format.Seconds(r.Seconds),
			fmt.Sprintf("%.4g %s", r.Rate, r.Unit), part(r.Modelled), part(r.Measured), r.Binds, nil, nil}
		if r.LibrarySeconds > 0 {
			row[10], row[11] = format.Seconds(r.LibrarySeconds), part(r.LibrarySeconds/r.Seconds)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// Figures lays rows out for programs: seconds and shares as numbers.
func Figures(rows []Row) *format.Table {
	t := &format.Table{Name: "gap", Columns: []format.Column{{Name: "device", Left: true}, {Name: "bench", Left: true},
		{Name: "params", Left: true},
		{Name: "cache", Left: true}, {Name: "kernel", Left: true}, {Name: "seconds"}, {Name: "rate"},
		{Name: "unit", Left: true}, {Name: "of_modelled"}, {Name: "of_measured"}, {Name: "binds", Left: true},
		{Name: "library", Left: true}, {Name: "library_seconds"}, {Name: "of_library"}}}
	known := func(x float64) any {
		if x > 0 {
			return x
		}
		return nil
	}
	for _, r := range rows {
		row := []any{r.Device, r.Bench, format.Params(r.Params), r.Cache, r.Kernel, r.Seconds, r.Rate, r.Unit,
			known(r.Modelled), known(r.Measured), r.Binds, nil, nil, nil}
		if r.LibrarySeconds > 0 {
			row[11], row[12], row[13] = r.Library, r.LibrarySeconds, r.LibrarySeconds/r.Seconds
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func part(x float64) any {
	if !(x > 0) {
		return nil
	}
	return fmt.Sprintf("%.1f %%", 100*x)
}
