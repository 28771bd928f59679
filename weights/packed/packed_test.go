package packed

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
	"github.com/greta-project/greta/weights/safetensors"
)

func wrap(t *testing.T, dir string) (*Source, error) {
	t.Helper()
	src, err := safetensors.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return Wrap(src)
}

func decode(t *testing.T, s *Source, name string) []float32 {
	t.Helper()
	typ, shape, ok := s.Lookup(name)
	b, err := s.Data(name)
	if !ok || err != nil {
		t.Fatalf("%s: %s: %v", s.Path(), name, err)
	}
	v := make([]float32, shape.Elems())
	if err := quant.Decode(typ, v, b); err != nil {
		t.Fatal(err)
	}
	return v
}

// What the formats' own libraries decode (tools/gen_packed.py) is what the presented matrices hold: to the last bits of
// f32, but where f16 stands for groups in no order.
func TestAgainstLibraries(t *testing.T) {
	for dir, c := range map[string]struct {
		typ    tensor.Type
		stored string
		limit  float64
	}{
		"gptq4_sym":      {tensor.Q4_0, "gptq int4 as q4_0 (1)", 1e-7},
		"gptq4_order":    {tensor.F16, "gptq int4 as f16 (1)", 3e-4},
		"gptq4_v2":       {tensor.Q8_0, "gptq int4 as q8_0 (1)", 1e-7},
		"gptq8":          {tensor.Q8_0, "gptq int8 as q8_0 (1)", 1e-7},
		"gptq3":          {tensor.Q8_0, "gptq int3 as q8_0 (1)", 1e-7},
		"awq":            {tensor.Q8_0, "awq int4 as q8_0 (1)", 1e-7},
		"bnb_nf4":        {tensor.NF4, "bitsandbytes nf4 as nf4 (1)", 1e-7},
		"bnb_nf4_nested": {tensor.NF4, "bitsandbytes nf4 as nf4 (1)", 1e-7},
		"bnb_fp4":        {tensor.F32, "bitsandbytes fp4 as f32 (1)", 1e-7},
		"bnb_int8":       {tensor.Q8_0, "bitsandbytes int8 as q8_0 (1)", 1e-7},
		"ct_int4":        {tensor.Q4_0, "compressed-tensors int4 as q4_0 (1)", 1e-7},
		"ct_int4_asym":   {tensor.Q8_0, "compressed-tensors int4 as q8_0 (1)", 1e-7},
		"ct_int8":        {tensor.Q8_0, "compressed-tensors int8 as q8_0 (1)", 1e-7},
		"ct_int3":        {tensor.Q4_0, "compressed-tensors int3 as q4_0 (1)", 1e-7},
		"ct_fp8":         {tensor.F8E4M3, "", 1e-7},
		"ct_naive8":      {tensor.Q8_0, "compressed-tensors int8 as q8_0 (1)", 1e-7},
		"ct_nvfp4":       {tensor.NVFP4, "nvfp4 as nvfp4 (1)", 1e-7},
		"ct_mxfp4":       {tensor.MXFP4, "mxfp4 as mxfp4 (1)", 0},
		"fp8_blocks":     {tensor.F8E4M3_B32, "f8e4m3 with scales of blocks as f8e4m3_b32 (1)", 1e-7},
		"mxfp4_experts":  {tensor.MXFP4, "mxfp4 as mxfp4 (1)", 0},
	} {
		s, err := wrap(t, filepath.Join("testdata", dir))
		if err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		name := "m.weight"
		if strings.HasPrefix(dir, "mxfp4_experts") {
			name = "m.experts.gate_up_proj_blocks"
		}
		typ, shape, _ := s.Lookup(name)
		if typ != c.typ || s.Stored() != c.stored {
			t.Errorf("%s: %s, %q; expected %s, %q", dir, typ, s.Stored(), c.typ, c.stored)
			continue
		}
		got, want := decode(t, s, name), decode(t, s, "want")
		if len(got) != len(want) {
			t.Errorf("%s: shape %v", dir, shape)
			continue
		}
		if _, _, ok := s.Lookup(name + "_scale"); ok {
			f := decode(t, s, name+"_scale")
			for i := range got {
				got[i] *= f[min(i/shape.Last(), len(f)-1)]
			}
		}
		var diff, norm float64
		for i, v := range got {
			d := float64(v) - float64(want[i])
			diff += d * d
			norm += float64(want[i]) * float64(want[i])
		}
		if e := math.Sqrt(diff / norm); !(e <= c.limit) || norm == 0 {
			t.Errorf("%s: relative error %.2g, expected at most %g", dir, e, c.limit)
		}
		for _, n := range s.Names() {
			if n != name && n != "want" && s.Stored() != "" {
				t.Errorf("%s: %s is left among the names", dir, n)
			}
		}
	}
}

// changed copies a checkpoint with another config.json and without the tensors whose names have a word.
func changed(t *testing.T, dir, without string, config map[string]any) string {
	t.Helper()
	out := t.TempDir()
	b, err := os.ReadFile(filepath.Join("testdata", dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if without != "" { // by another name of the same length
		b = []byte(strings.ReplaceAll(string(b), without+`"`, strings.Repeat("x", len(without))+`"`))
	}
	text, err := os.ReadFile(filepath.Join("testdata", dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cfg map[string]any
	if err := json.Unmarshal(text, &cfg); err != nil {
		t.Fatal(err)
	}
	for k, v := range config {
		if q := cfg["quantization_config"].(map[string]any); v == nil {
			delete(q, k)
		} else {
			q[k] = v
		}
	}
	if text, err = json.Marshal(cfg); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"model.safetensors": b, "config.json": text} {
		if err := os.WriteFile(filepath.Join(out, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		dir, without string
		config       map[string]any
		want         string
	}{
		{"gptq4_sym", "", map[string]any{"quant_method": "aqlm"}, `quant_method "aqlm", which is not read (auto-round, awq,`},
		{"gptq4_sym", "", map[string]any{"quant_method": nil}, "holds packed codes, but config.json names no quant_method"},
		{"gptq4_sym", "", map[string]any{"bits": 5}, "gptq of 2, 3, 4 and 8 is read"},
		{"gptq4_sym", "", map[string]any{"group_size": 48}, "do not fit"},
		{"gptq4_sym", "m.qzeros", nil, "m.qzeros is missing beside it"},
		{"gptq4_sym", "m.scales", nil, "m.scales is missing beside it"},
		{"awq", "", map[string]any{"version": "gemv"}, "awq of version gemm is read"},
		{"awq", "", map[string]any{"bits": 3}, "awq of 4 is read"},
		{"bnb_nf4", "m.weight.quant_state.bitsandbytes__nf4", nil, "quant_state.bitsandbytes__nf4 (or __fp4) is missing"},
		{"bnb_nf4", "m.weight.absmax", nil, "absmax is missing"},
		{"bnb_int8", "m.SCB", nil, "m.SCB is missing"},
		{"ct_int4", "m.weight_shape", nil, "weight_shape"},
		{"ct_int4", "", map[string]any{"format": "marlin-24"}, `format "marlin-24", which is not read`},
		{"fp8_blocks", "", map[string]any{"weight_block_size": []int{128, 128}}, "do not fit"},
	} {
		_, err := wrap(t, changed(t, c.dir, c.without, c.config))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s without %q, %v: error %v, expected one with %q", c.dir, c.without, c.config, err, c.want)
		}
	}
}

// A folder without packed matrices is as it was.
func TestPlain(t *testing.T) {
	s, err := wrap(t, changed(t, "ct_fp8", "", map[string]any{"quant_method": "fp8"}))
	if err != nil || s.Stored() != "" || len(s.Names()) != 3 {
		t.Errorf("%v: %q, %v", err, s.Stored(), s.Names())
	}
}
