//go:build linux && (amd64 || arm64) && !nogpu

package vulkan_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/vulkan"
	"github.com/greta-project/greta/backends/vulkan/vk"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/golden"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	openfile "github.com/greta-project/greta/weights/open"
)

// TestFolds: a token's step of a Llama has seven dispatches a block (q, k, v, attention, its
// product, gate and up, down), with plain weights and with bytes, and gives what
// the launches by themselves give. A sample has the first case and the last: plain weights and
// blocks, not ahead and ahead; the first alone where not every case is asked for.
func TestFolds(t *testing.T) {
	recorded := 0
	dev, err := broken(t, func(c *vk.Commands) {
		tap(&c.CmdDispatchAddr, func(int) vk.Result { recorded++; return vk.VK_SUCCESS })
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	for _, p := range dev.Paths() {
		if err := dev.SetPath(p.Name, true); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct {
		dtype   tensor.Type
		kv      tensor.Type
		context int
		limit   float64
		ahead   bool
	}{
		// A norm adds in another order, and a key may then round to its neighbour in f16.
		{tensor.F16, tensor.F16, 64, 1e-4, false}, {tensor.BF16, tensor.F32, 1500, 1e-5, false},
		{tensor.F16, tensor.F16, 600, 1e-4, true},
		// One byte that rounds the other way changes those behind it.
		{tensor.Q8_0, tensor.F16, 64, 2e-2, false}, {tensor.Q4_K, tensor.BF16, 1500, 2e-2, false},
		{tensor.Q4_0, tensor.F16, 600, 2e-2, true},
		{tensor.Q6_K, tensor.F16, 64, 2e-2, false}, {tensor.Q5_1, tensor.F16, 64, 2e-2, false},
		{tensor.Q5_K, tensor.F16, 64, 2e-2, true},
	} {
		if sample(dev) && i%8 != 0 || taste(dev, testfiles.Exhaustive()) && i > 0 {
			continue
		}
		t.Run(fmt.Sprintf("%s kv %s context %d", c.dtype, c.kv, c.context), func(t *testing.T) {
			if err := ordered(t, dev, c.ahead); err != nil { // steps hand over, and what runs by itself must not
				t.Log(err)
			}
			var per [2]int
			inner := "768"
			if c.dtype == tensor.Q8_0 || c.dtype == tensor.Q4_0 { // handq.comp takes such rows in two turns
				inner = "8320"
			}
			for i, layers := range []string{"2", "3"} {
				s := session(t, dev, func(o *engine.Options) {
					o.DType, o.KV, o.Context = c.dtype, c.kv, c.context
					o.Set = map[string]string{"L": layers, "D": "256", "H": "4", "G": "2", "F": inner, "V": "500"}
				})
				tokens(t, dev, s, layers+" layers, ", c.limit)
				e := eagerly(t, dev, s)
				recorded = 0
				if err := e.Submit(); err != nil {
					t.Fatal(err)
				}
				per[i] = recorded
			}
			want := 7
			if len(dev.Paths()) < 2 && c.dtype.IsBlock() {
				want = per[1] - per[0]
			}
			if per[1]-per[0] != want {
				t.Errorf("a block has %d dispatches, not %d", per[1]-per[0], want)
			}
		})
	}
}

// TestFoldsWithBiases: a Llama whose every product has a bias gives in a step what its launches
// give one by one. A sample has f32 without half precision and f16 with it; only the latter where not every case is
// asked for.
func TestFoldsWithBiases(t *testing.T) {
	dir := t.TempDir()
	if err := golden.Unpack(testfiles.Repo(t, "testdata", "golden", "llama_bias"), dir); err != nil {
		t.Fatal(err)
	}
	src, err := openfile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	file, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	for j, fp16 := range []backends.Choice{backends.Off, backends.On} {
		dev := open(t, vulkan.Options{FP16: fp16})
		for i, c := range []struct {
			dtype tensor.Type
			limit float64
		}{{tensor.F32, 1e-5}, {tensor.F16, 1e-4}, {tensor.BF16, 1e-4}} {
			if sample(dev) && i != j || taste(dev, testfiles.Exhaustive()) && j == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%v/%s", fp16, c.dtype), func(t *testing.T) {
				s := session(t, dev, func(o *engine.Options) {
					*o = engine.Options{Model: file, Source: src, Device: dev, Context: 64, DType: c.dtype, KV: tensor.F32}
				})
				tokens(t, dev, s, "", c.limit)
			})
		}
	}
}

// TestFresh: attention of one token with its rotations and stores gives what the launches by themselves give, at
// the ends of turns and of parts, with windows and without, of heads that share their keys and that do not.
func TestFresh(t *testing.T) {
	whole(t)
	dev := open(t, vulkan.Options{FP16: backends.Off})
	gemma, err := models.Builtin("gemma2_2b") // softcap; every other layer has a window
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		kv     tensor.Type
		change func(o *engine.Options)
		depths []int
	}{
		{"llama", tensor.F16, func(o *engine.Options) {
			o.Context, o.Set = 70, map[string]string{"L": "2", "D": "256", "H": "4", "F": "64", "V": "4100"}
		}, []int{1, 30, 31, 32, 33, 66}},
		{"many heads", tensor.BF16, func(o *engine.Options) { // up to four turns alone, and two a part
			o.Context, o.Set = 1300, map[string]string{"L": "1", "D": "1024", "H": "32", "G": "4", "F": "64", "V": "4100"}
		}, []int{126, 127, 511, 1290}},
		{"gemma", tensor.F16, func(o *engine.Options) {
			o.Model, o.Context = gemma, 400
			o.Set = map[string]string{"L": "2", "D": "128", "H": "4", "G": "2", "Dh": "64", "F": "64", "V": "4100", "W": "40"}
		}, []int{38, 39, 40, 97, 128, 390}},
		{"gemma wide window", tensor.F16, func(o *engine.Options) {
			o.Model, o.Context = gemma, 900
			o.Set = map[string]string{"L": "2", "D": "128", "H": "4", "G": "2", "Dh": "64", "F": "64", "V": "4100", "W": "330"}
		}, []int{254, 255, 256, 329, 330, 383, 384, 640, 700, 895}},
		{"heads of 128", tensor.F16, func(o *engine.Options) {
			o.Context, o.Set = 600, map[string]string{"L": "1", "D": "512", "H": "4", "G": "2", "F": "64", "V": "4100"}
		}, []int{31, 126, 127, 128, 159, 160, 590}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := session(t, dev, func(o *engine.Options) {
				o.DType, o.KV, o.Chunk = tensor.F16, c.kv, 128
				c.change(o)
			})
			for _, n := range c.depths {
				s.Reset()
				if _, err := s.Prefill(context.Background(), prompt(n)); err != nil {
					t.Fatal(err)
				}
				for token := range int32(2) {
					got, err := s.Decode(5 + token)
					if err != nil {
						t.Fatal(err)
					}
					if r := relative(got, oneByOne(t, dev, s, 1)); !(r <= 1e-4) {
						t.Errorf("behind %d positions: a step differs from its launches one by one by %.2e", n+int(token), r)
					}
				}
			}
		})
	}
}

// sunk is a model of one attention, whose heads have sinks.
const sunk = `model: sunk
in:
  tokens: i32[S]
  pos: i32[S]
  last: i32[R]
params:
  V: 5000
weights:
  tok_embd: {shape: [V, 256], gguf: tok_embd}
  wk:       {shape: [128, 256], gguf: wk}
  wv:       {shape: [128, 256], gguf: wv}
  sinks:    {shape: [4], gguf: sinks}
  lm_head:  {shape: [V, 256], gguf: lm_head}
state:
  kc: float[C, 2, 64]
  vc: float[C, 2, 64]
body:
  x: embed(tokens, tok_embd)
  q: rope(x as [S, 4, 64], pos, base=10000)
  ks: push(kc, rope(linear(x, wk) as [S, 2, 64], pos, base=10000), pos)
  vs: push(vc, linear(x, wv) as [S, 2, 64], pos)
  y: attention(q, ks, vs, pos, sinks, scale=0.125, window=90)
  logits: linear(rows(y as [S, 256], last), lm_head)
out: logits
`

// TestFreshSinks: so does attention with sinks, which is folded as well.
func TestFreshSinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sunk.yaml")
	if err := os.WriteFile(path, []byte(sunk), 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := models.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for shader, kv := range map[string]tensor.Type{"attention_one": tensor.F16, "attention_fresh_": tensor.F32} {
		t.Run(shader, func(t *testing.T) {
			dev := open(t, vulkan.Options{FP16: backends.Off})
			s := session(t, dev, func(o *engine.Options) {
				o.Model, o.Set, o.DType, o.KV, o.Context = file, nil, tensor.F32, kv, 300
			})
			for _, n := range []int{1, 31, 200} {
				s.Reset()
				if _, err := s.Prefill(context.Background(), prompt(n)); err != nil {
					t.Fatal(err)
				}
				got, err := s.Decode(5)
				if err != nil {
					t.Fatal(err)
				}
				if r := relative(got, oneByOne(t, dev, s, 1)); !(r <= 1e-4) {
					t.Errorf("behind %d positions: a step differs from its launches one by one by %.2e", n, r)
				}
			}
			if !dev.Made(shader) {
				t.Errorf("%s did not run", shader)
			}
		})
	}
}

// TestGateBeside: a gate reads bytes and writes bytes, which may want the same size of memory. In a
// Gemma 2 the norm before it is no fold, so that both are forms. A sample has each
// width with one type, or the wider one.
func TestGateBeside(t *testing.T) {
	dev := open(t, vulkan.Options{FP16: backends.On})
	file, err := models.Builtin("gemma2_2b")
	if err != nil {
		t.Fatal(err)
	}
	for j, width := range []string{"256", "768"} { // the codes lie in one size of memory, or the scales only
		for i, dtype := range []tensor.Type{tensor.Q4_0, tensor.Q8_0, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K, tensor.Q5_1} {
			if sample(dev) && i != 2*j || taste(dev, testfiles.Exhaustive()) && j == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", width, dtype), func(t *testing.T) {
				s := session(t, dev, func(o *engine.Options) {
					o.Model, o.DType, o.KV, o.Context = file, dtype, tensor.F16, 64
					o.Set = map[string]string{"L": "1", "D": "256", "H": "4", "G": "2", "Dh": "64", "F": width, "V": "500"}
				})
				tokens(t, dev, s, "", 2e-2)
			})
		}
	}
}

// tokens decodes three tokens behind four others, and compares each step with its launches one by one;
// what begins its errors.
func tokens(t *testing.T, dev *vulkan.Device, s *engine.Session, what string, limit float64) {
	t.Helper()
	for _, token := range []int32{3, 1, 4, 1} { // by the same step: a prompt's would be another
		if _, err := s.Decode(token); err != nil {
			t.Fatal(err)
		}
	}
	for token := range int32(3) {
		got, err := s.Decode(5 + token)
		if err != nil {
			t.Fatal(err)
		}
		if r := relative(got, oneByOne(t, dev, s, 1)); !(r <= limit) {
			t.Errorf("%stoken %d: a step differs from its launches one by one by %.2e", what, token, r)
		}
	}
}

// eagerly plans a session's step of one token anew.
func eagerly(t *testing.T, dev *vulkan.Device, s *engine.Session) backends.Executable {
	t.Helper()
	step, err := s.Step(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	e, err := dev.Eager(step.Program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}
