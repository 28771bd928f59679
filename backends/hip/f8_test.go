package hip_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	openfile "github.com/greta-project/greta/weights/open"
	"github.com/greta-project/greta/weights/quant"

	"github.com/x448/float16"
)

var f8Types = []tensor.Type{tensor.F8E4M3, tensor.F8E5M2, tensor.F8E4M3FNUZ, tensor.F8E5M2FNUZ}

func isF8(t tensor.Type) bool { return slices.Contains(f8Types, t) }

// f8Product is y [m, n] = x [m, k] · w [n, k] (+ b [n]) with weights of 8-bit floats, or
// of f16 to compare with.
type f8Product struct {
	typ     tensor.Type
	m, n, k int
	x       []float32
	w       []byte
	b, s    []float32   // nil: none; s are factors of columns
	in, out tensor.Type // of x and y, Invalid: f32
	fp8     bool        // x is rounded to 8 bits, and seen to be
}

func or32(t tensor.Type) tensor.Type {
	if t == tensor.Invalid {
		return tensor.F32
	}
	return t
}

// node builds the product's node.
func (p f8Product) node() (*graph.Node, error) {
	g := &graph.Graph{Name: "f8"}
	b := &graph.Builder{Graph: g, Ops: ops.Table, Float: or32(p.out), Block: -1}
	sc := graph.Scope{Values: map[string]*graph.Value{}, Env: func(string) (lang.Val, bool) { return nil, false }}
	add := func(name string, typ tensor.Type, kind graph.Kind, shape ...int) {
		sc.Values[name] = g.AddValue(&graph.Value{Name: name, Type: typ, Kind: kind, Shape: shape})
	}
	add("x", or32(p.in), graph.Input, p.m, p.k)
	add("w", p.typ, graph.Weight, p.n, p.k)
	text := "linear(x, w)"
	if p.b != nil {
		add("b", tensor.F32, graph.Weight, p.n)
		text = "linear(x, w, b)"
	}
	if p.s != nil {
		add("s", tensor.F32, graph.Weight, p.n)
		text = "linear_scaled_bias(x, w, s, b)"
	}
	e, err := lang.Parse(text)
	if err != nil {
		return nil, err
	}
	if _, err := b.Equation([]string{"y"}, e, sc); err != nil {
		return nil, err
	}
	return g.Nodes[0], nil
}

// f8Run is a product placed on a device.
type f8Run struct {
	dev     *hip.Device
	p       f8Product
	stream  backends.Stream
	buffers []backends.Buffer
	l       backends.Launch
}

func newF8Run(t testing.TB, dev *hip.Device, p f8Product) *f8Run {
	t.Helper()
	n, err := p.node()
	if err != nil {
		t.Fatal(err)
	}
	k, err := dev.Kernel(n)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	r := &f8Run{dev: dev, p: p, stream: s, l: backends.Launch{Node: n, Kernel: k}}
	t.Cleanup(r.close(t))
	r.l.In = []backends.Operand{r.place(t, or32(p.in), floatBytes(or32(p.in), p.x), p.m, p.k), {}}
	if pack := k.Packing(1); pack != nil {
		w := make([]byte, pack.Size(p.typ, tensor.Shape{p.n, p.k}))
		if err := pack.Pack(w, p.w, p.typ, tensor.Shape{p.n, p.k}, 0, p.n); err != nil {
			t.Fatal(err)
		}
		r.l.In[1] = r.place(t, p.typ, w, p.n, p.k)
		r.l.In[1].Packing = pack.ID
	} else {
		r.l.In[1] = r.place(t, p.typ, p.w, p.n, p.k)
	}
	for _, v := range [][]float32{p.s, p.b} {
		if v != nil {
			r.l.In = append(r.l.In, r.place(t, tensor.F32, floatBytes(tensor.F32, v), p.n))
		}
	}
	r.l.Out = []backends.Operand{r.place(t, or32(p.out), make([]byte, or32(p.out).RowBytes(p.m*p.n)), p.m, p.n)}
	if n := k.Traits().Scratch; n > 0 {
		r.l.Scratch = r.place(t, tensor.U8, make([]byte, n), n)
	}
	return r
}

func (r *f8Run) place(t testing.TB, typ tensor.Type, data []byte, shape ...int) backends.Operand {
	t.Helper()
	b, err := r.dev.Alloc(len(data), backends.Arena)
	if err != nil {
		t.Fatal(err)
	}
	r.buffers = append(r.buffers, b)
	if err := r.stream.Write(b, 0, data); err != nil {
		t.Fatal(err)
	}
	o := backends.Operand{Buffer: b, Type: typ, Shape: shape}
	o.Stride = typ.RowBytes(o.RowElems())
	return o
}

func (r *f8Run) close(t testing.TB) func() {
	return func() {
		for _, b := range r.buffers {
			if err := b.Free(); err != nil {
				t.Error(err)
			}
		}
		if err := r.stream.Close(); err != nil {
			t.Error(err)
		}
	}
}

// run launches the product once and gives y's bytes.
func (r *f8Run) run(t testing.TB) []byte {
	t.Helper()
	y := make([]byte, or32(r.p.out).RowBytes(r.p.m*r.p.n))
	if err := errors.Join(r.stream.Launch(&r.l), r.stream.Read(r.l.Out[0].Buffer, 0, y)); err != nil {
		t.Fatal(err)
	}
	return y
}

func (r *f8Run) floats(t testing.TB) []float32 {
	t.Helper()
	y := make([]float32, r.p.m*r.p.n)
	if err := quant.Decode(or32(r.p.out), y, r.run(t)); err != nil {
		t.Fatal(err)
	}
	return y
}

func floatBytes(typ tensor.Type, v []float32) []byte {
	b := make([]byte, typ.RowBytes(len(v)))
	if err := quant.Encode(typ, b, v, len(v)); err != nil {
		panic(err)
	}
	return b
}

// random fills a product with normal activations and weights.
func (p f8Product) random(bias bool) f8Product {
	rng := rand.New(rand.NewPCG(uint64(p.m*p.n+p.k), uint64(p.typ)))
	var numbers [1 << 14]float32 // normal ones, of which activations and weights are drawn
	var codes [len(numbers)]uint16
	for i := range numbers {
		numbers[i] = float32(rng.NormFloat64())
		if codes[i] = float16.Fromfloat32(numbers[i]).Bits(); isF8(p.typ) {
			codes[i] = uint16(tensor.F32ToF8(p.typ, numbers[i]))
		}
	}
	p.x = make([]float32, p.m*p.k)
	for i := range p.x {
		p.x[i] = numbers[rng.Uint32()%uint32(len(numbers))]
	}
	p.w = make([]byte, p.typ.RowBytes(p.n*p.k))
	for i := range p.n * p.k {
		c := codes[rng.Uint32()%uint32(len(codes))]
		if isF8(p.typ) {
			p.w[i] = byte(c)
		} else {
			binary.LittleEndian.PutUint16(p.w[2*i:], c)
		}
	}
	if bias {
		p.b = make([]float32, p.n)
		for i := range p.b {
			p.b[i] = float32(rng.NormFloat64())
		}
	}
	return p
}

// check compares some of y's rows and columns, as many as most at least, with float64 on the decoded weights.
func (p f8Product) check(y []float32, most int) error {
	var off, all float64
	w := make([]float64, p.k)
	for n := 0; n < p.n; n += max(1, p.n/most) {
		for k := range w {
			if i := n*p.k + k; isF8(p.typ) {
				w[k] = float64(tensor.F8ToF32(p.typ, p.w[i]))
			} else {
				w[k] = float64(float16.Frombits(binary.LittleEndian.Uint16(p.w[2*i:])).Float32())
			}
		}
		for m := 0; m < p.m; m += max(1, p.m/most) {
			v := 0.0
			for k, a := range p.x[m*p.k:][:p.k] {
				v += float64(a) * w[k]
			}
			if p.s != nil {
				v *= float64(p.s[n])
			}
			if p.b != nil {
				v += float64(p.b[n])
			}
			d := float64(y[m*p.n+n]) - v
			if math.IsNaN(d) {
				return fmt.Errorf("y[%d, %d] is %v, not %v", m, n, y[m*p.n+n], v)
			}
			off += d * d
			all += v * v
		}
	}
	limit := 2e-3
	if p.out == tensor.BF16 {
		limit = 4e-3 // its own rounding is up to 2^-9
	}
	rel := math.Sqrt(off / all)
	if p.fp8 {
		if limit = 3e-2; rel < 1.5e-2 {
			return fmt.Errorf("relative L2 %.3g: x was not rounded to 8 bits", rel)
		}
	}
	if rel > limit {
		return fmt.Errorf("relative L2 %.3g, more than %g", rel, limit)
	}
	return nil
}

// TestF8Products checks sizes that are no multiples of anything, with every type and configuration.
func TestF8Products(t *testing.T) {
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	for _, typ := range f8Types {
		t.Run(typ.String(), func(t *testing.T) {
			var names []string
			var runs []f8Run
			for i, p := range []f8Product{{typ: typ, m: 1501, n: 1603, k: 96}, {typ: typ, m: 130, n: 259, k: 1000},
				{typ: typ, m: 9, n: 40, k: 7}, {typ: typ, m: 3, n: 300, k: 200}, {typ: typ, m: 300, n: 77, k: 4099},
				{typ: typ, m: 600, n: 1000, k: 1500},
				{typ: typ, m: 2500, n: 2100, k: 700}} {
				r := newF8Run(t, dev, p.random(i%2 == 0))
				for _, v := range dev.Variants(r.l.Node) {
					r.choose(t, v)
					names, runs = append(names, fmt.Sprintf("%dx%dx%d/%s", p.m, p.n, p.k, v)), append(runs, *r)
				}
			}
			checkAll(t, dev, names, runs)
		})
	}
	dev.Choose(nil)
}

// checkAll checks products, each as a test of its name.
func checkAll(t *testing.T, dev *hip.Device, names []string, runs []f8Run) {
	t.Helper()
	compileAll(t, dev, runs)
	for i, r := range runs {
		t.Run(names[i], func(t *testing.T) {
			if err := r.p.check(r.floats(t), 200); err != nil {
				t.Error(err)
			}
		})
	}
}

// onFP8 runs a test on the device with the path of fp8 instructions on, where it has some: of Hopper by wgmma and,
// as if it were an sm_89, by mma.sync. types are those of the device.
func onFP8(t *testing.T, f func(t *testing.T, dev *hip.Device, types []tensor.Type)) {
	t.Helper()
	levels := []string{"", "sm_89"}
	for _, level := range levels {
		dev := openHalf(t)
		own := dev.Info().Level
		if level == "" {
			level = own
		} else if own != "sm_90" {
			closing(t, dev)
			continue
		}
		dev.As(level)
		t.Run(level, func(t *testing.T) {
			t.Cleanup(func() { closing(t, dev) }) // behind what tests place
			if hip.FP8Types(level) == nil {
				t.Skipf("%s has no fp8 instructions", level)
			}
			if err := dev.SetPath("fp8", true); err != nil {
				t.Fatal(err)
			}
			f(t, dev, hip.FP8Types(level))
		})
	}
}

// TestFP8Products checks products by fp8 instructions, of all configurations: x is rounded to 8 bits, and nothing
// else is.
func TestFP8Products(t *testing.T) {
	onFP8(t, func(t *testing.T, dev *hip.Device, types []tensor.Type) {
		var names []string
		var runs []f8Run
		for i, p := range []f8Product{{m: 1501, n: 1603, k: 96}, {m: 130, n: 259, k: 1008}, {m: 9, n: 40, k: 16},
			{m: 3, n: 300, k: 208}, {m: 300, n: 77, k: 4112},
			{m: 600, n: 1000, k: 1504}, {m: 2500, n: 2100, k: 704}, {m: 256, n: 384, k: 512}, {m: 257, n: 300, k: 1003},
			{m: 20, n: 70, k: 25008}} {
			for _, typ := range types {
				if dev.Info().Level != "sm_90" && (p.k%16 != 0 || p.m <= 8) {
					continue // exact there
				}
				p.typ, p.fp8 = typ, true
				r := newF8Run(t, dev, p.random(i%2 == 0))
				variants := dev.Variants(r.l.Node)
				if len(variants) == 0 {
					variants = []string{""}
				}
				for _, v := range variants {
					r.choose(t, v)
					names, runs = append(names, fmt.Sprintf("%s/%dx%dx%d/%s", typ, p.m, p.n, p.k, v)), append(runs, *r)
				}
			}
		}
		checkAll(t, dev, names, runs)
		dev.Choose(nil)
	})
}

// TestFP8Halves is TestF8Halves by fp8 instructions.
func TestFP8Halves(t *testing.T) {
	onFP8(t, func(t *testing.T, dev *hip.Device, types []tensor.Type) {
		if dev.Info().Level != "sm_90" {
			t.Skip("activations are f32 there")
		}
		checkHalves(t, dev, types, true)
	})
}

// TestFP8Whole: activations that 8-bit floats hold give results as exact as half precision's, however large or small
// a row, zeros zeros, rows that have an infinity or a NaN NaN, and their neighbours none.
func TestFP8Whole(t *testing.T) {
	onFP8(t, func(t *testing.T, dev *hip.Device, types []tensor.Type) {
		for _, typ := range types {
			p := f8Product{typ: typ, m: 200, n: 333, k: 2064}.random(false)
			for i := range p.x {
				// the row's factor takes it back
				p.x[i] = tensor.F8ToF32(tensor.F8E4M3, tensor.F32ToF8(tensor.F8E4M3, p.x[i])) * 1024
			}
			y := newF8Run(t, dev, p).floats(t)
			if err := p.check(y, 400); err != nil {
				t.Errorf("%s: %v", typ, err)
			}
			// Powers of two change nothing but the factor: 2^-120 and, divided before it is stored, 2^105.
			for m, by := range map[int]float64{5: -120, 6: 105, 7: -60} {
				for i := range p.k {
					p.x[m*p.k+i] *= float32(math.Exp2(by))
				}
			}
			clear(p.x[8*p.k : 9*p.k])
			z := newF8Run(t, dev, p).floats(t)
			for i, v := range z {
				want := y[i]
				switch i / p.n {
				case 5:
					want *= float32(math.Exp2(-120))
				case 6:
					want *= float32(math.Exp2(105))
				case 7:
					want *= float32(math.Exp2(-60))
				case 8:
					want = 0
				}
				if v != want {
					t.Fatalf("%s: y[%d, %d] is %v, want %v", typ, i/p.n, i%p.n, v, want)
				}
			}
			p.x[3*p.k+2000], p.x[77*p.k] = float32(math.Inf(-1)), float32(math.NaN())
			for i, v := range newF8Run(t, dev, p).floats(t) {
				if m := i / p.n; (m == 3 || m == 77) != (v != v) || v == v && v != z[i] {
					t.Fatalf("%s: y[%d, %d] is %v, without infinity and NaN in rows 3 and 77 %v", typ, m, i%p.n, v, z[i])
				}
			}
		}
	})
}

// compileAll compiles what launches need on all cores, which launched one after
// another would compile one after another.
func compileAll(t testing.TB, dev *hip.Device, runs []f8Run) {
	t.Helper()
	p := &backends.Program{Name: "compile"}
	for _, r := range runs {
		p.Launches = append(p.Launches, r.l)
	}
	e, err := dev.Capture(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// TestF8Halves: activations of f16, results of f16 and bf16, factors and bias.
func TestF8Halves(t *testing.T) {
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	checkHalves(t, dev, f8Types[:2], false)
}

func checkHalves(t *testing.T, dev *hip.Device, types []tensor.Type, fp8 bool) {
	t.Helper()
	for _, typ := range types {
		for _, out := range []tensor.Type{tensor.F16, tensor.BF16} {
			for _, m := range []int{9, 200} {
				p := f8Product{typ: typ, m: m, n: 333, k: 515, in: tensor.F16, out: out, fp8: fp8}.random(true)
				for i := range p.x {
					p.x[i] = float16.Fromfloat32(p.x[i]).Float32()
				}
				p.s = make([]float32, p.n)
				for i := range p.s {
					p.s[i] = 0.5 + float32(i%9)
				}
				if err := p.check(newF8Run(t, dev, p).floats(t), 400); err != nil {
					t.Errorf("%s to %s, %d rows: %v", typ, out, m, err)
				}
			}
		}
	}
}

// TestFP8Codes is TestF8Codes by fp8 instructions.
func TestFP8Codes(t *testing.T) {
	onFP8(t, func(t *testing.T, dev *hip.Device, types []tensor.Type) {
		for _, typ := range types {
			checkCodes(t, dev, typ, 64, true)
		}
	})
}

// TestF8Codes multiplies the identity by every code at every place of a line: what
// comes back is the code's number, bit for bit, with NaN and infinities.
func TestF8Codes(t *testing.T) {
	for _, rows := range []int{1, 5, 64} { // row by row, few, tiles
		for _, half := range []bool{false, true} {
			t.Run(fmt.Sprintf("rows=%d/half=%v", rows, half), func(t *testing.T) {
				opt := hip.Options{}
				if half {
					opt.FP16 = backends.On
				}
				dev := openWith(t, opt)
				t.Cleanup(func() { closing(t, dev) })
				for _, typ := range f8Types {
					checkCodes(t, dev, typ, rows, dev.Rounding().F16)
				}
			})
		}
	}
}

func checkCodes(t *testing.T, dev *hip.Device, typ tensor.Type, rows int, half bool) {
	const k = 64
	p := f8Product{typ: typ, m: rows, n: 256 * rows, k: k, x: make([]float32, rows*k), w: make([]byte, 256*rows*k)}
	for m := range rows {
		p.x[m*k+m] = 1
		for c := range 256 {
			p.w[(m*256+c)*k+m] = byte(c)
		}
	}
	y := newF8Run(t, dev, p).floats(t)
	for n := range p.n {
		m, c := n/256, n%256
		got, want := y[m*p.n+n], tensor.F8ToF32(typ, byte(c))
		if got == want || got != got && want != want {
			continue
		}
		if math.IsInf(float64(want), 0) && got != got && !half && rows > 8 {
			continue // activations in two parts: the second is 0 and 0·∞ is NaN
		}
		t.Errorf("%s: code %#x is %v, not %v", typ, c, got, want)
	}
}

// TestF8Identity: zero weights give the bias and the identity gives x, exactly.
func TestF8Identity(t *testing.T) {
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	for _, typ := range f8Types {
		p := f8Product{typ: typ, m: 200, n: 192, k: 192}.random(true)
		clear(p.w)
		y := newF8Run(t, dev, p).floats(t)
		for i := range y {
			if y[i] != p.b[i%p.n] {
				t.Fatalf("%s: zero weights give %v at %d, the bias is %v", typ, y[i], i, p.b[i%p.n])
			}
		}
		p.b = nil
		for i := range p.n {
			p.w[i*p.k+i] = tensor.F32ToF8(typ, 1)
		}
		for i := range p.x { // numbers that a half holds with its row's scale
			p.x[i] = float32(int(p.x[i]*256)) / 256
		}
		y = newF8Run(t, dev, p).floats(t)
		for i := range y {
			if y[i] != p.x[i] {
				t.Fatalf("%s: the identity gives %v at %d, x is %v", typ, y[i], i, p.x[i])
			}
		}
	}
}

// TestF8Checkpoint: a checkpoint with factors beside its matrices agrees with float64
// operator by operator, and joined as well as launch by launch.
func TestF8Checkpoint(t *testing.T) {
	src, err := openfile.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, paths := range []string{"exact", "fp16", "fp8"} {
		dev := open(t)
		if paths != "exact" {
			closing(t, dev)
			dev = openHalf(t)
		}
		if paths == "fp8" {
			if hip.FP8Types(dev.Info().Level) == nil {
				closing(t, dev)
				continue
			}
			if err := dev.SetPath("fp8", true); err != nil {
				t.Fatal(err)
			}
		}
		opt := engine.Options{Model: file, Source: testkit.ScaledFP8{Source: src}, Device: dev, Context: 64, KV: tensor.F32}
		r, err := engine.Check(t.Context(), engine.CheckOptions{Options: opt, Ref: ref.New()})
		if err != nil {
			t.Fatal(err)
		}
		if w := r.Worst(); w != nil {
			t.Logf("%s: limit %.1e, worst %.2e at %s %s (%s)", paths, r.Limit, w.RelL2, w.Step, w.Name, w.Op)
			if (w.RelL2 > 2e-2) != (paths == "fp8") {
				t.Errorf("%s: worst %.2e: were activations rounded to 8 bits?", paths, w.RelL2)
			}
		}
		if !r.OK() {
			t.Errorf("%s: diverged %+v, prefill %v, replay %v, repeat %v", paths, r.Diverged, r.PrefillOK, r.ReplayOK,
				r.RepeatOK)
		}
		closing(t, dev)
	}
}

// TestF8Repeats runs a product of 8192³ a hundred times: all results have the same bits.
func TestF8Repeats(t *testing.T) {
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	p := f8Product{typ: tensor.F8E5M2, m: 8192, n: 8192, k: 8192}.random(false)
	r := newF8Run(t, dev, p)
	first := r.run(t)
	again := make([]byte, len(first))
	for i := range 99 {
		if err := errors.Join(r.stream.Launch(&r.l), r.stream.Read(r.l.Out[0].Buffer, 0, again)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, first) {
			t.Fatalf("run %d differs", i+1)
		}
	}
}

// TestF8Speed times products in a captured graph with the first twelve configurations, where
// GRETA_HIP_F8 names them: "f8e5m2:8192x8192x8192,f8e4m3:512x4096x4096", "f8e4m3:512x4096x4096:fp8" and those behind it
// by fp8 instructions, and
// GRETA_HIP_F8_CONFIG words of which a configuration's name must contain one.
func TestF8Speed(t *testing.T) {
	list := os.Getenv("GRETA_HIP_F8")
	if list == "" {
		t.Skip("GRETA_HIP_F8 names no products")
	}
	dev := openHalf(t)
	t.Cleanup(func() { closing(t, dev) })
	for name := range strings.SplitSeq(list, ",") {
		typ, sizes, _ := strings.Cut(name, ":")
		var p f8Product
		if sizes, p.fp8 = strings.CutSuffix(sizes, ":fp8"); p.fp8 {
			if err := dev.SetPath("fp8", true); err != nil {
				t.Fatal(err)
			}
		}
		p.typ, _ = tensor.ParseType(typ)
		if _, err := fmt.Sscanf(sizes, "%dx%dx%d", &p.m, &p.n, &p.k); err != nil || p.typ == tensor.Invalid {
			t.Fatalf("%q: expected type:MxNxK: %v", name, err)
		}
		dev.Choose(nil)
		r := newF8Run(t, dev, p.random(false))
		var all []string
		var runs []f8Run
		for _, v := range append([]string{""}, dev.Variants(r.l.Node)...) {
			if v != "" && !wanted(v) || len(all) > 12 {
				continue
			}
			all = append(all, v)
			r.choose(t, v)
			runs = append(runs, *r)
		}
		compileAll(t, dev, runs)
		for _, v := range all {
			r.choose(t, v)
			err := r.p.check(r.floats(t), 40)
			d, e := r.time()
			if err := errors.Join(err, e); err != nil {
				t.Errorf("%s %s: %v", name, v, err)
			}
			t.Logf("%s %s: %v, %.1f TFLOP/s, weights at %.0f GB/s", name, v, d,
				2*float64(p.m)*float64(p.n)*float64(p.k)/d.Seconds()/1e12,
				float64(p.typ.RowBytes(p.n*p.k))/d.Seconds()/1e9)
		}
	}
	dev.Choose(nil)
}

// wanted says whether a configuration's name contains a word of GRETA_HIP_F8_CONFIG, or there are none.
func wanted(name string) bool {
	words := strings.Fields(os.Getenv("GRETA_HIP_F8_CONFIG"))
	return len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) })
}

// choose takes another configuration of the product's kernel.
func (r *f8Run) choose(t testing.TB, v string) {
	t.Helper()
	r.dev.Choose(func(*graph.Node) string { return v })
	var err error
	if r.l.Kernel, err = r.dev.Kernel(r.l.Node); err != nil {
		t.Fatal(err)
	}
}

// time gives the time of a launch as one of several in a captured program, the median of
// replays after three that warm up.
func (r *f8Run) time() (time.Duration, error) {
	launches, replays := 10, 13
	if float64(r.p.m)*float64(r.p.n)*float64(r.p.k) > 1e11 {
		launches, replays = 3, 10
	}
	program := &backends.Program{Name: "speed"}
	for range launches {
		program.Launches = append(program.Launches, r.l)
	}
	e, err := r.dev.Capture(program)
	if err != nil {
		return 0, err
	}
	var times []time.Duration
	for range replays {
		start := time.Now()
		if err := errors.Join(e.Submit(), e.Wait()); err != nil {
			return 0, errors.Join(err, e.Close())
		}
		times = append(times, time.Since(start)/time.Duration(launches))
	}
	times = times[3:]
	slices.Sort(times)
	return times[len(times)/2], e.Close()
}
