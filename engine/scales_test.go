package engine

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"greta/internal/testfiles"
	"greta/models"
	"greta/tensor"
	"greta/weights"
	"greta/weights/open"
	"greta/weights/quant"
)

// scaledSource holds the matrices of another source in 8-bit floats with factors
// beside them, as checkpoints have them, or in f32 with the factors applied.
type scaledSource struct {
	weights.Source
	applied bool
}

func scaled(name string) bool { return strings.HasSuffix(name, "_proj.weight") }

// factor is that of a row: every second layer has one for the whole matrix.
func factor(name string, row int) float32 {
	if strings.Contains(name, ".1.") {
		return 0.03125
	}
	return float32(1+row%7) / 256
}

func (s scaledSource) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	t, shape, ok := s.Source.Lookup(strings.TrimSuffix(name, "_scale"))
	switch {
	case !ok || !scaled(strings.TrimSuffix(name, "_scale")):
		return t, shape, ok && !strings.HasSuffix(name, "_scale")
	case strings.HasSuffix(name, "_scale") && strings.Contains(name, ".1."):
		return tensor.BF16, tensor.Shape{}, !s.applied
	case strings.HasSuffix(name, "_scale"):
		return tensor.F32, tensor.Shape{shape[0], 1}, !s.applied
	case s.applied:
		return tensor.F32, shape, true
	}
	return tensor.F8E4M3, shape, true
}

func (s scaledSource) Data(name string) ([]byte, error) {
	name, isScale := strings.CutSuffix(name, "_scale")
	t, shape, _ := s.Source.Lookup(name)
	if !scaled(name) {
		return s.Source.Data(name)
	}
	if isScale {
		if strings.Contains(name, ".1.") {
			return binary.LittleEndian.AppendUint16(nil, uint16(math.Float32bits(factor(name, 0))>>16)), nil
		}
		var b []byte
		for r := range shape[0] {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(factor(name, r)))
		}
		return b, nil
	}
	data, err := s.Source.Data(name)
	if err != nil {
		return nil, err
	}
	v := make([]float32, shape.Elems())
	if err := quant.Decode(t, v, data); err != nil {
		return nil, err
	}
	var b []byte
	for i := range v {
		f := factor(name, i/shape[1])
		c := tensor.F32ToF8(tensor.F8E4M3, v[i]/f)
		if !s.applied {
			b = append(b, c)
			continue
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(tensor.F8ToF32(tensor.F8E4M3, c)*f))
	}
	return b, nil
}

// TestScales: a checkpoint in 8-bit floats with factors computes what one in f32 does
// whose numbers have them applied, as it is and converted to another type.
func TestScales(t *testing.T) {
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	f, err := models.Match(src)
	if err != nil {
		t.Fatal(err)
	}
	logits := func(src weights.Source, dtype tensor.Type) []float32 {
		s := newSession(t, newEngine(t, Options{Model: f, Source: src, Device: newCPU(t, 2), Context: 8, KV: tensor.F32, DType: dtype}))
		out, err := s.Prefill(t.Context(), []int32{1, 484, 554})
		if err != nil {
			t.Fatal(err)
		}
		return append([]float32(nil), out...)
	}
	want := logits(scaledSource{src, true}, tensor.Invalid)
	for _, dtype := range []tensor.Type{tensor.Invalid, tensor.F32} {
		if rel, _ := Errors(widen(logits(scaledSource{src, false}, dtype)), widen(want)); !(rel <= 1e-5) {
			t.Errorf("type %v: relative L2 %.2e of factors beside the weights against factors in them", dtype, rel)
		}
	}
	if rel, _ := Errors(widen(want), widen(logits(src, tensor.Invalid))); rel < 1e-3 || rel > 0.2 {
		t.Errorf("relative L2 %.2e of weights of eight bits against those as stored: the test shows nothing", rel)
	}
}
