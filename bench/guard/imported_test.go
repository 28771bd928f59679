package guard

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/bench/record"
)

// h200 is a product through HIP as an H200 gave it, and the run that it is of.
func h200() (*record.Result, *record.Run) {
	r := &record.Result{Bench: "op/linear", Params: map[string]string{"m": "512", "n": "4096", "k": "4096", "type": "f16"},
		Backend: "hip", Clock: record.DeviceClock, Cache: record.Cold, WorkingSet: 301989888, Bytes: 50331648,
		Flops: 17179869184, Samples: []float64{3.19e-5, 3.2e-5, 3.21e-5}, Host: []float64{4e-5, 4e-5, 4e-5},
		Roofs: record.Roofs{ReadGBs: 4814.304, GFlops: 1070530.56, LastCache: 62914560},
		Check: record.Check{Against: "float64", RelL2: 2e-4, Limit: 2e-3}}
	return r, &record.Run{Kind: "op", Command: []string{"bench", "op", "linear", "-r", "3"},
		Env: record.Env{Arch: "amd64", Cores: 16, CPU: "Intel(R) Xeon(R) Processor", Backend: "hip", Device: "NVIDIA H200",
			Level: "sm_90", Threads: 132}}
}

// vulkanH200 is the same through Vulkan, which tells no peaks.
func vulkanH200() (*record.Result, *record.Run) {
	r, run := h200()
	r.Backend, r.Samples, r.Host = "vulkan", []float64{8.3e-5, 8.3e-5, 8.4e-5}, nil
	r.Roofs = record.Roofs{MeasuredReadGBs: 4652.9, MeasuredGFlops: 64176, LastCache: 62914560}
	run.Env.Backend, run.Env.Level, run.Env.Threads = "vulkan", "discrete", 1
	return r, run
}

// cores2 is a product on two cores with AMX.
func cores2() (*record.Result, *record.Run) {
	r := &record.Result{Bench: "op/linear", Params: map[string]string{"m": "1", "n": "2048", "k": "2048", "type": "f16"},
		Backend: "cpu", Clock: record.HostClock, Cache: record.Cold, WorkingSet: 1.26e9, Bytes: 8404992, Flops: 8388608,
		Samples: []float64{2.6e-4, 2.5e-4, 2.7e-4},
		Roofs:   record.Roofs{GFlops: 4000, MostGBs: 1000, MeasuredReadGBs: 30, LastCache: 3e8},
		Check:   record.Check{Against: "float64", RelL2: 4e-7, Limit: 2e-3}, Metrics: map[string]float64{ReadLoop: 33}}
	return r, &record.Run{Kind: "op", Command: []string{"bench", "op", "linear", "-r=3"},
		Env: record.Env{Arch: "amd64", Cores: 2, CPU: "Intel(R) Xeon(R) Processor", Backend: "cpu",
			Device: "Intel(R) Xeon(R) Processor", Level: "amx", Threads: 2}}
}

// lasted is the begin and the end of a run that took so long.
func lasted(d time.Duration) (begin, end time.Time) {
	begin = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	return begin, begin.Add(d)
}

// TestLies: what a file says that cannot be of its device is refused with the reason, on each backend; in one piece as
// a table of lies.
func TestLies(t *testing.T) {
	type of = func() (*record.Result, *record.Run)
	faster := func(r *record.Result, k float64) {
		for i := range r.Samples {
			r.Samples[i] /= k
		}
	}
	for _, c := range []struct {
		name   string
		of     []of
		lie    func(*record.Result, *record.Run)
		reason string // "": it comes in
	}{
		{"honest", []of{h200, vulkanH200, cores2}, func(*record.Result, *record.Run) {}, ""},
		{"ten times the rate", []of{h200, vulkanH200, cores2}, func(r *record.Result, _ *record.Run) { faster(r, 10) }, "/s"},
		{"ten times, roofs left out", []of{h200, vulkanH200, cores2}, func(r *record.Result, _ *record.Run) {
			faster(r, 10)
			r.Roofs = record.Roofs{}
		}, "which no"},
		{"ten times, roofs raised", []of{h200, cores2}, func(r *record.Result, _ *record.Run) {
			faster(r, 10)
			r.Roofs.ReadGBs, r.Roofs.GFlops, r.Roofs.MostGBs = 10*r.Roofs.ReadGBs, 10*r.Roofs.GFlops, 10*r.Roofs.MostGBs
		}, "which no"},
		{"three times, by a loop that was slower", []of{cores2}, func(r *record.Result, _ *record.Run) { faster(r, 3) },
			"only reads"},
		{"three times, called warm", []of{cores2}, func(r *record.Result, _ *record.Run) {
			faster(r, 3)
			r.Cache = record.Warm
		}, "only reads"},
		{"three times, nothing that reads", []of{cores2}, func(r *record.Result, _ *record.Run) {
			faster(r, 3)
			r.Metrics, r.Roofs.MeasuredReadGBs = nil, 0
		}, "how fast its weights can be read"},
		{"arithmetic through f32's units", []of{h200, vulkanH200}, func(r *record.Result, _ *record.Run) {
			r.Params["type"] = "f32"
		}, "GFLOP/s are more than"},
		{"called warm", []of{vulkanH200}, func(r *record.Result, _ *record.Run) {
			faster(r, 12)
			r.Cache = record.Warm
		}, "GB/s are more than"},
		{"a measured roof raised", []of{vulkanH200}, func(r *record.Result, _ *record.Run) {
			r.Roofs.MeasuredReadGBs *= 3
		}, "measured roof of memory"},
		{"another card's figures", []of{h200, vulkanH200}, func(_ *record.Result, run *record.Run) {
			run.Env.Device, run.Env.Level = "NVIDIA GeForce RTX 4090", strings.Replace(run.Env.Level, "sm_90", "sm_89", 1)
		}, "which no NVIDIA GeForce RTX 4090 passes"},
		{"an unknown card of its architecture", []of{h200}, func(_ *record.Result, run *record.Run) {
			run.Env.Device = "NVIDIA H900"
		}, ""},
		{"too fast for any card", []of{vulkanH200}, func(r *record.Result, run *record.Run) {
			run.Env.Device = "Sandpaper 9"
			faster(r, 100)
		}, "which no card passes"},
		{"no such architecture", []of{h200}, func(_ *record.Result, run *record.Run) { run.Env.Level = "sm_91" },
			"no architecture of a card that is known here"},
		{"another card's architecture", []of{h200}, func(_ *record.Result, run *record.Run) { run.Env.Level = "sm_80" },
			"whose architecture is sm_90"},
		{"another maker's", []of{h200}, func(_ *record.Result, run *record.Run) {
			run.Env.Level = "gfx942"
		}, "another maker"},
		{"no such instructions", []of{cores2}, func(_ *record.Result, run *record.Run) { run.Env.Level = "avx1024" },
			"no processor has"},
		{"another processor's", []of{cores2}, func(_ *record.Result, run *record.Run) { run.Env.Level = "neon" }, "amd64"},
		{"a million cores", []of{cores2}, func(_ *record.Result, run *record.Run) { run.Env.Cores = 1e6 }, "cores"},
		{"no such backend", []of{h200}, func(_ *record.Result, run *record.Run) {
			run.Env.Backend = "cuda"
		}, "there are cpu"},
		{"a looser check", []of{h200, vulkanH200, cores2}, func(r *record.Result, _ *record.Run) {
			r.Check.Limit, r.Check.RelL2 = 0.05, 0.04
		}, "a limit of 0.05"},
		{"compared with nothing known", []of{h200, cores2}, func(r *record.Result, _ *record.Run) {
			r.Check.Against = "itself"
		}, "no reference"},
		{"a spread for an error", []of{h200, cores2}, func(r *record.Result, _ *record.Run) {
			r.Check.Against, r.Check.Limit = "the times fitted", 1
		}, "a limit of 1"},
		{"nothing moved", []of{h200, vulkanH200, cores2}, func(r *record.Result, _ *record.Run) { r.Bytes, r.Flops = 0, 0 },
			"how many bytes"},
		{"less work", []of{h200, vulkanH200, cores2}, func(r *record.Result, _ *record.Run) {
			faster(r, 10)
			r.Bytes, r.Flops = r.Bytes/10, r.Flops/10
		}, "it counts"},
		{"negative work", []of{h200, cores2}, func(r *record.Result, _ *record.Run) { r.Bytes = -r.Bytes }, "is -"},
		{"an infinite roof", []of{h200, cores2}, func(r *record.Result, _ *record.Run) { r.Roofs.GFlops = math.Inf(1) },
			"is +Inf"},
		{"the best sample alone", []of{h200, cores2}, func(r *record.Result, _ *record.Run) {
			r.Samples, r.Host = r.Samples[:1], nil
		}, "was to have 3"},
		{"times longer than the run", []of{h200, vulkanH200, cores2}, func(r *record.Result, run *record.Run) {
			run.Started, run.Ended = lasted(10 * time.Second)
			r.Samples, r.Host = []float64{50, 50, 50}, nil
		}, "samples of 150 s together"},
		{"one time longer than the run", []of{cores2}, func(r *record.Result, run *record.Run) {
			run.Started, run.Ended = lasted(10 * time.Second)
			r.Bench, r.Samples = "model/tg128", []float64{120, 1, 1}
		}, "a sample of 120 s"},
		{"sequences side by side", []of{cores2}, func(r *record.Result, run *record.Run) {
			run.Started, run.Ended = lasted(10 * time.Second)
			r.Bench, r.Samples = "model/tg128", []float64{50, 50, 50}
		}, ""},
		{"a run that was killed", []of{cores2}, func(r *record.Result, run *record.Run) {
			run.Started, _ = lasted(time.Second)
			r.Samples = []float64{50, 50, 50}
		}, ""},
		{"a negative time of the host", []of{h200}, func(r *record.Result, _ *record.Run) { r.Host[1] = -1 }, "host's clock"},
	} {
		for _, of := range c.of {
			r, run := of()
			c.lie(r, run)
			r.Verdict = record.OK
			Finish(r)
			Imported(r, run)
			if (r.Verdict == record.OK) != (c.reason == "") || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("%s, %s: %s %q, expected %q", run.Env.Backend, c.name, r.Verdict, r.Reason, c.reason)
			}
		}
	}
}

// TestDates: a run of tomorrow's tomorrow would be the newest for good.
func TestDates(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		begin, end time.Duration
		want       string
	}{
		{-time.Hour, -time.Minute, ""}, {time.Hour, 2 * time.Hour, ""}, {49 * time.Hour, 50 * time.Hour, "it began at"},
		{-time.Hour, 50 * time.Hour, "it ended at"}, {-time.Hour, -2 * time.Hour, "before it began"},
	} {
		err := Dates(&record.Run{Started: now.Add(c.begin), Ended: now.Add(c.end)}, now)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v to %v: %v, expected %q", c.begin, c.end, err, c.want)
		}
	}
	if err := Dates(&record.Run{Started: now}, now); err != nil {
		t.Errorf("a run that has not ended: %v", err)
	}
}

// TestCards: names that drivers give find their card, the longest first.
func TestCards(t *testing.T) {
	for name, want := range map[string]string{"NVIDIA H200": "h200", "NVIDIA GH200 480GB": "gh200", "NVIDIA H20": "h20",
		"NVIDIA A100-SXM4-80GB": "a100", "NVIDIA H100 PCIe": "h100 pcie", "NVIDIA H100 80GB HBM3": "h100",
		"AMD Radeon RX 7900 XTX (RADV NAVI31)": "rx 7900 xtx", "AMD Instinct MI300X": "mi300x", "Tesla T4": "t4"} {
		if c := named(name); c == nil || c.name != want {
			t.Errorf("%s: %+v, expected %s", name, c, want)
		}
	}
	for i := range cards {
		if p := ClocksOf(cards[i].arch); p.F32 == 0 && cards[i].arch[:2] != "sm" {
			t.Errorf("%s: nothing is known of %s", cards[i].name, cards[i].arch)
		}
	}
	if m, why := cardOf("vulkan", "AMD Radeon Graphics (RADV GFX1151)", "integrated"); why != "" || m.memory > 300 {
		t.Errorf("an architecture in a name: %+v %s", m, why)
	}
	if m, why := cardOf("vulkan", "Intel(R) Iris(R) Xe Graphics", "integrated"); why != "" || m.memory > 300 {
		t.Errorf("graphics beside a processor: %+v %s", m, why)
	}
}
