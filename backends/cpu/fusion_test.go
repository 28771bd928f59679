package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
)

// watched is a device that counts what captured programs bring to another form.
type watched struct {
	*Device
	fused, kept, apart int // by the step that makes it; stored in f32 too; by a step of its own
}

func (w *watched) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := w.Device.Capture(p)
	if err != nil {
		return nil, err
	}
	w.fused, w.kept, w.apart = 0, 0, 0
	count := func(keep bool) {
		w.fused++
		if keep {
			w.kept++
		}
	}
	products := func(all ...*linear) {
		for _, t := range all {
			if x := roundingOf(t); x != nil && x.of == nil && !x.made {
				w.apart++
			}
		}
	}
	for _, s := range e.(*executable).sequence {
		switch t := s.(type) {
		case *making:
			count(t.keep)
		case *prefillAttention:
			if t.to != nil {
				count(t.keep)
			}
		case *joined:
			products(t.parts...)
		case *linear:
			products(t)
		}
	}
	return e, nil
}

// TestMaking: where norms, gates and attention bring their results to the form that products
// want, results are to the bit what launches one by one give, and the f32 results are left out
// only where nothing else reads them.
func TestMaking(t *testing.T) {
	type counts struct{ fused, kept, apart int }
	for _, c := range []struct {
		name, body string
		set        map[string]string
		want       counts // of many tokens, with weights whose products round
	}{
		{"norm", "n: rmsnorm(x, g, eps=1e-5); y: linear(n, w) + linear(n, v)", nil, counts{1, 0, 0}},
		{"gate", "a: silu(x) * x; y: linear(a, w)", nil, counts{1, 0, 0}},
		{"read by a sum", "n: rmsnorm(x, g, eps=1e-5); y: linear(n, w) * n", nil, counts{1, 1, 0}},
		{"added to its own product", "n: rmsnorm(x, g, eps=1e-5); y: n + linear(n, w)", nil, counts{1, 1, 0}},
		{"read by a product far behind", "n: rmsnorm(x, g, eps=1e-5); a: linear(n, w); b: linear(sigmoid(a), v); c: " +
			"linear(b, w); y: linear(n, v) + c", nil, counts{2, 1, 2}},
		{"two norms at once", "n: rmsnorm(x, g, eps=1e-5); m: silu(n) * n; y: linear(n, w) + linear(m, v)", nil,
			counts{1, 1, 1}},
		{"llama", "", map[string]string{"D": "256", "H": "8", "G": "2", "Dh": "32", "F": "512"}, counts{4, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join("..", "..", "models", "llama2_block.yaml")
			if c.body != "" {
				text := "block: b\nin:\n  x: float[S, D]\nparams: {D: 128}\nweights:\n"
				for name, shape := range map[string]string{"w": "[D, D]", "v": "[D, D]", "g": "[D]"} {
					if strings.Contains(c.body, ", "+name) {
						text += fmt.Sprintf("  %s: {shape: %s, gguf: %s, hf: %s}\n", name, shape, name, name)
					}
				}
				text += "body:\n  " + strings.ReplaceAll(c.body, "; ", "\n  ") + "\nout: y\n"
				path = filepath.Join(t.TempDir(), "b.yaml")
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, threads := range []int{1, 2, 3} {
				for _, typ := range []tensor.Type{tensor.Q4_0, tensor.BF16, tensor.F32} {
					d, err := New(threads)
					if err != nil {
						t.Fatal(err)
					}
					w := &watched{Device: d}
					run := func(eager bool) []float32 {
						return RunBlock(t, path, engine.Options{Device: w, DType: typ, Eager: eager, Set: c.set}, 1, 3, 13, 1, 61)
					}
					got, want := run(false), run(true)
					if !slices.Equal(got, want) {
						t.Errorf("%s, %d threads: replay differs from launches one by one", typ, threads)
					}
					// The last step that was captured is that of many tokens.
					if is := (counts{w.fused, w.kept, w.apart}); typ == tensor.Q4_0 && !d.k.HasUnit() && is != c.want {
						t.Errorf("%s, %d threads: fused, stored in f32 too, apart: %v, want %v", typ, threads, is, c.want)
					}
					d.Close()
				}
			}
		})
	}
}

// RunBlock gives what steps of so many tokens each give, one after another.
func RunBlock(t *testing.T, path string, opt engine.Options, steps ...int) (all []float32) {
	t.Helper()
	var err error
	if opt.Model, err = models.Load(path); err != nil {
		t.Fatal(err)
	}
	opt.Context = 128
	e, err := engine.New(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s, err := e.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	for _, tokens := range steps {
		x := make([]float32, tokens*e.Decode().Input("x").Shape[1])
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		y, err := s.Block(x)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, y...)
	}
	return all
}

// TestQuantisePart checks that a row that is rounded in parts is the row that is rounded at once.
func TestQuantisePart(t *testing.T) {
	for _, k := range simd.Levels() {
		const cols, n = 224, 5
		x := make([]float32, cols)
		for i := range x {
			x[i] = float32(i*i%37) - 18
		}
		for _, group := range []int{1, 8} {
			whole := &simd.Quants{N: n, Cols: cols, Group: group, Data: make([]byte, simd.QuantsLen(n, cols, group))}
			parts := &simd.Quants{N: n, Cols: cols, Group: group, Data: make([]byte, simd.QuantsLen(n, cols, group))}
			for i := range n {
				k.Quantise(whole, i, x)
				for _, part := range [][2]int{{128, 192}, {0, 64}, {192, cols}, {64, 128}} {
					k.QuantisePart(parts, i, part[0], x[part[0]:part[1]])
				}
			}
			if !slices.Equal(whole.Data, parts.Data) {
				t.Errorf("%s, groups of %d: other bytes", k.Name, group)
			}
		}
	}
}
