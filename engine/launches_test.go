package engine

import (
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/models"
)

// TestShapesAreTheLaunches compares the shapes with the launches of a captured step.
func TestShapesAreTheLaunches(t *testing.T) {
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, name := range []string{"llama2_block", "phi3_block"} {
		f, err := models.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		opt := Options{Model: f, Device: dev, Context: 16, Set: map[string]string{"D": "64", "H": "4", "F": "96"}}
		shapes, err := Shapes(opt, 3, 1)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		e, err := New(t.Context(), opt)
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		st, err := s.Step(3, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(shapes) != len(st.Program.Launches) {
			t.Fatalf("%s: %d shapes, %d launches", name, len(shapes), len(st.Program.Launches))
		}
		for i := range shapes {
			l := &st.Program.Launches[i]
			if shapes[i].Node.Op != l.Node.Op {
				t.Errorf("%s: launch %d is %v, the shape %v", name, i, l.Node, shapes[i].Node)
			}
			for j := range l.In {
				if l.In[j].Stride != shapes[i].Strides[j] {
					t.Errorf("%s: %v: operand %d has rows %d bytes apart, the shape says %d", name, l.Node, j, l.In[j].Stride,
						shapes[i].Strides[j])
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
