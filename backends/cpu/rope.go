package cpu

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// turns are the angles by which positions turn pairs of a head's elements, one table for all launches of a
// program that turn by the same angles at the same positions: it is filled by the first of a step.
type turns struct {
	freqs    []float64 // radians per position, of each pair
	whole    []float64 // and before factors that each step computes divide them
	factors  []float32 // those; nil: there are none, or they stand in freqs
	scale    float64   // on cosine and sine
	pair     bool      // elements 2i and 2i+1 turn together, else i and i+len(freqs)
	pos      []int32
	of       []int32   // the positions whose angles are in the table
	filled   bool      // whether any are
	cos, sin []float32 // [positions, width], as TurnPairs or TurnHalves want them
	width    int
}

func newTurns(d *Device, n *graph.Node, dh int, pos []int32, factors *backends.Operand) (*turns, error) {
	a := graph.Attr[ops.RoPEAttr](n)
	freqs, scale := ops.RopeFrequencies(a, dh)
	t := &turns{freqs: slices.Clone(freqs), scale: scale, pair: a.Layout == "pair", pos: pos}
	if factors != nil && factors.Buffer != nil {
		f, err := vector(d, factors)
		if err != nil {
			return nil, err
		}
		if len(f) != len(t.freqs) {
			return nil, fmt.Errorf("%d frequency factors for %d pairs", len(f), len(t.freqs))
		}
		if factors.Changes() {
			t.whole, t.factors = freqs, f
		}
		t.divide(f)
	}
	for _, o := range d.turns {
		if o.same(t) {
			return o, nil
		}
	}
	t.width = len(t.freqs)
	if t.pair {
		t.width *= 2
	}
	t.of = make([]int32, len(pos))
	t.cos, t.sin = simd.AlignedFloats(len(pos)*t.width), simd.AlignedFloats(len(pos)*t.width)
	d.turns = append(d.turns, t)
	return t, nil
}

// same says whether t's table holds what o's does, in each step.
func (t *turns) same(o *turns) bool {
	return t.factors == nil && o.factors == nil && t.pair == o.pair && t.scale == o.scale &&
		slices.Equal(t.freqs, o.freqs) && len(t.pos) == len(o.pos) && unsafe.SliceData(t.pos) == unsafe.SliceData(o.pos)
}

// divide divides the frequencies by factors.
func (t *turns) divide(by []float32) {
	for i := range t.freqs {
		t.freqs[i] /= float64(by[i])
	}
}

// run fills the table for the positions of this step.
func (t *turns) run(p *pool.Pool) {
	if t.factors != nil {
		copy(t.freqs, t.whole)
		t.divide(t.factors)
		t.filled = false
	}
	if t.filled && slices.Equal(t.of, t.pos) {
		return
	}
	if len(t.pos) == 1 { // a microsecond: not worth a region
		t.Do(0, 0)
	} else {
		p.RunSmall(t, len(t.pos))
	}
	copy(t.of, t.pos)
	t.filled = true
}

func (t *turns) Do(_, token int) {
	cos, sin := t.row(token)
	for i, f := range t.freqs {
		s, c := math.Sincos(float64(t.pos[token]) * f)
		co, si := float32(c*t.scale), float32(s*t.scale)
		if t.pair {
			cos[2*i], cos[2*i+1] = co, co
			sin[2*i], sin[2*i+1] = -si, si
		} else {
			cos[i], sin[i] = co, si
		}
	}
}

// row gives the angles of a token.
func (t *turns) row(token int) (cos, sin []float32) {
	from, to := token*t.width, (token+1)*t.width
	return t.cos[from:to], t.sin[from:to]
}

// turn turns the head x into y, which may be x.
func (t *turns) turn(k *simd.Kernels, y, x, cos, sin []float32) {
	n := 2 * len(t.freqs)
	if t.pair {
		k.TurnPairs(y[:n], x, cos, sin)
	} else {
		k.TurnHalves(y, x, cos, sin)
	}
	copy(y[n:], x[n:])
}

// rope turns the heads of each token, and stores them in a cache where there is one.
type rope struct {
	*turns
	d     *Device
	x, y  rows // a row is a head
	heads int
	cache *cache
	work  [][]float32 // per worker: a head
}

func (r *rope) run(p *pool.Pool) error {
	if r.cache != nil {
		if err := r.cache.check(r.pos); err != nil {
			return err
		}
	}
	if len(r.pos) > 0 {
		r.turns.run(p)
		p.RunSmall(r, len(r.pos))
	}
	return nil
}

func (r *rope) Do(worker, token int) {
	cos, sin := r.row(token)
	for h := range r.heads {
		x := r.x.row(token*r.heads + h)
		if r.cache == nil {
			r.turn(r.d.k, r.y.row(token*r.heads+h), x, cos, sin)
			continue
		}
		head := r.work[worker][:len(x)]
		r.turn(r.d.k, head, x, cos, sin)
		r.cache.store(int(r.pos[token]), h*len(x), head)
	}
}

func newRope(d *Device, l *backends.Launch, x, pos *backends.Operand, factors []backends.Operand) (*rope, error) {
	r := &rope{d: d, heads: x.Shape[1]}
	var err error
	if r.x, err = floats(x); err != nil {
		return nil, err
	}
	at, err := ints(pos)
	if err != nil {
		return nil, err
	}
	var f *backends.Operand
	if len(factors) > 0 {
		f = &factors[0]
	}
	if r.turns, err = newTurns(d, l.Node, x.Shape[2], at, f); err != nil {
		return nil, err
	}
	r.work = make([][]float32, d.pool.Size())
	for i := range r.work {
		r.work[i] = make([]float32, x.Shape[2])
	}
	return r, nil
}

func bindRoPE(d *Device, l *backends.Launch) (runner, error) {
	r, err := newRope(d, l, &l.In[0], &l.In[1], l.In[2:])
	if err != nil {
		return nil, err
	}
	r.y, err = floats(&l.Out[0])
	return r, err
}

func bindRoPEPush(d *Device, l *backends.Launch) (runner, error) {
	r, err := newRope(d, l, &l.In[1], &l.In[2], l.In[3:])
	if err != nil {
		return nil, err
	}
	r.cache, err = newCache(d, &l.In[0])
	return r, err
}

// cache is a state of rows per position that push writes.
type cache struct {
	d         *Device
	t         tensor.Type
	data      []byte
	positions int
	row       int // elements of a position
}

// checkState says whether the state of a push can be written.
func checkState(n *graph.Node) error {
	switch t := n.In[0].Type; t {
	case tensor.F32, tensor.F16, tensor.BF16, tensor.F8E4M3, tensor.Q8_0:
		return nil
	default:
		return fmt.Errorf("a cache of %s; f32, f16, bf16, f8e4m3 and q8_0 can be written", t)
	}
}

func newCache(d *Device, o *backends.Operand) (*cache, error) {
	b, err := operandBytes(o)
	if err == nil && !o.Dense() {
		err = fmt.Errorf("a cache with gaps")
	}
	return &cache{d, o.Type, b, o.Shape[0], o.RowElems()}, err
}

// check refuses positions that the cache does not hold.
func (c *cache) check(pos []int32) error {
	for i, p := range pos {
		if p < 0 || int(p) >= c.positions {
			return fmt.Errorf("token %d is at position %d, the cache holds %d", i, p, c.positions)
		}
	}
	return nil
}

// store writes elements [at, at+len(x)) of a position.
func (c *cache) store(pos, at int, x []float32) {
	b := c.data[c.t.RowBytes(pos*c.row+at):][:c.t.RowBytes(len(x))]
	switch c.t {
	case tensor.F32:
		copy(tensor.View[float32](b), x)
	case tensor.F16:
		c.d.k.EncodeF16(tensor.View[uint16](b), x)
	case tensor.BF16:
		c.d.k.EncodeBF16(tensor.View[uint16](b), x)
	default:
		if err := quant.Encode(c.t, b, x, len(x)); err != nil {
			panic(err) // the operator's check has seen the type and the size of a head
		}
	}
}

// push stores the heads of each token.
type push struct {
	cache *cache
	x     rows
	heads int
	pos   []int32
}

func bindPush(d *Device, l *backends.Launch) (runner, error) {
	p := &push{heads: l.In[1].Shape[1]}
	var err error
	if p.cache, err = newCache(d, &l.In[0]); err != nil {
		return nil, err
	}
	if p.x, err = floats(&l.In[1]); err != nil {
		return nil, err
	}
	p.pos, err = ints(&l.In[2])
	return p, err
}

func (t *push) run(p *pool.Pool) error {
	if err := t.cache.check(t.pos); err != nil {
		return err
	}
	if len(t.pos) > 0 {
		p.RunSmall(t, len(t.pos))
	}
	return nil
}

func (t *push) Do(_, token int) {
	for h := range t.heads {
		x := t.x.row(token*t.heads + h)
		t.cache.store(int(t.pos[token]), h*len(x), x)
	}
}
