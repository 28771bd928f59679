package cpu_test

import (
	"context"
	"testing"
	"time"

	"greta/backends/cpu"
	"greta/backends/cpu/simd"
	"greta/engine"
	"greta/models"
	"greta/tensor"
)

// Limits are of the weights that the program's products read, in panels, and
// take about the time that they may.
func TestLimits(t *testing.T) {
	file, err := models.Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]string{"D": "256", "H": "4", "G": "2", "F": "768"}
	k, err := simd.Default()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		typ   tensor.Type
		bytes float64 // of a weight in panels
	}{{tensor.F32, 4}, {tensor.F16, 2}, {tensor.BF16, 2}, {tensor.Q8_0, 34. / 32}, {tensor.Q4_0, 18. / 32}} {
		dev, err := cpu.New(2)
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(context.Background(), engine.Options{Model: file, Device: dev, Context: 16, DType: c.typ, Set: sizes})
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.Step(1, 1)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		l, err := dev.Limits(st.Program, 30*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("%s: took %v", c.typ, took)
		}
		want := (256*256*2 + 256*128*2 + 3*256*768) * c.bytes
		if c.typ == tensor.BF16 && k.Compacts(c.typ, 256) { // twelve bits, and the heads of 160 panels
			want = want*12/16 + 160*64
		}
		if c.typ == tensor.F16 && k.Compacts(c.typ, 256) && k.Far() == simd.FarAll { // fourteen and a half
			want = want*29/32 + 160*320
		}
		if l.WeightBytes != want {
			t.Errorf("%s: %v bytes, want %v", c.typ, l.WeightBytes, want)
		}
		if l.ReadGBs <= 0 || l.GFlops <= 0 || l.Arithmetic == "" {
			t.Errorf("%s: %+v", c.typ, l)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
