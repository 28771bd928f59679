package fusion

import (
	"testing"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// memory is a buffer of some use.
type memory struct {
	backends.Buffer
	use backends.Use
}

func (m *memory) Use() backends.Use { return m.use }

// value is one row of f32 at a place of arena.
func value(b backends.Buffer, place int, typ tensor.Type, shape ...int) backends.Operand {
	return backends.Operand{Buffer: b, Offset: 1 << 16 * place, Stride: typ.RowBytes(tensor.Shape(shape[1:]).Elems()),
		Type: typ, Shape: shape}
}

func launch(op *graph.Op, out backends.Operand, in ...backends.Operand) backends.Launch {
	n := &graph.Node{Op: op}
	if op.Attr != nil {
		n.Attr = op.Attr()
	}
	return backends.Launch{Node: n, In: in, Out: []backends.Operand{out}}
}

// pair is a SwiGLU behind its two products, of which up comes first.
func pair() []backends.Launch {
	arena, weights := &memory{use: backends.Arena}, &memory{use: backends.Weights}
	x, g, u, y := value(arena, 0, tensor.F32, 1, 8), value(arena, 1, tensor.F32, 1, 4), value(arena, 2, tensor.F32, 1, 4),
		value(arena, 3, tensor.F32, 1, 4)
	return []backends.Launch{
		launch(ops.RMSNorm, x, value(arena, 9, tensor.F32, 1, 8)),
		launch(ops.Linear, u, x, value(weights, 0, tensor.F16, 4, 8)),
		launch(ops.Linear, g, x, value(weights, 1, tensor.F16, 4, 8)),
		launch(ops.SwiGLU, y, g, u),
	}
}

func TestPairOf(t *testing.T) {
	if p, ok := PairOf(pair(), 3); !ok || p != (Pair{Gate: 2, Up: 1}) {
		t.Errorf("%+v, %v", p, ok)
	}
	for name, change := range map[string]func(all []backends.Launch){
		"another function":      func(all []backends.Launch) { all[3].Node.Op = ops.Mul },
		"no product":            func(all []backends.Launch) { all[1].Node.Op = ops.RMSNorm },
		"nothing before":        func(all []backends.Launch) { clear(all[:3]) },
		"one product for both":  func(all []backends.Launch) { all[3].In[1] = all[3].In[0] },
		"other activations":     func(all []backends.Launch) { all[1].In[0] = all[0].In[0] },
		"another type":          func(all []backends.Launch) { all[1].In[1].Type = tensor.BF16 },
		"another shape":         func(all []backends.Launch) { all[1].In[1].Shape = tensor.Shape{5, 8} },
		"a part of the product": func(all []backends.Launch) { all[3].In[0].Shape = tensor.Shape{1, 3} },
		"written in between":    func(all []backends.Launch) { all[2], all[0] = all[0], all[2]; all[2].Out = all[0].Out },
	} {
		all := pair()
		change(all)
		if p, ok := PairOf(all, 3); ok {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// newest is an attention behind a store of values, a rotation and a store of keys, and another reader of what it reads.
func newest() []backends.Launch {
	arena, states, step := &memory{use: backends.Arena}, &memory{use: backends.States}, &memory{use: backends.Step}
	q, turned, k, v := value(arena, 0, tensor.F32, 1, 2, 4), value(arena, 1, tensor.F32, 1, 2, 4),
		value(arena, 2, tensor.F32, 1, 2, 4), value(arena, 3, tensor.F32, 1, 2, 4)
	keys, values, pos := value(states, 0, tensor.F16, 8, 2, 4), value(states, 1, tensor.F16, 8, 2, 4),
		value(step, 0, tensor.I32, 1)
	factors := value(step, 1, tensor.F32, 2)
	return []backends.Launch{
		launch(ops.Push, values, values, v, pos),
		launch(ops.RoPE, turned, q, pos, factors),
		launch(ops.RoPEPush, keys, keys, k, pos, factors),
		launch(ops.Attention, value(arena, 4, tensor.F32, 1, 2, 4), turned, keys, values, pos),
		launch(ops.Mul, k, q, q),
	}
}

func TestNewestOf(t *testing.T) {
	if n, ok := NewestOf(newest(), 3); !ok || n != (Newest{Query: 1, Key: 2, Value: 0}) {
		t.Errorf("%+v, %v", n, ok)
	}
	plain := newest()
	plain[1].In, plain[2].In = plain[1].In[:2], plain[2].In[:3]
	if _, ok := NewestOf(plain, 3); !ok {
		t.Error("rotations without factors are not found")
	}
	other := value(&memory{use: backends.Step}, 2, tensor.I32, 1)
	for name, change := range map[string]func(all []backends.Launch){
		"no attention":               func(all []backends.Launch) { all[3].Node.Op = ops.Mul },
		"keys that do not turn":      func(all []backends.Launch) { all[2].Node.Op = ops.Push },
		"a query that does not turn": func(all []backends.Launch) { all[1].Node.Op = ops.Mul },
		"values that turn":           func(all []backends.Launch) { all[0].Node.Op = ops.RoPEPush },
		"no value":                   func(all []backends.Launch) { all[0].Out = nil },
		"a part of the query":        func(all []backends.Launch) { all[3].In[0].Shape = tensor.Shape{1, 1, 4} },
		"the query's positions":      func(all []backends.Launch) { all[1].In[1] = other },
		"the keys' positions":        func(all []backends.Launch) { all[2].In[2] = other },
		"the values' positions":      func(all []backends.Launch) { all[0].In[2] = other },
		"other angles": func(all []backends.Launch) {
			graph.Attr[ops.RoPEAttr](all[1].Node).Layout = "pair"
			graph.Attr[ops.RoPEAttr](all[2].Node).Layout = "half"
		},
		"one has factors":        func(all []backends.Launch) { all[1].In = all[1].In[:2] },
		"another reads it":       func(all []backends.Launch) { all[4].In[1] = all[3].In[0] },
		"the host reads a query": func(all []backends.Launch) { all[1].Out[0].Buffer.(*memory).use = backends.Step },
	} {
		all := newest()
		change(all)
		if n, ok := NewestOf(all, 3); ok {
			t.Errorf("%s: %+v", name, n)
		}
	}
}
