package ops_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

func TestTable(t *testing.T) {
	names := ops.Table.Names()
	if !slices.IsSorted(names) {
		t.Errorf("names are not sorted: %v", names)
	}
	for i, op := range ops.All() {
		switch {
		case i >= len(names) || names[i] != op.Name || ops.Table.Lookup(op.Name) != op:
			t.Errorf("%s is not in the table as itself", op.Name)
		case op.Doc == "" || op.Cost == nil:
			t.Errorf("%s lacks its formula or its cost", op.Name)
		case op.Kind == graph.Update && op.Sig.In[0].Type != op.Sig.Out[0].Type:
			t.Errorf("%s gives another type than its state", op.Name)
		case ops.IsProduct(op) != (strings.HasPrefix(op.Name, "linear") || strings.Contains(op.Body, "linear")):
			t.Errorf("%s: a product: %v", op.Name, ops.IsProduct(op))
		}
		for _, a := range op.Attrs() {
			if a.Name == "" || a.Kind == "" || a.Kind == "word" && !a.Required && !slices.Contains(a.Words, a.Default.(string)) {
				t.Errorf("%s: attribute %+v", op.Name, a)
			}
		}
	}
	if len(names) != len(ops.All()) {
		t.Errorf("%d names for %d operators", len(names), len(ops.All()))
	}
	if ops.Table.Lookup("nothing") != nil {
		t.Error("an operator that does not exist was found")
	}
}

// arr makes an operand: its shape, then its elements.
func arr(shape []int, v ...float64) array { return array{shape, v} }

func seq(shape ...int) array {
	a := newArray(shape...)
	for i := range a.v {
		a.v[i] = math.Sin(float64(i + 1))
	}
	return a
}

// TestValues: results by hand for what ONNX's cases do not reach.
func TestValues(t *testing.T) {
	e := math.Exp
	keys := seq(6, 1, 2)
	window := args("q", seq(1, 1, 2), "k", keys, "v", seq(6, 1, 3), "pos", arr([]int{1}, 4))
	for _, c := range []struct {
		eq   string
		args map[string]array
		want []float64
	}{
		{"sigmoid(x)", args("x", arr([]int{3}, 0, 2, -800)), []float64{0.5, 1 / (1 + e(-2)), 0}},
		{"softcap(x, cap=2)", args("x", arr([]int{3}, 0, 2, 1e9)), []float64{0, 2 * math.Tanh(1), 2}},
		{"silu(x)", args("x", arr([]int{2}, 0, -1)), []float64{0, -1 / (1 + e(1))}},
		{"-x / 4", args("x", arr([]int{2}, 1, -8)), []float64{-0.25, 2}},
		{"x * y", args("x", arr([]int{2, 2}, 1, 2, 3, 4), "y", arr([]int{2}, 10, 100)), []float64{10, 200, 30, 400}},
		{"rows(x, at)", args("x", arr([]int{3, 2}, 1, 2, 3, 4, 5, 6), "at", arr([]int{2}, 2, 0)), []float64{5, 6, 1, 2}},
		{"mix(x, p)", args("x", arr([]int{1, 2, 3}, 1, 2, 3, 10, 20, 30), "p", arr([]int{1, 2}, 2, -1)),
			[]float64{-8, -16, -24}},
		{"rmsnorm(x)", args("x", arr([]int{1, 2}, 3, 4)), []float64{3 / math.Sqrt(12.5+1e-6), 4 / math.Sqrt(12.5+1e-6)}},
		// One position in the window: its value, whatever the score.
		{"attention(q, k, v, pos, window=1)", window, seq(6, 1, 3).v[12:15]},
		// A quarter turn of the first pair; the second is not rotated.
		{"rope(x, pos, factors, dims=2)", args("x", arr([]int{1, 1, 4}, 1, 2, 3, 4), "pos", arr([]int{1}, 1),
			"factors", arr([]int{1}, 2/math.Pi)), []float64{-2, 1, 3, 4}},
	} {
		y, err := eval(c.eq, c.args)
		if err != nil {
			t.Errorf("%s: %v", c.eq, err)
			continue
		}
		closeTo(t, c.eq, y, array{y.shape, c.want}, false)
	}
}

// TestWindowIsAShorterCache: with a window, attention sees what it would see
// if the cache began there.
func TestWindowIsAShorterCache(t *testing.T) {
	q, k, v := seq(1, 4, 8), seq(9, 2, 8), seq(9, 2, 3)
	long, err := eval("attention(q, k, v, pos, window=3, softcap=2)",
		args("q", q, "k", k, "v", v, "pos", arr([]int{1}, 7)))
	if err != nil {
		t.Fatal(err)
	}
	short, err := eval("attention(q, k, v, pos, softcap=2)", args(
		"q", q, "k", array{[]int{3, 2, 8}, k.v[5*16 : 8*16]}, "v", array{[]int{3, 2, 3}, v.v[5*6 : 8*6]}, "pos",
		arr([]int{1}, 2)))
	if err != nil {
		t.Fatal(err)
	}
	closeTo(t, "window", long, short, false)
}

func TestAttentionNeverReadsBehindItsPosition(t *testing.T) {
	k, v := seq(5, 1, 2), seq(5, 1, 2)
	for i := 3 * 2; i < len(k.v); i++ {
		k.v[i], v.v[i] = math.NaN(), math.NaN()
	}
	y, err := eval("attention(q, k, v, pos)", args("q", seq(1, 1, 2), "k", k, "v", v, "pos", arr([]int{1}, 2)))
	if err != nil || math.IsNaN(y.v[0]) || math.IsNaN(y.v[1]) {
		t.Errorf("%v, %v", y.v, err)
	}
}

// node builds one node of an operator over values of the given types and shapes.
func node(op *graph.Op, set func(attr any), in ...*graph.Value) (*graph.Node, error) {
	n := &graph.Node{Op: op, In: in, Float: tensor.F32, Name: "n"}
	if op.Attr != nil {
		n.Attr = op.Attr()
		if set != nil {
			set(n.Attr)
		}
	}
	results, err := op.Infer(n)
	for i, r := range results {
		n.Out = append(n.Out, &graph.Value{Name: "y", Type: r.Type, Shape: r.Shape, Def: n, Index: i})
	}
	return n, err
}

func val(t tensor.Type, shape ...int) *graph.Value {
	return &graph.Value{Name: "v", Type: t, Shape: shape}
}

func TestTopK(t *testing.T) {
	x := []float64{3, 1, 3, 2, 0, 0, 0, 5}
	norm := math.Exp(3)*2 + math.Exp(2) + math.Exp(1)
	for _, c := range []struct {
		how   string
		first float64 // p[0][0], p[0][1] being equal
		last  float64 // p[0][2]
	}{
		{"none", 3, 2},
		{"before", math.Exp(3) / norm, math.Exp(2) / norm},
		{"after", math.Exp(3) / (2*math.Exp(3) + math.Exp(2)), math.Exp(2) / (2*math.Exp(3) + math.Exp(2))},
	} {
		n, err := node(ops.TopK, func(a any) {
			*a.(*ops.TopKAttr) = ops.TopKAttr{K: 3, Softmax: c.how}
		}, val(tensor.F64, 2, 4))
		if err != nil {
			t.Fatal(err)
		}
		p, e := tensor.New(tensor.F64, 2, 3), tensor.New(tensor.I32, 2, 3)
		if err := n.Reference(ops.Table, []tensor.Tensor{tensor.Of(x, 2, 4)}, []tensor.Tensor{p, e}); err != nil {
			t.Fatal(err)
		}
		if want := []int32{0, 2, 3, 3, 0, 1}; !slices.Equal(e.I32(), want) {
			t.Errorf("%s: chosen %v, want %v", c.how, e.I32(), want)
		}
		got := p.F64()
		if math.Abs(got[0]-c.first) > 1e-15 || got[0] != got[1] || math.Abs(got[2]-c.last) > 1e-15 {
			t.Errorf("%s: %v, want %v twice and %v", c.how, got[:3], c.first, c.last)
		}
	}
}

func TestLinearIDIsTheExpertsLinear(t *testing.T) {
	x, w, b := seq(2, 3, 4), seq(5, 6, 4), seq(5, 6)
	ids := []int32{4, 0, 4, 1, 2, 3}
	n, err := node(ops.LinearID, nil, val(tensor.F64, 2, 3, 4), val(tensor.F64, 5, 6, 4), val(tensor.I32, 2, 3),
		val(tensor.F64, 5, 6))
	if err != nil {
		t.Fatal(err)
	}
	y := tensor.New(tensor.F64, 2, 3, 6)
	err = n.Reference(ops.Table, []tensor.Tensor{tensor.Of(x.v, 2, 3, 4), tensor.Of(w.v, 5, 6, 4), tensor.Of(ids, 2, 3),
		tensor.Of(b.v, 5, 6)}, []tensor.Tensor{y})
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		z, err := eval("linear(x, w, b)", args("x", x.at(i/3).at(i%3), "w", w.at(int(id)), "b", b.at(int(id))))
		if err != nil {
			t.Fatal(err)
		}
		closeTo(t, "expert", array{z.shape, y.F64()[6*i : 6*i+6]}, z, false)
	}
}

// TestReferenceErrors: what a step's integers can hold wrongly is an error.
func TestReferenceErrors(t *testing.T) {
	one := []int{1}
	cache := func() array { return seq(4, 1, 2) }
	for _, c := range []struct {
		eq, want string
		args     map[string]array
	}{
		{"embed(ids, w)", "ids[1] is 3, it must lie in [0, 3)", args("ids", arr([]int{2}, 0, 3), "w", seq(3, 2))},
		{"embed(ids, w)", "ids[0] is -1", args("ids", arr(one, -1), "w", seq(3, 2))},
		{"rows(x, at)", "at[0] is 5", args("x", seq(5, 2), "at", arr(one, 5))},
		{"push(cache, x, pos)", "pos[0] is 4, it must lie in [0, 4)",
			args("cache", cache(), "x", seq(1, 1, 2), "pos", arr(one, 4))},
		{"rope_push(cache, x, pos)", "pos[0] is 4", args("cache", cache(), "x", seq(1, 1, 2), "pos", arr(one, 4))},
		{"push(cache, x, pos)", "pos[1] is -1", args("cache", cache(), "x", seq(2, 1, 2), "pos", arr([]int{2}, 0, -1))},
		{"attention(q, k, v, pos)", "pos[0] is 4", args("q", seq(1, 1, 2), "k", cache(), "v", cache(), "pos", arr(one, 4))},
		{"attention(q, k, v, pos)", "pos[0] is -1", args("q", seq(1, 1, 2), "k", cache(), "v", cache(), "pos", arr(one, -1))},
		{"rope(x, pos)", "cannot be negative", args("x", seq(1, 1, 2), "pos", arr(one, -1))},
		{"linear_id(x, w, ids)", "e[0] is 2, it must lie in [0, 2)",
			args("x", seq(1, 1, 2), "w", seq(2, 3, 2), "ids", arr([]int{1, 1}, 2))},
	} {
		_, err := eval(c.eq, c.args)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, wanted one with %q", c.eq, err, c.want)
		}
	}
}

// TestRejected: what the signatures and checks refuse, and in which words.
func TestRejected(t *testing.T) {
	q, kv, pos := seq(1, 3, 4), seq(5, 2, 4), arr([]int{1}, 0)
	head := args("x", seq(1, 1, 6), "pos", pos)
	for _, c := range []struct {
		eq, want string
		args     map[string]array
	}{
		{"linear(x, w)", "K is 3 in x f64[2, 3] but 4 in w f64[5, 4]", args("x", seq(2, 3), "w", seq(5, 4))},
		{"attention(q, k, v, pos)", "the 3 heads of q f64[1, 3, 4] must be a multiple of the 2",
			args("q", q, "k", kv, "v", kv, "pos", pos)},
		{"attention(q, k, v, pos, window=-1)", "window=-1", args("q", seq(1, 2, 4), "k", kv, "v", kv, "pos", pos)},
		{"attention(q, k, v, pos, scale=-1)", "scale=-1", args("q", seq(1, 2, 4), "k", kv, "v", kv, "pos", pos)},
		{"rmsnorm(x, eps=-1)", "eps=-1 must be zero or positive", args("x", seq(2, 3))},
		{"rmsnorm(x, eps=tanh)", "unknown name tanh", args("x", seq(2, 3))},
		{"gelu(x, form=exact)", "form= of gelu must be one of erf, tanh, not exact", args("x", seq(2, 3))},
		{"softcap(x)", "softcap needs the attribute cap=", args("x", seq(2, 3))},
		{"softcap(x, cap=0)", "cap=0 must be positive", args("x", seq(2, 3))},
		{"topk(x, k=4)", "k=4 is more than the 3", args("x", seq(2, 3))},
		{"topk(x, k=0)", "k=0 must be positive", args("x", seq(2, 3))},
		{"split(x, sizes=[1, 1])", "sizes=[1, 1] must be positive and sum to the last size, 3, of x", args("x", seq(2, 3))},
		{"split(x, sizes=[4, -1])", "sizes=[4, -1]", args("x", seq(2, 3))},
		{"x as [4, 2]", "has 6 elements, it cannot be seen as [4, 2], which has 8", args("x", seq(2, 3))},
		{"x as [-2, -3]", "must be positive", args("x", seq(2, 3))},
		{"x as [4294967296, 4294967296, 6]", "must be positive", args("x", seq(2, 3))},
		{"x + y", "y f64[3, 3] must have the shape of x f64[2, 3]", args("x", seq(2, 3), "y", seq(3, 3))},
		{"x + y", "N is 3 in x f64[2, 3] but 2 in y", args("x", seq(2, 3), "y", seq(2))},
		{"rope(x, pos, dims=3)", "3 elements of each head are to rotate", head},
		{"rope(x, pos, dims=8)", "8 elements of each head are to rotate", head},
		{"rope(x, pos, base=0)", "base=0 must be positive", head},
		{"rope(x, pos, scaling=linear, factor=0)", "factor=0 must be positive", head},
		{"rope(x, pos, scaling=llama3, factor=8)", "scaling=llama3 needs original=", head},
		{"rope(x, pos, scaling=llama3, factor=8, original=64, low=4)", "high=4 must be above low=4", head},
		{"rope(x, pos, scaling=yarn, factor=8, original=64, beta_fast=0)", "beta_fast=0 must be positive", head},
		{"rope(x, pos, factors)", "must hold a factor for each of the 3 pairs",
			args("x", seq(1, 1, 6), "pos", pos, "factors", seq(2))},
		{"linear_id(x, w, ids)", "must have 1 row a token, or 3 as",
			args("x", seq(1, 2, 2), "w", seq(2, 3, 2), "ids", arr([]int{1, 3}, 0, 0, 0))},
		{"embed(w, w)", "ids must be i32", args("w", seq(3, 2))},
	} {
		_, err := eval(c.eq, c.args)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, wanted one with %q", c.eq, err, c.want)
		}
	}
}

func TestCosts(t *testing.T) {
	f, q := tensor.F32, tensor.Q4_0
	for _, c := range []struct {
		op   *graph.Op
		set  func(any)
		in   []*graph.Value
		kv   int
		want graph.Cost
	}{
		{ops.Linear, nil, []*graph.Value{val(f, 3, 64), val(q, 10, 64)}, 0,
			graph.Cost{Flops: 2 * 3 * 640, Read: 3*64*4 + 640/32*18, Write: 3 * 10 * 4}},
		{ops.LinearResidual, nil, []*graph.Value{val(f, 3, 64), val(q, 10, 64), val(f, 3, 10)}, 0,
			graph.Cost{Flops: 2*3*640 + 30, Read: 3*64*4 + 640/32*18 + 120, Write: 120}},
		{ops.Embed, nil, []*graph.Value{val(tensor.I32, 3), val(q, 1000, 64)}, 0,
			graph.Cost{Read: 3*4 + 3*36, Write: 3 * 64 * 4}},
		// Three of eight experts are read, by one token.
		{ops.LinearID, nil, []*graph.Value{val(f, 1, 1, 32), val(q, 8, 5, 32), val(tensor.I32, 1, 3)}, 0,
			graph.Cost{Flops: 2 * 3 * 5 * 32, Read: 32*4 + 3*4 + 3*5*18, Write: 3 * 5 * 4}},
		{ops.Attention, nil, []*graph.Value{val(f, 1, 4, 8), val(tensor.F16, 100, 2, 8), val(tensor.F16, 100, 2, 8),
			val(tensor.I32, 1)}, 10,
			graph.Cost{Flops: 4 * 10 * (16 + 16 + 4), Read: 4*8*4 + 4 + 10*2*(2*8*2), Write: 4 * 8 * 4}},
		{ops.Attention, func(a any) { a.(*ops.AttentionAttr).Window = 4 },
			[]*graph.Value{val(f, 1, 4, 8), val(f, 100, 2, 8), val(f, 100, 2, 8), val(tensor.I32, 1)}, 50,
			graph.Cost{Flops: 4 * 4 * (16 + 16 + 4), Read: 4*8*4 + 4 + 4*2*(2*8*4), Write: 4 * 8 * 4}},
		{ops.Push, nil, []*graph.Value{val(tensor.F16, 100, 2, 8), val(f, 3, 2, 8), val(tensor.I32, 3)}, 0,
			graph.Cost{Read: 3*16*4 + 12, Write: 3 * 16 * 2}},
		{ops.RoPEPush, nil, []*graph.Value{val(tensor.F16, 100, 2, 8), val(f, 3, 2, 8), val(tensor.I32, 3)}, 0,
			graph.Cost{Flops: 3 * 48, Read: 3*16*4 + 12, Write: 3 * 16 * 2}},
		{ops.View, func(a any) { a.(*ops.ViewAttr).Shape = []int{6} }, []*graph.Value{val(f, 2, 3)}, 0, graph.Cost{}},
	} {
		n, err := node(c.op, c.set, c.in...)
		if err != nil {
			t.Errorf("%s: %v", c.op.Name, err)
			continue
		}
		if got := c.op.Cost(n, c.kv); got != c.want {
			t.Errorf("%s costs %+v, want %+v", c.op.Name, got, c.want)
		}
	}
}
