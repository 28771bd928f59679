package op

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// small are sizes that every operator can be built with.
var small = map[string]int{
	"to": 4, "l": 2, "z": 1, "j": 1, "p": 8, "b": 2,
	"m": 3, "s": 3, "n": 64, "k": 64, "d": 64, "h": 4, "g": 2, "dh": 16, "dv": 16, "c": 32, "v": 37, "w": 4, "e": 5,
	"u": 2, "a": 1, "r": 2, "f": 8,
}

func request(op *graph.Op) Request {
	r := Request{Sizes: map[string]int{}, At: -1, Float: tensor.F32}
	for _, d := range Dims(op) {
		r.Sizes[d] = small[d]
	}
	if op == ops.TopK {
		r.Sizes["k"] = 2
	}
	return r
}

// ownKeys gives each head of an attention keys of its own, in f32, where scores with distances want that.
func ownKeys(r *Request) {
	if slices.Contains(r.With, "far_q") {
		r.Sizes["g"], r.KV = r.Sizes["h"], tensor.F32
	}
}

func openCPU(t *testing.T) backends.Device {
	t.Helper()
	d, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

var quick = Options{Warm: true, Repetitions: 3, MinTime: time.Microsecond}

// TestEveryOperator measures each operator and fused operator on the CPU and on
// the reference, with and without its optional operands.
func TestEveryOperator(t *testing.T) {
	for _, dev := range []backends.Device{openCPU(t), ref.New()} {
		for _, op := range ops.All() {
			var optional []string
			for _, o := range op.Sig.In {
				if o.Optional && o.Name != "w" {
					optional = append(optional, o.Name)
				}
			}
			for _, with := range [][]string{nil, optional} {
				r := request(op)
				r.With, r.Float = with, dev.Info().Float
				ownKeys(&r)
				c, err := New(op, r)
				if err != nil {
					t.Fatalf("%s: %v", op.Name, err)
				}
				results, err := Measure(t.Context(), dev, c, quick)
				if err != nil {
					t.Errorf("%s: %v", c.Name(), err)
					continue
				}
				// The processor multiplies by factors in a kernel of its own.
				if lacks := dev.Info().Backend == "cpu" && strings.HasPrefix(op.Name, ops.LinearScaled.Name); lacks {
					if len(results) != 1 || results[0].Verdict != record.Skipped ||
						!strings.Contains(results[0].Reason, "no kernel for "+op.Name) {
						t.Errorf("%s on a device that has no kernel for it: %+v", c.Name(), results)
					}
					continue
				}
				if len(results) != 1 || results[0].Verdict != record.OK {
					t.Errorf("%s on %s: %+v", c.Name(), dev.Info().Backend, results)
					continue
				}
				got := results[0]
				if len(got.Samples) < 3 || got.Bytes <= 0 || got.Kernel == "" || got.Cache != record.Warm ||
					got.Clock != record.HostClock || got.Check.Against != "float64" {
					t.Errorf("%s: incomplete: %+v", c.Name(), got)
				}
				if with != nil && !strings.Contains(got.Params["with"], with[0]) {
					t.Errorf("%s: the optional operand is not named: %v", op.Name, got.Params)
				}
			}
		}
	}
}

// TestReference compares the parallel reference with that of ops, which is slow
// and plain, on every operator.
func TestReference(t *testing.T) {
	for _, op := range ops.All() {
		for _, wide := range []bool{false, true} {
			r := request(op)
			if op == ops.LinearID && wide {
				r.Sizes["a"] = 2 // an input for each of a token's experts
			}
			for _, o := range op.Sig.In {
				if o.Optional {
					r.With = append(r.With, o.Name)
				}
			}
			ownKeys(&r)
			c, err := New(op, r)
			if err != nil {
				t.Fatal(err)
			}
			data, err := c.data()
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.reference(t.Context(), data)
			if err != nil {
				t.Fatalf("%s: %v", op.Name, err)
			}
			p := optest.Prepared{Node: c.Node}
			for i, v := range c.Node.In {
				o := optest.Operand{Value: v, Data: data[i]}
				p.In = append(p.In, o)
			}
			want, err := p.Reference()
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if l2, _ := difference(got[i], want[i]); !(l2 <= 1e-13) {
					t.Errorf("%s, result %d: relative L2 %.2e", op.Name, i, l2)
				}
			}
		}
	}
}

func TestWrongResultsFail(t *testing.T) {
	dev := openCPU(t)
	c, err := New(ops.RMSNorm, request(ops.RMSNorm))
	if err != nil {
		t.Fatal(err)
	}
	for name, corrupt := range map[string]func([][]byte){
		"one element off":  func(r [][]byte) { tensor.View[float32](r[0])[70] += 0.25 },
		"one is no number": func(r [][]byte) { tensor.View[float32](r[0])[5] = float32(math.NaN()) },
	} {
		opt := quick
		opt.Corrupt = corrupt
		got, err := Measure(t.Context(), dev, c, opt)
		if err != nil || len(got) != 1 || got[0].Verdict != record.Failed || got[0].Reason == "" || len(got[0].Samples) > 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestMissingKernelIsSkipped asks a device for what it lacks.
func TestMissingKernelIsSkipped(t *testing.T) {
	r := request(ops.Linear)
	r.Float = tensor.F16 // the CPU's activations are f32
	c, err := New(ops.Linear, r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Measure(t.Context(), openCPU(t), c, quick)
	if err != nil || len(got) != 1 || got[0].Verdict != record.Skipped || !strings.Contains(got[0].Reason, "cpu") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTooLarge: what does not fit the memory ends no process.
func TestTooLarge(t *testing.T) {
	r := request(ops.Linear)
	r.Sizes = map[string]int{"m": math.MaxInt32, "n": 4096, "k": 4096}
	c, err := New(ops.Linear, r)
	if err != nil {
		t.Fatal(err)
	}
	dev := openCPU(t)
	if dev.Info().Memory == 0 {
		t.Skip("the system does not say how much memory there is")
	}
	got, err := Measure(t.Context(), dev, c, quick)
	var memory *backends.OutOfMemory
	if !errors.As(err, &memory) || len(got) != 0 || memory.Need <= memory.Have || memory.Have <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestPeakGate plants a device whose modelled peak is far below what it does.
func TestPeakGate(t *testing.T) {
	r := request(ops.Linear)
	r.Sizes = map[string]int{"m": 64, "n": 256, "k": 256}
	c, err := New(ops.Linear, r)
	if err != nil {
		t.Fatal(err)
	}
	opt := quick
	opt.Roofs = record.Roofs{GFlops: 1e-3}
	got, err := Measure(t.Context(), openCPU(t), c, opt)
	if err != nil || len(got) != 1 || got[0].Verdict != record.Refused ||
		!strings.Contains(got[0].Reason, "measuring error") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestColdRotates: a cold result goes through four times the last-level cache,
// a warm one does not; and what cannot is skipped, not called cold.
func TestColdRotates(t *testing.T) {
	dev := openCPU(t)
	c, err := New(ops.SiLU, request(ops.SiLU)) // 3·64 floats in, the same out
	if err != nil {
		t.Fatal(err)
	}
	opt := quick
	opt.Cold, opt.Roofs.LastCache = true, 100_000
	got, err := Measure(t.Context(), dev, c, opt)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := got[0]; r.Cache != record.Cold || r.Verdict != record.OK || r.WorkingSet < 400_000 ||
		r.Metrics["copies"] < 260 {
		t.Errorf("cold: %+v", r)
	}
	if r := got[1]; r.Cache != record.Warm || r.WorkingSet > 2000 || r.Metrics["copies"] != 1 {
		t.Errorf("warm: %+v", r)
	}
	opt.Roofs.LastCache = 1e9 // 2.6 million copies would be needed
	got, err = Measure(t.Context(), dev, c, opt)
	if err != nil || len(got) != 2 || got[0].Verdict != record.Skipped || !strings.Contains(got[0].Reason, "working set") {
		t.Errorf("far too large a cache: %+v, %v", got, err)
	}
	opt.Warm, opt.OrWarm = false, true
	if got, err = Measure(t.Context(), dev, c, opt); err != nil || len(got) != 1 || got[0].Cache != record.Warm ||
		got[0].Verdict != record.OK {
		t.Errorf("what is too small is to be measured warm: %+v, %v", got, err)
	}
	opt.Warm = true
	if got, err = Measure(t.Context(), dev, c, opt); err != nil || len(got) != 1 || got[0].Cache != record.Warm {
		t.Errorf("warm is asked for and measured once: %+v, %v", got, err)
	}
}

// TestTablesAreNotCopiedOften: rows are read here and there from a table, which
// lies in memory as often as a working set needs, not once for each repetition.
func TestTablesAreNotCopiedOften(t *testing.T) {
	r := request(ops.Rows)
	r.Sizes = map[string]int{"s": 512, "n": 64, "r": 1}
	c, err := New(ops.Rows, r)
	if err != nil {
		t.Fatal(err)
	}
	data, err := c.data()
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.place(openCPU(t), data, 400_000, 2000)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if p.copies < 700 || p.in[0].count != 4 || p.in[1].count != p.copies || p.set < 400_000 {
		t.Errorf("%d repetitions with %d tables of 131 kB and %d lists, %g bytes in all", p.copies, p.in[0].count,
			p.in[1].count, p.set)
	}
	first, last := p.launch(0), p.launch(p.copies-1)
	if err := p.stream.Launch(&first); err != nil {
		t.Fatal(err)
	}
	if err := p.stream.Launch(&last); err != nil {
		t.Fatal(err)
	}
}

func TestRepetitionsAndTime(t *testing.T) {
	dev := openCPU(t)
	c, err := New(ops.SiLU, request(ops.SiLU))
	if err != nil {
		t.Fatal(err)
	}
	opt := quick
	opt.Repetitions = 37
	got, err := Measure(t.Context(), dev, c, opt)
	if err != nil || len(got[0].Samples) != 37 {
		t.Errorf("%d samples, 37 are asked for; %v", len(got[0].Samples), err)
	}
	opt.Repetitions, opt.MinTime = 1, 5*time.Millisecond
	start := time.Now()
	got, err = Measure(t.Context(), dev, c, opt)
	if err != nil || time.Since(start) < 5*time.Millisecond && len(got[0].Samples) < maxSamples {
		t.Errorf("%d samples in %v, at least 5 ms are asked for; %v", len(got[0].Samples), time.Since(start), err)
	}
}

// limited is a device that says what its limits are.
type limited struct{ backends.Device }

func (limited) Limits(p *backends.Program, _ time.Duration) (backends.Limits, error) {
	return backends.Limits{ReadGBs: 10 * float64(len(p.Launches)), GFlops: 70}, nil
}

// TestMeasuredLimits: what a device measures of itself is the measured roof; not
// that of memory, where the operands lie in a cache.
func TestMeasuredLimits(t *testing.T) {
	c, err := New(ops.SiLU, request(ops.SiLU))
	if err != nil {
		t.Fatal(err)
	}
	opt := quick
	opt.Cold, opt.Roofs.LastCache = true, 10_000
	got, err := Measure(t.Context(), limited{openCPU(t)}, c, opt)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := got[0].Roofs; r.MeasuredReadGBs != 10*got[0].Metrics["copies"] || r.MeasuredGFlops != 70 {
		t.Errorf("cold: %+v", r)
	}
	if r := got[1].Roofs; r.MeasuredReadGBs != 0 || r.MeasuredGFlops != 70 {
		t.Errorf("warm: %+v", r)
	}
}

func TestEndToEnd(t *testing.T) {
	r := request(ops.Linear)
	c, err := New(ops.Linear, r)
	if err != nil {
		t.Fatal(err)
	}
	opt := quick
	opt.EndToEnd = true
	got, err := Measure(t.Context(), openCPU(t), c, opt)
	if err != nil || len(got) != 2 || got[1].Bench != "op/linear/e2e" || got[1].Verdict != record.OK ||
		got[1].Clock != record.HostClock || len(got[1].Samples) < 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// tuned is a device with two configurations of one kernel.
type tuned struct {
	backends.Device
	choice func(*graph.Node) string
	asked  []string
}

func (d *tuned) Variants(*graph.Node) []string          { return []string{"plain", "wide"} }
func (d *tuned) Choose(choose func(*graph.Node) string) { d.choice = choose }
func (d *tuned) Kernel(n *graph.Node) (backends.Kernel, error) {
	d.asked = append(d.asked, d.choice(n))
	return d.Device.Kernel(n)
}

func TestConfig(t *testing.T) {
	c, err := New(ops.SiLU, request(ops.SiLU))
	if err != nil {
		t.Fatal(err)
	}
	opt := quick
	opt.Config = "wide"
	dev := &tuned{Device: ref.New()}
	c.Node.Float = tensor.F64
	for _, v := range append(slices.Clone(c.Node.In), c.Node.Out...) {
		v.Type = tensor.F64
	}
	got, err := Measure(t.Context(), dev, c, opt)
	if err != nil || len(got) != 1 || got[0].Config != "wide" || len(dev.asked) == 0 ||
		slices.ContainsFunc(dev.asked, func(s string) bool {
			return s != "wide"
		}) {
		t.Errorf("%+v, %v, asked for %v", got, err, dev.asked)
	}
	if dev.choice(c.Node) != "" {
		t.Error("the device keeps the configuration of a benchmark that has ended")
	}
	opt.Config = "narrow"
	if got, err := Measure(t.Context(), dev, c, opt); err != nil || len(got) != 1 || got[0].Verdict != record.Skipped ||
		!strings.Contains(got[0].Reason, "plain, wide") {
		t.Errorf("a variant that the kernel lacks: %+v, %v", got, err)
	}
	opt.Config = "wide"
	if _, err := Measure(t.Context(), ref.New(), c, opt); err == nil || !strings.Contains(err.Error(), "wide") {
		t.Errorf("a configuration of a device that has none: %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	c, err := New(ops.SiLU, request(ops.SiLU))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Measure(ctx, openCPU(t), c, quick); err == nil {
		t.Error("an ended context is no error")
	}
}

func TestFromModel(t *testing.T) {
	f, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	dev := openCPU(t)
	cases, err := FromModel(engine.Options{Model: f, Device: dev, Context: 1024}, []Step{{"tg", 1, 512}, {"pp64", 64, 0}})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, c := range cases {
		counts[c.Name()] = c.Steps["tg"]
		if c.Steps["tg"]+c.Steps["pp64"] == 0 {
			t.Errorf("%s: in no step", c.Name())
		}
	}
	for name, want := range map[string]int{
		"linear k=4096 m=1 n=4096 type=f16":                          3 * 32,
		"linear k=4096 m=1 n=11008 type=f16":                         2 * 32,
		"linear_residual k=11008 m=1 n=4096 type=f16":                32,
		"linear k=4096 m=1 n=32000 type=f16":                         1,
		"attention at=512 c=1024 dh=128 dv=128 g=32 h=32 kv=f16 s=1": 32,
		"rmsnorm d=4096 m=1":                                         65,
		"linear k=4096 m=64 n=11008 type=f16":                        0,
		"attention at=0 c=1024 dh=128 dv=128 g=32 h=32 kv=f16 s=64":  0,
	} {
		if got, ok := counts[name]; !ok || got != want {
			t.Errorf("%s: %d times in a step of decode, %d are wanted; there are %v", name, got, want,
				slices.Sorted(maps.Keys(counts)))
		}
	}
}

// TestModelShapesAreMeasured measures every shape of a block with fused weights,
// whose operands have strides.
func TestModelShapesAreMeasured(t *testing.T) {
	f, err := models.Builtin("phi3_block")
	if err != nil {
		t.Fatal(err)
	}
	dev := openCPU(t)
	opt := engine.Options{Model: f, Device: dev, Context: 64, Set: map[string]string{"D": "64", "H": "4", "F": "96"}}
	cases, err := FromModel(opt, []Step{{"pp5", 5, 7}, {"tg", 1, 9}})
	if err != nil {
		t.Fatal(err)
	}
	strided := false
	for _, c := range cases {
		got, err := Measure(t.Context(), dev, c, quick)
		if err != nil || len(got) != 1 || got[0].Verdict != record.OK {
			t.Errorf("%s: %+v, %v", c.Name(), got, err)
		}
		for k := range c.Params {
			strided = strided || strings.HasPrefix(k, "ld_")
		}
	}
	if !strided {
		t.Error("no operand with a row stride in a model with fused projections")
	}
}

func TestRequestsRefused(t *testing.T) {
	for _, c := range []struct {
		op   *graph.Op
		r    Request
		part string
	}{
		{ops.Linear, Request{Sizes: map[string]int{"q": 1}}, "no size q; it has m, k, n"},
		{ops.Linear, Request{Sizes: map[string]int{"k": 0}}, "k=0"},
		{ops.Linear, Request{Sizes: map[string]int{"k": 33}, Type: tensor.Q4_0}, "33"},
		{ops.Linear, Request{With: []string{"z"}}, "no optional operand z"},
		{ops.Attention, Request{Sizes: map[string]int{"c": 16, "s": 4}, At: 13}, "do not fit a cache of 16"},
		{ops.Attention, Request{Sizes: map[string]int{"h": 5, "g": 2}}, "multiple"},
		{ops.RMSNorm, Request{Attrs: map[string]string{"esp": "1"}}, "esp"},
		{ops.RoPE, Request{Attrs: map[string]string{"layout": "wrong"}}, "half"},
	} {
		if _, err := New(c.op, c.r); err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s %+v: %v; want %q", c.op.Name, c.r, err, c.part)
		}
	}
}

func TestAttributes(t *testing.T) {
	c, err := New(ops.RoPE, Request{Sizes: map[string]int{"s": 2, "h": 2, "dh": 16},
		Attrs: map[string]string{"layout": "pair", "base": "500000"}, At: 5})
	if err != nil {
		t.Fatal(err)
	}
	if a := graph.Attr[ops.RoPEAttr](c.Node); a.Layout != "pair" || a.Base != 500000 {
		t.Errorf("attributes are %+v", a)
	}
	if c.Params["layout"] != "pair" || c.Params["at"] != "5" {
		t.Errorf("parameters are %v", c.Params)
	}
}

// TestLimits: what a device says that it rounds widens the limit, and only that.
func TestLimits(t *testing.T) {
	of := func(op *graph.Op, w, kv tensor.Type) *graph.Node {
		r := request(op)
		r.Type, r.KV = w, kv
		if w.IsBlock() {
			r.Sizes["k"] = 64
		}
		c, err := New(op, r)
		if err != nil {
			t.Fatal(err)
		}
		return c.Node
	}
	all := ops.Rounding{Quant: true, BF16: true, F16: true}
	for _, c := range []struct {
		n        *graph.Node
		rounding ops.Rounding
		want     float64
	}{
		{of(ops.Linear, tensor.F32, 0), all, 1e-5},
		{of(ops.Linear, tensor.F16, 0), ops.Rounding{}, 1e-5},
		{of(ops.Linear, tensor.F16, 0), all, 2e-3},
		{of(ops.LinearID, tensor.BF16, 0), all, 4e-3},
		{of(ops.LinearResidual, tensor.Q4_0, 0), all, 1e-2},
		{of(ops.Linear, tensor.Q4_0, 0), ops.Rounding{}, 1e-5},
		{of(ops.Attention, 0, tensor.F16), all, 2e-3},
		{of(ops.Attention, 0, tensor.F32), all, 1e-5},
		{of(ops.RMSNorm, 0, 0), all, 1e-5},
		{of(ops.Push, 0, tensor.F16), all, 1e-3},
		{of(ops.Push, 0, tensor.BF16), all, 8e-3},
	} {
		if got := Limit(tensor.F32, c.rounding.Tolerance(c.n), c.n); got != c.want {
			t.Errorf("%v on %+v: %g, want %g", c.n, c.rounding, got, c.want)
		}
	}
}

// hasty is a processor whose clock is wrong: one launch is timed and a hundred are counted. It has
// all else from the real one, its measure of its limits too.
type hasty struct{ *cpu.Device }

type hastyProgram struct{ backends.Executable }

func (h hasty) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := h.Device.Capture(p)
	return hastyProgram{e}, err
}

func (h hastyProgram) Profile() ([]time.Duration, error) {
	times, err := h.Executable.Profile()
	for i := range times {
		times[i] /= 100
	}
	return times, err
}

// TestReadGate: results of a processor that would have to read memory many times as fast
// as a loop that only reads are refused, products and others; honest ones are not.
func TestReadGate(t *testing.T) {
	real, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	defer real.Close()
	for _, op := range []*graph.Op{ops.Linear, ops.Add} {
		r := request(op)
		switch op {
		case ops.Linear:
			r.Sizes, r.Type = map[string]int{"m": 1, "n": 2048, "k": 2048}, tensor.F16
		case ops.Add:
			r.Sizes = map[string]int{"m": 256, "n": 4096}
		}
		c, err := New(op, r)
		if err != nil {
			t.Fatal(err)
		}
		opt := Options{Cold: true, Repetitions: 3, MinTime: 20 * time.Millisecond, Roofs: record.Roofs{LastCache: 8 << 20}}
		for dev, want := range map[backends.Device]record.Verdict{real: record.OK, hasty{real}: record.Refused} {
			got, err := Measure(t.Context(), dev, c, opt)
			if err != nil || len(got) != 1 || got[0].Verdict != want ||
				(want == record.Refused) != strings.Contains(got[0].Reason, "only reads") {
				t.Errorf("%s on %T: %+v, %v", op.Name, dev, got, err)
			}
		}
	}
}
