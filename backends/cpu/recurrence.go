package cpu

import (
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/ops"
)

// recurrence runs an operator whose state lies in slots (ops.StateSlots). Units, heads or channels, are independent of
// each other: workers share them, and each takes its units through all tokens of the step.
type recurrence struct {
	state []float32 // [slots, n+1]
	n     int
	pos   []int32
	slot  []int32 // of each row, where they are of several sequences; nil: all of one
	units int
	per   int // units of a chunk
	// take brings unit u through rows [from, to): from the state before (nil: zero) to the one behind, which may be
	// the same memory.
	take func(worker, u, from, to int, before, behind []float32)

	y     rows // the result
	spans []slotSpan
}

// slotSpan is a run of rows of one sequence, and its state.
type slotSpan struct {
	from, to       int
	before, behind []float32
}

func newRecurrence(l *backends.Launch, pos *backends.Operand, units, per int) (*recurrence, error) {
	r := &recurrence{n: l.In[0].Shape[1] - 1, units: units, per: max(1, per)}
	var err error
	if r.pos, err = ints(pos); err != nil {
		return nil, err
	}
	s, err := floats(&l.In[0])
	if err == nil && !s.dense() {
		err = fmt.Errorf("a state with gaps")
	}
	r.state = s.data
	if i := ops.SlotOperand(l.Node); i >= 0 && err == nil {
		r.slot, err = ints(&l.In[i])
	}
	if err == nil {
		r.y, err = floats(&l.Out[1])
	}
	r.spans = make([]slotSpan, 0, max(1, len(r.slot)))
	return r, err
}

func (r *recurrence) run(p *pool.Pool) error {
	if len(r.pos) == 0 {
		return nil
	}
	r.spans = r.spans[:0]
	if r.slot != nil {
		return r.runSlots(p)
	}
	for i, at := range r.pos {
		if at < 0 || int(at) != int(r.pos[0])+i {
			return fmt.Errorf("token %d is at position %d: positions of a recurrence follow each other", i, at)
		}
	}
	read, write, err := ops.StateSlots(r.state, r.n, int(r.pos[0]))
	if err != nil {
		return err
	}
	span := slotSpan{to: len(r.pos), behind: r.state[write*(r.n+1):][:r.n]}
	if read >= 0 {
		span.before = r.state[read*(r.n+1):][:r.n]
	}
	r.spans = append(r.spans, span)
	p.Run(r, (r.units+r.per-1)/r.per)
	r.state[write*(r.n+1)+r.n] = float32(int(r.pos[0]) + len(r.pos))
	return nil
}

// runSlots runs rows of several sequences, each on the state of its own slot.
func (r *recurrence) runSlots(p *pool.Pool) error {
	per := 1 // rows of y for each row
	if len(r.pos) > 0 {
		per = r.y.n / len(r.pos)
	}
	err := ops.SlotRuns(r.state, r.n, r.pos, r.slot, func(from, to, at int) {
		if at < 0 {
			for i := from * per; i < to*per; i++ {
				clear(r.y.row(i))
			}
			return
		}
		h := r.state[at*(r.n+1):][:r.n]
		span := slotSpan{from, to, h, h}
		if r.pos[from] == 0 {
			span.before = nil
		}
		r.spans = append(r.spans, span)
	})
	if err != nil {
		return err
	}
	p.Run(r, (r.units+r.per-1)/r.per)
	return nil
}

func (r *recurrence) Do(worker, chunk int) {
	for u := chunk * r.per; u < min((chunk+1)*r.per, r.units); u++ {
		for i := range r.spans {
			s := &r.spans[i]
			r.take(worker, u, s.from, s.to, s.before, s.behind)
		}
	}
}

// fresh copies a part of the state before, or zeros, to the state behind and gives it.
func fresh(before, behind []float32, at, n int) []float32 {
	h := behind[at : at+n : at+n]
	if before == nil {
		clear(h)
	} else if &before[at] != &h[0] {
		copy(h, before[at:])
	}
	return h
}

// operands sees several operands as rows.
func operands(d *Device, in []backends.Operand) ([]rows, error) {
	all := make([]rows, len(in))
	for i := range in {
		if in[i].Buffer == nil {
			continue
		}
		var err error
		if all[i], err = rowsOrWeight(d, &in[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func bindShortConv(d *Device, l *backends.Launch) (runner, error) {
	in, err := operands(d, l.In[1:3])
	if err != nil {
		return nil, err
	}
	x, w := in[0], in[1]
	var b []float32
	if len(l.In) > 4 && l.In[4].Buffer != nil {
		if b, err = values(d, &l.In[4]); err != nil {
			return nil, err
		}
	}
	channels, k := w.n, w.cols
	const block = 256 // channels of a unit
	r, err := newRecurrence(l, &l.In[3], (channels+block-1)/block, 1)
	if err != nil {
		return nil, err
	}
	work := make([][]float32, d.pool.Size()) // w's columns, a product and zeros
	for i := range work {
		work[i] = cut(d, i, []int{(k + 2) * block})[0]
	}
	r.take = func(worker, u, begin, end int, before, behind []float32) {
		from, to := u*block, min((u+1)*block, channels)
		n := to - from
		column := func(j int) []float32 { return work[worker][j*block:][:n] }
		for c := range n {
			for j, f := range w.row(from + c) {
				column(j)[c] = f
			}
		}
		product, zeros := column(k), column(k+1)
		clear(zeros)
		// What token s sees, back tokens before it.
		seen := func(s, back int) []float32 {
			at := s - begin - back
			if at >= 0 {
				return x.row(begin + at)[from:to]
			} else if before != nil {
				return before[(k-1+at)*channels:][from:to]
			}
			return zeros
		}
		for s := begin; s < end; s++ {
			y := r.y.row(s)[from:to]
			d.k.Mul(y, column(0), seen(s, k-1))
			for j := 1; j < k; j++ {
				d.k.Mul(product, column(j), seen(s, k-1-j))
				d.k.Add(y, y, product)
			}
			if b != nil {
				d.k.Add(y, y, b[from:to])
			}
		}
		for j := range k - 1 { // where behind is before, rows are read before they are written
			copy(behind[j*channels:][from:to], seen(end-1, k-2-j))
		}
	}
	return r, nil
}

func bindScan(d *Device, l *backends.Launch) (runner, error) {
	in, err := operands(d, l.In[1:3])
	if err != nil {
		return nil, err
	}
	a, x := in[0], in[1]
	const block = 64
	r, err := newRecurrence(l, &l.In[3], (x.cols+block-1)/block, 4)
	if err != nil {
		return nil, err
	}
	r.take = func(_, u, begin, end int, before, behind []float32) {
		from, to := u*block, min((u+1)*block, x.cols)
		h := fresh(before, behind, from, to-from)
		for s := begin; s < end; s++ {
			as, xs, ys := a.row(s)[from:to], x.row(s)[from:to], r.y.row(s)[from:to]
			for c := range h {
				h[c] = as[c]*h[c] + xs[c]
				ys[c] = h[c]
			}
		}
	}
	return r, nil
}

func bindSSM(d *Device, l *backends.Launch) (runner, error) {
	in, err := operands(d, l.In[1:6])
	if err != nil {
		return nil, err
	}
	x, dt, a, b, c := in[0], in[1], in[2], in[3], in[4]
	heads, p := l.In[1].Shape[1], l.In[1].Shape[2]
	g, size, k := l.In[4].Shape[1], l.In[4].Shape[2], d.k
	share := heads / max(1, g)
	if a.cols > 1 {
		return bindChannelSSM(d, l, in)
	}
	block := 1
	if chunks(d, l.Node) { // heads of a group share what the tokens of a chunk have with each other
		block = max(1, min(share, heads/(4*d.pool.Size())))
	}
	r, err := newRecurrence(l, &l.In[6], (heads+block-1)/block, elementChunk/max(1, 8*block*p*size))
	if err != nil {
		return nil, err
	}
	decay := func(s, h int) float32 { return float32(math.Exp(float64(dt.row(s)[h] * a.row(h)[0]))) }
	var form *chunked
	if chunks(d, l.Node) {
		form = (&chunked{d: d, share: share, dk: size, dv: p, q: c, key: b, v: x, turned: true, decay: decay,
			gain: func(s, h int) float32 { return dt.row(s)[h] }}).ready(r.y)
	}
	work := make([][][]float32, d.pool.Size())
	for i := range work {
		work[i] = cut(d, i, []int{p, 2 * size})
	}
	r.take = func(worker, u, begin, end int, before, behind []float32) {
		h0, h1 := u*block, min((u+1)*block, heads)
		state := fresh(before, behind, h0*p*size, (h1-h0)*p*size)
		if form.takes(begin, end) {
			form.run(worker, h0, h1, begin, end, state)
			return
		}
		for h := h0; h < h1; h, state = h+1, state[p*size:] {
			for s := begin; s < end; s++ {
				fall, step := decay(s, h), dt.row(s)[h]
				bs, cs := b.row(s*g+h/share), c.row(s*g+h/share)
				xs, ys := x.row(s*heads+h), r.y.row(s*heads+h)
				w := work[worker]
				copy(w[1], bs)
				copy(w[1][size:], cs)
				k.Scale(w[0], step, xs)
				k.RowsStep(ys, state, w[0], w[1], size, fall)
			}
		}
	}
	return r, nil
}

// bindChannelSSM binds an ssm with a decay for each element of a head's states: of heads that are single channels, as
// Mamba 1 has them, many go through a token at once.
func bindChannelSSM(d *Device, l *backends.Launch, in []rows) (runner, error) {
	x, dt, a, b, c := in[0], in[1], in[2], in[3], in[4]
	heads, p := l.In[1].Shape[1], l.In[1].Shape[2]
	g, size := l.In[4].Shape[1], l.In[4].Shape[2]
	share, most := heads/max(1, g), 64 // heads at once
	if p > 1 || !a.dense() {
		most = 1
	}
	r, err := newRecurrence(l, &l.In[6], (heads+most-1)/most, elementChunk/max(1, 64*most*p*size))
	if err != nil {
		return nil, err
	}
	work := make([][][]float32, d.pool.Size())
	for i := range work {
		work[i] = cut(d, i, []int{2 * most, 2 * size})
	}
	r.take = func(worker, u, begin, end int, before, behind []float32) {
		from, to := u*most, min((u+1)*most, heads)
		state := fresh(before, behind, from*p*size, (to-from)*p*size)
		xs, w := work[worker][0], work[worker][1]
		for s := begin; s < end; s++ {
			for h, n := from, 0; h < to; h += n {
				group := h / share
				n = min(to, (group+1)*share) - h
				copy(w, b.row(s*g+group))
				copy(w[size:], c.row(s*g+group))
				copy(xs, dt.row(s)[h:h+n])
				for i := range p {
					copy(xs[n:], x.span(s*heads+h, n)[i:i+n])
					d.k.ChannelSteps(r.y.span(s*heads+h, n)[i:i+n], state[((h-from)*p+i)*size:], a.data[h*a.stride:], xs, w,
						size)
				}
			}
		}
	}
	return r, nil
}

func bindDelta(d *Device, l *backends.Launch) (runner, error) {
	in, err := operands(d, l.In[1:6])
	if err != nil {
		return nil, err
	}
	q, key, v, g, beta := in[0], in[1], in[2], in[3], in[4]
	dk, dv := l.In[2].Shape[2], l.In[3].Shape[2]
	var form *chunked
	if chunks(d, l.Node) {
		form = &chunked{d: d, share: 1, dk: dk, dv: dv, q: q, key: key, v: v, delta: true,
			decay: func(s, h int) float32 { return float32(math.Exp(float64(at(&g, s, h)[0]))) },
			gain:  func(s, h int) float32 { return beta.row(s)[h] }}
	}
	return matrixStates(d, l, &l.In[6], form, func(y []float32, s, h int, m []float32, x *stepOperand) {
		b := beta.row(s)[h]
		x.set(d, at(&g, s, h), at(&q, s, h), at(&key, s, h))
		d.k.Mul(x.a, x.k, x.d) // what is taken off is of the state behind its decay
		d.k.Scale(x.v, b, at(&v, s, h))
		d.k.MatrixStep(y, m, x.all, dk, simd.StepTakes, -b)
	})
}

// stepOperand is what simd's MatrixStep takes of a token: decays, query, key, a, b and value.
type stepOperand struct{ all, d, q, k, a, b, v []float32 }

// set takes the decays by their logs, or the one that all share.
func (x *stepOperand) set(d *Device, logs, q, key []float32) {
	if len(logs) == len(x.d) {
		d.k.Exp(x.d, logs)
	} else {
		fall := float32(math.Exp(float64(logs[0])))
		for i := range x.d {
			x.d[i] = fall
		}
	}
	copy(x.q, q)
	copy(x.k, key)
}

// matrixStates is a recurrence whose heads have a matrix [dk, dv] each, which step takes through a token, or form,
// where it takes the rows. A nil form takes none.
func matrixStates(d *Device, l *backends.Launch, pos *backends.Operand, form *chunked,
	step func(y []float32, s, h int, m []float32, x *stepOperand)) (runner, error) {
	heads, dk, dv := l.In[2].Shape[1], l.In[2].Shape[2], l.In[3].Shape[2]
	r, err := newRecurrence(l, pos, heads, elementChunk/max(1, 8*dk*dv))
	if err != nil {
		return nil, err
	}
	if form != nil {
		form.ready(r.y)
	}
	work := make([]stepOperand, d.pool.Size())
	for i := range work {
		all := cut(d, i, []int{5*dk + dv})[0]
		part := func(i int) []float32 { return all[i*dk : (i+1)*dk] }
		work[i] = stepOperand{all, part(0), part(1), part(2), part(3), part(4), all[5*dk:]}
	}
	r.take = func(worker, h, begin, end int, before, behind []float32) {
		m := fresh(before, behind, h*dk*dv, dk*dv)
		if form.takes(begin, end) {
			form.run(worker, h, h+1, begin, end, m)
			return
		}
		for s := begin; s < end; s++ {
			step(at(&r.y, s, h), s, h, m, &work[worker])
		}
	}
	return r, nil
}

func bindWKV(d *Device, l *backends.Launch) (runner, error) {
	in, err := operands(d, l.In[1:3])
	if err != nil {
		return nil, err
	}
	keys, v := in[0], in[1]
	w, err := values(d, &l.In[3])
	if err != nil {
		return nil, err
	}
	bonus, err := values(d, &l.In[4])
	if err != nil {
		return nil, err
	}
	n := keys.cols
	const block = 256 // channels of a unit
	r, err := newRecurrence(l, &l.In[5], (n+block-1)/block, 1)
	if err != nil {
		return nil, err
	}
	work := make([][]float32, d.pool.Size())
	for i := range work {
		work[i] = cut(d, i, []int{2 * block})[0]
	}
	r.take = func(worker, u, begin, end int, before, behind []float32) {
		from, to := u*block, min((u+1)*block, n)
		for part := range 3 {
			h := fresh(before, behind, part*n+from, to-from)
			for c := 0; c < len(h) && before == nil && part == 2; c++ {
				h[c] = ops.WKVNothing
			}
		}
		both := work[worker]
		copy(both, w[from:to])
		copy(both[to-from:], bonus[from:to])
		for s := begin; s < end; s++ {
			d.k.WKVStep(r.y.row(s)[from:to], behind[from:], keys.row(s)[from:to], v.row(s)[from:to], both, n)
		}
	}
	return r, nil
}

// checkHeads says whether a recurrence whose heads have matrices as their states can run: MatrixStep and its kin count
// rows and columns in 16 bits.
func checkHeads(n *graph.Node) error {
	sizes := []int{n.In[2].Shape.Last(), n.In[3].Shape.Last()} // of keys and values
	if n.Op == ops.SSM {
		sizes = []int{n.In[4].Shape.Last()}
	}
	if most := slices.Max(sizes); most >= 1<<16 {
		return fmt.Errorf("heads of %d elements; %d are the most", most, 1<<16-1)
	}
	return checkSlots(n)
}

// checkSlots says whether a recurrence's state can be read in place.
func checkSlots(n *graph.Node) error {
	if t := n.In[0].Type; t.String() != "f32" {
		return fmt.Errorf("a state of %s; f32 is wanted", t)
	}
	return nil
}

func bindDPLR(d *Device, l *backends.Launch) (runner, error) {
	in, err := operands(d, l.In[1:5])
	if err != nil {
		return nil, err
	}
	q, key, v, g := in[0], in[1], in[2], in[3]
	var a, b rows
	does, rank := 0, ops.DPLRRank(l.Node)
	if rank {
		if in, err = operands(d, l.In[6:8]); err != nil {
			return nil, err
		}
		a, b, does = in[0], in[1], simd.StepTakes|simd.StepGives
	}
	if graph.Attr[ops.DPLRAttr](l.Node).Before {
		does |= simd.StepBefore
	}
	dk := l.In[2].Shape[2]
	return matrixStates(d, l, &l.In[5], nil, func(y []float32, s, h int, m []float32, x *stepOperand) {
		x.set(d, at(&g, s, h), at(&q, s, h), at(&key, s, h))
		if rank {
			copy(x.a, at(&a, s, h))
			copy(x.b, at(&b, s, h))
		}
		copy(x.v, at(&v, s, h))
		d.k.MatrixStep(y, m, x.all, dk, does, 0)
	})
}
