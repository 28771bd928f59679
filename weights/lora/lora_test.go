package lora

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/gguf"
	"github.com/greta-project/greta/weights/quant"
	"github.com/greta-project/greta/weights/safetensors"
)

type matrix32 struct {
	rows, cols int
	data       []float32
}

func random(r *rand.Rand, rows, cols int) matrix32 {
	m := matrix32{rows, cols, make([]float32, rows*cols)}
	for i := range m.data {
		m.data[i] = float32(r.NormFloat64())
	}
	return m
}

// writeSafetensors writes tensors of f32.
func writeSafetensors(t *testing.T, path string, tensors map[string]matrix32) {
	t.Helper()
	head := map[string]any{}
	var data []byte
	for name, m := range tensors {
		b := make([]byte, 4*len(m.data))
		if err := quant.Encode(tensor.F32, b, m.data, m.cols); err != nil {
			t.Fatal(err)
		}
		head[name] = map[string]any{"dtype": "F32", "shape": []int{m.rows, m.cols}, "data_offsets": []int{len(data),
			len(data) + len(b)}}
		data = append(data, b...)
	}
	text, err := json.Marshal(head)
	if err != nil {
		t.Fatal(err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	n := len(text)
	b := append([]byte{byte(n), byte(n >> 8), byte(n >> 16), 0, 0, 0, 0, 0}, text...)
	if err := os.WriteFile(path, append(b, data...), 0o600); err != nil {
		t.Fatal(err)
	}
}

func writePEFT(t *testing.T, config string, tensors map[string]matrix32) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, configName), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	writeSafetensors(t, filepath.Join(dir, tensorName), tensors)
	return dir
}

const (
	qName = "base_model.model.model.layers.0.self_attn.q_proj"
	vName = "base_model.model.model.layers.0.self_attn.v_proj"
	plain = `{"peft_type": "LORA", "r": 2, "lora_alpha": 8, "base_model_name_or_path": "some/base"}`
)

func pairOf(r *rand.Rand, name string, rank, in, out int) map[string]matrix32 {
	return map[string]matrix32{name + ".lora_A.weight": random(r, rank, in), name + ".lora_B.weight": random(r, out, rank)}
}

func joined(ms ...map[string]matrix32) map[string]matrix32 {
	all := map[string]matrix32{}
	for _, m := range ms {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

func base(t *testing.T, r *rand.Rand) (*safetensors.Source, map[string]matrix32) {
	t.Helper()
	dir := t.TempDir()
	ms := map[string]matrix32{"model.layers.0.self_attn.q_proj.weight": random(r, 6, 4),
		"model.layers.0.self_attn.v_proj.weight": random(r, 3, 4),
		"model.layers.0.self_attn.o_proj.weight": random(r, 4, 6)}
	writeSafetensors(t, filepath.Join(dir, "model.safetensors"), ms)
	src, err := safetensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return src, ms
}

// TestPEFT reads a folder and merges it: W + alpha/r·B·A, and patterns, and the square root of RS-LoRA.
func TestPEFT(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for name, c := range map[string]struct {
		config string
		q, v   float64 // scales
	}{
		"plain":  {plain, 4, 4},
		"rslora": {`{"peft_type": "LORA", "r": 2, "lora_alpha": 8, "use_rslora": true}`, 8 / math.Sqrt2, 8 / math.Sqrt2},
		"pattern": {`{"peft_type": "LORA", "r": 2, "lora_alpha": 8, "alpha_pattern": {"q_proj": 1, "x_proj": 100},
			"rank_pattern": {"layers.0.self_attn.v_proj": 2}}`, 0.5, 4},
		// Of patterns that match the first counts, in the file's order; what the file lacks is the class's own.
		"order": {`{"peft_type": "LORA", "alpha_pattern": {"self_attn.q_proj": 6, "q_proj": 1, ".*_proj": 4},
			"rank_pattern": {"v_proj": 2, ".*q_proj": 2, "q_proj": 5}}`, 3, 2},
		"class": {`{"peft_type": "LORA", "rank_pattern": {".*": 2}, "alpha_pattern": null, "init_lora_weights": "gaussian",
			"loftq_config": {}, "layer_replication": null}`, 4, 4},
	} {
		src, ms := base(t, r)
		ts := joined(pairOf(r, qName, 2, 4, 6), pairOf(r, vName, 2, 4, 3))
		a, err := Open(writePEFT(t, c.config, ts))
		if err != nil {
			t.Fatal(name, err)
		}
		if a.Rank() != 2 || len(a.Pairs) != 2 || a.Dialect != "hf" {
			t.Errorf("%s: %+v", name, a)
		}
		m, err := Merge(src, a)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []struct {
			adapter, base string
			scale         float64
		}{{qName, "model.layers.0.self_attn.q_proj.weight", c.q}, {vName, "model.layers.0.self_attn.v_proj.weight", c.v},
			{"", "model.layers.0.self_attn.o_proj.weight", 0}} {
			data, err := m.Data(p.base)
			if err != nil {
				t.Fatal(err)
			}
			w := ms[p.base]
			got := make([]float32, len(w.data))
			if err := quant.Decode(tensor.F32, got, data); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				want := float64(w.data[i])
				if p.scale != 0 {
					down, up := ts[p.adapter+".lora_A.weight"], ts[p.adapter+".lora_B.weight"]
					for k := range 2 {
						want += p.scale * float64(up.data[i/w.cols*2+k]) * float64(down.data[k*w.cols+i%w.cols])
					}
				}
				if math.Abs(float64(v)-want) > 1e-5 {
					t.Fatalf("%s: %s at %d is %v, not %v", name, p.base, i, v, want)
				}
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestWrongBase is refused with names and shapes.
func TestWrongBase(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	src, _ := base(t, r)
	defer src.Close()
	for name, c := range map[string]struct {
		tensors map[string]matrix32
		want    []string
	}{
		"no such tensor": {pairOf(r, strings.Replace(qName, ".0.", ".7.", 1), 2, 4, 6),
			[]string{`"model.layers.7.self_attn.q_proj.weight"`, "some/base"}},
		"another width":  {pairOf(r, qName, 2, 5, 6), []string{"[6, 5]", "[6, 4]"}},
		"another height": {pairOf(r, qName, 2, 4, 7), []string{"[7, 4]"}},
	} {
		a, err := Open(writePEFT(t, plain, c.tensors))
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = Merge(src, a)
		for _, want := range c.want {
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), "×", ", "), want) {
				t.Errorf("%s: %v lacks %s", name, err, want)
			}
		}
	}
}

// TestCopies: a file that has the base's own matrix beside a pair for it is for a base that has the same.
func TestCopies(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	src, ms := base(t, r)
	for _, name := range []string{qName + ".base_layer.weight", qName + ".weight"} {
		ts := joined(pairOf(r, qName, 2, 4, 6), map[string]matrix32{name: ms["model.layers.0.self_attn.q_proj.weight"]})
		a, err := Open(writePEFT(t, plain, ts))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Merge(src, a); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ts[name] = random(r, 6, 4)
		if a, err = Open(writePEFT(t, plain, ts)); err != nil {
			t.Fatal(err)
		}
		if _, err := Merge(src, a); err == nil || !strings.Contains(err.Error(), "q_proj.weight as a whole") {
			t.Errorf("%s of another base: %v", name, err)
		}
	}
}

// TestRefused: what is not read is said, never left out.
func TestRefused(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	good := pairOf(r, qName, 2, 4, 6)
	lone := map[string]matrix32{qName + ".lora_B.weight": random(r, 6, 2)}
	half := map[string]matrix32{qName + ".lora_A.weight": random(r, 2, 4)}
	nan := joined(good)
	nan[qName+".lora_A.weight"] = matrix32{2, 4, []float32{1, 2, 3, float32(math.NaN()), 0, 0, 0, 0}}
	for name, c := range map[string]struct {
		config  string
		tensors map[string]matrix32
		want    string
	}{
		"kind":       {`{"peft_type": "IA3", "r": 2}`, good, "IA3"},
		"dora":       {`{"peft_type": "LORA", "r": 2, "use_dora": true}`, good, "DoRA"},
		"bias":       {`{"peft_type": "LORA", "r": 2, "bias": "all"}`, good, "bias"},
		"saved":      {`{"peft_type": "LORA", "r": 2, "modules_to_save": ["lm_head"]}`, good, "lm_head"},
		"transposed": {`{"peft_type": "LORA", "r": 2, "fan_in_fan_out": true}`, good, "fan_in_fan_out"},
		"no json":    {`{`, good, configName},
		"no numbers": {`{"peft_type": "LORA", "alpha_pattern": {"q_proj": "2"}}`, good, "alpha_pattern"},
		"pissa":      {`{"peft_type": "LORA", "r": 2, "init_lora_weights": "pissa_niter_4"}`, good, "pissa_niter_4"},
		"olora":      {`{"peft_type": "LORA", "r": 2, "init_lora_weights": "OLoRA"}`, good, "OLoRA"},
		"replicated": {`{"peft_type": "LORA", "r": 2, "layer_replication": [[0, 1], [0, 1]]}`, good, "layer_replication"},
		"activated":  {`{"peft_type": "LORA", "r": 2, "alora_invocation_tokens": [1]}`, good, "alora_invocation_tokens"},
		"qalora":     {`{"peft_type": "LORA", "r": 2, "use_qalora": true}`, good, "use_qalora"},
		"rank":       {`{"peft_type": "LORA", "r": 3, "lora_alpha": 1}`, good, "rank of 3"},
		"pattern":    {`{"peft_type": "LORA", "r": 2, "alpha_pattern": {"(": 2}}`, good, "pattern"},
		"lone B":     {plain, lone, "no .lora_A"},
		"lone A":     {plain, half, "lora_B"},
		"ranks":      {plain, joined(half, map[string]matrix32{qName + ".lora_B.weight": random(r, 6, 3)}), "the rank"},
		"other": {plain, joined(good, map[string]matrix32{qName + ".lora_magnitude_vector": random(r, 6, 1)}),
			"magnitude"},
		"nan":  {plain, nan, "NaN"},
		"none": {plain, map[string]matrix32{}, "no pairs"},
	} {
		if _, err := Open(writePEFT(t, c.config, c.tensors)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v lacks %q", name, err, c.want)
		}
	}
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), configName) {
		t.Errorf("an empty folder: %v", err)
	}
}

func writeGGUF(t *testing.T, kvs []gguf.KV, tensors map[string]matrix32) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "adapter.gguf")
	var infos []gguf.Info
	for name, m := range tensors {
		infos = append(infos, gguf.Info{Name: name, Type: tensor.F32, Shape: tensor.Shape{m.rows, m.cols}})
	}
	w, err := gguf.Create(path, kvs, infos)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		b := make([]byte, 4*i.Shape.Elems())
		if err := quant.Encode(tensor.F32, b, tensors[i.Name].data, i.Shape[1]); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGGUF(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	ts := map[string]matrix32{"blk.0.attn_q.weight.lora_a": random(r, 3, 4), "blk.0.attn_q.weight.lora_b": random(r, 6, 3)}
	kvs := []gguf.KV{{Key: "general.type", Value: "adapter"}, {Key: "general.architecture", Value: "llama"},
		{Key: "adapter.type", Value: "lora"}, {Key: "adapter.lora.alpha", Value: float32(6)}}
	a, err := Open(writeGGUF(t, kvs, ts))
	if err != nil {
		t.Fatal(err)
	}
	p := a.Find("blk.0.attn_q.weight")
	if p == nil || p.Scale != 2 || p.Rank != 3 || p.In != 4 || p.Out != 6 || a.Arch != "llama" ||
		a.Find("blk.0.attn_k.weight") != nil {
		t.Errorf("%+v", a)
	}
	src, _ := base(t, r)
	defer src.Close()
	if err := a.Fits(src); err == nil || !strings.Contains(err.Error(), "GGUF") {
		t.Errorf("GGUF's names on a folder of Hugging Face: %v", err)
	}
	for i, want := range map[int]string{0: "general.type", 2: "adapter.type", 3: "alpha"} {
		less := append([]gguf.KV(nil), kvs...)
		less[i] = gguf.KV{Key: "other", Value: "x"}
		if _, err := Open(writeGGUF(t, less, ts)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v", want, err)
		}
	}
}

// FuzzConfig: no configuration makes the reader panic.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(plain))
	f.Add([]byte(`{"peft_type": "LORA", "r": -1, "rank_pattern": {"*": 1}}`))
	r := rand.New(rand.NewPCG(9, 9))
	tensors := pairOf(r, qName, 2, 4, 6)
	f.Fuzz(func(t *testing.T, config []byte) {
		_, _ = Open(writePEFT(t, string(config), tensors))
	})
}
