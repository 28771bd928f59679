package hip_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// plain is the device without choices and queues.
type plain struct{ backends.Device }

func (p plain) Info() backends.Info {
	i := p.Device.Info()
	i.Queued, i.Picks = false, 0
	return i
}

// Tokens chosen on the device, from prompts whose chunks are queued, are those
// that the host chooses from all logits.
func TestChoices(t *testing.T) {
	dev := open(t)
	defer closing(t, dev)
	file, err := models.Builtin("llama2_7b")
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	prompt := make([]int32, 150)
	for i := range prompt {
		prompt[i] = int32(i * 37 % 31999)
	}
	var sessions [2]*engine.Session
	for i, d := range []backends.Device{plain{dev}, dev} {
		e, err := engine.New(ctx, engine.Options{Model: file, Device: d, Context: 256, Chunk: 64, DType: tensor.F16, Seed: 1,
			Set: map[string]string{"D": "512", "H": "4", "F": "1024", "L": "4"}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		if sessions[i], err = e.NewSession(); err != nil {
			t.Fatal(err)
		}
		defer sessions[i].Close()
	}
	for _, o := range []engine.Sampling{{}, {Temperature: 0.9, TopK: 40, TopP: 0.95, MinP: 0.01, Seed: 3},
		{Temperature: 1.2, TopK: 1}, {RepeatPenalty: 1.3}} {
		var tokens [2][]int32
		for i, s := range sessions {
			s.Reset()
			g, err := s.Generate(ctx, prompt, engine.Generation{Max: 40, Sampling: o})
			if err != nil {
				t.Fatal(err)
			}
			tokens[i] = g.Tokens
			if len(g.Submit) == 0 {
				continue // the plain device has no times of the host
			}
			slices.Sort(g.Submit)
			slices.Sort(g.Host)
			t.Logf("%+v: medians of the host's work for a token: %v until submitted, %v in all", o, g.Submit[len(g.Submit)/2],
				g.Host[len(g.Host)/2])
		}
		if !slices.Equal(tokens[0], tokens[1]) {
			t.Errorf("%+v: %v on the host, %v on the device", o, tokens[0], tokens[1])
		}
	}
}

// A NaN comes before all numbers, then infinity; of equal ones the first.
func TestChoiceOfNaN(t *testing.T) {
	dev := open(t)
	defer closing(t, dev)
	x := &graph.Value{Name: "x", Kind: graph.Input, Type: tensor.F32, Shape: tensor.Shape{1, 5000}}
	n := &graph.Node{Name: "choice", Op: ops.TopK, In: []*graph.Value{x}, Attr: &ops.TopKAttr{K: 5, Softmax: "none"},
		Float: tensor.F32}
	results, err := n.Op.Infer(n)
	if err != nil {
		t.Fatal(err)
	}
	k, err := dev.Kernel(n)
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	memory := func(bytes int) backends.Buffer {
		b, err := dev.Alloc(bytes, backends.Arena)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free() })
		return b
	}
	data := make([]float32, 5000)
	for i := range data {
		data[i] = -1
	}
	data[0], data[4998], data[4000], data[77], data[3000] = float32(math.NaN()), float32(math.NaN()), float32(math.Inf(1)),
		0, float32(math.Copysign(0, -1))
	l := &backends.Launch{Node: n, Kernel: k, In: []backends.Operand{{Buffer: memory(20000), Stride: 20000, Type: x.Type,
		Shape: x.Shape}}}
	for _, r := range results {
		n.Out = append(n.Out, &graph.Value{Type: r.Type, Shape: r.Shape})
		l.Out = append(l.Out, backends.Operand{Buffer: memory(20), Stride: 20, Type: r.Type, Shape: r.Shape})
	}
	tokens := make([]int32, 5)
	if err := errors.Join(s.Write(l.In[0].Buffer, 0, tensor.Bytes(data)), s.Launch(l),
		s.Read(l.Out[1].Buffer, 0, tensor.Bytes(tokens))); err != nil {
		t.Fatal(err)
	}
	if want := []int32{0, 4998, 4000, 77, 3000}; !slices.Equal(tokens, want) {
		t.Errorf("chosen were %v, %v are wanted", tokens, want)
	}
}
