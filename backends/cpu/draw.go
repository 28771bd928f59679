package cpu

import (
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/ops"
)

// bindDraw binds the noise and the mask of choices by chance. Here the engine chooses among logits itself; it is
// there for graphs that ask for it.
func bindDraw(d *Device, l *backends.Launch) (runner, error) {
	x, err := floats(&l.In[0])
	if err != nil {
		return nil, err
	}
	rate, err := values(d, &l.In[1])
	if err != nil {
		return nil, err
	}
	keys, err := ints(&l.In[2])
	if err != nil {
		return nil, err
	}
	allowed, err := ints(&l.In[3])
	if err != nil {
		return nil, err
	}
	y, err := floats(&l.Out[0])
	if err != nil {
		return nil, err
	}
	words := l.In[3].Shape.Last()
	return newEachRow(x.n, 16*x.cols, func(r int) error {
		key := [4]uint32{uint32(keys[4*r]), uint32(keys[4*r+1]), uint32(keys[4*r+2]), uint32(keys[4*r+3])}
		from, to, by, bits := x.row(r), y.row(r), float64(rate[r]), allowed[r*words:]
		var noise [4]uint32
		for v, logit := range from {
			if by != 0 && v%4 == 0 {
				noise = ops.DrawWords(key, v/4)
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
	x, err := floats(&l.In[0])
	if err != nil {
		return nil, err
	}
	most, err := ints(&l.In[1])
	if err != nil {
		return nil, err
	}
	shares, err := values(d, &l.In[2])
	if err != nil {
		return nil, err
	}
	allowed, err := ints(&l.In[3])
	if err != nil {
		return nil, err
	}
	y, err := floats(&l.Out[0])
	if err != nil {
		return nil, err
	}
	words := l.In[3].Shape.Last()
	return newEachRow(x.n, 64*x.cols, func(r int) error {
		s := shares[3*r:]
		ops.FilterRow(y.row(r), x.row(r), int(most[r]), [3]float64{float64(s[0]), float64(s[1]), float64(s[2])},
			allowed[r*words:])
		return nil
	}), nil
}

// bindAdjust binds penalties and biases, for graphs that ask for them.
func bindAdjust(d *Device, l *backends.Launch) (runner, error) {
	x, err := floats(&l.In[0])
	if err != nil {
		return nil, err
	}
	tokens, err := ints(&l.In[1])
	if err != nil {
		return nil, err
	}
	by, err := values(d, &l.In[2])
	if err != nil {
		return nil, err
	}
	plus, err := values(d, &l.In[3])
	if err != nil {
		return nil, err
	}
	y, err := floats(&l.Out[0])
	if err != nil {
		return nil, err
	}
	n := l.In[1].Shape.Last()
	return newEachRow(x.n, x.cols, func(r int) error {
		at, to := r*n, (r+1)*n
		ops.AdjustRow(y.row(r), x.row(r), tokens[at:to], by[at:to], plus[at:to])
		return nil
	}), nil
}
