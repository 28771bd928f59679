// Checkpoints in 8-bit floats whose matrices have scales.

package testkit

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights"
	"github.com/greta-project/greta/weights/quant"
)

// ScaledFP8 holds the matrices of another source in 8-bit floats with factors
// beside them, as checkpoints have them, or in f32 with the factors applied.
type ScaledFP8 struct {
	weights.Source
	Applied bool
}

func scaled(name string) bool { return strings.HasSuffix(name, "_proj.weight") }

// factor is that of a row: every second layer has one for the whole matrix.
func factor(name string, row int) float32 {
	if strings.Contains(name, ".1.") {
		return 0.03125
	}
	return float32(1+row%7) / 256
}

// Lookup gives the type and the shape of a tensor or of a matrix's factors.
func (s ScaledFP8) Lookup(name string) (tensor.Type, tensor.Shape, bool) {
	t, shape, ok := s.Source.Lookup(strings.TrimSuffix(name, "_scale"))
	switch {
	case !ok || !scaled(strings.TrimSuffix(name, "_scale")):
		return t, shape, ok && !strings.HasSuffix(name, "_scale")
	case strings.HasSuffix(name, "_scale") && strings.Contains(name, ".1."):
		return tensor.BF16, tensor.Shape{}, !s.Applied
	case strings.HasSuffix(name, "_scale"):
		return tensor.F32, tensor.Shape{shape[0], 1}, !s.Applied
	case s.Applied:
		return tensor.F32, shape, true
	}
	return tensor.F8E4M3, shape, true
}

// Data gives a tensor's bytes.
func (s ScaledFP8) Data(name string) ([]byte, error) {
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
		if !s.Applied {
			b = append(b, c)
			continue
		}
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(tensor.F8ToF32(tensor.F8E4M3, c)*f))
	}
	return b, nil
}
