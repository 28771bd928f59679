package cpu

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// attention is softmax(q·kᵀ·scale)·v over the cache positions up to each
// token's own. The cache is read once, in blocks of positions, with a softmax
// that is corrected as larger scores turn up (Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).
// Single tokens divide the positions among workers (attention_decode.go), many
// tokens are taken in tiles that are products of matrices (attention_prefill.go).
type attention struct {
	d        *Device
	q, y     rows
	k, v     []simd.Matrix // per key/value head: rows are positions
	pos      []int32
	heads    int // query heads
	groups   int // key/value heads
	share    int // query heads of a group
	dh, dv   int // elements of keys and of values
	scale    float32
	softcap  float32
	capacity int // positions in the cache
	attr     *ops.AttentionAttr
	sinks    []float32 // a score more for each head; nil: none
	slopes   []float32 // on distances, for each head; nil: none
	coded    bool      // the caches' types are those of no loop: blocks of positions are widened first
	spaced   *distances
	pages    *pagedAttention // where the caches lie in pages
	span     []int32         // of each token, the first row of its text and that behind the last; nil: there is one text
}

// widen gives rows p … p+n-1 of a cache's head in f32, in dst.
func (t *attention) widen(dst []float32, m *simd.Matrix, p, n int) simd.Matrix {
	for i := range n {
		t.d.decodeRow(dst[i*m.Cols:(i+1)*m.Cols], m, p+i)
	}
	return simd.Matrix{Type: tensor.F32, Rows: n, Cols: m.Cols, Data: tensor.Bytes(dst[:n*m.Cols])}
}

// isCoded says whether caches of a type are widened before loops read them.
func isCoded(t tensor.Type) bool { return t != tensor.F32 && t != tensor.F16 && t != tensor.BF16 }

// tokenTile is from how many tokens on prefill's tiles are used.
const tokenTile = 4

// checkCaches says whether the caches can be read in place.
func checkCaches(n *graph.Node) error {
	for _, v := range n.In[1:3] {
		switch v.Type {
		case tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3, tensor.Q8_0:
		default:
			return fmt.Errorf("%s: caches of f32, f16, bf16, f8e4m3 and q8_0 can be read", v)
		}
	}
	if at := ops.Place(n, "far_q"); len(n.In) > at && n.In[at] != nil && n.In[1].Type != tensor.F32 {
		return fmt.Errorf("%s: far_q can be multiplied by keys of f32", n.In[1])
	}
	return nil
}

func bindAttention(d *Device, l *backends.Launch) (runner, error) {
	t, err := newAttention(d, l, &l.In[1], &l.In[2], l.In[1].Shape[0])
	if err != nil {
		return nil, err
	}
	if len(t.pos) < tokenTile || d.invariant {
		return newDecodeAttention(t), nil
	}
	return newPrefillAttention(t), nil
}

// newAttention sees the operands of a launch, its caches as k and v, in which a token has so many positions at most.
func newAttention(d *Device, l *backends.Launch, k, v *backends.Operand, capacity int) (attention, error) {
	a := graph.Attr[ops.AttentionAttr](l.Node)
	q := &l.In[0]
	t := attention{
		d: d, heads: q.Shape[1], groups: k.Shape[1], share: q.Shape[1] / k.Shape[1], dh: q.Shape[2], dv: v.Shape[2],
		scale: float32(a.ScaleOf(q.Shape[2])), softcap: float32(a.Softcap), attr: a, capacity: capacity,
	}
	var err error
	if t.q, err = floats(q); err != nil {
		return t, err
	}
	if t.y, err = floats(&l.Out[0]); err != nil {
		return t, err
	}
	if t.pos, err = ints(&l.In[3]); err != nil {
		return t, err
	}
	if t.k, err = headMatrices(k); err != nil {
		return t, err
	}
	for h := range t.heads {
		if a.ALiBi > 0 {
			t.slopes = append(t.slopes, float32(a.SlopeOf(h, t.heads)))
		}
	}
	if sinks := ops.Place(l.Node, "sinks"); len(l.In) > sinks && l.In[sinks].Buffer != nil {
		if t.sinks, err = values(d, &l.In[sinks]); err != nil {
			return t, err
		}
	}
	if l.Node.Op == ops.Attention && len(l.In) > 5 && l.In[5].Buffer != nil {
		if t.span, err = ints(&l.In[5]); err != nil {
			return t, err
		}
	}
	if ops.Spaced(l.Node) {
		if t.spaced, err = newDistances(d, l, t.capacity); err != nil {
			return t, err
		}
	}
	t.v, err = headMatrices(v)
	t.coded = isCoded(k.Type) || isCoded(v.Type)
	return t, err
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
		ms[g] = simd.Matrix{Type: o.Type, Rows: o.Shape[0], Cols: o.Shape[2], Data: b[g*head:], Stride: o.Stride,
			Decode: decoderOf(o.Type)}
		if err := ms[g].Check(); err != nil {
			return nil, err
		}
	}
	return ms, nil
}

func (t *attention) checkPositions() error {
	if t.span != nil {
		for i := range t.pos {
			if err := ops.CheckSpan(i, t.span[2*i], t.span[2*i+1], t.capacity); err != nil {
				return err
			}
		}
		return nil
	}
	for i, pos := range t.pos {
		if pos < 0 || int(pos) >= t.capacity {
			return fmt.Errorf("token %d is at position %d, the cache holds %d", i, pos, t.capacity)
		}
	}
	return nil
}

// sees gives the positions [from, end) that a token sees.
func (t *attention) sees(token int) (from, end int) {
	if t.span != nil {
		return t.attr.SeesOf(token, int(t.span[2*token]), int(t.span[2*token+1]))
	}
	return t.attr.Sees(int(t.pos[token]), t.capacity)
}

// row is where among the rows of k a token stands.
func (t *attention) row(token int) int {
	if t.span != nil {
		return token
	}
	return int(t.pos[token])
}

// leans says whether scores have parts for distances.
func (t *attention) leans() bool { return t.slopes != nil || t.spaced != nil }

// lean adds to a token's scores of positions p, p+1, …, which lie stride apart, what their distances give, of those
// that it sees.
func (t *attention) lean(head, token, p int, s []float32, stride int) {
	pos := t.row(token)
	if t.spaced != nil {
		t.space(head, token, p, s, stride)
	}
	if t.slopes == nil {
		return
	}
	slope := t.slopes[head]
	for i := 0; i < len(s); i += stride {
		s[i] -= slope * float32(max(pos-p, p-pos))
		p++
	}
}

// sunk gives the sum of powers of a head together with its sink's, for scores whose maximum is most.
func (t *attention) sunk(head int, sum, most float32) float32 {
	if t.sinks == nil {
		return sum
	}
	return sum + float32(math.Exp(float64(t.sinks[head]-most)))
}

// cap bends scores to cap·tanh(s/cap) = cap·(1 - 2/(1 + e^(2s/cap))).
func (t *attention) cap(s []float32) {
	if t.softcap <= 0 {
		return
	}
	k := t.d.k
	k.Scale(s, 2/t.softcap, s)
	k.Exp(s, s)
	for i, e := range s {
		s[i] = t.softcap - 2*t.softcap/(1+e)
	}
}

// least is where scores' running maximum starts: below every score, and so far
// from infinity that differences are numbers.
const least = -math.MaxFloat32 / 4
