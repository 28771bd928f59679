package cpu

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
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
	type weights struct {
		typ   tensor.Type
		bytes float64 // of one in panels
		far   simd.Far
	}
	cases := []weights{{tensor.F32, 4, k.Far()}, {tensor.Q8_0, 34. / 32, k.Far()}, {tensor.Q4_0, 18. / 32, k.Far()}}
	for _, far := range k.Fars() { // some have compact panels
		cases = append(cases, weights{tensor.F16, 2, far}, weights{tensor.BF16, 2, far})
	}
	for _, c := range cases {
		dev, err := open(k.WithFar(c.far), 2, nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.New(context.Background(), engine.Options{Model: file, Device: dev, Context: 16, DType: c.typ,
			Set: sizes})
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
		product := slices.IndexFunc(st.Program.Launches, func(l backends.Launch) bool { return l.Node.Op == ops.Linear })
		switch compact := dev.compacts(st.Program.Launches[product].Node); {
		case compact && c.typ == tensor.BF16: // twelve bits, and the heads of 160 panels
			want = want*12/16 + 160*64
		case compact && c.typ == tensor.F16: // fourteen and a half
			want = want*29/32 + 160*320
		}
		if l.WeightBytes != want {
			t.Errorf("%s, far=%s: %v bytes, want %v", c.typ, c.far, l.WeightBytes, want)
		}
		read := profiled(t, dev, st.Program)
		if read != l.WeightBytes {
			t.Errorf("%s, far=%s: a profile counts %v bytes of weights, limits %v", c.typ, c.far, read, l.WeightBytes)
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
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}
}

// profiled is what a profile says that a program's products read of their weights, bytes.
func profiled(t *testing.T, dev backends.Device, p *backends.Program) (read float64) {
	t.Helper()
	for i := range p.Launches {
		launch := &p.Launches[i]
		if n := launch.Node; ops.IsProduct(n.Op) {
			c, err := backends.Cost(dev, launch, 1)
			if err != nil {
				t.Fatal(err)
			}
			read += c.Read - n.Op.Cost(n, 1).Read + float64(n.In[1].Bytes())
		}
	}
	return read
}
