package ref_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// embedding is a launch of embed over a mapped f16 table of 3 rows, [[0, 1], [2, 3], [4, 5]].
func embedding(t *testing.T, dev backends.Device, id int32) (l backends.Launch, out backends.Buffer) {
	t.Helper()
	var table []uint16
	for i := range 6 {
		table = append(table, tensor.F32ToF16(float32(i)))
	}
	weights, err := dev.(backends.Mapper).Map(tensor.Bytes(table))
	if err != nil {
		t.Fatal(err)
	}
	step, err := dev.Alloc(4, backends.Step)
	if err != nil {
		t.Fatal(err)
	}
	if out, err = dev.Alloc(16, backends.Arena); err != nil {
		t.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(step, 0, tensor.Bytes([]int32{id})); err != nil {
		t.Fatal(err)
	}
	n := &graph.Node{Op: ops.Embed, Float: tensor.F64, Name: "x", In: []*graph.Value{
		{Name: "ids", Kind: graph.Input, Type: tensor.I32, Shape: tensor.Shape{1}},
		{Name: "w", Kind: graph.Weight, Type: tensor.F16, Shape: tensor.Shape{3, 2}},
	}}
	n.Out = []*graph.Value{{Name: "x", Type: tensor.F64, Shape: tensor.Shape{1, 2}, Def: n}}
	k, err := dev.Kernel(n)
	if err != nil {
		t.Fatal(err)
	}
	return backends.Launch{
		Node: n, Kernel: k,
		In: []backends.Operand{
			{Buffer: step, Stride: 4, Type: tensor.I32, Shape: tensor.Shape{1}},
			{Buffer: weights, Stride: 4, Type: tensor.F16, Shape: tensor.Shape{3, 2}},
		},
		Out: []backends.Operand{{Buffer: out, Stride: 16, Type: tensor.F64, Shape: tensor.Shape{1, 2}}},
	}, out
}

func read(t *testing.T, dev backends.Device, b backends.Buffer) []float64 {
	t.Helper()
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float64, b.Size()/8)
	if err := s.Read(b, 0, tensor.Bytes(got)); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestReplayReadsStepMemory(t *testing.T) {
	dev := ref.New()
	l, out := embedding(t, dev, 1)
	e, err := dev.Capture(&backends.Program{Name: "p", Launches: []backends.Launch{l}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		id   int32
		want []float64
	}{{1, []float64{2, 3}}, {2, []float64{4, 5}}, {0, []float64{0, 1}}} {
		if err := s.Write(l.In[0].Buffer, 0, tensor.Bytes([]int32{c.id})); err != nil {
			t.Fatal(err)
		}
		if err := e.Submit(); err != nil {
			t.Fatal(err)
		}
		if err := e.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dev, out); !slices.Equal(got, c.want) {
			t.Errorf("id %d gives %v, want %v", c.id, got, c.want)
		}
	}
	if times, err := e.Profile(); err != nil || len(times) != 1 || times[0] <= 0 {
		t.Errorf("profile %v, %v", times, err)
	}
}

// TestRewrittenWeightIsSeen: decoded weights are kept, but not longer than
// what they were decoded from.
func TestRewrittenWeightIsSeen(t *testing.T) {
	dev := ref.New()
	l, out := embedding(t, dev, 1)
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []float64{2, -7} {
		if err := s.Write(l.In[1].Buffer, 4, tensor.Bytes([]uint16{tensor.F32ToF16(float32(v))})); err != nil {
			t.Fatal(err)
		}
		if err := s.Launch(&l); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dev, out); got[0] != v {
			t.Errorf("%v is read, %v was written", got[0], v)
		}
	}
}

func TestErrors(t *testing.T) {
	dev := ref.New()
	s, err := dev.Stream()
	if err != nil {
		t.Fatal(err)
	}
	b, err := dev.Alloc(8, backends.Arena)
	if err != nil {
		t.Fatal(err)
	}
	wrong := func(change func(*backends.Launch), id int32) error {
		l, _ := embedding(t, dev, id)
		change(&l)
		return s.Launch(&l)
	}
	for _, c := range []struct {
		name, want string
		err        error
	}{
		{"write behind the end", "outside a buffer of 8", s.Write(b, 4, make([]byte, 5))},
		{"read before the start", "outside a buffer of 8", s.Read(b, -1, make([]byte, 1))},
		{"id out of range", "x (embed): ids[0] is 3", wrong(func(*backends.Launch) {}, 3)},
		{"operand outside", "operand 1", wrong(func(l *backends.Launch) { l.In[1].Offset = 4 }, 0)},
		{"result outside", "result 0", wrong(func(l *backends.Launch) { l.Out[0].Offset = 8 }, 0)},
		{"packed", "packed as p", wrong(func(l *backends.Launch) { l.In[1].Packing = "p" }, 0)},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: error %v, wanted one with %q", c.name, c.err, c.want)
		}
	}
	if _, err := dev.Alloc(-1, backends.Arena); err == nil {
		t.Error("a negative size was allocated")
	}
}
