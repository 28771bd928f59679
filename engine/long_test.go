package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/greta-project/greta/models"
)

// What an equation of many terms costs grows as their number does: its allocations are counted, which do not depend on
// how busy the machine is.
func TestManyTerms(t *testing.T) {
	allocations := func(terms int) float64 {
		path := filepath.Join(t.TempDir(), "sum.yaml")
		text := "block: sum\nin:\n  x: float[S, D]\nparams:\n  D: 8\nbody:\n  y: " +
			strings.Repeat("x + ", terms-1) + "x\nout: y\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := models.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		dev := newCPU(t, 1)
		return testing.AllocsPerRun(1, func() {
			e, err := New(t.Context(), Options{Model: file, Device: dev, Context: 4, Chunk: 1})
			if err != nil {
				t.Fatal(err)
			}
			s, err := e.NewSession()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocations(500), allocations(4000)
	if many > 10*few {
		t.Errorf("%.0f allocations for 500 terms and %.0f for 4000: more than ten times as many", few, many)
	}
}
