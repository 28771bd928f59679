package models

import (
	"strings"
	"testing"
)

// TestTableOfPositions: a context is refused that is longer than the rows of a table of positions reach, and how many
// those are is known before one is chosen.
func TestTableOfPositions(t *testing.T) {
	for by, rows := range map[string]int{"pos": 8, "shift(pos, by=2)": 6} {
		f, err := parse("t.yaml", []byte(`
model: t
in: {tokens: "i32[S]", pos: "i32[S]", last: "i32[R]"}
params: {V: 16, P: 8, D: 4}
weights:
  e: {shape: [V, D], hf: e.weight}
  p: {shape: [P, D], hf: wpe.weight}
body:
  x: embed(tokens, e) + embed(`+by+`, p)
  y: linear(rows(x, last), e)
out: y
`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Positions(Options{}); got != rows {
			t.Errorf("%s: %d positions, want %d", by, got, rows)
		}
		if _, err := f.Build(Options{C: rows}); err != nil {
			t.Errorf("%s: %v", by, err)
		}
		if _, err := f.Build(Options{C: rows + 1}); err == nil || !strings.Contains(err.Error(), "a table of 8") {
			t.Errorf("%s: a context of %d: %v", by, rows+1, err)
		}
	}
}
