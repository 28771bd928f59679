package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
)

// keepers are families with weights that are not products' alone: a matrix whose norm is taken, matrices of heads.
var keepers = []string{"baichuan", "gemma3n_text", "zamba"}

// Every family runs with its matrices in blocks. How far the logits are from float64's then is the models' matter: they
// are random and tiny, and those that recur most make noise of weights up to fifty times as large.
func TestDTypeOfAnyFamily(t *testing.T) {
	for i, expected := range kin(t) {
		name := filepath.Base(filepath.Dir(expected))
		if i%8 == 0 || testfiles.Exhaustive() || slices.Contains(keepers, name) {
			t.Run(name, func(t *testing.T) { testDTypes(t, expected) })
		}
	}
}

// restless is from what error of weights as they are a network makes so much of float32's own roundings that its logits
// say nothing about blocks: that it runs and gives numbers is then all that is asked.
const restless = 2e-5

func testDTypes(t *testing.T, expected string, args ...string) {
	plain := 0.0
	for _, c := range []struct {
		typ   string
		limit float64
	}{{"bf16", 0.05}, {"q8_0", 0.35}, {"q4_0", 1.2}, {"q4_k", 1.2}} {
		r := greta(t, append([]string{"check", filepath.Dir(expected), "--expected", expected, "--dtype", c.typ, "--json",
			"--cache", "off"}, args...)...)
		var g goldenReport
		if err := json.Unmarshal([]byte(r.out), &g); err != nil {
			t.Fatalf("%s: exit code %d: %v\n%s", c.typ, r.code, err, r.err)
		}
		if c.typ == "bf16" {
			plain = g.RelL2
		} else if plain > restless {
			c.limit = 2
		}
		if g.Positions != 96 || !(g.RelL2 <= c.limit) {
			t.Errorf("%s: %+v", c.typ, g)
		}
		t.Logf("%s: relative L2 %.2e", c.typ, g.RelL2)
	}
}
