package engine

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/tensor"
	towrite "github.com/greta-project/greta/weights/convert"
	"github.com/greta-project/greta/weights/open"
)

// without is a device that lacks kernels for a type.
type without struct {
	backends.Device
	t tensor.Type
}

func (d without) Kernel(n *graph.Node) (backends.Kernel, error) {
	for _, v := range n.In {
		if v != nil && v.Type == d.t {
			return nil, errors.New("no kernel for " + d.t.String())
		}
	}
	return d.Device.Kernel(n)
}

// A format that the device has no kernels for is computed as f16, with the logits that --dtype f16 gives, and said.
func TestSubstitute(t *testing.T) {
	folder, err := open.Open(testfiles.Shared(t, "goldens", "llama2_mha"))
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	path := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := towrite.ToGGUF(folder, path, towrite.Options{Type: "mxfp4"}); err != nil {
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
	tokens := []int32{3, 14, 15, 92, 65}
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
	got, e := logits(Options{Device: without{newCPU(t, 2), tensor.MXFP4}})
	var diff, norm float64 // the head is q8_0 here, with activations of eight bits
	for i, v := range got {
		diff += float64(v-want[i]) * float64(v-want[i])
		norm += float64(want[i]) * float64(want[i])
	}
	if !(diff < 4e-4*norm) {
		t.Errorf("logits differ from those of f16 by %g of %g", diff, norm)
	}
	if plain.Stored() != "" || !strings.Contains(e.Stored(), "mxfp4 as f16") {
		t.Errorf("%q, %q", plain.Stored(), e.Stored())
	}
	_, err = New(t.Context(), Options{Model: m, Source: src, Context: 16, Device: without{newCPU(t, 1), tensor.F32}})
	if err == nil || !strings.Contains(err.Error(), "no kernel for f32") {
		t.Errorf("error %v, expected one of f32", err)
	}
}
