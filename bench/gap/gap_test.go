package gap

import (
	"testing"
	"time"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/store"
)

func TestRows(t *testing.T) {
	run := func(backend string, day int) *record.Run {
		at := time.Date(2026, 3, day, 0, 0, 0, 0, time.UTC)
		return &record.Run{ID: record.NewID(at), Started: at, Env: record.Env{Device: "Card", DeviceID: "uuid",
			Backend: backend}}
	}
	res := func(r *record.Run, bench, typ string, seconds float64, v record.Verdict) store.Entry {
		return store.Entry{Run: r, Result: record.Result{Bench: bench,
			Params: map[string]string{"m": "512", "n": "512", "k": "512", "type": typ}, Kernel: bench + ".so",
			Samples: []float64{seconds}, Verdict: v, Bytes: 1e6, Flops: 2e9,
			Roofs: record.Roofs{ReadGBs: 1000, GFlops: 4e5, MeasuredGFlops: 2e5}}}
	}
	hip, vulkan, later := run("hip", 1), run("vulkan", 1), run("hip", 2)
	rows := Rows([]store.Entry{
		res(hip, "platform/library", "f16", 1e-5, record.OK),
		res(hip, "platform/library", "f16", 8e-6, record.OK), // another layout, faster: the one to reach
		res(hip, "platform/library", "f32", 1e-6, record.Refused),
		res(hip, "op/linear", "f16", 3e-5, record.OK),
		res(later, "op/linear", "f16", 2e-5, record.OK),
		res(later, "op/linear", "f16", 1e-9, record.Failed),
		res(later, "op/linear/e2e", "f16", 1e-3, record.OK),
		res(vulkan, "op/linear", "f16", 4e-5, record.OK),
		res(vulkan, "op/linear", "f32", 4e-5, record.OK),
	})
	if len(rows) != 3 {
		t.Fatalf("%d rows: %+v", len(rows), rows)
	}
	near := func(x, want float64) bool { return x > 0.999*want && x < 1.001*want }
	if r := rows[0]; r.Device != "Card, hip" || r.Seconds != 2e-5 || r.LibrarySeconds != 8e-6 || r.Binds != "compute" ||
		!near(r.Modelled, 0.25) || !near(r.Measured, 0.5) || !near(r.Rate, 1e5) || r.Unit != "GFLOP/s" {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.Device != "Card, vulkan" || r.LibrarySeconds != 8e-6 {
		t.Errorf("the library of the same card serves every backend: %+v", r)
	}
	if r := rows[2]; r.LibrarySeconds != 0 {
		t.Errorf("a refused library is used: %+v", r)
	}
	people, full := Table(rows), Figures(rows)
	if got := people.Rows[0][11]; got != "40.0 %" {
		t.Errorf("of the library: %v", got)
	}
	if got := full.Rows[2][13]; got != nil {
		t.Errorf("of no library: %v", got)
	}
	for _, table := range []int{len(people.Columns), len(full.Columns)} {
		if table != len(people.Rows[0]) && table != len(full.Rows[0]) {
			t.Error("a row has other columns than its head")
		}
	}
}

// TestThreadsApart: a processor's threads and levels are rows of their own; runs that only check results
// are none.
func TestThreadsApart(t *testing.T) {
	var entries []store.Entry
	for i, env := range []record.Env{{Threads: 1, Level: "avx512"}, {Threads: 2, Level: "avx512"},
		{Threads: 2, Level: "go"}, {Threads: 3, Level: "go"}} {
		env.Device, env.Backend = "Xeon", "cpu"
		run := &record.Run{ID: record.NewID(time.Now()), Started: time.Now(), Env: env}
		if i == 3 {
			run.Label = "exp/x/1/check"
		}
		entries = append(entries, store.Entry{Run: run, Result: record.Result{Bench: "op/add", Samples: []float64{1},
			Verdict: record.OK, Bytes: 1}})
	}
	if rows := Rows(entries); len(rows) != 3 || rows[0].Device == rows[1].Device || rows[1].Device == rows[2].Device {
		t.Errorf("%+v", rows)
	}
}
