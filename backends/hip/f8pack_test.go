package hip

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/bench/tune"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/internal/testkit"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	openfile "github.com/greta-project/greta/weights/open"
)

// TestPackF8: element k of row n lies at (k/16·N + n)·16 + k%16, what pads K is zero,
// packed in pieces as well, and short memory is refused.
func TestPackF8(t *testing.T) {
	shape := tensor.Shape{37, 131}
	src := make([]byte, shape.Elems())
	for i := range src {
		src[i] = byte(i*7 + 1)
	}
	dst := make([]byte, f8Size(tensor.F8E4M3, shape))
	for i := range dst {
		dst[i] = 0xaa
	}
	for _, r := range [][2]int{{0, 5}, {5, 36}, {36, 37}} {
		if err := packF8(dst, src, tensor.F8E4M3, shape, r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
	for n := range shape[0] {
		for k := range 256 { // 131 padded to steps of 128
			want := byte(0)
			if k < shape[1] {
				want = src[n*shape[1]+k]
			}
			if got := dst[(k/16*shape[0]+n)*16+k%16]; got != want {
				t.Fatalf("row %d, element %d: %#x, not %#x", n, k, got, want)
			}
		}
	}
	if err := packF8(dst[1:], src, tensor.F8E4M3, shape, 0, 37); err == nil {
		t.Error("memory that is too short was packed to")
	}
	if err := packF8(dst, src, tensor.F8E4M3, shape, 0, 38); err == nil {
		t.Error("a row that is not there was packed")
	}
}

// TestF8Factors: factors beside matrices cost a token no launch of their own.
func TestF8Factors(t *testing.T) {
	src, err := openfile.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	var launches [2]int
	for i, applied := range []bool{false, true} {
		dev, err := openNull("sm_90", 0, func(p program) {
			if f := string(p); strings.HasPrefix(f, "vec.hip") && strings.Contains(f, "W_E4M3") &&
				!strings.HasSuffix(f, " SCALED=1") {
				t.Errorf("factors are left to others: %s", f)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(t.Context(), engine.Options{Model: file,
			Source: testkit.ScaledFP8{Source: src, Applied: applied}, Device: dev, Context: 64})
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		step, err := s.Step(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		launches[i] = len(step.Program.Launches)
		if err := errors.Join(s.Close(), e.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	}
	if launches[0] != launches[1] {
		t.Errorf("%d launches, with factors in the weights %d", launches[0], launches[1])
	}
}

// TestF8Model: a model's steps take their layouts: packed where there are many rows of
// activations in half precision, as stored for a token and on exact paths, of which the
// device says that they are exact.
func TestF8Model(t *testing.T) {
	file, err := models.Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		level     string
		half, fp8 bool
	}{{"sm_90", false, false}, {"sm_90", true, false}, {"sm_90", false, true}, {"sm_90", true, true},
		{"sm_89", false, true}, {"gfx1201", false, false}, {"gfx1201", false, true}} {
		half := c.half
		var mu sync.Mutex
		var programs []string
		dev, err := openNull(c.level, 0, func(p program) {
			mu.Lock()
			defer mu.Unlock()
			programs = append(programs, string(p))
		})
		if err != nil {
			t.Fatal(err)
		}
		if half {
			err = dev.SetPath(pathHalf, true)
		}
		if err == nil && c.fp8 {
			err = dev.SetPath(pathFP8, true)
		}
		if err != nil || dev.Rounding().F16 != half || dev.Rounding().Quant || (dev.Rounding().F8 != nil) != c.fp8 {
			t.Fatalf("%+v: %+v, %v", c, dev.Info(), err)
		}
		opt := engine.Options{Model: file, Device: dev, Context: 64, DType: tensor.F8E4M3,
			Set: map[string]string{"D": "256", "H": "4", "G": "2", "F": "512"}}
		if err := errors.Join(engine.DryRun(opt, 1, 4, 33), dev.Close()); err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		all := strings.Join(programs, "\n")
		packed := c.level == "sm_90" && (half || c.fp8)
		for what, used := range map[string]bool{"vec.hip": true, "matvec.hip": !packed, "f8.hip": packed,
			"matrix.hip": !packed, "FP8=1": c.fp8, "FP8=0": packed && !c.fp8} {
			if strings.Contains(all, what) != used {
				t.Errorf("%+v: %s is used: %v", c, what, !used)
			}
		}
	}
}

// TestF8Tiles: tiles are those that were fastest: narrower where that leaves fewer multiprocessors idle, of as few
// rows as there are, and shared by blocks where there are fewer tiles than multiprocessors.
func TestF8Tiles(t *testing.T) {
	dev := &Device{units: 132}
	for _, c := range []struct {
		m, n, k int
		want    f8Shape
	}{
		{8192, 8192, 8192, f8Shape{1, 8, 4, 8, 2, 6, 1, false}}, {512, 11008, 4096, f8Shape{1, 12, 4, 8, 1, 6, 1, false}},
		{512, 32000, 4096, f8Shape{1, 8, 4, 8, 2, 6, 1, false}},
		{512, 4096, 4096, f8Shape{1, 8, 4, 8, 1, 8, 1, false}}, {512, 4096, 11008, f8Shape{1, 8, 4, 8, 1, 8, 1, false}},
		{128, 4096, 11008, f8Shape{1, 8, 4, 4, 1, 8, 2, false}}, {256, 4096, 4096, f8Shape{1, 8, 4, 4, 1, 8, 1, false}},
		{128, 11008, 4096, f8Shape{1, 12, 4, 4, 1, 8, 1, false}},
		{64, 4096, 4096, f8Shape{1, 8, 4, 2, 2, 8, 4, false}}, {16, 4096, 4096, f8Shape{1, 8, 4, 1, 2, 8, 4, false}},
	} {
		if all := dev.f8ShapesFor(tensor.F8E5M2, c.m, c.n, c.k); all[0] != c.want || len(all) != len(f8Shapes) {
			t.Errorf("%d×%d×%d: %s first of %d, not %s", c.m, c.n, c.k, all[0], len(all), c.want)
		}
	}
}

// TestF8Pairs: a pair is divided as its products are, so that its bits are theirs, and is taken for prompts.
func TestF8Pairs(t *testing.T) {
	dev, err := openNull("sm_90", 0, func(program) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	dev.units = 132
	for _, fp8 := range []bool{false, true} {
		if err := dev.SetPath(pathFP8, fp8); err != nil {
			t.Fatal(err)
		}
		for _, size := range [][2]int{{11008, 4096}, {18944, 3584}, {28672, 8192}, {21504, 5376}, {8192, 3072}, {512, 256}} {
			pairs := 0
			for rows := 2; rows <= 1024; rows += 1 + rows/8 {
				p := product{columns: rows, w: &backends.Operand{Type: tensor.F8E4M3, Shape: tensor.Shape{size[0], size[1]}}}
				one := dev.f8Shape(&p)
				s, ok := dev.f8Pair(&p)
				if one.fp8 != fp8 || s.fp8 != fp8 || s.split != one.split || ok && s.repeatN != 2 {
					t.Errorf("fp8 %v, %d rows, %v: a pair by %s, products by %s", fp8, rows, size, s, one)
				}
				if ok {
					pairs++
				}
			}
			if _, ok := dev.f8Pair(&product{columns: 512, w: &backends.Operand{Type: tensor.F8E4M3,
				Shape: tensor.Shape{size[0], size[1]}}}); !ok && size[0] > 10000 || pairs == 0 {
				t.Errorf("fp8 %v, %v: %d pairs, none for 512 rows", fp8, size, pairs)
			}
		}
	}
}

// TestF8OptIn: fp8 instructions that are asked for and have nothing to multiply are an error that says for which
// weights they are; and their peak is twice that of f16.
func TestF8OptIn(t *testing.T) {
	dev, err := openNull("sm_90", 0, func(program) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	dev.gflops = 1e6 // a null device has no clock
	dev.say()
	plain := dev.Info()
	if err := dev.SetPath(pathFP8, true); err != nil {
		t.Fatal(err)
	}
	if i := dev.Info(); i.GFlops != 2e6 || plain.GFlops != 1e6 {
		t.Errorf("peak %g, without fp8 %g", i.GFlops, plain.GFlops)
	}
	for _, c := range []struct {
		typ  tensor.Type
		m    int
		used bool
	}{{tensor.F8E4M3, 16, true}, {tensor.F8E5M2, 2, true}, {tensor.F8E4M3, 1, false}, {tensor.F16, 16, false},
		{tensor.F8E4M3FNUZ, 16, false}} {
		o, err := op.New(ops.Linear, op.Request{Sizes: map[string]int{"m": c.m, "n": 64, "k": 64}, Type: c.typ, At: -1,
			Float: tensor.F32})
		if err != nil {
			t.Fatal(err)
		}
		for _, on := range []bool{true, false} {
			if err := dev.SetPath(pathFP8, on); err != nil {
				t.Fatal(err)
			}
			err = engine.CheckOptIn(dev, []*graph.Node{o.Node})
			if (err == nil) != (c.used || !on) || err != nil && !strings.Contains(err.Error(), "[f8e4m3 f8e5m2]") {
				t.Errorf("%+v, on %v: %v", c, on, err)
			}
			if f8 := strings.Contains(tune.KeyOf(dev, o.Node).Mode, "f8"); f8 != (c.used && on) {
				t.Errorf("%+v, on %v: the key of tuned variants says f8: %v", c, on, f8)
			}
		}
	}
}

// TestF8Configurations: what greta bench op linear --type f8e5m2 --config names is taken, and compiled
// as it is named.
func TestF8Configurations(t *testing.T) {
	compiled := map[program]bool{}
	dev, err := openNull("sm_90", 0, func(p program) { compiled[p] = true })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	if err := dev.SetPath(pathHalf, true); err != nil {
		t.Fatal(err)
	}
	c, err := op.New(ops.Linear, op.Request{Sizes: map[string]int{"m": 8192, "n": 8192, "k": 8192}, Type: tensor.F8E5M2,
		At: -1, Float: dev.Info().Float})
	if err != nil {
		t.Fatal(err)
	}
	if all := dev.Variants(c.Node); len(all) != len(f8Shapes) {
		t.Fatalf("%d configurations: %q", len(all), all)
	}
	place := func(v *graph.Value, size int, packing string) backends.Operand {
		b, err := dev.Alloc(size, backends.Arena)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free() })
		return backends.Operand{Buffer: b, Type: v.Type, Shape: v.Shape, Stride: v.Type.RowBytes(v.Shape.Last()),
			Packing: packing}
	}
	x, w, y := c.Node.In[0], c.Node.In[1], c.Node.Out[0]
	l := backends.Launch{Node: c.Node, In: []backends.Operand{place(x, x.Bytes(), ""),
		place(w, f8Size(w.Type, w.Shape), f8Packing.ID)}, Out: []backends.Operand{place(y, y.Bytes(), "")}}
	for _, s := range f8Shapes {
		dev.Choose(func(*graph.Node) string { return s.String() })
		if l.Kernel, err = dev.Kernel(c.Node); err != nil {
			t.Fatal(err)
		}
		e, err := dev.Capture(&backends.Program{Launches: []backends.Launch{l}})
		if err == nil {
			err = e.Close()
		}
		if p := s.program("W_TYPE=W_E5M2", "BIAS=0", tensor.F32, ""); err != nil || !compiled[p] {
			t.Errorf("%s: %s was not compiled, %v", s, p, err)
		}
	}
}
