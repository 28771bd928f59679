package cpu

import (
	"fmt"
	"math"

	"greta/backends"
	"greta/graph"
	"greta/internal/pool"
	"greta/ops"
	"greta/tensor"
)

// rotation turns pairs of a head's elements by angles that grow with the position.
type rotation struct {
	freqs []float64 // radians per position, of each pair
	scale float64   // on cosine and sine
	pair  bool      // elements 2i and 2i+1 rotate together, else i and i+len(freqs)
}

func newRotation(d *Device, n *graph.Node, dh int, factors *backends.Operand) (*rotation, error) {
	a := graph.Attr[ops.RoPEAttr](n)
	r := &rotation{pair: a.Layout == "pair"}
	freqs, scale := ops.RopeFrequencies(a, dh)
	r.freqs, r.scale = append([]float64(nil), freqs...), scale
	if factors != nil && factors.Buffer != nil {
		f, err := vector(d, factors)
		if err != nil {
			return nil, err
		}
		if len(f) != len(r.freqs) {
			return nil, fmt.Errorf("%d frequency factors for %d pairs", len(f), len(r.freqs))
		}
		for i := range r.freqs {
			r.freqs[i] /= float64(f[i])
		}
	}
	return r, nil
}

// angles fills cosines and sines at a position.
func (r *rotation) angles(cos, sin []float32, pos int32) {
	for i, f := range r.freqs {
		s, c := math.Sincos(float64(pos) * f)
		cos[i], sin[i] = float32(c*r.scale), float32(s*r.scale)
	}
}

// apply rotates the head x into y, which may be x.
func (r *rotation) apply(y, x, cos, sin []float32) {
	n := len(r.freqs)
	cos, sin = cos[:n], sin[:n]
	if r.pair {
		for i := range n {
			a, b := x[2*i], x[2*i+1]
			y[2*i], y[2*i+1] = a*cos[i]-b*sin[i], a*sin[i]+b*cos[i]
		}
	} else {
		lo, hi, ylo, yhi := x[:n], x[n:2*n], y[:n], y[n:2*n]
		for i := range n {
			a, b := lo[i], hi[i]
			ylo[i], yhi[i] = a*cos[i]-b*sin[i], a*sin[i]+b*cos[i]
		}
	}
	copy(y[2*n:], x[2*n:])
}

// rope rotates the heads of each token, and stores them in a cache where there is one.
type rope struct {
	*rotation
	x, y  rows // a row is a head
	heads int
	pos   []int32
	cache *cache
	work  [][]float32 // per worker: cosines, sines, and a head
}

func (r *rope) run(p *pool.Pool) error {
	if r.cache != nil {
		if err := r.cache.check(r.pos); err != nil {
			return err
		}
	}
	if len(r.pos) > 0 {
		p.Run(r, len(r.pos))
	}
	return nil
}

func (r *rope) Do(worker, token int) {
	n := len(r.freqs)
	w := r.work[worker]
	cos, sin, head := w[:n], w[n:2*n], w[2*n:]
	r.angles(cos, sin, r.pos[token])
	for h := range r.heads {
		x := r.x.row(token*r.heads + h)
		if r.cache == nil {
			r.apply(r.y.row(token*r.heads+h), x, cos, sin)
			continue
		}
		r.apply(head[:len(x)], x, cos, sin)
		r.cache.store(int(r.pos[token]), h*len(x), head[:len(x)])
	}
}

func newRope(d *Device, l *backends.Launch, x, pos *backends.Operand, factors []backends.Operand) (*rope, error) {
	r := &rope{heads: x.Shape[1]}
	var err error
	if r.x, err = floats(x); err != nil {
		return nil, err
	}
	if r.pos, err = ints(pos); err != nil {
		return nil, err
	}
	var f *backends.Operand
	if len(factors) > 0 {
		f = &factors[0]
	}
	if r.rotation, err = newRotation(d, l.Node, x.Shape[2], f); err != nil {
		return nil, err
	}
	r.work = make([][]float32, d.pool.Size())
	for i := range r.work {
		r.work[i] = make([]float32, 2*len(r.freqs)+x.Shape[2])
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
	case tensor.F32, tensor.F16, tensor.BF16:
		return nil
	default:
		return fmt.Errorf("a cache of %s; f32, f16 and bf16 can be written", t)
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
		p.Run(t, len(t.pos))
	}
	return nil
}

func (t *push) Do(_, token int) {
	for h := range t.heads {
		x := t.x.row(token*t.heads + h)
		t.cache.store(int(t.pos[token]), h*len(x), x)
	}
}
