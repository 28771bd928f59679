package cpu

import (
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/ops"
)

// logits are rows of logits, what becomes of them, and the further operands of an operator on them. The first error
// stays.
type logits struct {
	d    *Device
	l    *backends.Launch
	x, y rows
	err  error
}

func logitsOf(d *Device, l *backends.Launch) *logits {
	b := &logits{d: d, l: l}
	if b.x, b.err = floats(&l.In[0]); b.err == nil {
		b.y, b.err = floats(&l.Out[0])
	}
	return b
}

func (b *logits) ints(i int) (list []int32) {
	if b.err == nil {
		list, b.err = ints(&b.l.In[i])
	}
	return list
}

func (b *logits) values(i int) (list []float32) {
	if b.err == nil {
		list, b.err = values(b.d, &b.l.In[i])
	}
	return list
}

// bindDraw binds the noise and the mask of choices by chance. Here the engine chooses among logits itself; it is
// there for graphs that ask for it.
func bindDraw(d *Device, l *backends.Launch) (runner, error) {
	b := logitsOf(d, l)
	rate, keys, allowed := b.values(1), b.ints(2), b.ints(3)
	if b.err != nil {
		return nil, b.err
	}
	words := l.In[3].Shape.Last()
	return newEachRow(b.x.n, 16*b.x.cols, func(r int) error {
		key := [4]uint32{uint32(keys[4*r]), uint32(keys[4*r+1]), uint32(keys[4*r+2]), uint32(keys[4*r+3])}
		from, to, by, bits := b.x.row(r), b.y.row(r), float64(rate[r]), allowed[r*words:]
		random := ops.NewDrawWords(key)
		var noise [4]uint32
		for v, logit := range from {
			if by != 0 && v%4 == 0 {
				noise[0], noise[1], noise[2], noise[3] = random.Of(uint32(v / 4))
			}
			switch {
			case uint32(bits[v/32])>>(v%32)&1 == 0:
				to[v] = float32(math.Inf(-1))
			case by == 0:
				to[v] = logit
			default:
				to[v] = float32(by*float64(logit) - math.Log(ops.DrawExponential(noise[v%4])))
			}
		}
		return nil
	}), nil
}

// bindFilter binds what leaves of each row the tokens that a choice may fall on, for graphs that ask for it.
func bindFilter(d *Device, l *backends.Launch) (runner, error) {
	b := logitsOf(d, l)
	most, shares, allowed := b.ints(1), b.values(2), b.ints(3)
	if b.err != nil {
		return nil, b.err
	}
	words := l.In[3].Shape.Last()
	return newEachRow(b.x.n, 64*b.x.cols, func(r int) error {
		s := shares[3*r:]
		ops.FilterRow(b.y.row(r), b.x.row(r), int(most[r]), [3]float64{float64(s[0]), float64(s[1]), float64(s[2])},
			allowed[r*words:])
		return nil
	}), nil
}

// bindAdjust binds penalties and biases, for graphs that ask for them.
func bindAdjust(d *Device, l *backends.Launch) (runner, error) {
	b := logitsOf(d, l)
	tokens, by, plus := b.ints(1), b.values(2), b.values(3)
	if b.err != nil {
		return nil, b.err
	}
	n := l.In[1].Shape.Last()
	return newEachRow(b.x.n, b.x.cols, func(r int) error {
		at, to := r*n, (r+1)*n
		ops.AdjustRow(b.y.row(r), b.x.row(r), tokens[at:to], by[at:to], plus[at:to])
		return nil
	}), nil
}

// bindLogprob binds what a model thinks of tokens, for graphs that ask for it.
func bindLogprob(d *Device, l *backends.Launch) (runner, error) {
	b := logitsOf(d, l)
	tokens := b.ints(1)
	if b.err != nil {
		return nil, b.err
	}
	n := l.In[1].Shape.Last()
	return newEachRow(b.x.n, 16*b.x.cols, func(r int) error {
		ops.LogprobRow(b.y.row(r), b.x.row(r), tokens[r*n:])
		return nil
	}), nil
}
