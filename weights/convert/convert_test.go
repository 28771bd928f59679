package convert

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/open"
	"github.com/greta-project/greta/weights/quant"
)

func openAt(t *testing.T, path string) weights.Source {
	t.Helper()
	s, err := open.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func convert(t *testing.T, src weights.Source, opt Options) (*gguf.File, Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.gguf")
	rep, err := ToGGUF(src, path, opt)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, rep
}

func floats(t *testing.T, src weights.Source, name string) ([]float32, tensor.Shape) {
	t.Helper()
	typ, shape, ok := src.Lookup(name)
	if !ok {
		t.Fatalf("%s: no tensor %s", src.Path(), name)
	}
	b, err := src.Data(name)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, shape.Elems())
	if err := quant.Decode(typ, v, b); err != nil {
		t.Fatal(name, err)
	}
	return v, shape
}

func TestGoldens(t *testing.T) {
	for folder, want := range map[string]struct {
		tensors int
		meta    map[string]any
	}{
		"llama2_mha": {3 + 3*9, map[string]any{"general.architecture": "llama", "llama.attention.head_count_kv": int64(4),
			"llama.rope.dimension_count": int64(16),
			"llama.block_count":          int64(3), "llama.vocab_size": int64(320), "llama.context_length": int64(256),
			"llama.feed_forward_length": int64(160),
			"llama.rope.freq_base":      10000.0, "llama.attention.layer_norm_rms_epsilon": float64(float32(1e-5)),
			"general.file_type": int64(0)}},
		"llama2_gqa_tied": {2 + 3*9, map[string]any{"llama.attention.head_count_kv": int64(2),
			"llama.attention.key_length": int64(16)}},
		"mistral_swa": {3 + 3*9, map[string]any{"general.architecture": "llama",
			"llama.attention.sliding_window": int64(16)}},
		"mixtral": {3 + 3*10, map[string]any{"general.architecture": "llama", "llama.expert_count": int64(4),
			"llama.expert_used_count": int64(2),
			"llama.rope.freq_base":    1e6}},
		"qwen2": {3 + 3*12, map[string]any{"general.architecture": "qwen2", "qwen2.embedding_length": int64(64)}},
		"qwen3": {3 + 3*11, map[string]any{"general.architecture": "qwen3", "qwen3.attention.key_length": int64(32),
			"qwen3.rope.dimension_count": int64(32)}},
		"gemma2": {2 + 4*11, map[string]any{"general.architecture": "gemma2", "gemma2.attn_logit_softcapping": 50.0,
			"gemma2.final_logit_softcapping":  30.0,
			"gemma2.attention.sliding_window": int64(16), "gemma2.attention.scale": float64(float32(1 / math.Sqrt(24)))}},
		"phi3": {3 + 3*6, map[string]any{"general.architecture": "phi3",
			"phi3.rope.scaling.original_context_length": int64(4096)}},
		"gpt_neox": {4 + 3*12, map[string]any{"general.architecture": "gptneox", "gptneox.use_parallel_residual": true,
			"gptneox.rope.dimension_count":         int64(4),
			"gptneox.attention.layer_norm_epsilon": float64(float32(1e-5))}},
	} {
		t.Run(folder, func(t *testing.T) {
			src := openAt(t, testfiles.Shared(t, "goldens", folder))
			f, rep := convert(t, src, Options{Type: "f32"})
			if len(f.Names()) != want.tensors || rep.Tensors != want.tensors {
				t.Errorf("%d tensors, expected %d: %v", len(f.Names()), want.tensors, f.Names())
			}
			for key, v := range want.meta {
				if got, _ := f.Meta(key); got != v {
					t.Errorf("%s is %v, expected %v", key, got, v)
				}
			}
			elems := 0
			for _, name := range f.Names() {
				typ, shape, _ := f.Lookup(name)
				elems += shape.Elems()
				if typ != tensor.F32 {
					t.Errorf("%s is %s", name, typ)
				}
			}
			total := 0
			for _, name := range src.Names() {
				_, shape, _ := src.Lookup(name)
				total += shape.Elems()
			}
			if elems != total {
				t.Errorf("%d elements, the source has %d", elems, total)
			}
		})
	}
}

// product gives w·x for rows [from, from+n) of w.
func product(w, x []float32, from, n int) []float64 {
	y := make([]float64, n)
	for i := range y {
		for j := range x {
			y[i] += float64(w[(from+i)*len(x)+j]) * float64(x[j])
		}
	}
	return y
}

// rotate turns pairs of elements at distance apart by angles that fall with
// the pair's number.
func rotate(v []float64, pos float64, pairs bool) []float64 {
	out := make([]float64, len(v))
	for i := range len(v) / 2 {
		a, b := i, i+len(v)/2
		if pairs {
			a, b = 2*i, 2*i+1
		}
		sin, cos := math.Sincos(pos * math.Pow(10000, -float64(2*i)/float64(len(v))))
		out[a], out[b] = v[a]*cos-v[b]*sin, v[a]*sin+v[b]*cos
	}
	return out
}

// TestRotation: attention scores from the permuted weights with pairs equal
// those of the originals with halves; a position other than 0 shows it.
func TestRotation(t *testing.T) {
	for folder, pairs := range map[string]bool{"llama2_gqa_tied": true, "mistral_swa": true, "mixtral": true,
		"qwen2": false, "gemma2": false} {
		src := openAt(t, testfiles.Shared(t, "goldens", folder))
		f, _ := convert(t, src, Options{Type: "f32"})
		scores := func(s weights.Source, q, k string, pairs bool) (out []float64) {
			wq, _ := floats(t, s, q)
			wk, shape := floats(t, s, k)
			x := make([]float32, shape[1])
			for i := range x {
				x[i] = float32(math.Sin(float64(3*i + 1)))
			}
			const width = 16 // gemma2's heads have 32; with halves any even width compares
			for head := range 2 {
				a := rotate(product(wq, x, head*width, width), 5, pairs)
				b := rotate(product(wk, x, head*width, width), 2, pairs)
				dot := 0.0
				for i := range a {
					dot += a[i] * b[i]
				}
				out = append(out, dot)
			}
			return out
		}
		want := scores(src, "model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight", false)
		got := scores(f, "blk.1.attn_q.weight", "blk.1.attn_k.weight", pairs)
		wrong := scores(f, "blk.1.attn_q.weight", "blk.1.attn_k.weight", !pairs)
		for i := range want {
			if math.Abs(got[i]-want[i]) > 1e-12 || math.Abs(wrong[i]-want[i]) < 1e-6 {
				t.Errorf("%s head %d: score %g, expected %g; with the other layout %g", folder, i, got[i], want[i], wrong[i])
			}
		}
	}
}

func TestRearranged(t *testing.T) {
	gemma := openAt(t, testfiles.Shared(t, "goldens", "gemma2"))
	f, _ := convert(t, gemma, Options{Type: "f16"})
	before, _ := floats(t, gemma, "model.layers.3.post_feedforward_layernorm.weight")
	after, _ := floats(t, f, "blk.3.post_ffw_norm.weight")
	for i := range before {
		if after[i] != before[i]+1 {
			t.Fatalf("gemma2 norm %d: %g from %g", i, after[i], before[i])
		}
	}

	mixtral := openAt(t, testfiles.Shared(t, "goldens", "mixtral"))
	f, _ = convert(t, mixtral, Options{Type: "f32"})
	for e := range 4 {
		one, shape := floats(t, mixtral, fmt.Sprintf("model.layers.2.block_sparse_moe.experts.%d.w2.weight", e))
		all, stacked := floats(t, f, "blk.2.ffn_down_exps.weight")
		n := shape.Elems()
		if !stacked.Equal(tensor.Shape{4, shape[0], shape[1]}) || !reflect.DeepEqual(one, all[e*n:(e+1)*n]) {
			t.Errorf("mixtral expert %d: %v of %v differs", e, shape, stacked)
		}
	}

	neox := openAt(t, testfiles.Shared(t, "goldens", "gpt_neox"))
	f, _ = convert(t, neox, Options{Type: "f32"})
	for _, kind := range []string{"weight", "bias"} {
		mixed, shape := floats(t, neox, "gpt_neox.layers.1.attention.query_key_value."+kind)
		apart, _ := floats(t, f, "blk.1.attn_qkv."+kind)
		row := len(mixed) / shape[0]
		for head := range 4 {
			for which := range 3 {
				for i := range 16 {
					from, to := (head*48+which*16+i)*row, (which*64+head*16+i)*row
					if !reflect.DeepEqual(mixed[from:from+row], apart[to:to+row]) {
						t.Fatalf("gpt_neox %s: head %d, part %d, row %d is elsewhere", kind, head, which, i)
					}
				}
			}
		}
	}
}

// TestCopy: without a type a GGUF file keeps metadata, types and bytes.
func TestCopy(t *testing.T) {
	src := openAt(t, testfiles.Shared(t, "data", "stories260K", "stories260K.gguf")).(*gguf.File)
	f, _ := convert(t, src, Options{})
	if got := f.KV()[:len(src.KV())]; !reflect.DeepEqual(got, src.KV()) {
		t.Errorf("metadata changed: %v", got)
	}
	if !reflect.DeepEqual(f.Names(), src.Names()) {
		t.Errorf("tensors changed: %v", f.Names())
	}
	for _, name := range f.Names() {
		a, _ := src.Data(name)
		if b, _ := f.Data(name); !bytes.Equal(a, b) {
			t.Errorf("%s changed", name)
		}
	}
}

// TestErrors: what each type loses on trained weights stays within what its
// bits allow.
func TestErrors(t *testing.T) {
	src := openAt(t, testfiles.Shared(t, "data", "stories260K", "stories260K.bin"))
	for typ, limit := range map[string]float64{"f32": 0, "f16": 5e-4, "bf16": 3e-3, "q8_0": 8e-3, "q5_1": 4e-2,
		"q4_0": 0.1, "q4_k_m": 6e-2, "q2_k": 0.15, "tq2_0": 0.15} {
		f, rep := convert(t, src, Options{Type: typ, Workers: 3})
		worst := 0.0
		for _, name := range f.Names() {
			want, shape := floats(t, src, name)
			got, _ := floats(t, f, name)
			diff, norm := 0.0, 0.0
			for i := range want {
				diff += math.Pow(float64(got[i]-want[i]), 2)
				norm += math.Pow(float64(want[i]), 2)
			}
			if len(shape) == 1 && diff > 0 {
				t.Errorf("%s: the norm %s changed", typ, name)
			}
			worst = max(worst, math.Sqrt(diff/norm))
		}
		if worst > limit || typ != "f32" && worst == 0 {
			t.Errorf("%s: relative error %.4f, expected at most %.4f (%v)", typ, worst, limit, rep.Types)
		}
	}
}

func TestKeptTypes(t *testing.T) {
	src := openAt(t, testfiles.Shared(t, "data", "tolstoy-2.7m"))
	path := filepath.Join(t.TempDir(), "out.gguf")
	p, err := planHF(noTokenizer{src}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var rep Report
	if err := p.chooseTypes("", &rep); err != nil {
		t.Fatal(err)
	}
	for _, it := range p.items {
		if want := map[bool]tensor.Type{true: tensor.F32, false: tensor.BF16}[len(it.shape) == 1]; it.typ != want {
			t.Errorf("%s is %s, expected %s", it.name, it.typ, want)
		}
	}
	for _, kv := range p.kvs {
		if kv.Key == "general.file_type" && kv.Value != uint32(32) {
			t.Errorf("general.file_type is %v, expected 32, bf16", kv.Value)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a plan wrote a file")
	}
}

// noTokenizer moves a source to where no tokenizer lies.
type noTokenizer struct{ weights.Source }

func (noTokenizer) Path() string { return "/nowhere/model" }

func TestTolstoyWithTokenizer(t *testing.T) {
	src := openAt(t, testfiles.Shared(t, "data", "tolstoy-2.7m"))
	f, rep := convert(t, src, Options{Type: "q4_k_m"})
	tokens, _ := f.Meta("tokenizer.ggml.tokens")
	if s, _ := tokens.([]string); len(s) != 2048 || !rep.HasTokenizer || s[1] != "<s>" {
		t.Errorf("%d tokens, expected 2048 (%v)", len(s), rep)
	}
	if len(rep.Fallbacks) != 37 { // rows of 192 in six layers of six matrices, and the embedding
		t.Errorf("fallbacks: %q", rep.Fallbacks)
	}
	for name, want := range map[string]tensor.Type{"token_embd.weight": tensor.Q8_0, "blk.0.attn_q.weight": tensor.Q5_0,
		"blk.5.attn_v.weight":   tensor.Q8_0,
		"blk.5.ffn_down.weight": tensor.Q6_K, "blk.0.ffn_down.weight": tensor.Q4_K, "output_norm.weight": tensor.F32} {
		if typ, _, _ := f.Lookup(name); typ != want {
			t.Errorf("%s is %s, expected %s", name, typ, want)
		}
	}
}

func TestRefused(t *testing.T) {
	stories := openAt(t, testfiles.Shared(t, "data", "stories260K", "stories260K.bin"))
	golden := openAt(t, testfiles.Shared(t, "goldens", "llama2_mha"))
	vocab := openAt(t, testfiles.Shared(t, "data", "tokenizers", "ggml-vocab-gpt-2.gguf"))
	for want, run := range map[string]func(path string) error{
		`type "q9" is unknown`: func(p string) error { _, err := ToGGUF(stories, p, Options{Type: "q9"}); return err },
		"holds no tensors":     func(p string) error { _, err := ToGGUF(vocab, p, Options{Type: "f16"}); return err },
		"architecture X has no mapping": func(p string) error {
			_, err := ToGGUF(changed{golden, map[string]any{"architectures": []string{"X"}}, "", ""}, p, Options{})
			return err
		},
		`"model.norm.weight" is missing`: func(p string) error {
			_, err := ToGGUF(changed{golden, nil, "model.norm.weight", ""}, p, Options{})
			return err
		},
		`"extra.weight" has no place`: func(p string) error {
			_, err := ToGGUF(changed{golden, nil, "", "extra.weight"}, p, Options{})
			return err
		},
		"expected 48 by config.json's heads": func(p string) error {
			_, err := ToGGUF(changed{golden, map[string]any{"num_attention_heads": int64(3)}, "", ""}, p, Options{})
			return err
		},
		`rope scaling of type "ntk"`: func(p string) error {
			_, err := ToGGUF(changed{golden, map[string]any{"rope_parameters.rope_type": "ntk"}, "", ""}, p, Options{})
			return err
		},
		"hidden_act is gelu, but a GGUF file of architecture llama stands for silu": func(p string) error {
			_, err := ToGGUF(changed{golden, map[string]any{"hidden_act": "gelu"}, "", ""}, p, Options{})
			return err
		},
		"num_hidden_layers is -3": func(p string) error {
			_, err := ToGGUF(changed{golden, map[string]any{"num_hidden_layers": int64(-3)}, "", ""}, p, Options{})
			return err
		},
	} {
		dir := t.TempDir()
		err := run(filepath.Join(dir, "x.gguf"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected one with %q", err, want)
		}
		if files, _ := os.ReadDir(dir); len(files) > 0 {
			t.Errorf("%s: %s is left behind", want, files[0].Name())
		}
	}
}

// changed is a source with other metadata, one tensor less or one more.
type changed struct {
	weights.Source
	meta       map[string]any
	less, more string
}

func (c changed) Meta(key string) (any, bool) {
	if v, ok := c.meta[key]; ok {
		return v, true
	}
	return c.Source.Meta(key)
}

func (c changed) Names() []string {
	if c.more != "" {
		return append(c.Source.Names(), c.more)
	}
	return c.Source.Names()
}

func (c changed) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	if name == c.less {
		return tensor.Invalid, nil, false
	}
	return c.Source.Lookup(name)
}

func TestLlama3Factors(t *testing.T) {
	src := openAt(t, testfiles.Shared(t, "goldens", "llama2_mha"))
	f, _ := convert(t, changed{src, map[string]any{"rope_parameters.rope_type": "llama3", "rope_parameters.factor": 8.0,
		"rope_parameters.rope_theta":      10000.0,
		"rope_parameters.low_freq_factor": 1.0, "rope_parameters.high_freq_factor": 4.0,
		"rope_parameters.original_max_position_embeddings": int64(1000)}, "", ""},
		Options{Type: "f16"})
	got, shape := floats(t, f, "rope_freqs.weight")
	// Wavelengths 2π·10000^(i/8): 6.3, 19.9, 62.8, 199 are below 1000/4; 628 lies
	// between, smooth = (1000/628.3 - 1)/3 = 0.19718; the rest are above 1000.
	smooth := (1000/(2*math.Pi*100) - 1) / 3
	want := []float64{1, 1, 1, 1, 1 / ((1-smooth)/8 + smooth), 8, 8, 8}
	if len(shape) != 1 || len(got) != len(want) {
		t.Fatalf("%v: %v", shape, got)
	}
	for i := range want {
		if math.Abs(float64(got[i])/want[i]-1) > 1e-6 {
			t.Errorf("factor %d is %g, expected %g", i, got[i], want[i])
		}
	}
}

// TestStopped: a conversion that is told to stop leaves nothing behind.
func TestStopped(t *testing.T) {
	dir := t.TempDir()
	src := openAt(t, testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	enough, calls := errors.New("enough"), 0
	_, err := ToGGUF(src, filepath.Join(dir, "m.gguf"), Options{Type: "q8_0", Stop: func() error {
		if calls++; calls == 3 {
			return enough
		}
		return nil
	}})
	if !errors.Is(err, enough) || calls != 3 {
		t.Errorf("%d calls, %v", calls, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left behind", left)
	}
}
