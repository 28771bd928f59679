package engine

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

var rewrite = flag.Bool("rewrite", false, "write golden texts anew")

// TestPlansDoNotOverlap plans random graphs and checks that tensors that are
// alive at once never share memory, and that reuse happens at all.
func TestPlansDoNotOverlap(t *testing.T) {
	reused := false
	seeds := uint64(60)
	if testfiles.Exhaustive() {
		seeds = 200
	}
	for seed := range seeds {
		g, _, err := optest.RandomGraph(seed, tensor.F32)
		if err != nil {
			t.Fatal(err)
		}
		sel := make(selection, len(g.Nodes))
		for i := range sel {
			sel[i] = scratchy(int(seed) % 3 * 100)
		}
		window := int(seed) % 2 * 4 // places by which launches may move
		p := planMemory(g, sel, window)
		sum := 0
		all := p.slots
		for i, off := range p.scratch {
			if off >= 0 {
				all = append(all, slot{offset: off, bytes: sel[i].Traits().Scratch, first: i, last: i})
			}
		}
		for i, a := range all {
			sum += a.bytes
			if a.offset%align != 0 || a.offset+a.bytes > p.arena {
				t.Fatalf("seed %d: slot at %d of %d bytes in an arena of %d", seed, a.offset, a.bytes, p.arena)
			}
			for _, b := range all[:i] {
				if a.first <= b.last+window && b.first <= a.last+window && a.offset < b.offset+b.bytes &&
					b.offset < a.offset+a.bytes {
					t.Fatalf("seed %d: two tensors alive at once overlap: %+v and %+v\n%s", seed, a, b, p.text(g))
				}
			}
		}
		reused = reused || p.arena < sum
		checkLives(t, g, p)
	}
	if !reused {
		t.Error("no plan reuses memory")
	}
}

// checkLives checks lives against the graph, walking it anew.
func checkLives(t *testing.T, g *graph.Graph, p *plan) {
	t.Helper()
	lives := map[*graph.Value]slot{}
	for _, s := range p.slots {
		lives[s.value] = s
	}
	for i, n := range g.Nodes {
		for _, v := range append(append([]*graph.Value(nil), n.In...), n.Out...) {
			if v == nil {
				continue
			}
			root := p.locs[v.ID].root
			if s, ok := lives[root]; ok && (i < s.first || i > s.last) {
				t.Errorf("%v touches %s at %d, which lives from %d to %d", n, root, i, s.first, s.last)
			}
		}
	}
}

// scratchy is a kernel that wants some scratch.
type scratchy int

func (s scratchy) Name() string                  { return "scratchy" }
func (s scratchy) Packing(int) *backends.Packing { return nil }
func (s scratchy) Traits() backends.Traits       { return backends.Traits{Scratch: int(s)} }

func TestRowsSink(t *testing.T) {
	e := &Engine{opt: Options{Model: small(t), Device: newCPU(t, 1), Context: 16, KV: tensor.F32}}
	e.dev = e.opt.Device
	g, err := e.Graph(8, 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := false
	for _, n := range g.Nodes {
		// Behind attention every product works on the one wanted row.
		if n.Op == ops.Attention {
			seen = true
		}
		if seen && (n.Op == ops.Linear || n.Op == ops.LinearResidual) && n.In[0].Shape.Rows() != 1 {
			t.Errorf("%s has %d rows behind attention, one is wanted", n.Text(), n.In[0].Shape.Rows())
		}
	}
	if !seen {
		t.Error("no attention in the graph")
	}
}

// TestRowsStay: where rows cannot be selected before a result is computed, each of its readers selects them for itself.
func TestRowsStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "halves.yaml")
	if err := os.WriteFile(path, []byte(`model: halves
in:
  tokens: i32[S]
  last: i32[R]
params: {D: 64, V: 100}
weights:
  embd: {shape: [V, D], gguf: embd}
  half: {shape: [D/2], gguf: half}
  first: {shape: [D], gguf: first}
  second: {shape: [D], gguf: second}
body:
  x: rmsnorm(embed(tokens, embd) as [2*S, D/2], half, eps=1e-5) as [S, D]
  g: rmsnorm(x, second, eps=1e-5)
  h: rmsnorm(x, first, eps=1e-5)
  logits: linear(rows(silu(h) + silu(g), last), embd)
out: logits
`), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := models.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{opt: Options{Model: file, Device: newCPU(t, 1), Context: 16, KV: tensor.F32}}
	e.dev = e.opt.Device
	g, err := e.Graph(8, 1) // which is verified
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, n := range g.Nodes {
		if n.Op == ops.SiLU {
			seen++
			if n.In[0].Shape.Rows() != 1 {
				t.Errorf("%s has %d rows, one is wanted", n.Text(), n.In[0].Shape.Rows())
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d activations, two are expected", seen)
	}
}

// TestOnlyRow: no row is selected from one row, whatever the model is, unless it is run as it is written.
func TestOnlyRow(t *testing.T) {
	for _, noFuse := range []bool{false, true} {
		file, err := models.Builtin("llama2_7b")
		if err != nil {
			t.Fatal(err)
		}
		e := &Engine{opt: Options{Model: file, Device: newCPU(t, 1), Context: 16, KV: tensor.F32, NoFuse: noFuse}}
		e.dev = e.opt.Device
		for tokens := range 3 {
			g, err := e.Graph(tokens+1, 1)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, node := range g.Nodes {
				if node.Op == ops.Rows {
					n++
				}
			}
			if selects := n > 0; selects != (noFuse || tokens > 0) {
				t.Errorf("%d tokens, as written: %v: %d selections of rows", tokens+1, noFuse, n)
			}
			if g.Input("last") == nil {
				t.Errorf("%d tokens: the input is gone", tokens+1)
			}
		}
	}
}

// TestPrograms compares lowered models with testdata/program, so that a change
// of what runs shows as a change of text. It needs no processor of that kind.
func TestPrograms(t *testing.T) {
	for _, c := range []struct {
		model  string
		tokens int
	}{{"llama2_block", 1}, {"llama2_block", 7}, {"gemma2_block", 1}, {"mixtral_block", 3}, {"gpt_neox_block", 2},
		{"phi3_block", 2}} {
		f, err := models.Builtin(c.model)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := describedCPU()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Dump(Options{Model: f, Device: dev, Context: 128}, "program", c.tokens)
		if err != nil {
			t.Fatal(err)
		}
		path := testfiles.Repo(t, "testdata", "program", fmt.Sprintf("%s.S%d.cpu-go.txt", c.model, c.tokens))
		if *rewrite {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != got {
			t.Errorf("%s differs; read the difference, then go test ./engine -rewrite\n%s", path, got)
		}
	}
}
