package engine

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	towrite "github.com/greta-project/greta/weights/convert"
	"github.com/greta-project/greta/weights/open"
)

// without is a device that lacks kernels of an operator, or of any, for types.
type without struct {
	backends.Device
	op    string
	types []tensor.Type
}

func (d without) Kernel(n *graph.Node) (backends.Kernel, error) {
	for _, v := range n.In {
		if v != nil && slices.Contains(d.types, v.Type) && (d.op == "" || n.Op.Name == d.op) {
			return nil, errors.New("no kernel for " + v.Type.String())
		}
	}
	return d.Device.Kernel(n)
}

// A format that the device has no kernels for is computed as f16, with the logits that --dtype f16 gives, and said. One
// that is asked for is refused.
func TestSubstitute(t *testing.T) {
	folder, err := open.Open(testfiles.Repo(t, "testdata", "families", "chatglm"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	file, err := models.Match(folder)
	if err != nil {
		t.Fatal(err)
	}
	matrices, err := file.Matrices(folder)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := towrite.ToGGUF(folder, path, towrite.Options{Type: "mxfp4", Matrices: matrices}); err != nil {
		t.Fatal(err)
	}
	src, err := open.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	tokens := []int32{3, 14, 15, 9, 26}
	logits := func(opt Options) ([]float32, *Engine) {
		opt.Model, opt.Source, opt.Context, opt.KV = m, src, 16, tensor.F32
		e := newEngine(t, opt)
		y, err := newSession(t, e).Prefill(t.Context(), tokens)
		if err != nil {
			t.Fatal(err)
		}
		return y, e
	}
	want, plain := logits(Options{Device: newCPU(t, 2), DType: tensor.F16})
	got, e := logits(Options{Device: without{newCPU(t, 2), "", []tensor.Type{tensor.MXFP4}}})
	var diff, norm float64 // the head is q8_0 here, with activations of eight bits
	for i, v := range got {
		diff += float64(v-want[i]) * float64(v-want[i])
		norm += float64(want[i]) * float64(want[i])
	}
	if !(diff < 4e-4*norm) {
		t.Errorf("logits differ from those of f16 by %g of %g", diff, norm)
	}
	if plain.Stored() != "" || !strings.Contains(e.Stored(), " as f16 (linear of cpu takes no mxfp4)") {
		t.Errorf("%q, %q", plain.Stored(), e.Stored())
	}
	_, err = New(t.Context(), Options{Model: m, Source: src, Context: 16,
		Device: without{newCPU(t, 1), "", []tensor.Type{tensor.F32}}})
	if err == nil || !strings.Contains(err.Error(), "no kernel for f32") {
		t.Errorf("error %v, expected one of f32", err)
	}
	_, err = New(t.Context(), Options{Model: m, Source: src, Context: 16, DType: tensor.Q4_0,
		Device: without{newCPU(t, 1), "", []tensor.Type{tensor.Q4_0}}})
	if err == nil || !strings.Contains(err.Error(), "no kernel for q4_0") {
		t.Errorf("error %v, expected one of q4_0", err)
	}
}

// A weight keeps 16 bits where an operator has no kernel for the type that the others get, or 32 where it has none for
// those either; a reference computes with the same weights.
func TestKeptForKernels(t *testing.T) {
	m, err := models.Builtin("lru_block")
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 3*64)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	opt := Options{Model: m, Context: 8, DType: tensor.Q8_0, Set: map[string]string{"D": "64", "I": "64", "H": "2"}}
	for _, c := range []struct {
		lacks []tensor.Type
		want  string
	}{
		{[]tensor.Type{tensor.Q8_0}, "w_in, w_rec as f16 (per_head of cpu takes no q8_0)"},
		{[]tensor.Type{tensor.Q8_0, tensor.F16}, "w_in, w_rec as f32 (per_head of cpu takes no q8_0)"},
	} {
		o := opt
		o.Device = without{newCPU(t, 1), "per_head", c.lacks}
		e := newEngine(t, o)
		got, err := newSession(t, e).Block(x)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(e.Stored(), c.want) {
			t.Errorf("%q, expected %q", e.Stored(), c.want)
		}
		o.Device, o.TypesOf = ref.New(), o.Device
		want, err := newSession(t, newEngine(t, o)).Block(x)
		if err != nil {
			t.Fatal(err)
		}
		if rel, _ := Errors(widen(got), widen(want)); !(rel <= 2e-2) {
			t.Errorf("%v: relative L2 %.2e to float64 with the same weights", c.lacks, rel)
		}
		o.Device, o.TypesOf = o.TypesOf, nil
		if r, err := Check(t.Context(), CheckOptions{Options: o, Ref: ref.New()}); err != nil || !r.OK() {
			t.Errorf("%v: %+v, %v", c.lacks, r, err)
		}
	}
}

// A weight that is read as activations are keeps 16 bits where a block format is asked for or stored: baichuan's head,
// whose rows are divided by their norms.
func TestKeptForOperators(t *testing.T) {
	src, err := open.Open(testfiles.Repo(t, "testdata", "families", "baichuan"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	logits := func(typ tensor.Type) ([]float32, *Engine) {
		e := newEngine(t, Options{Model: m, Source: src, Context: 16, KV: tensor.F32, Device: newCPU(t, 1), DType: typ})
		y, err := newSession(t, e).Prefill(t.Context(), []int32{3, 14, 15, 9, 26})
		if err != nil {
			t.Fatal(err)
		}
		return y, e
	}
	want, plain := logits(tensor.Invalid)
	if plain.Stored() != "" {
		t.Errorf("as stored: %q", plain.Stored())
	}
	for typ, text := range map[tensor.Type]string{tensor.Q8_0: "head as bf16 (mul takes no q8_0)",
		tensor.Q6_K: "head as bf16 (mul takes no q8_0)"} {
		got, e := logits(typ)
		if rel, _ := Errors(widen(got), widen(want)); !(rel <= 5e-2) || rel == 0 {
			t.Errorf("%v: relative L2 %.2e against bf16", typ, rel)
		}
		if !strings.Contains(e.Stored(), text) {
			t.Errorf("%v: %q, expected %q", typ, e.Stored(), text)
		}
	}
}
