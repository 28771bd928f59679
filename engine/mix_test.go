package engine

import (
	"strings"
	"testing"

	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/open"
)

// TestMix: synthetic weights of a mix have the types that a file of its name has, and compute.
func TestMix(t *testing.T) {
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]string{"L": "8", "D": "256", "H": "4", "G": "4", "F": "512", "V": "500"}
	for name, want := range map[string]map[string]tensor.Type{
		"Q4_K_M": {"tok_embd": tensor.Q4_K, "lm_head": tensor.Q6_K, "blk.0.wv": tensor.Q6_K, "blk.0.wq": tensor.Q4_K,
			"blk.2.wv": tensor.Q4_K, "blk.3.w_down": tensor.Q6_K,
			"blk.4.w_down": tensor.Q4_K, "blk.7.w_down": tensor.Q6_K, "blk.7.w_up": tensor.Q4_K, "blk.7.attn_norm": tensor.F32},
		"mix:q4_0": {"tok_embd": tensor.Q4_0, "lm_head": tensor.Q6_K, "blk.0.wv": tensor.Q4_0},
		"q4_0":     {"tok_embd": tensor.Q4_0, "lm_head": tensor.Q4_0, "blk.0.wv": tensor.Q4_0},
	} {
		opt := Options{Model: file, Device: newCPU(t, 2), Context: 16, Set: set, Seed: 1}
		if !opt.SetType(name) {
			t.Errorf("there is no %s", name)
			continue
		}
		found := 0
		for _, v := range newEngine(t, opt).Decode().Weights {
			if typ, ok := want[v.Name]; ok {
				found++
				if v.Type != typ {
					t.Errorf("%s: %s is %s, want %s", name, v.Name, v.Type, typ)
				}
			}
		}
		if found != len(want) {
			t.Errorf("%s: %d of %d weights were seen", name, found, len(want))
		}
	}
	experts, err := models.Builtin("mixtral_8x7b")
	if err != nil {
		t.Fatal(err)
	}
	opt := Options{Model: experts, Device: newCPU(t, 2), Context: 16,
		Set: map[string]string{"L": "1", "D": "256", "H": "4", "G": "4", "F": "512", "V": "500"}}
	opt.SetType("q4_k_m")
	routers := 0
	for _, v := range newEngine(t, opt).Decode().Weights {
		if v.Name == "blk.0.router" {
			routers++
			if v.Type != tensor.F32 {
				t.Errorf("%s is %s: no mix quantises it", v.Name, v.Type)
			}
		}
	}
	if routers != 1 {
		t.Errorf("%d routers", routers)
	}
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	opt = Options{Model: file, Source: src, Device: newCPU(t, 2), Context: 16}
	opt.SetType("q4_k_m")
	if _, err := New(t.Context(), opt); err == nil || !strings.Contains(err.Error(), "synthetic") {
		t.Errorf("types are chosen for weights that have their own: %v", err)
	}
	opt = Options{Model: file, Device: newCPU(t, 2), Context: 16,
		Set: map[string]string{"L": "2", "D": "256", "H": "4", "G": "4", "F": "512", "V": "500"}}
	for _, name := range []string{"q9", "i32", "mix:q9", "mix:", ""} {
		if opt.SetType(name) || opt.Mix != nil || opt.DType != tensor.Invalid {
			t.Errorf("%q is taken for a type", name)
		}
	}
	opt.SetType("q5_k_m")
	if opt.SetType("q8_0"); opt.Mix != nil || opt.MixName != "" || opt.DType != tensor.Q8_0 {
		t.Errorf("a type behind a mix leaves %q, %s", opt.MixName, opt.DType)
	}
	opt.SetType("q4_k_m")
	r, err := Check(t.Context(), CheckOptions{Options: opt, Ref: ref.New()})
	if err != nil || !r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
}
