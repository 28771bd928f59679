package graph_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// withOps is the table with some operators more.
type withOps []*graph.Op

func (w withOps) Lookup(name string) *graph.Op {
	for _, op := range w {
		if op.Name == name {
			return op
		}
	}
	return ops.Table.Lookup(name)
}

func (w withOps) Names() []string {
	names := ops.Table.Names()
	for _, op := range w {
		names = append(names, op.Name)
	}
	return names
}

func always(*graph.Node) bool { return true }

// ownNorms sets one attribute of an inner operator to a number, hands one on
// under another name, and has two inner operators share a third.
type ownNorms struct {
	First float64 `attr:"first"`
	Eps   float64 `attr:"eps"`
}

var (
	norms = &graph.Op{
		Name: "norms",
		Sig:  graph.MustSig("(x: T[*, D], a?: W[D], b?: W[D]) -> (y: float[*, D])"),
		Attr: func() any { return &ownNorms{First: 1e-6, Eps: 1e-6} },
		Body: "f: rmsnorm(x, a, eps=first)\ns: rmsnorm(f, b)\ny: rmsnorm(s, a)",
	}
	strict = &graph.Op{
		Name: "strict",
		Sig:  graph.MustSig("(x: T[*, D]) -> (y: float[*, D])"),
		Body: "n: rmsnorm(x, eps=0.5)\ny: gelu(n, form=erf)",
	}
	square = &graph.Op{
		Name: "square",
		Sig:  graph.MustSig("(x: T[*, D]) -> (y: float[*, D])"),
		Body: "y: x * x",
	}
	gated = &graph.Op{
		Name: "gated",
		Sig:  graph.MustSig("(g: T[*, D], h: T[*, D]) -> (y: float[*, D])"),
		Body: "f: silu(g)\nm: rmsnorm(h)\nn: silu(m)\ny: f * n",
	}
	table = withOps{norms, strict, square, gated}
)

// TestFuse: where a body stands in a graph, and where it only seems to.
// A table, in one piece.
func TestFuse(t *testing.T) {
	const decl = `
		in x f32[3, 8]
		in z f32[3, 8]
		in one f32[8]
		in pos i32[3]
		in other i32[3]
		weight a f32[8]
		weight b f32[8]
		weight w f32[8, 8]
		state kc f32[16, 2, 4]
		`
	for name, c := range map[string]struct {
		op   *graph.Op
		body string
		want string // the nodes, or "" where nothing is to change
	}{
		"chain":       {ops.SwiGLU, "g: silu(x)\ny: g * z\nout y", "y f32[3, 8] = swiglu(x, z)"},
		"other order": {ops.SwiGLU, "g: silu(x)\ny: z * g\nout y", "y f32[3, 8] = swiglu(x, z)"},
		"twice": {ops.SwiGLU, "g: silu(x)\nh: g * z\ng2: silu(h)\ny: h * g2\nout y",
			"h f32[3, 8] = swiglu(x, z)\ny f32[3, 8] = swiglu(h, h)"},
		"both sides are the pattern": {ops.SwiGLU, "g: silu(x)\nh: silu(z)\ny: g * h\nout y",
			"h f32[3, 8] = silu(z)\ny f32[3, 8] = swiglu(x, h)"},
		"an intermediate is read elsewhere": {ops.SwiGLU, "g: silu(x)\ny: g * z\nv: silu(g)\nout y\nout v", ""},
		"an intermediate is a result":       {ops.SwiGLU, "g: silu(x)\ny: g * z\nout y\nout g", ""},
		"the signature refuses":             {ops.SwiGLU, "g: silu(x)\ny: g * one\nout y", ""}, // one is stretched over rows
		"another operator":                  {ops.SwiGLU, "g: sigmoid(x)\ny: g * z\nout y", ""},
		"a result is read elsewhere": {ops.AddRMSNorm, "s: x + z\ny: rmsnorm(s, a)\nv: s * y\nout v",
			"s f32[3, 8], y f32[3, 8] = add_rmsnorm(x, z, a)\nv f32[3, 8] = mul(s, y)"},
		"without its optional operand": {ops.AddRMSNorm, "s: x + z\ny: rmsnorm(s)\nout y\nout s",
			"s f32[3, 8], y f32[3, 8] = add_rmsnorm(x, z)"},
		"the attribute is taken over": {ops.AddRMSNorm, "s: x + z\ny: rmsnorm(s, a, eps=0.25)\nout y",
			"s f32[3, 8], y f32[3, 8] = add_rmsnorm(x, z, a; eps=0.25)"},
		"two places, the first's second result far behind": {ops.AddRMSNorm,
			"s: x + z\nl: silu(s)\nt: s + l\ny: rmsnorm(t, a)\nu: rmsnorm(s, b)\nv: y + u\nout v",
			"s f32[3, 8], u f32[3, 8] = add_rmsnorm(x, z, b)\nl f32[3, 8] = silu(s)\nt f32[3, 8], y f32[3, 8] = " +
				"add_rmsnorm(s, l, a)\nv f32[3, 8] = add(y, u)"},
		"bias and residual": {ops.LinearResidual, "l: linear(x, w, a)\ny: l + z\nout y",
			"y f32[3, 8] = linear_residual(x, w, z, a)"},
		"residual": {ops.LinearResidual, "l: linear(x, w)\ny: z + l\nout y",
			"y f32[3, 8] = linear_residual(x, w, z)"},
		"two products": {ops.LinearResidual, "l: linear(x, w)\nm: linear(z, w)\ny: l + m\nout y",
			"l f32[3, 8] = linear(x, w)\ny f32[3, 8] = linear_residual(z, w, l)"},
		"both terms are one product":  {ops.LinearResidual, "l: linear(x, w)\ny: l + l\nout y", ""},
		"both factors are one result": {ops.SwiGLU, "g: silu(x)\ny: g * g\nout y", ""},
		"an update": {ops.RoPEPush, "k: x as [3, 2, 4]\nr: rope(k, pos, layout=pair, base=100)\nks: push(kc, r, pos)\nout ks",
			"k f32[3, 2, 4] = view(x; shape=[3, 2, 4])\nks f32[16, 2, 4] = rope_push(kc, k, pos; base=100, layout=pair)"},
		"one operand, two values": {ops.RoPEPush, "k: x as [3, 2, 4]\nr: rope(k, pos)\nks: push(kc, r, other)\nout ks", ""},

		"attributes: named, shared, set": {norms, "f: rmsnorm(x, a, eps=0.1)\ns: rmsnorm(f, b, eps=0.2)\ny: rmsnorm(s, a, " +
			"eps=0.2)\nout y",
			"y f32[3, 8] = norms(x, a, b; first=0.1, eps=0.2)"},
		"a shared attribute differs": {norms, "f: rmsnorm(x, a, eps=0.1)\ns: rmsnorm(f, b, eps=0.2)\ny: " +
			"rmsnorm(s, a, eps=0.3)\nout y", ""},
		"an operand differs":       {norms, "f: rmsnorm(x, a)\ns: rmsnorm(f, b)\ny: rmsnorm(s, b)\nout y", ""},
		"an operand is there once": {norms, "f: rmsnorm(x, a)\ns: rmsnorm(f, b)\ny: rmsnorm(s)\nout y", ""},
		"no optional operands": {norms, "f: rmsnorm(x)\ns: rmsnorm(f)\ny: rmsnorm(s)\nout y",
			"y f32[3, 8] = norms(x)"},
		"a number and a word agree": {strict, "n: rmsnorm(x, eps=0.5)\ny: gelu(n, form=erf)\nout y",
			"y f32[3, 8] = strict(x)"},
		"a number differs":               {strict, "n: rmsnorm(x, eps=0.25)\ny: gelu(n, form=erf)\nout y", ""},
		"a word differs":                 {strict, "n: rmsnorm(x, eps=0.5)\ny: gelu(n, form=tanh)\nout y", ""},
		"an operand that the body lacks": {strict, "n: rmsnorm(x, a, eps=0.5)\ny: gelu(n, form=erf)\nout y", ""},
		"the other order after half a match": {gated, "m: rmsnorm(x)\nn: silu(m)\nf: silu(z)\ny: n * f\nout y",
			"y f32[3, 8] = gated(z, x)"},
		"the same operand twice": {square, "y: x * x\nout y", "y f32[3, 8] = square(x)"},
		"two operands for one":   {square, "y: x * z\nout y", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := mustBuild(t, decl+c.body, table)
			before := nodes(g)
			count := g.Fuse(c.op, table, always)
			if err := g.Verify(); err != nil {
				t.Fatal(err)
			}
			want := c.want
			if want == "" {
				want = before
			}
			if got := nodes(g); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if places := strings.Count(nodes(g), "= "+c.op.Name+"("); places != count {
				t.Errorf("%d places counted, %d are there", count, places)
			}
		})
	}
}

// TestFuseCycle: a fused node with two results must not read what is made of
// the first.
func TestFuseCycle(t *testing.T) {
	const text = `
		in x f32[1, 8]
		in z f32[1, 8]
		s: x + z
		h: silu(s)
		n: h as [8]
		y: rmsnorm(s, n)
		out y`
	g := mustBuild(t, text, ops.Table)
	before := g.Text()
	if n := g.Fuse(ops.AddRMSNorm, ops.Table, always); n != 0 || g.Text() != before {
		t.Errorf("%d places:\n%s", n, g.Text())
	}
}

// TestFuseGrows: eight times as many places take about eight times as much, not its square, since every
// length of a prompt has a graph of its own and large models have a hundred blocks.
func TestFuseGrows(t *testing.T) {
	taken := func(places int) float64 {
		text := "in x f32[1, 8]\nin z f32[1, 8]\ny0: x + z\n"
		for i := range places {
			text += fmt.Sprintf("g%d: silu(y%d)\ny%d: g%d * z\n", i, i, i+1, i)
		}
		g := mustBuild(t, text+fmt.Sprintf("out y%d", places), ops.Table)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if n := g.Fuse(ops.SwiGLU, ops.Table, always); n != places {
			t.Fatalf("%d of %d places", n, places)
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	taken(50)
	if few, many := taken(50), taken(400); many > 16*few {
		t.Errorf("400 places take %.0f times the memory of 50", many/few)
	}
}

// TestFuseAsks: the device may refuse a node, and sees it whole.
func TestFuseAsks(t *testing.T) {
	g := mustBuild(t, "in x f32[3, 8]\nin z f32[3, 8]\ng: silu(x)\nh: g * z\nk: silu(h)\ny: k * z\nout y", ops.Table)
	g.Nodes[1].Block, g.Nodes[1].Place = 4, "m.yaml:1:2"
	var seen []string
	n := g.Fuse(ops.SwiGLU, ops.Table, func(n *graph.Node) bool {
		seen = append(seen, n.String()+" "+n.Out[0].String())
		return n.Name == "h"
	})
	if n != 1 || strings.Join(seen, "; ") != "y (swiglu) y f32[3, 8]; h (swiglu) h f32[3, 8]" {
		t.Errorf("%d of %q", n, seen)
	}
	if got := nodes(g); got != "h f32[3, 8] = swiglu(x, z)\nk f32[3, 8] = silu(h)\ny f32[3, 8] = mul(k, z)" {
		t.Error(got)
	}
	if f := g.Nodes[0]; f.Block != 4 || f.Place != "m.yaml:1:2" {
		t.Errorf("block %d at %s", f.Block, f.Place)
	}
}

// fusedCalls is a use of each fused operator, the optional operands given.
var fusedCalls = map[string]string{
	"rope_push":              "y: rope_push(kc, k, pos, f, base=100, layout=pair, dims=2)",
	"linear_residual":        "y: linear_residual(x, w, z, b)",
	"linear_bias":            "y: linear_bias(x, w, b)",
	"linear_scaled":          "y: linear_scaled(x, w, b)",
	"linear_scaled_bias":     "y: linear_scaled_bias(x, w, b, b)",
	"linear_scaled_residual": "y: linear_scaled_residual(x, w, b, z)",
	"add_rmsnorm":            "s, y: add_rmsnorm(x, z, b, eps=0.5)",
	"swiglu":                 "y: swiglu(x, z)",
	"geglu":                  "y: geglu(x, z, form=erf)",
}

const fusedDecl = `
	in x f32[3, 8]
	in z f32[3, 8]
	in k f32[3, 2, 4]
	in pos i32[3]
	weight w f16[8, 8]
	weight b f32[8]
	weight f f32[1]
	state kc f16[16, 2, 4]
	`

// TestLower: a fused node becomes its body, and the body's place is found again.
func TestLower(t *testing.T) {
	for _, op := range ops.Fused() {
		t.Run(op.Name, func(t *testing.T) {
			call, ok := fusedCalls[op.Name]
			if !ok {
				t.Fatal("no use of it here")
			}
			g := mustBuild(t, fusedDecl+call+"\nout y", ops.Table)
			g.Prune()
			fused := g.Text()
			if err := g.Lower(ops.Table, always); err != nil || g.Text() != fused {
				t.Errorf("kept, it is changed: %v\n%s", err, g.Text())
			}
			if err := g.Lower(ops.Table, func(*graph.Node) bool { return false }); err != nil {
				t.Fatal(err)
			}
			if err := g.Verify(); err != nil {
				t.Fatal(err)
			}
			for _, n := range g.Nodes {
				if n.Op.Body != "" {
					t.Errorf("%v is left", n)
				}
			}
			if g.Outputs[0].Name != "y" {
				t.Errorf("the result is called %s", g.Outputs[0].Name)
			}
			if n := g.Fuse(op, ops.Table, always); n != 1 {
				t.Fatalf("found again %d times:\n%s", n, g.Text())
			}
			got := strings.ReplaceAll(g.Text(), "y.sum f32", "s f32") // the body's name for a result that nothing reads
			if got != fused {
				t.Errorf("got\n%swant\n%s", got, fused)
			}
		})
	}
	if len(fusedCalls) != len(ops.Fused()) {
		t.Errorf("uses of %v", slices.Sorted(maps.Keys(fusedCalls)))
	}
}

// TestExpand: the body of each fused operator stands alone, its operands as inputs.
func TestExpand(t *testing.T) {
	for _, op := range ops.Fused() {
		g := mustBuild(t, fusedDecl+fusedCalls[op.Name]+"\nout y", ops.Table)
		n := g.Nodes[0]
		e, err := n.Expand(ops.Table)
		if err != nil {
			t.Errorf("%s: %v", op.Name, err)
			continue
		}
		if len(e.Outputs) != len(n.Out) {
			t.Errorf("%s: %d results, want %d", op.Name, len(e.Outputs), len(n.Out))
			continue
		}
		for i, v := range e.Outputs {
			if v.Type != n.Out[i].Type || !v.Shape.Equal(n.Out[i].Shape) {
				t.Errorf("%s: result %v, want %v", op.Name, v, n.Out[i])
			}
		}
		if states := len(e.States); (n.Op.Kind == graph.Update) != (states == 1) {
			t.Errorf("%s: %d states", op.Name, states)
		}
		if len(e.Inputs)+len(e.States) != len(n.In) {
			t.Errorf("%s: %d inputs, want %d", op.Name, len(e.Inputs), len(n.In))
		}
	}
	g := mustBuild(t, fusedDecl+fusedCalls["rope_push"]+"\nout y", ops.Table)
	e, _ := g.Nodes[0].Expand(ops.Table)
	if got := nodes(e); got != "y.rope f32[3, 2, 4] = rope(x, pos, factors; base=100, layout=pair, dims=2)\ny f16[16, "+
		"2, 4] = push(cache, y.rope, pos)" {
		t.Error(got)
	}
	// What the body sets is not handed on.
	g = mustBuild(t, fusedDecl+"y: norms(x, first=0.25, eps=0.5)\nout y", table)
	e, err := g.Nodes[0].Expand(table)
	if want := "f f32[3, 8] = rmsnorm(x; eps=0.25)\n" +
		"s f32[3, 8] = rmsnorm(f; eps=0.5)\ny f32[3, 8] = rmsnorm(s; eps=0.5)"; err != nil || nodes(e) != want {
		t.Errorf("%v: %s", err, nodes(e))
	}
	// An optional operand that is left out is left out inside.
	g = mustBuild(t, fusedDecl+"y: linear_residual(x, w, z)\nout y", ops.Table)
	e, err = g.Nodes[0].Expand(ops.Table)
	if err != nil || !strings.Contains(nodes(e), "linear(x, w)") {
		t.Errorf("%v: %s", err, nodes(e))
	}
}
