package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const tableOf40 = `model: t
in: {tokens: "i32[S]", pos: "i32[S]", last: "i32[R]"}
params: {V: 64, P: 40, D: 32}
weights:
  e: {shape: [V, D], hf: e.weight}
  p: {shape: [P, D], hf: wpe.weight}
state:
  kc: float[C, 1, D]
  vc: float[C, 1, D]
body:
  x: (embed(tokens, e) + embed(pos, p)) as [S, 1, D]
  ks: push(kc, x, pos)
  vs: push(vc, x, pos)
  y: attention(x, ks, vs, pos, scale=D**-0.5) as [S, D]
  z: linear(rows(y, last), e)
out: z
`

// TestContextOfTable: a context that is asked for and reaches beyond a model's table of positions is refused before
// anything is computed, with both numbers; one that nobody asked for ends with the table. A check would have 64
// positions otherwise, a run 2048.
func TestContextOfTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(path, []byte(tableOf40), 0o644); err != nil {
		t.Fatal(err)
	}
	run := []string{"run", path, "--tokens", "1,2,3", "--gen", "2"}
	for _, args := range [][]string{
		{"check", path}, {"check", path, "--context", "40"}, run, append(run, "--context", "40"),
		{"dump", "--stage", "graph", path}, {"bench", "model", path, "-p", "8", "-n", "2", "-r", "1", "--no-store"},
	} {
		if r := greta(t, args...); r.code != 0 {
			t.Errorf("%s: %d: %s", strings.Join(args, " "), r.code, r.err)
		}
	}
	for _, args := range [][]string{
		{"check", path, "--context", "41"}, append(run, "--context", "41"), {"bench", "model", path, "-p", "40", "-n", "0"},
	} {
		r := greta(t, args...)
		if r.code == 0 || !strings.Contains(r.err, "40") || !strings.Contains(r.err, "41") {
			t.Errorf("%s: %d: %s", strings.Join(args, " "), r.code, r.err)
		}
	}
}
