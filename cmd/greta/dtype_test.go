package main

import (
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// keepers are families with weights that are not products' alone: a matrix whose norm is taken, matrices of heads.
var keepers = []string{"baichuan", "gemma3n_text", "zamba"}

// Every family runs with its matrices in blocks, and computes with them what the reference does. How far that is from
// the logits of the weights as stored is the models' matter: they are random and tiny, and some make of noise in their
// weights noise that is hundreds of times as large (Gemma 4's), so that its error is compared, not bounded.
func TestDTypeOfAnyFamily(t *testing.T) {
	for i, expected := range kin(t) {
		name := filepath.Base(filepath.Dir(expected))
		if i%8 == 0 || testfiles.Exhaustive() || slices.Contains(keepers, name) {
			t.Run(name, func(t *testing.T) {
				for j, typ := range []string{"q8_0", "q4_0", "q4_k"} {
					if !testfiles.Exhaustive() && i/8%3 != j {
						continue
					}
					got, want := dtypeError(t, expected, typ), dtypeError(t, expected, typ, "--backend", "ref")
					if !(math.Abs(got-want) <= 0.02*want+1e-4) {
						t.Errorf("%s: relative L2 %.3e to what is expected, the reference has %.3e", typ, got, want)
					}
				}
			})
		}
	}
}

// dtypeError is how far logits are from those expected where matrices are of a type.
func dtypeError(t *testing.T, expected, typ string, args ...string) float64 {
	t.Helper()
	r := greta(t, append([]string{"check", filepath.Dir(expected), "--expected", expected, "--dtype", typ, "--json",
		"--cache", "off"}, args...)...)
	var g goldenReport
	if err := json.Unmarshal([]byte(r.out), &g); err != nil {
		t.Fatalf("%s: exit code %d: %v\n%s", typ, r.code, err, r.err)
	}
	if g.Positions != 96 || !(g.RelL2 < 2) {
		t.Errorf("%s: %+v", typ, g)
	}
	t.Logf("%s %q: relative L2 %.3e", typ, args, g.RelL2)
	return g.RelL2
}
