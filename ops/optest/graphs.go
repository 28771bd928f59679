package optest

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Limits for whole random graphs, a dozen operators deep.
const graphRel, graphAbs = 5e-5, 2e-3

// RunGraphs tries random small graphs on a device: as they are, fused with
// what the device wants, and with everything fused lowered again.
func RunGraphs[T tester[T]](t T, dev backends.Device, graphs int) {
	for seed := range graphs {
		t.Run(fmt.Sprint(seed), func(t T) {
			report(t, CheckGraph(dev, uint64(seed)))
		})
	}
}

// CheckGraph tries the random graph of one seed.
func CheckGraph(dev backends.Device, seed uint64) error {
	g, data, err := RandomGraph(seed, dev.Info().Float)
	if err != nil {
		return err
	}
	want, err := refGraph(g, data)
	if err != nil {
		return err
	}
	wide := slack(dev.Info().Float)
	same := func(how string) error {
		if err := g.Verify(); err != nil {
			return fmt.Errorf("%s: %w\n%s", how, err, g.Text())
		}
		again, err := refGraph(g, data)
		if err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
		got, err := runGraph(dev, g, fresh(data))
		if err != nil {
			return fmt.Errorf("%s: %w", how, err)
		}
		for i := range want {
			if err := compare(again[i], want[i], 1e-12, 1e-10); err != nil {
				return fmt.Errorf("%s means something else: output %d: %w\n%s", how, i, err, g.Text())
			}
			if err := compare(got[i], want[i], graphRel*wide, graphAbs*wide); err != nil {
				return fmt.Errorf("%s: output %d: %w\n%s", how, i, err, g.Text())
			}
		}
		return nil
	}
	if err := same("as written"); err != nil {
		return err
	}
	for _, op := range wanted(dev) {
		g.Fuse(op, ops.Table, func(n *graph.Node) bool {
			_, err := dev.Kernel(n)
			return err == nil
		})
	}
	if err := same("fused"); err != nil {
		return err
	}
	if err := g.Lower(ops.Table, func(*graph.Node) bool { return false }); err != nil {
		return err
	}
	return same("lowered")
}

// fresh copies the data: a device that maps memory may write to states.
func fresh(data map[*graph.Value][]byte) map[*graph.Value][]byte {
	c := map[*graph.Value][]byte{}
	for v, bytes := range data {
		c[v] = append([]byte(nil), bytes...)
	}
	return c
}

// wanted lists the fused operators that a device asks for, all where it names none.
func wanted(dev backends.Device) []*graph.Op {
	names := dev.Info().Fusions
	if len(names) == 0 {
		return ops.Fused()
	}
	var all []*graph.Op
	for _, name := range names {
		if op := ops.Table.Lookup(name); op != nil {
			all = append(all, op)
		}
	}
	return all
}

// generator writes equations over values [S, width].
type generator struct {
	*graph.Builder
	rng    *rand.Rand
	sc     graph.Scope
	data   map[*graph.Value][]byte
	s      int
	stream []string // names of the values so far, the latest last
	count  int
	err    error
}

const (
	ctx = 23 // positions in a cache
	at0 = 9  // position of the first token
)

// RandomGraph makes a small network and its data. Equal seeds give equal networks.
func RandomGraph(seed uint64, float tensor.Type) (*graph.Graph, map[*graph.Value][]byte, error) {
	g := &graph.Graph{Name: fmt.Sprintf("random %d", seed)}
	r := &generator{
		Builder: &graph.Builder{Graph: g, Ops: ops.Table, Float: float, Block: -1},
		rng:     rand.New(rand.NewPCG(seed, 7)),
		data:    map[*graph.Value][]byte{},
	}
	r.sc = graph.Scope{Values: map[string]*graph.Value{}, Env: func(string) (lang.Val, bool) { return nil, false }}
	r.s = []int{1, 2, 3, 7}[r.rng.IntN(4)]
	pos := g.AddValue(&graph.Value{Name: "pos", Kind: graph.Input, Type: tensor.I32, Shape: tensor.Shape{r.s}})
	at := make([]int32, r.s)
	for i := range at {
		at[i] = int32(at0 + i)
	}
	r.sc.Values["pos"], r.data[pos] = pos, tensor.Bytes(at)
	r.stream = []string{r.given("x", graph.Input, float, r.s, r.pick(64, 96, 256))}
	steps := []func(){r.linear, r.residual, r.gate, r.norm, r.sum, r.row, r.point, r.parts, r.attend, r.experts}
	for range 8 + r.rng.IntN(8) {
		steps[r.rng.IntN(len(steps))]()
	}
	r.norm()
	if r.err != nil {
		return nil, nil, fmt.Errorf("seed %d: %w", seed, r.err)
	}
	for _, name := range r.stream[len(r.stream)-min(2, len(r.stream)):] {
		g.Outputs = append(g.Outputs, r.sc.Values[name])
	}
	g.Prune()
	for v := range r.data {
		if v.ID >= len(g.Values) || g.Values[v.ID] != v {
			delete(r.data, v)
		}
	}
	return g, r.data, nil
}

func (r *generator) pick(n ...int) int { return n[r.rng.IntN(len(n))] }

// given adds a value that is not computed, with random data.
func (r *generator) given(name string, kind graph.Kind, t tensor.Type, shape ...int) string {
	r.count++
	name = fmt.Sprintf("%s%d", name, r.count)
	v := r.Graph.AddValue(&graph.Value{Name: name, Kind: kind, Type: t, Shape: shape})
	data, err := Random(v, r.rng)
	if err != nil && r.err == nil {
		r.err = err
	}
	r.sc.Values[name], r.data[v] = v, data
	return name
}

// weight adds a weight of a random type that its rows allow.
func (r *generator) weight(shape ...int) string {
	types := []tensor.Type{tensor.F32, tensor.F16, tensor.BF16, tensor.Q8_0, tensor.Q4_0, tensor.Q5_1, tensor.Q4_K,
		tensor.Q6_K}
	for {
		t := types[r.rng.IntN(len(types))]
		if t.CheckRow(shape[len(shape)-1]) == nil && (len(shape) > 1 || t.IsFloat()) {
			return r.given("w", graph.Weight, t, shape...)
		}
	}
}

// eq adds an equation; $ in its text stands for a new number. It gives the
// names of its results.
func (r *generator) eq(names, format string, args ...any) []string {
	r.count++
	var all []string
	for n := range strings.SplitSeq(names, ",") {
		all = append(all, fmt.Sprintf("%s%d", n, r.count))
	}
	text := fmt.Sprintf(format, args...)
	if r.err != nil {
		return all
	}
	e, err := lang.Parse(text)
	if err == nil {
		var vals []*graph.Value
		if vals, err = r.Equation(all, e, r.sc); err == nil {
			for i, v := range vals {
				r.sc.Values[all[i]] = v
			}
			return all
		}
	}
	r.err = fmt.Errorf("%s: %w", text, err)
	return all
}

// to adds an equation whose result goes on the stream.
func (r *generator) to(format string, args ...any) {
	r.stream = append(r.stream, r.eq("y", format, args...)[0])
}

// any gives a value of the stream and its width, often the latest.
func (r *generator) any() (string, int) {
	i := len(r.stream) - 1
	if r.rng.IntN(3) == 0 {
		i = r.rng.IntN(len(r.stream))
	}
	if r.err != nil {
		return r.stream[0], 64
	}
	return r.stream[i], r.sc.Values[r.stream[i]].Shape[1]
}

// like gives a value of the stream with that width.
func (r *generator) like(width int) string {
	var fit []string
	for _, name := range r.stream {
		if v := r.sc.Values[name]; v != nil && v.Shape[1] == width {
			fit = append(fit, name)
		}
	}
	if len(fit) == 0 {
		return r.stream[0] // after an error
	}
	return fit[r.rng.IntN(len(fit))]
}

func (r *generator) linear() {
	x, k := r.any()
	n := r.pick(64, 96, 256)
	if r.rng.IntN(2) == 0 {
		r.to("linear(%s, %s) + %s", x, r.weight(n, k), r.weight(n))
		return
	}
	if r.rng.IntN(4) > 0 {
		s := fmt.Sprintf("linear(%s, %s) * %s", x, r.weight(n, k), r.weight(n))
		if r.rng.IntN(2) == 0 {
			s += " + " + r.weight(n)
		}
		r.to("%s", s)
		return
	}
	r.to("linear(%s, %s, %s)", x, r.weight(n, k), r.weight(n))
}

func (r *generator) residual() {
	x, k := r.any()
	to, n := r.any()
	product := fmt.Sprintf("linear(%s, %s)", x, r.weight(n, k))
	if r.pick(0, 0, 1) == 1 {
		product += " * " + r.weight(n)
	}
	r.to("%s + %s", to, product)
}

func (r *generator) gate() {
	x, k := r.any()
	f := r.pick(64, 96)
	act := []string{"silu(%s)", "gelu(%s)", "gelu(%s, form=erf)", "sigmoid(%s)"}[r.rng.IntN(4)]
	r.to(act+" * %s", fmt.Sprintf("linear(%s, %s)", x, r.weight(f, k)), fmt.Sprintf("linear(%s, %s)", x, r.weight(f, k)))
}

func (r *generator) norm() {
	x, d := r.any()
	switch r.rng.IntN(4) {
	case 0:
		r.to("layernorm(%s, %s, %s)", x, r.weight(d), r.weight(d))
	case 1:
		r.to("rmsnorm(%s)", x)
	default:
		r.to("rmsnorm(%s, %s, eps=1e-5)", x, r.weight(d))
	}
}

func (r *generator) sum() {
	x, d := r.any()
	r.to("%s + %s", x, r.like(d))
	r.norm()
}

func (r *generator) row() {
	x, d := r.any()
	r.to("%s * %s", x, r.weight(d))
}

func (r *generator) point() {
	x, _ := r.any()
	r.to([]string{"%s * 0.5", "softcap(%s, cap=5)", "softmax(%s)", "-%s"}[r.rng.IntN(4)], x)
}

func (r *generator) parts() {
	x, d := r.any()
	if d%8 != 0 {
		return // halved often enough
	}
	ab := r.eq("a,b", "split(%s, sizes=[%d, %d])", x, d/2, d/2)
	r.to("silu(%s) * %s", ab[0], ab[1])
	if r.rng.IntN(2) == 0 {
		r.to("%s as [%d, %d, %d]", ab[1], r.s, 2, d/4)
		last := r.stream[len(r.stream)-1]
		r.stream = r.stream[:len(r.stream)-1]
		r.to("rmsnorm(%s) as [%d, %d]", last, r.s, d/2)
	}
}

func (r *generator) attend() {
	x, d := r.any()
	g, dh := r.pick(1, 2), r.pick(8, 16)
	h := g * r.pick(1, 2, 3)
	layout := []string{"half", "pair"}[r.rng.IntN(2)]
	rope := func(heads int) string {
		return fmt.Sprintf("rope(linear(%s, %s) as [%d, %d, %d], pos, layout=%s)", x, r.weight(heads*dh, d), r.s, heads, dh,
			layout)
	}
	kc := r.given("kc", graph.State, tensor.F32, ctx, g, dh)
	vc := r.given("vc", graph.State, tensor.F16, ctx, g, dh)
	q := r.eq("q", "%s", rope(h))[0]
	k := r.eq("k", "push(%s, %s, pos)", kc, rope(g))[0]
	// The values stay as they are: rounding them to f16 would be a difference of type, not of kernels.
	v := r.eq("v", "%s", vc)[0]
	extra := []string{"", ", window=4", ", softcap=20", ", scale=0.3"}[r.rng.IntN(4)]
	r.to("attention(%s, %s, %s, pos%s) as [%d, %d]", q, k, v, extra, r.s, h*dh)
}

func (r *generator) experts() {
	x, d := r.any()
	how := []string{"none", "before", "after"}[r.rng.IntN(3)]
	pe := r.eq("p,e", "topk(linear(%s, %s), k=2, softmax=%s)", x, r.weight(5, d), how)
	u := r.eq("u", "linear_id(%s as [%d, 1, %d], %s, %s)", x, r.s, d, r.weight(5, 64, d), pe[1])[0]
	r.to("mix(linear_id(silu(%s), %s, %s), %s)", u, r.weight(5, d, 64), pe[1], pe[0])
}
