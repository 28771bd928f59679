package cpu

import (
	"fmt"
	"math"

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
	take func(u, from, to int, before, behind []float32)

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

func (r *recurrence) Do(_, chunk int) {
	for u := chunk * r.per; u < min((chunk+1)*r.per, r.units); u++ {
		for i := range r.spans {
			s := &r.spans[i]
			r.take(u, s.from, s.to, s.before, s.behind)
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
	const block = 64 // channels of a unit
	r, err := newRecurrence(l, &l.In[3], (channels+block-1)/block, 4)
	if err != nil {
		return nil, err
	}
	// What a token sees of channel c, j tokens back.
	seen := func(before []float32, begin, s, back, c int) float32 {
		at := s - begin - back
		if at >= 0 {
			return x.row(begin + at)[c]
		} else if before != nil {
			return before[(k-1+at)*channels+c]
		}
		return 0
	}
	r.take = func(u, begin, end int, before, behind []float32) {
		from, to := u*block, min((u+1)*block, channels)
		for s := begin; s < end; s++ {
			row := r.y.row(s)
			for c := from; c < to; c++ {
				v := float32(0)
				if b != nil {
					v = b[c]
				}
				for j, f := range w.row(c) {
					v += f * seen(before, begin, s, k-1-j, c)
				}
				row[c] = v
			}
		}
		for j := range k - 1 { // where behind is before, an element is read before it is written
			for c := from; c < to; c++ {
				behind[j*channels+c] = seen(before, begin, end-1, k-2-j, c)
			}
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
	r.take = func(u, begin, end int, before, behind []float32) {
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
	heads, p, m := l.In[1].Shape[1], l.In[1].Shape[2], a.cols
	g, size := l.In[4].Shape[1], l.In[4].Shape[2]
	r, err := newRecurrence(l, &l.In[6], heads, elementChunk/max(1, 8*p*size))
	if err != nil {
		return nil, err
	}
	k := d.k
	work := make([][]float32, heads) // exp(dt·a) of a head that has several a
	if m > 1 {
		all := simd.AlignedFloats(heads * size)
		for h := range work {
			work[h] = all[h*size : (h+1)*size]
		}
	}
	r.take = func(h, begin, end int, before, behind []float32) {
		state := fresh(before, behind, h*p*size, p*size)
		for s := begin; s < end; s++ {
			step := dt.row(s)[h]
			bs, cs := b.row(s*g+h/(heads/g)), c.row(s*g+h/(heads/g))
			xs, ys := x.row(s*heads+h), r.y.row(s*heads+h)
			decay := float32(math.Exp(float64(step * a.row(h)[0])))
			if m > 1 {
				k.Scale(work[h], step, a.row(h))
				k.Exp(work[h], work[h])
			}
			for i := range p {
				row := state[i*size : (i+1)*size]
				if m > 1 {
					k.Mul(row, row, work[h])
				} else {
					k.Scale(row, decay, row)
				}
				k.Axpy(row, step*xs[i], bs)
				ys[i] = k.Dot(row, cs)
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
	heads, dk, dv, k := l.In[2].Shape[1], l.In[2].Shape[2], l.In[3].Shape[2], d.k
	return matrixStates(l, &l.In[6], func(y rows, h, begin, end int, m, seen []float32) {
		for s := begin; s < end; s++ {
			at := s*heads + h
			keys, decays, ys := key.row(at), g.row(at), y.row(at)
			clear(seen)
			decay := float32(math.Exp(float64(decays[0])))
			for i := range dk {
				if len(decays) > 1 {
					decay = float32(math.Exp(float64(decays[i])))
				}
				row := m[i*dv : (i+1)*dv]
				k.Scale(row, decay, row)
				k.Axpy(seen, keys[i], row)
			}
			bs := beta.row(s)[h]
			for j, x := range v.row(at) {
				seen[j] = bs * (x - seen[j])
			}
			clear(ys)
			queries := q.row(at)
			for i := range dk {
				row := m[i*dv : (i+1)*dv]
				k.Axpy(row, keys[i], seen)
				k.Axpy(ys, queries[i], row)
			}
		}
	})
}

// matrixStates is a recurrence whose heads have a matrix [dk, dv] each, which take changes, and dv floats to work with.
func matrixStates(l *backends.Launch, pos *backends.Operand, take func(y rows, h, begin, end int, m, work []float32)) (
	runner, error) {
	heads, dk, dv := l.In[2].Shape[1], l.In[2].Shape[2], l.In[3].Shape[2]
	r, err := newRecurrence(l, pos, heads, elementChunk/max(1, 8*dk*dv))
	if err != nil {
		return nil, err
	}
	work := simd.AlignedFloats(heads * dv)
	r.take = func(h, begin, end int, before, behind []float32) {
		take(r.y, h, begin, end, fresh(before, behind, h*dk*dv, dk*dv), work[h*dv:(h+1)*dv])
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
	r, err := newRecurrence(l, &l.In[5], n, 64)
	if err != nil {
		return nil, err
	}
	r.take = func(c, begin, end int, before, behind []float32) {
		for part := range 3 {
			fresh(before, behind, part*n+c, 1)
		}
		for s := begin; s < end; s++ {
			r.y.row(s)[c] = ops.WKVStep(behind[c:], n, keys.row(s)[c], v.row(s)[c], w[c], bonus[c], before == nil && s == begin)
		}
	}
	return r, nil
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
	rank, before := ops.DPLRRank(l.Node), graph.Attr[ops.DPLRAttr](l.Node).Before
	if rank {
		if in, err = operands(d, l.In[6:8]); err != nil {
			return nil, err
		}
		a, b = in[0], in[1]
	}
	heads, dk, dv, k := l.In[2].Shape[1], l.In[2].Shape[2], l.In[3].Shape[2], d.k
	return matrixStates(l, &l.In[5], func(y rows, h, begin, end int, m, seen []float32) {
		for s := begin; s < end; s++ {
			at := s*heads + h
			queries, keys, values, decays, ys := q.row(at), key.row(at), v.row(at), g.row(at), y.row(at)
			clear(ys)
			clear(seen)
			for i := range dk {
				row := m[i*dv : (i+1)*dv]
				if rank {
					k.Axpy(seen, a.row(at)[i], row)
				}
				if before {
					k.Axpy(ys, queries[i], row)
				}
			}
			decay := float32(math.Exp(float64(decays[0])))
			for i := range dk {
				if len(decays) > 1 {
					decay = float32(math.Exp(float64(decays[i])))
				}
				row := m[i*dv : (i+1)*dv]
				k.Scale(row, decay, row)
				k.Axpy(row, keys[i], values)
				if rank {
					k.Axpy(row, b.row(at)[i], seen)
				}
				if !before {
					k.Axpy(ys, queries[i], row)
				}
			}
		}
	})
}
