package graph_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// build makes a graph from lines of text:
//
//	in x f32[2, 4]      an input; weight and state likewise
//	y: rmsnorm(x, w)    an equation
//	out y               a result
func build(text string, table graph.Table) (*graph.Graph, error) {
	g := &graph.Graph{Name: "test"}
	b := &graph.Builder{Graph: g, Ops: table, Float: tensor.F32, Block: -1}
	vals := map[string]*graph.Value{}
	none := func(string) (lang.Val, bool) { return nil, false }
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		line = strings.TrimSpace(line)
		if names, rhs, ok := strings.Cut(line, ":"); ok {
			e, err := lang.Parse(rhs)
			if err != nil {
				return nil, err
			}
			list := strings.Split(names, ", ")
			results, err := b.Equation(list, e, graph.Scope{Values: vals, Env: none})
			if err != nil {
				return nil, err
			}
			for i, n := range list {
				vals[n] = results[i]
			}
			continue
		}
		f := strings.SplitN(line, " ", 3)
		if f[0] == "out" {
			g.Outputs = append(g.Outputs, vals[f[1]])
			continue
		}
		if len(f) == 2 && f[0] == "absent" {
			vals[f[1]] = nil
			continue
		}
		kind, ok := map[string]graph.Kind{"in": graph.Input, "weight": graph.Weight, "state": graph.State}[f[0]]
		typ, dims, ok2 := strings.Cut(strings.TrimSuffix(f[2], "]"), "[")
		ty, ok3 := tensor.ParseType(typ)
		if !ok || !ok2 || !ok3 {
			return nil, fmt.Errorf("%q is no line of a graph", line)
		}
		v := &graph.Value{Name: f[1], Kind: kind, Type: ty, Shape: tensor.Shape{}}
		for d := range strings.SplitSeq(dims, ", ") {
			if n, err := strconv.Atoi(d); err == nil {
				v.Shape = append(v.Shape, n)
			}
		}
		if kind == graph.Weight {
			v.Load = &graph.Load{Tensors: []string{f[1]}, Type: ty}
		}
		vals[f[1]] = g.AddValue(v)
	}
	return g, nil
}

func mustBuild(t *testing.T, text string, table graph.Table) *graph.Graph {
	t.Helper()
	g, err := build(text, table)
	if err == nil {
		err = g.Verify()
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// nodes prints a graph's nodes alone.
func nodes(g *graph.Graph) string {
	var lines []string
	for _, n := range g.Nodes {
		lines = append(lines, n.Text())
	}
	return strings.Join(lines, "\n")
}

// TestSignatures: what agrees, and how what does not is told.
func TestSignatures(t *testing.T) {
	const decl = `
		in x f32[3, 8]
		in x3 f32[3, 2, 4]
		in odd f32[3, 7]
		in ids i32[3]
		in ids2 i32[2]
		in i i32[3, 2]
		weight w q8_0[5, 8]
		weight wh f16[5, 8]
		weight b f32[5]
		weight n f32[8]
		weight n4 f32[4]
		state kc f16[16, 2, 4]
		`
	for _, c := range []struct{ eq, want string }{
		{"y: linear(x, w)", "y f32[3, 5] = linear(x, w)"},
		{"y: linear(x, wh, b)", "y f32[3, 5] = linear(x, wh, b)"},
		{"y: linear(odd, w)", "y: linear: K is 7 in odd f32[3, 7] but 8 in w q8_0[5, 8]"},
		{"y: linear(x, w, n)", "y: linear: N is 5 in w q8_0[5, 8] but 8 in n f32[8]"},
		{"y: linear(x)",
			"y: linear: 1 operands given, 2 to 3 wanted: (x: T[*, K], w: W[N, K], b?: V[N]) -> (y: float[*, N])"},
		{"y: linear(x, n)", "y: linear: n f32[8] has 1 dimensions where w[N, K] is wanted"},
		{"y: linear(ids, w)", "y: linear: x must hold numbers of a float type, but it is ids i32[3]"},
		{"y: linear(w, wh)", "y: linear: x must hold numbers of a float type, but it is w q8_0[5, 8]"},
		{"y: rmsnorm(x3, n4)", "y f32[3, 2, 4] = rmsnorm(x3, n4)"}, // any leading sizes
		{"y: rmsnorm(x)", "y f32[3, 8] = rmsnorm(x)"},
		{"y: push(kc, x3, ids)", "y f16[16, 2, 4] = push(kc, x3, ids)"},
		{"y: push(kc, x3, ids2)", "y: push: S is 3 in x3 f32[3, 2, 4] but 2 in ids2 i32[2]"},
		{"y: push(kc, x3, x)", "y: push: pos must be i32, but it is x f32[3, 8]"},
		{"y: push(kc, x, ids)", "y: push: x f32[3, 8] has 2 dimensions where x[S, G, Dh] is wanted"},
		{"y: mul(x, n)", "y f32[3, 8] = mul(x, n)"},
		{"y: mul(x, odd)", "y: mul: N is 8 in x f32[3, 8] but 7 in odd f32[3, 7]"},
		{"y: swiglu(x3, x)", "y: swiglu: leading sizes are [3, 2] in x3 f32[3, 2, 4] but [3] in x f32[3, 8]"},
		{"p, e: topk(x, k=2)", "p f32[3, 2], e i32[3, 2] = topk(x; k=2)"},
		{"p, e: topk(x, k=0)", "topk: k=0 must be positive"},
		{"p: topk(x, k=2)", "1 names"},
		{"p, e: topk(x, k=1.5)", "k= must be an integer, not 1.5"},
		{"p, e: topk(x)", "topk needs the attribute k="},
		{"y: rows(x3, ids2)", "y f32[2, 2, 4] = rows(x3, ids2)"},
		{"y: mix(x3, i)", "y: mix: "},
		{"y: linear(x, w=w, b=b)", "y f32[3, 5] = linear(x, w, b)"}, // operands by name
		{"y: linear(x, w, w=wh)", "operand w of linear is given twice"},
		{"y: linear(x, w, c=b)", "unknown attribute c: linear has none"},
		{"y: rmsnorm(x, ep=1)", "unknown attribute ep of rmsnorm; did you mean eps?"},
		{"y: gelu(x, form=fast)", "form= of gelu must be one of erf, tanh, not fast"},
		{"y: linear(x, w, ...)", `"..." has no meaning here`},
	} {
		g, err := build(decl+c.eq, ops.Table)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = nodes(g)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.eq, got, c.want)
		}
	}
}

// TestMustSig: a mistake in the source's own signatures is found at the start.
func TestMustSig(t *testing.T) {
	s := graph.MustSig("(x: T[*, K], b?: V[K]) -> (y: float[*, 2])")
	if s.Required() != 1 || len(s.In) != 2 || !s.In[1].Optional || s.Out[0].Dims[1] != "2" {
		t.Errorf("%+v", s)
	}
	for _, bad := range []string{"(x: T[K])", "x: T[K] -> (y: T[K])", "(x) -> (y: T[K])", "(x: T) -> (y: T[K])"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is accepted", bad)
				}
			}()
			graph.MustSig(bad)
		}()
	}
}

// TestVerify: each invariant that a pass could break is told apart.
func TestVerify(t *testing.T) {
	const text = `
		in x f32[2, 8]
		in pos i32[2]
		weight w f32[8]
		state kc f32[4, 2, 4]
		h: rmsnorm(x, w)
		k: h as [2, 2, 4]
		ks: push(kc, k, pos)
		y: silu(h)
		out y
		out ks`
	for name, c := range map[string]struct {
		damage func(g *graph.Graph)
		want   string
	}{
		"sound":          {func(*graph.Graph) {}, ""},
		"value's number": {func(g *graph.Graph) { g.Values[1].ID = 7 }, "value pos has number 7 at place 1"},
		"node's number":  {func(g *graph.Graph) { g.Nodes[1].ID = 0 }, "has number 0 at place 1"},
		"order":          {func(g *graph.Graph) { swap(g, 0, 3) }, "y (silu) reads h before it is computed"},
		"foreign value": {func(g *graph.Graph) { g.Nodes[3].In[0] = &graph.Value{Name: "z", ID: 99, Type: tensor.F32} },
			"y (silu) reads z, which is not in the graph"},
		"twin value": {func(g *graph.Graph) { v := *g.Nodes[3].In[0]; g.Nodes[3].In[0] = &v }, "which is not in the graph"},
		"shape": {func(g *graph.Graph) {
			g.Nodes[0].Out[0].Shape = tensor.Shape{2, 9}
		}, "h (rmsnorm) gives f32[2, 8] for h f32[2, 9]"},
		"type": {func(g *graph.Graph) {
			g.Nodes[3].Out[0].Type = tensor.F16
		}, "y (silu) gives f32[2, 8] for y f16[2, 8]"},
		"operand": {func(g *graph.Graph) { g.Nodes[0].In[1] = g.Input("pos") }, "rmsnorm: w must hold numbers"},
		"results": {func(g *graph.Graph) { g.Nodes[3].Out = nil }, "y (silu) has 0 results, its operator gives 1"},
		"other's": {func(g *graph.Graph) { g.Nodes[3].Out[0].Def = g.Nodes[0] }, "result 0 of y (silu) is not its own"},
		"never":   {func(g *graph.Graph) { g.Nodes = g.Nodes[:3] }, "the output y is never computed"},
		"old version": {func(g *graph.Graph) {
			g.Nodes[3].In[0] = g.States[0]
		}, "y (silu) reads kc after ks (push) has updated it"},
		"second write": {secondPush, "ks2 (push) updates kc, which ks (push) has updated already"},
	} {
		t.Run(name, func(t *testing.T) {
			g := mustBuild(t, text, ops.Table)
			c.damage(g)
			err := g.Verify()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func swap(g *graph.Graph, i, j int) {
	g.Nodes[i], g.Nodes[j] = g.Nodes[j], g.Nodes[i]
	g.Nodes[i].ID, g.Nodes[j].ID = i, j
}

func secondPush(g *graph.Graph) {
	first := g.Nodes[2]
	b := &graph.Builder{Graph: g, Ops: ops.Table, Float: tensor.F32}
	if err := b.Add(&graph.Node{Op: first.Op, In: slices.Clone(first.In)}, []string{"ks2"}, "ks2"); err != nil {
		panic(err)
	}
}

// TestPrune: what nothing reads goes, but inputs, states and their updates stay.
func TestPrune(t *testing.T) {
	g := mustBuild(t, `
		in x f32[2, 8]
		in unread f32[1]
		in pos i32[2]
		weight w f32[8]
		weight dead f32[8]
		state kc f32[4, 2, 4]
		state still f32[4]
		d: rmsnorm(x, dead)
		d2: silu(d)
		k: x as [2, 2, 4]
		ks: push(kc, k, pos)
		p, e: topk(x, k=2)
		y: rmsnorm(x, w)
		out y
		out e`, ops.Table)
	g.Prune()
	if err := g.Verify(); err != nil {
		t.Fatal(err)
	}
	const want = `graph test
in     x f32[2, 8]
in     unread f32[1]
in     pos i32[2]
weight w f32[8] <- w
state  kc f32[4, 2, 4]
state  still f32[4]
k f32[2, 2, 4] = view(x; shape=[2, 2, 4])
ks f32[4, 2, 4] = push(kc, k, pos)
p f32[2, 2], e i32[2, 2] = topk(x; k=2)
y f32[2, 8] = rmsnorm(x, w)
out    y f32[2, 8]
out    e i32[2, 2]
`
	if got := g.Text(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	g.Prune()
	if got := g.Text(); got != want {
		t.Errorf("pruned twice:\n%s", got)
	}
}

// TestRoot: views and updates lead to the memory that they share.
func TestRoot(t *testing.T) {
	g := mustBuild(t, `
		in x f32[2, 8]
		in pos i32[2]
		state kc f32[4, 2, 4]
		a, b: split(x, sizes=[4, 4])
		c: b as [8]
		k: x as [2, 2, 4]
		ks: push(kc, k, pos)
		y: silu(c)
		out y`, ops.Table)
	for _, v := range g.Values {
		want := map[string]string{"a": "x", "b": "x", "c": "x", "k": "x", "ks": "kc"}[v.Name]
		if want == "" {
			want = v.Name
		}
		if got := v.Root().Name; got != want {
			t.Errorf("root of %s is %s, want %s", v.Name, got, want)
		}
	}
	uses := g.Uses()
	x := g.Input("x")
	if len(uses[x.ID]) != 2 || g.Input("z") != nil {
		t.Errorf("x is read by %v", uses[x.ID])
	}
	if y := g.Outputs[0]; len(uses[y.ID]) != 1 || uses[y.ID][0] != nil {
		t.Errorf("the output is read by %v", uses[y.ID])
	}
}

func TestDot(t *testing.T) {
	g := mustBuild(t, "in x f32[2, 8]\nweight w f32[8]\ny: rmsnorm(x, w, eps=0.5)\nout y", ops.Table)
	for _, want := range []string{"digraph \"test\"", `v0 [shape=ellipse, label="x f32[2, 8]"]`, `v1 [shape=note`,
		`eps=0.5`, "v0 -> n0", "n0 -> o0"} {
		if !strings.Contains(g.Dot(), want) {
			t.Errorf("no %q in\n%s", want, g.Dot())
		}
	}
}
