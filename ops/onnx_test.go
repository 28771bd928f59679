package ops_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/lang"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// The single-operator cases of ONNX, computed by greta's references. ONNX has
// batches, masks and tables of angles as tensors where greta has positions and
// frequencies; onnx_attention_test.go and the functions below say how each is put.

// array is a tensor of any type, as numbers.
type array struct {
	shape tensor.Shape
	v     []float64
}

func newArray(shape ...int) array { return array{shape, make([]float64, tensor.Shape(shape).Elems())} }

// at gives entry i of the first dimension, sharing memory.
func (a array) at(i int) array {
	n := a.shape[1:].Elems()
	return array{a.shape[1:], a.v[i*n : (i+1)*n]}
}

func (a array) as(shape ...int) array { return array{shape, a.v} }

// transpose reorders dimensions: result dimension i is dimension order[i].
func (a array) transpose(order ...int) array {
	stride := make([]int, len(a.shape))
	for i, s := len(a.shape)-1, 1; i >= 0; i-- {
		stride[i], s = s, s*a.shape[i]
	}
	shape := make([]int, len(order))
	for i, o := range order {
		shape[i] = a.shape[o]
	}
	b := newArray(shape...)
	index := make([]int, len(shape))
	for k := range b.v {
		rest, from := k, 0
		for i := len(shape) - 1; i >= 0; i-- {
			index[i], rest = rest%shape[i], rest/shape[i]
			from += index[i] * stride[order[i]]
		}
		b.v[k] = a.v[from]
	}
	return b
}

// last moves a dimension to the end; the second result undoes it.
func (a array) last(axis int) (array, func(array) array) {
	var order []int
	for i := range a.shape {
		if i != axis {
			order = append(order, i)
		}
	}
	order = append(order, axis)
	back := make([]int, len(order))
	for i, o := range order {
		back[o] = i
	}
	return a.transpose(order...), func(b array) array { return b.transpose(back...) }
}

// onnxCase is a case's node, its tensors by name and the type of the first input.
type onnxCase struct {
	name    string
	op      string
	inputs  []string
	outputs []string
	attr    map[string]any
	tensors map[string]array
	half    bool
	bools   map[string]bool // which tensors are conditions
}

func (c *onnxCase) has(i int) bool { return i < len(c.inputs) && c.inputs[i] != "" }

func (c *onnxCase) in(i int) array { return c.tensors["in."+c.inputs[i]] }

func (c *onnxCase) number(name string, or float64) float64 {
	if v, ok := c.attr[name].(float64); ok {
		return v
	}
	return or
}

// axis is an axis attribute counted from the front.
func (c *onnxCase) axis(or int) int {
	a := int(c.number("axis", float64(or)))
	if a < 0 {
		a += len(c.in(0).shape)
	}
	return a
}

// eval computes an equation of greta's language over F64 operands; those named
// pos, ids and at are I32.
func eval(eq string, args map[string]array) (array, error) {
	e, err := lang.Parse(eq)
	if err != nil {
		return array{}, err
	}
	g := &graph.Graph{Name: eq}
	b := &graph.Builder{Graph: g, Ops: ops.Table, Float: tensor.F64, Block: -1}
	sc := graph.Scope{Values: map[string]*graph.Value{}, Env: func(string) (lang.Val, bool) { return nil, false }}
	vals := map[*graph.Value]tensor.Tensor{}
	for name, a := range args {
		t := tensor.Of(a.v, a.shape...)
		if name == "pos" || name == "ids" || name == "at" {
			t = tensor.New(tensor.I32, a.shape...)
			for i, v := range a.v {
				t.I32()[i] = int32(v)
			}
		}
		v := g.AddValue(&graph.Value{Name: name, Kind: graph.Input, Type: t.Type, Shape: a.shape})
		sc.Values[name], vals[v] = v, t
	}
	out, err := b.Equation([]string{"y"}, e, sc)
	if err != nil {
		return array{}, err
	}
	for _, n := range g.Nodes {
		var in []tensor.Tensor
		for _, v := range n.In {
			in = append(in, vals[v])
		}
		t := tensor.New(tensor.F64, n.Out[0].Shape...)
		if n.Op.Kind == graph.Update {
			t = in[0]
		}
		if err := n.Reference(ops.Table, in, []tensor.Tensor{t}); err != nil {
			return array{}, err
		}
		vals[n.Out[0]] = t
	}
	return array{out[0].Shape, vals[out[0]].F64()}, nil
}

// args makes operands from name, array pairs.
func args(pairs ...any) map[string]array {
	m := map[string]array{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1].(array)
	}
	return m
}

// onnxOps computes the outputs of a case's node; an output that it leaves
// empty is one that greta's operator does not have.
var onnxOps = map[string]func(*onnxCase) ([]array, error){
	"Attention":          onnxAttention,
	"Gather":             onnxGather,
	"Gelu":               onnxGelu,
	"LayerNormalization": onnxLayerNorm,
	"MatMul":             func(c *onnxCase) ([]array, error) { return matMul(c.in(0), c.in(1)) },
	"MatMulInteger":      onnxMatMulInteger,
	"RMSNormalization":   onnxRMSNorm,
	"RotaryEmbedding":    onnxRotary,
	"Softmax":            onnxSoftmax,
	"Swish":              func(c *onnxCase) ([]array, error) { return one(eval("silu(x)", args("x", c.in(0)))) },
	"TensorScatter":      onnxScatter,
}

func one(a array, err error) ([]array, error) { return []array{a}, err }

// onnxGather moves the axis to the front and the looked-up rows back to it.
// Negative indices count from the end; both embed and rows are tried.
func onnxGather(c *onnxCase) ([]array, error) {
	data, index, axis := c.in(0), c.in(1), c.axis(0)
	n := data.shape[axis]
	flat := array{tensor.Shape{len(index.v)}, slices.Clone(index.v)}
	for i, v := range flat.v {
		if v < 0 {
			flat.v[i] += float64(n)
		}
	}
	order := []int{axis}
	for i := range data.shape {
		if i != axis {
			order = append(order, i)
		}
	}
	front := data.transpose(order...)
	matrix := front.as(n, front.shape[1:].Elems())
	y, err := eval("rows(x, at)", args("x", matrix, "at", flat))
	if err != nil {
		return nil, err
	}
	z, err := eval("embed(ids, w)", args("w", matrix, "ids", flat))
	if err != nil {
		return nil, err
	}
	if !slices.Equal(y.v, z.v) {
		return nil, fmt.Errorf("rows gives %v, embed %v", y.v, z.v)
	}
	y = y.as(append([]int{len(flat.v)}, front.shape[1:]...)...)
	back := make([]int, 0, len(order)) // indices from the front to the axis
	for i := range order[1:] {
		back = append(back, i+1)
	}
	return one(y.transpose(slices.Insert(back, axis, 0)...), nil)
}

func onnxGelu(c *onnxCase) ([]array, error) {
	form := "erf"
	if c.attr["approximate"] == "tanh" {
		form = "tanh"
	}
	return one(eval("gelu(x, form="+form+")", args("x", c.in(0))))
}

// flat sees the dimensions from the axis on as one.
func flat(c *onnxCase) array {
	x, axis := c.in(0), c.axis(-1)
	return x.as(x.shape[:axis].Elems(), x.shape[axis:].Elems())
}

func onnxLayerNorm(c *onnxCase) ([]array, error) {
	w, b := c.in(1), c.in(2)
	y, err := eval(fmt.Sprintf("layernorm(x, w, b, eps=%.17g)", c.number("epsilon", 1e-5)),
		args("x", flat(c), "w", w.as(len(w.v)), "b", b.as(len(b.v))))
	return []array{y, {}, {}}, err
}

func onnxRMSNorm(c *onnxCase) ([]array, error) {
	w := c.in(1)
	return one(eval(fmt.Sprintf("rmsnorm(x, w, eps=%.17g)", c.number("epsilon", 1e-5)),
		args("x", flat(c), "w", w.as(len(w.v)))))
}

// matMul is a linear per pair of matrices; w holds b transposed.
func matMul(a, b array) ([]array, error) {
	if len(a.shape) == 1 {
		a = a.as(1, a.shape[0])
	}
	if len(b.shape) == 1 {
		b = b.as(b.shape[0], 1)
	}
	m, k, n := a.shape[len(a.shape)-2], a.shape.Last(), b.shape.Last()
	rank := max(len(a.shape), len(b.shape)) - 2
	lead := make([]int, rank) // broadcast leading sizes, of which 1 repeats
	size := func(x array, i int) int {
		if i += len(x.shape) - 2 - rank; i >= 0 {
			return x.shape[i]
		}
		return 1
	}
	for i := range lead {
		lead[i] = max(size(a, i), size(b, i))
	}
	y := newArray(append(lead, m, n)...)
	for p := range tensor.Shape(lead).Elems() {
		ia, ib, rest, sa, sb := 0, 0, p, 1, 1
		for i := rank - 1; i >= 0; i-- {
			at := rest % lead[i]
			rest /= lead[i]
			ia, sa = ia+at%size(a, i)*sa, sa*size(a, i)
			ib, sb = ib+at%size(b, i)*sb, sb*size(b, i)
		}
		x := array{tensor.Shape{m, k}, a.v[ia*m*k : (ia+1)*m*k]}
		w := array{tensor.Shape{k, n}, b.v[ib*k*n : (ib+1)*k*n]}.transpose(1, 0)
		z, err := eval("linear(x, w)", args("x", x, "w", w))
		if err != nil {
			return nil, err
		}
		copy(y.v[p*m*n:], z.v)
	}
	return one(y, nil)
}

// onnxMatMulInteger takes the zero points off first; float64 holds the products exactly.
func onnxMatMulInteger(c *onnxCase) ([]array, error) {
	shifted := func(x, zero array) (array, error) {
		by := newArray(x.shape.Last())
		for i := range by.v {
			by.v[i] = -zero.v[0]
		}
		return eval("x + y", args("x", x, "y", by))
	}
	a, err := shifted(c.in(0), c.in(2))
	if err != nil {
		return nil, err
	}
	b, err := shifted(c.in(1), c.in(3))
	if err != nil {
		return nil, err
	}
	return matMul(a, b)
}

func onnxSoftmax(c *onnxCase) ([]array, error) {
	x, back := c.in(0).last(c.axis(-1))
	y, err := eval("softmax(x)", args("x", x))
	if err != nil {
		return nil, err
	}
	return one(back(y), nil)
}

// onnxScatter is a push per batch entry, with the positions that a circular
// cache has: modulo its length.
func onnxScatter(c *onnxCase) ([]array, error) {
	cache, update, start := c.in(0), c.in(1), c.in(2)
	y := newArray(cache.shape...)
	for b := range cache.shape[0] {
		rows, news := cache.at(b), update.at(b)
		n, s := rows.shape[len(rows.shape)-2], news.shape[len(news.shape)-2]
		d := rows.shape.Last()
		heads := rows.shape.Elems() / (n * d)
		pos := newArray(s)
		for i := range pos.v {
			pos.v[i] = float64((int(start.v[b]) + i) % n)
		}
		z, err := eval("push(cache, x, pos)", args(
			"cache", rows.as(heads, n, d).transpose(1, 0, 2), "x", news.as(heads, s, d).transpose(1, 0, 2), "pos", pos))
		if err != nil {
			return nil, err
		}
		copy(y.at(b).v, z.transpose(1, 0, 2).v)
	}
	return one(y, nil)
}

// onnxRotary gives rope the angle whose cosine and sine stand in the case's
// tables: at position 1 that is a frequency, set by factors. The tables are random, so
// cosine and sine have a common length; rotation is linear, so it scales the pair.
func onnxRotary(c *onnxCase) ([]array, error) {
	x := c.in(0)
	heads := int(c.number("num_heads", 0))
	flat := len(x.shape) == 3
	if flat {
		x = x.as(x.shape[0], x.shape[1], heads, x.shape[2]/heads)
	} else {
		x = x.transpose(0, 2, 1, 3)
	}
	batch, s, h, dh := x.shape[0], x.shape[1], x.shape[2], x.shape[3]
	dims := int(c.number("rotary_embedding_dim", float64(dh)))
	if dims == 0 {
		dims = dh
	}
	layout := "half"
	if c.number("interleaved", 0) == 1 {
		layout = "pair"
	}
	attr := &ops.RoPEAttr{Base: 10000, Dims: dims}
	freqs, _ := ops.RopeFrequencies(attr, dh)
	y := newArray(batch, s, h, dh)
	for b := range batch {
		for i := range s {
			var cos, sin []float64
			if c.has(3) {
				p := int(c.in(3).at(b).v[i])
				cos, sin = c.in(1).at(p).v, c.in(2).at(p).v
			} else {
				cos, sin = c.in(1).at(b).at(i).v, c.in(2).at(b).at(i).v
			}
			factors := newArray(dims / 2)
			token := array{tensor.Shape{1, h, dh}, slices.Clone(x.at(b).at(i).v)}
			for j := range factors.v {
				factors.v[j] = freqs[j] / math.Atan2(sin[j], cos[j])
				first, second := j, j+dims/2
				if layout == "pair" {
					first, second = 2*j, 2*j+1
				}
				for head := range h {
					token.at(0).at(head).v[first] *= math.Hypot(cos[j], sin[j])
					token.at(0).at(head).v[second] *= math.Hypot(cos[j], sin[j])
				}
			}
			z, err := eval(fmt.Sprintf("rope(x, pos, factors, dims=%d, layout=%s)", dims, layout),
				args("x", token, "pos", array{tensor.Shape{1}, []float64{1}}, "factors", factors))
			if err != nil {
				return nil, err
			}
			copy(y.at(b).at(i).v, z.v)
		}
	}
	if !flat {
		y = y.transpose(0, 2, 1, 3)
	}
	return one(y, nil)
}

func TestONNX(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testfiles.Shared(t, "data", "onnx-ops"), "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	ran, lacking := 0, map[string]int{}
	for _, file := range files {
		c := readONNX(t, file)
		t.Run(c.name, func(t *testing.T) {
			f := onnxOps[c.op]
			if f == nil {
				t.Fatalf("no operator of greta is tried for %s", c.op)
			}
			got, err := f(c)
			if err != nil {
				t.Fatal(err)
			}
			compared := 0
			for i, name := range c.outputs {
				if name == "" {
					continue
				}
				if i >= len(got) || got[i].v == nil {
					lacking[c.op+" "+name]++
					continue
				}
				compared++
				closeTo(t, name, got[i], c.tensors["out."+name], c.half)
			}
			if compared == 0 {
				t.Fatal("no output was compared")
			}
			ran++
		})
	}
	if ran != 124 {
		t.Errorf("%d cases were computed, 124 are wanted", ran)
	}
	// What greta's operators do not give: the statistics beside a normalised tensor.
	want := map[string]int{"LayerNormalization Mean": 8, "LayerNormalization InvStdDev": 8}
	if fmt.Sprint(lacking) != fmt.Sprint(want) {
		t.Errorf("outputs not compared: %v, only %v are known to be none of greta's", lacking, want)
	}
	t.Logf("%d cases computed; outputs that greta's operators do not have: %v", ran, lacking)
}

// closeTo allows what f32 or f16 arithmetic on the other side leaves. Minus
// infinity, which ONNX has for what a mask hides, equals what is below -1e8.
func closeTo(t *testing.T, name string, got, want array, half bool) {
	t.Helper()
	if len(got.v) != len(want.v) {
		t.Fatalf("%s has %d elements, %d are wanted", name, len(got.v), len(want.v))
	}
	tol := 2e-6
	if half {
		tol = 2e-3
	}
	for i, w := range want.v {
		g := got.v[i]
		if w < -1e8 && g < -1e8 {
			continue
		}
		if !(math.Abs(g-w) <= tol+tol*math.Abs(w)) {
			t.Fatalf("%s: element %d of %v is %.9g, %.9g is wanted", name, i, want.shape, g, w)
		}
	}
}

// readONNX reads a case: its node as JSON and its tensors as safetensors.
func readONNX(t *testing.T, file string) *onnxCase {
	t.Helper()
	var spec struct {
		Case  string
		Nodes []struct {
			Op              string
			Inputs, Outputs []string
			Attributes      map[string]any
		}
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil || len(spec.Nodes) != 1 {
		t.Fatalf("%s: %d nodes, %v", file, len(spec.Nodes), err)
	}
	n := spec.Nodes[0]
	c := &onnxCase{name: spec.Case, op: n.Op, inputs: n.Inputs, outputs: n.Outputs, attr: n.Attributes,
		tensors: map[string]array{}, bools: map[string]bool{}}
	data, err := os.ReadFile(strings.TrimSuffix(file, "json") + "safetensors")
	if err != nil {
		t.Fatal(err)
	}
	head := binary.LittleEndian.Uint64(data)
	var index map[string]json.RawMessage
	if err := json.Unmarshal(data[8:8+head], &index); err != nil {
		t.Fatal(err)
	}
	for key, raw := range index {
		side, name, ok := strings.Cut(key, "put.")
		if !ok {
			continue // metadata
		}
		_, name, _ = strings.Cut(name, ".")
		var entry struct {
			DType   string
			Shape   []int
			Offsets []int `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &entry); err != nil {
			t.Fatal(err)
		}
		a := newArray(entry.Shape...)
		bytes := data[8+int(head):][entry.Offsets[0]:entry.Offsets[1]]
		switch entry.DType {
		case "F32":
			err = quant.DecodeF64(tensor.F32, a.v, bytes)
		case "F16":
			c.half = true
			err = quant.DecodeF64(tensor.F16, a.v, bytes)
		default:
			err = integers(a.v, entry.DType, bytes)
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", c.name, key, err)
		}
		c.tensors[side+"."+name], c.bools[name] = a, entry.DType == "BOOL"
	}
	return c
}

func integers(dst []float64, dtype string, bytes []byte) error {
	for i := range dst {
		switch dtype {
		case "I64":
			dst[i] = float64(int64(binary.LittleEndian.Uint64(bytes[8*i:])))
		case "I32":
			dst[i] = float64(int32(binary.LittleEndian.Uint32(bytes[4*i:])))
		case "U8", "BOOL":
			dst[i] = float64(bytes[i])
		default:
			return fmt.Errorf("type %s is not read", dtype)
		}
	}
	return nil
}
