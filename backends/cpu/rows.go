package cpu

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
)

// gather copies rows of a table, widened to float32: the embedding, and the
// selection of rows.
type gather struct {
	d     *Device
	table simd.Matrix
	at    []int32
	y     rows
	what  string // what the numbers are, for errors
}

func bindEmbed(d *Device, l *backends.Launch) (runner, error) {
	return newGather(d, &l.In[1], &l.In[0], &l.Out[0], "token")
}

func bindRows(d *Device, l *backends.Launch) (runner, error) {
	return newGather(d, &l.In[0], &l.In[1], &l.Out[0], "row")
}

func newGather(d *Device, table, at, y *backends.Operand, what string) (runner, error) {
	g := &gather{d: d, what: what}
	var err error
	if g.at, err = ints(at); err != nil {
		return nil, err
	}
	o := *table // all of an index as one row
	o.Shape = []int{table.Rows(), table.RowElems()}
	if g.table, err = matrix(&o); err != nil {
		return nil, err
	}
	o = *y
	o.Shape = []int{y.Rows(), y.RowElems()}
	g.y, err = floats(&o)
	return g, err
}

func (g *gather) run(p *pool.Pool) error {
	for i, r := range g.at {
		if r < 0 || int(r) >= g.table.Rows {
			return fmt.Errorf("%s %d is %d, there are %d", g.what, i, r, g.table.Rows)
		}
	}
	if len(g.at) > 0 {
		p.Run(g, len(g.at))
	}
	return nil
}

func (g *gather) Do(_, i int) { g.d.decodeRow(g.y.row(i), &g.table, int(g.at[i])) }

// copies moves rows: a view or split that cannot share memory.
type copies struct {
	x, y  rows
	from  int // first column of x
	width int
}

func (c *copies) run(p *pool.Pool) error {
	if c.x.n > 0 {
		p.Run(c, (c.x.n+63)/64)
	}
	return nil
}

func (c *copies) Do(_, chunk int) {
	for i := chunk * 64; i < min(chunk*64+64, c.x.n); i++ {
		copy(c.y.row(i), c.x.row(i)[c.from:c.from+c.width])
	}
}

// several are launches that run one after another.
type several []runner

func (s several) run(p *pool.Pool) error {
	for _, r := range s {
		if err := r.run(p); err != nil {
			return err
		}
	}
	return nil
}

func bindSplit(_ *Device, l *backends.Launch) (runner, error) {
	x, err := floats(&l.In[0])
	if err != nil {
		return nil, err
	}
	var all several
	from := 0
	for i := range l.Out {
		y, err := floats(&l.Out[i])
		if err != nil {
			return nil, err
		}
		all = append(all, &copies{x, y, from, y.cols})
		from += y.cols
	}
	return all, nil
}

// bindView copies a tensor with gaps into a dense one of another shape.
func bindView(_ *Device, l *backends.Launch) (runner, error) {
	x, err := floats(&l.In[0])
	if err != nil {
		return nil, err
	}
	o := l.Out[0] // the same elements in x's shape
	if !o.Dense() {
		return nil, fmt.Errorf("a copy into a tensor with gaps")
	}
	o.Shape = l.In[0].Shape
	o.Stride = o.Type.RowBytes(o.RowElems())
	y, err := floats(&o)
	return &copies{x, y, 0, x.cols}, err
}
