package engine

import (
	"slices"
	"testing"

	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/models"
)

// TestRewind computes a position again and gets the same.
func TestRewind(t *testing.T) {
	dev, err := cpu.New(1)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	f, err := models.Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(t.Context(), Options{Model: f, Device: dev, Context: 16,
		Set: map[string]string{"D": "64", "H": "4", "F": "96"}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	s := newSession(t, e)
	x := Activations(5*64, 1)
	var outs [][]float32
	for i := range 5 {
		out, err := s.Block(x[i*64 : (i+1)*64])
		if err != nil {
			t.Fatal(err)
		}
		outs = append(outs, slices.Clone(out))
	}
	if err := s.Rewind(2); err != nil || s.Pos() != 2 {
		t.Fatalf("position %d, %v", s.Pos(), err)
	}
	for i := 2; i < 5; i++ {
		if out, err := s.Block(x[i*64 : (i+1)*64]); err != nil || !slices.Equal(out, outs[i]) {
			t.Errorf("position %d differs after going back; %v", i, err)
		}
	}
	for _, pos := range []int{-1, 6} {
		if err := s.Rewind(pos); err == nil {
			t.Errorf("back to %d of 5", pos)
		}
	}
}
