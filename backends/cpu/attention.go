package cpu

import (
	"fmt"
	"math"

	"greta/backends"
	"greta/backends/cpu/simd"
	"greta/graph"
	"greta/internal/pool"
	"greta/ops"
	"greta/tensor"
)

// attention is softmax(q·kᵀ·scale)·v over the cache positions up to each
// token's own. A chunk is one token and one key/value head with the query heads
// that share it.
type attention struct {
	d       *Device
	q, y    rows
	k, v    []simd.Matrix // per key/value head: rows are positions
	pos     []int32
	heads   int // query heads
	groups  int // key/value heads
	scale   float32
	softcap float64
	window  int
	scores  [][]float32 // per worker: one per position
}

// checkCaches says whether the caches can be read in place.
func checkCaches(n *graph.Node) error {
	for _, v := range n.In[1:3] {
		switch v.Type {
		case tensor.F32, tensor.F16, tensor.BF16:
		default:
			return fmt.Errorf("%s: caches of f32, f16 and bf16 can be read", v)
		}
	}
	return nil
}

func bindAttention(d *Device, l *backends.Launch) (runner, error) {
	a := graph.Attr[ops.AttentionAttr](l.Node)
	q, k := &l.In[0], &l.In[1]
	t := &attention{d: d, heads: q.Shape[1], groups: k.Shape[1], scale: float32(a.ScaleOf(q.Shape[2])), softcap: a.Softcap, window: a.Window}
	var err error
	if t.q, err = floats(q); err != nil {
		return nil, err
	}
	if t.y, err = floats(&l.Out[0]); err != nil {
		return nil, err
	}
	if t.pos, err = ints(&l.In[3]); err != nil {
		return nil, err
	}
	if t.k, err = headMatrices(k); err != nil {
		return nil, err
	}
	if t.v, err = headMatrices(&l.In[2]); err != nil {
		return nil, err
	}
	t.scores = make([][]float32, d.pool.Size())
	for i := range t.scores {
		t.scores[i] = d.workerScratch(i, k.Shape[0])
	}
	return t, nil
}

// headMatrices sees a cache [C, G, Dh] as G matrices of C rows.
func headMatrices(o *backends.Operand) ([]simd.Matrix, error) {
	b, err := operandBytes(o)
	if err != nil {
		return nil, err
	}
	ms := make([]simd.Matrix, o.Shape[1])
	head := o.Type.RowBytes(o.Shape[2])
	for g := range ms {
		ms[g] = simd.Matrix{Type: o.Type, Rows: o.Shape[0], Cols: o.Shape[2], Data: b[g*head:], Stride: o.Stride}
		if err := ms[g].Check(); err != nil {
			return nil, err
		}
	}
	return ms, nil
}

func (t *attention) run(p *pool.Pool) error {
	for i, pos := range t.pos {
		if pos < 0 || int(pos) >= t.k[0].Rows {
			return fmt.Errorf("token %d is at position %d, the cache holds %d", i, pos, t.k[0].Rows)
		}
	}
	if len(t.pos) > 0 {
		p.Run(t, len(t.pos)*t.groups)
	}
	return nil
}

func (t *attention) Do(worker, chunk int) {
	// Later tokens have more to do: they come first, so that chunks end evenly.
	token, g := len(t.pos)-1-chunk/t.groups, chunk%t.groups
	end := int(t.pos[token]) + 1
	from := 0
	if t.window > 0 {
		from = max(0, end-t.window)
	}
	share := t.heads / t.groups
	for h := g * share; h < (g+1)*share; h++ {
		t.head(t.y.row(token*t.heads+h), t.q.row(token*t.heads+h), g, from, end, t.scores[worker][:end-from])
	}
}

// head computes one query's output over positions [from, end).
func (t *attention) head(y, q []float32, g, from, end int, s []float32) {
	k := t.d.k
	k.MatVec(s, t.k[g], from, q, nil)
	k.Scale(s, t.scale, s)
	if t.softcap > 0 {
		for i, v := range s {
			s[i] = float32(t.softcap * math.Tanh(float64(v)/t.softcap))
		}
	}
	sum := k.ExpSum(s, s, k.Max(s))
	clear(y)
	k.WeightedSum(y, t.v[g], from, s)
	k.Scale(y, 1/sum, y)
}
