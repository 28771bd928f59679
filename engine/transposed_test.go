package engine

import (
	"testing"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// TestTransposedStack: of a tensor of three dimensions .T swaps the last two of each matrix.
func TestTransposedStack(t *testing.T) {
	shape := tensor.Shape{2, 3, 4} // as the model wants it; the file has 2 × 4 × 3
	src := tensor.New(tensor.F32, 2, 4, 3)
	for i := range src.F32() {
		src.F32()[i] = float32(i)
	}
	dst := tensor.New(tensor.F32, shape...)
	load := &graph.Load{Type: tensor.F32, Transpose: true}
	if err := convert(t.Context(), dst.Data, tensor.F32, src.Data, load, shape); err != nil {
		t.Fatal(err)
	}
	for e := range 2 {
		for r := range 3 {
			for c := range 4 {
				if got, want := dst.F32()[e*12+r*4+c], float32(e*12+c*3+r); got != want {
					t.Fatalf("matrix %d, row %d, column %d: %g, want %g", e, r, c, got, want)
				}
			}
		}
	}
}
