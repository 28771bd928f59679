package cpu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/ops"
)

// softmax is e^(x-max)/Σ of each row.
type softmax struct {
	d    *Device
	x, y rows
}

func bindSoftmax(d *Device, l *backends.Launch) (runner, error) {
	t := &softmax{d: d}
	var err error
	if t.x, err = floats(&l.In[0]); err != nil {
		return nil, err
	}
	t.y, err = floats(&l.Out[0])
	return t, err
}

func (t *softmax) run(p *pool.Pool) error {
	if t.x.n > 0 {
		p.Run(t, t.x.n)
	}
	return nil
}

func (t *softmax) Do(_, i int) { t.d.softmaxRow(t.y.row(i), t.x.row(i)) }

func (d *Device) softmaxRow(y, x []float32) {
	sum := d.k.ExpSum(y, x, d.k.Max(x))
	d.k.Scale(y, 1/sum, y)
}

// topk chooses the k largest of each row, the lower index first where equal.
type topk struct {
	d       *Device
	x, p    rows
	e       []int32
	k       int
	softmax string
	groups  *ops.TopKAttr // with groups, of which some are hidden
	wide    []float64
	hidden  []bool
	order   []int32   // scratch: indices by value
	probs   []float32 // scratch: the row's softmax
}

func bindTopK(d *Device, l *backends.Launch) (runner, error) {
	a := graph.Attr[ops.TopKAttr](l.Node)
	t := &topk{d: d, k: a.K, softmax: a.Softmax}
	var err error
	if t.x, err = floats(&l.In[0]); err != nil {
		return nil, err
	}
	if t.p, err = floats(&l.Out[0]); err != nil {
		return nil, err
	}
	if t.e, err = ints(&l.Out[1]); err != nil {
		return nil, err
	}
	if a.Groups > 1 {
		t.groups, t.wide = a, make([]float64, t.x.cols)
	}
	t.order, t.probs = make([]int32, t.x.cols), make([]float32, t.x.cols)
	return t, nil
}

func (t *topk) run(*pool.Pool) error {
	for i := range t.x.n {
		x := t.x.row(i)
		if t.softmax == "before" {
			t.d.softmaxRow(t.probs, x)
			x = t.probs
		}
		for j := range t.order {
			t.order[j] = int32(j)
			if x[j] != x[j] {
				return fmt.Errorf("element %d of row %d is not a number", j, i)
			}
		}
		p, e := t.p.row(i), t.e[i*t.k:(i+1)*t.k]
		if t.groups != nil {
			for j, v := range x {
				t.wide[j] = float64(v)
			}
			t.hidden = t.groups.Hidden(t.wide)
		}
		t.choose(x)
		for j := range e {
			e[j] = t.order[j]
			p[j] = x[e[j]]
		}
		if t.softmax == "after" {
			t.d.softmaxRow(p, p)
		}
	}
	return nil
}

// fewChosen is up to how many choices a search of the row for each is faster than sorting it.
const fewChosen = 24

// choose brings the k largest to the front of order: by selection where k is small, else by sorting.
func (t *topk) choose(x []float32) {
	if t.k > fewChosen && t.hidden == nil {
		slices.SortFunc(t.order, func(i, j int32) int {
			return cmp.Or(cmp.Compare(x[j], x[i]), cmp.Compare(i, j))
		})
		return
	}
	for j := range t.k {
		best := j
		for c := j + 1; c < len(t.order); c++ {
			a, b := x[t.order[c]], x[t.order[best]]
			if t.hidden != nil && t.hidden[t.order[c]] != t.hidden[t.order[best]] {
				if t.hidden[t.order[best]] {
					best = c
				}
				continue
			}
			if a > b || a == b && t.order[c] < t.order[best] {
				best = c
			}
		}
		at := t.order[best]
		copy(t.order[j+1:best+1], t.order[j:best])
		t.order[j] = at
	}
}

// mix is the sum of rows weighted by p.
type mix struct {
	d       *Device
	x, p, y rows
}

func bindMix(d *Device, l *backends.Launch) (runner, error) {
	t := &mix{d: d}
	var err error
	if t.x, err = floats(&l.In[0]); err != nil {
		return nil, err
	}
	if t.p, err = floats(&l.In[1]); err != nil {
		return nil, err
	}
	t.y, err = floats(&l.Out[0])
	return t, err
}

func (t *mix) run(p *pool.Pool) error {
	if t.y.n > 0 {
		p.Run(t, t.y.n)
	}
	return nil
}

func (t *mix) Do(_, s int) {
	y, p := t.y.row(s), t.p.row(s)
	clear(y)
	for u, w := range p {
		t.d.k.Axpy(y, w, t.x.row(s*len(p)+u))
	}
}
