package platform

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/bench/profile"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/testfiles"
)

// quick are parameters with which each benchmark of the processor is over at once.
var quick = []profile.Platform{
	{Bench: "launch"},
	{Bench: "stream", Params: map[string]profile.Text{"n": "6400", "threads": "1,2"}},
	{Bench: "latency", Params: map[string]profile.Text{"bytes": "4096,65536"}},
	{Bench: "cache", Params: map[string]profile.Text{"bytes": "8192,100000"}},
	{Bench: "small-kernels", Params: map[string]profile.Text{"n": "4096,16384,65536,262144"}},
	{Bench: "roofline", Params: map[string]profile.Text{"n": "10000", "steps": "0,5"}},
	{Bench: "incore", Params: map[string]profile.Text{"chains": "1,12"}},
	{Bench: "vec_add", Params: map[string]profile.Text{"n": "1003"}},
	{Bench: "memcpy"}, {Bench: "um-stream"}, {Bench: "l2-cache"}, {Bench: "l2-stream"}, {Bench: "strides"},
	{Bench: "library"}, {Bench: "peer"},
}

func runCPU(t *testing.T, level string, opt Options) ([]record.Result, error) {
	t.Helper()
	dev, err := cpu.NewLevel(level, 2)
	if err != nil {
		t.Skip(err)
	}
	defer dev.Close()
	var all []record.Result
	opt.Device = dev
	opt.Emit = func(r *record.Result) error { all = append(all, *r); return nil }
	err = Run(context.Background(), opt)
	return all, err
}

// TestCPU runs every benchmark on every level of the processor's code, else on the best and on Go's: all results
// are right, and what is not there says so.
func TestCPU(t *testing.T) {
	ran := false
	for _, level := range []string{"avx512", "avx2", "i8mm", "dotprod", "neon", "go"} {
		if ran && level != "go" && !testfiles.Exhaustive() {
			continue
		}
		t.Run(level, func(t *testing.T) {
			var seen []string
			all, err := runCPU(t, level, Options{Plan: quick, Repetitions: 2, MinTime: time.Millisecond,
				Progress: func(b string, _, _ int) { seen = append(seen, b) }})
			ran = true
			if err != nil {
				t.Error(err)
			}
			count := map[string]int{}
			for _, r := range all {
				bench := strings.Split(r.Bench, "/")[1]
				count[bench]++
				if r.Verdict == record.Skipped && r.Reason != "" {
					continue
				}
				if r.Verdict != record.OK {
					t.Errorf("%s: %s: %s", r.Name(), r.Verdict, r.Reason)
				}
				if len(r.Samples) == 0 || r.Clock != record.HostClock {
					t.Errorf("%s has %d samples by the clock %q", r.Name(), len(r.Samples), r.Clock)
				}
			}
			for _, b := range List() {
				if count[b.Name] == 0 {
					t.Errorf("%s gave no result", b.Name)
				}
			}
			if count["roof"] < 4 {
				t.Errorf("%d roofs; read, copy and the peaks are expected", count["roof"])
			}
			for _, r := range all {
				if r.Bench == RoofPrefix+"copy" && !slices.ContainsFunc(all, func(o record.Result) bool {
					return strings.HasSuffix(o.Bench, "/copy") && o.Bench != r.Bench && o.Bytes == r.Bytes &&
						slices.Equal(o.Samples, r.Samples)
				}) {
					t.Errorf("the roof of copying is no copy: %v bytes in %v", r.Bytes, r.Samples)
				}
			}
			if len(seen) != len(quick)+1 {
				t.Errorf("progress was told %d times of %d benchmarks", len(seen), len(quick))
			}
		})
	}
}

// TestShortSamplesSayWhy: a figure whose samples take long has fewer than were asked for, and says so.
func TestShortSamplesSayWhy(t *testing.T) {
	s := &session{ctx: context.Background(), bench: &Benchmark{Name: "planted"}, backend: "cpu",
		opt: Options{Repetitions: 50, MinTime: time.Millisecond, Emit: func(*record.Result) error { return nil }}}
	for wait, short := range map[time.Duration]bool{100 * time.Millisecond: true, time.Microsecond: false} {
		r, err := s.measure(point{prepare: hostTimed(func() error { time.Sleep(wait); return nil }), most: 1,
			check: func() (record.Check, error) { return exact(0, 1), nil }})
		if err != nil || len(r.Samples) < fewest || short != (len(r.Samples) < 50) || short != (r.ShortText() != "") ||
			short && r.ShortText() != fmt.Sprintf("%d samples instead of 50: no more were taken after 0.5 s (ten times "+
				"--min-time, and half a second at least)", len(r.Samples)) {
			t.Errorf("%v: %d samples, %q, %v", wait, len(r.Samples), r.ShortText(), err)
		}
	}
}

// TestRulesBite: a wrong result fails, an impossible rate is refused, and Run says so.
func TestRulesBite(t *testing.T) {
	s := &session{ctx: context.Background(), bench: &Benchmark{Name: "planted"}, backend: "cpu",
		opt: Options{Repetitions: 3, MinTime: time.Millisecond, Emit: func(*record.Result) error { return nil }}}
	right := func() (record.Check, error) { return exact(0, 1), nil }
	sleep := hostTimed(func() error { time.Sleep(time.Millisecond); return nil })
	for name, c := range map[string]struct {
		p    point
		want record.Verdict
	}{
		"right": {point{prepare: sleep, check: right}, record.OK},
		"wrong": {point{prepare: sleep, check: func() (record.Check, error) {
			return exact(1, 100), nil
		}}, record.Failed},
		"no check": {point{prepare: sleep, check: func() (record.Check, error) {
			return record.Check{}, nil
		}}, record.Failed},
		"ten peaks": {point{prepare: sleep, check: right, Result: record.Result{Bytes: 1e9,
			Roofs: record.Roofs{ReadGBs: 50}}}, record.Refused},
		"ten bounds": {point{prepare: sleep, check: right, Result: record.Result{Bytes: 1e9,
			Roofs: record.Roofs{MostGBs: 50}}}, record.Refused},
		"many flops": {point{prepare: sleep, check: right, Result: record.Result{Flops: 1e9,
			Roofs: record.Roofs{GFlops: 50}}}, record.Refused},
		"called cold": {point{prepare: sleep, check: right, Result: record.Result{Cache: record.Cold, WorkingSet: 1e6,
			Roofs: record.Roofs{LastCache: 1e6}}}, record.Failed},
	} {
		r, err := s.measure(c.p)
		if err != nil || r.Verdict != c.want {
			t.Errorf("%s: %s (%s), %v; %s is expected", name, r.Verdict, r.Reason, err, c.want)
		}
	}
	if s.wrong.Failed != 3 || s.wrong.Refused != 3 {
		t.Errorf("%+v were counted", s.wrong)
	}
}

// TestPlans: what does not exist is refused before anything is measured.
func TestPlans(t *testing.T) {
	for text, p := range map[string]profile.Platform{
		"no benchmark of the platform": {Bench: "streams"},
		"has no parameter \"size\"":    {Bench: "latency", Params: map[string]profile.Text{"size": "1"}},
		"do not grow by steps of 100":  {Bench: "latency", Params: map[string]profile.Text{"step": "100"}},
		"it must be above 0":           {Bench: "incore", Params: map[string]profile.Text{"chains": "4,0"}},
		"at most 1024":                 {Bench: "stream", Params: map[string]profile.Text{"threads": "1,5000"}},
		"one number is expected":       {Bench: "stream", Params: map[string]profile.Text{"n": "4096,8192"}},
		"a number is expected":         {Bench: "latency", Params: map[string]profile.Text{"bytes": "many"}},
	} {
		if err := Check([]profile.Platform{p}); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, %q is expected", err, text)
		}
	}
	for _, name := range profile.Names() {
		p, err := profile.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(p.Platform); err != nil {
			t.Errorf("profile %s: %v", name, err)
		}
	}
	if err := Run(context.Background(), Options{Device: nil, Plan: []profile.Platform{{Bench: "x"}}}); err == nil {
		t.Error("a benchmark that does not exist was run")
	}
}

// TestParametersCount: a parameter changes what is measured.
func TestParametersCount(t *testing.T) {
	all, err := runCPU(t, "go", Options{Plan: []profile.Platform{{Bench: "latency",
		Params: map[string]profile.Text{"bytes": "4096..16384*2"}}}, Repetitions: 1, MinTime: 1})
	if err != nil || len(all) != 3 || all[2].Params["bytes"] != "16384" {
		t.Errorf("%v, %d results", err, len(all))
	}
}

// TestCancelled: a run that is interrupted ends, and says why.
func TestCancelled(t *testing.T) {
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	err = Run(ctx, Options{Device: dev, Plan: quick, Repetitions: 2, MinTime: 1, Emit: func(*record.Result) error {
		if n++; n == 2 {
			cancel()
		}
		return nil
	}})
	if !errors.Is(err, context.Canceled) || n > 3 {
		t.Errorf("%v after %d results", err, n)
	}
}

// TestFit: the parameters of made up times come back, with noise on them.
func TestFit(t *testing.T) {
	const a, b = 2.4e-6, 3.9e12
	var v, x []float64
	for i, n := 0, 4096.0; n < 3e8; i, n = i+1, n*2 {
		v = append(v, 16*n)
		x = append(x, (a+16*n/b)*(1+0.02*math.Sin(float64(7*i))))
	}
	gotA, gotB, spread, err := fitStart(v, x)
	if err != nil || math.Abs(gotA/a-1) > 0.02 || math.Abs(gotB/b-1) > 0.02 || spread > 0.02 {
		t.Errorf("a %v, b %v, spread %v, %v", gotA, gotB, spread, err)
	}
	if _, _, _, err := fitStart(v[:2], x[:2]); err == nil {
		t.Error("two points were fitted")
	}
	sizes := []float64{10, 20, 40}
	if a, b, _, err := fitStart(sizes, []float64{9, 20, 42}); err != nil || a != leastStart || math.Abs(b-1) > 0.06 {
		t.Errorf("times that begin below nothing: a %v, b %v, %v", a, b, err)
	}
	if a, b, _, err := fitStart(sizes, []float64{4, 2, 2}); err != nil || b < 0.9*mostRate || a < 2 || a > 4 {
		t.Errorf("times that fall: a %v, b %v, %v", a, b, err)
	}
	if a, b, _, err := fitStart(sizes, []float64{1, 0, 1}); err == nil {
		t.Errorf("no time: a %v, b %v", a, b)
	}
	if a, b, _, err := fitStart([]float64{10, 10, 10}, []float64{1, 2, 3}); err == nil {
		t.Errorf("one size: a %v, b %v", a, b)
	}
}

// TestPeaks: the model of a known card, and of its link.
func TestPeaks(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"max_link_speed": "32.0 GT/s PCIe\n", "max_link_width": "16\n"} {
		if err := os.MkdirAll(filepath.Join(dir, "0000:00:06.0"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "0000:00:06.0", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old := pciRoot
	defer func() { pciRoot = old }()
	pciRoot = dir
	p := model(limits{arch: "sm_90", pci: "0000:00:06.0", units: 132, clockMHz: 1980, memoryGBs: 4917})
	for name, c := range map[string][2]float64{
		"f32": {p.f32, 66908}, "f64": {p.f64, 33454}, "l1": {p.l1, 33454}, "l2": {p.l2, 16727}, "link": {p.link, 63.02},
	} {
		if math.Abs(c[0]/c[1]-1) > 1e-3 {
			t.Errorf("%s: %v, %v is expected", name, c[0], c[1])
		}
	}
	if p := model(limits{arch: "gfx942", units: 304, clockMHz: 2100}); math.Abs(p.l1/40858-1) > 1e-3 ||
		math.Abs(p.f32/163430-1) > 1e-3 || p.link != 0 {
		t.Errorf("MI300X: %+v", p)
	}
}

func TestSteps(t *testing.T) {
	got := steps(1000, 2000, 120, 64)
	want := []int{960, 1152, 1408, 1728}
	if len(got) != len(want) {
		t.Fatal(got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatal(got)
		}
	}
}

// TestLastCache reads a description of caches as Linux has it.
func TestLastCache(t *testing.T) {
	dir := t.TempDir()
	for i, c := range [][2]string{{"Data", "48K"}, {"Instruction", "64M"}, {"Unified", "2048K"}, {"Unified", "30M"}} {
		d := filepath.Join(dir, "index"+itoa(i))
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"type": c[0], "size": c[1]} {
			if err := os.WriteFile(filepath.Join(d, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := lastCache(dir); n != 30<<20 {
		t.Errorf("%d bytes", n)
	}
	if n := lastCache(filepath.Join(dir, "none")); n != 0 {
		t.Errorf("%d bytes of nothing", n)
	}
}
