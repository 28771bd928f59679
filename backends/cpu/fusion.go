package cpu

import (
	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/pool"
)

// maker is a step whose result is made row by row, such as a norm.
type maker interface {
	runner
	made() *rows
	// make computes row i into y: a row of the result, or other memory.
	make(i int, y []float32)
}

// making is a maker's step that brings its rows to the form that the products behind it
// take, while they are in the first-level cache: a region and a pass over memory less. Rows that
// nothing else reads are not stored.
type making struct {
	from    maker
	to      *roundX
	keep    bool
	scratch [][]float32 // of a worker: rows that are brought to the form together
}

func newMaking(d *Device, from maker, to *roundX, keep bool) *making {
	m := &making{from: from, to: to, keep: keep, scratch: make([][]float32, d.pool.Size())}
	for i := range m.scratch {
		m.scratch[i] = d.workerScratch(i, m.together()*to.x.cols)
	}
	return m
}

// together is how many rows are made before they are brought to the form.
func (m *making) together() int {
	if m.to.form.group > 0 {
		return 1
	}
	return m.to.together()
}

func (m *making) run(p *pool.Pool) error {
	m.to.d.rounded.now = m.to
	p.Run(m, m.to.parts())
	return nil
}

func (m *making) Do(worker, part int) {
	to, cols, memory, y := m.to, m.to.x.cols, m.scratch[worker], m.from.made()
	first := part * to.together()
	for i := first; i < min(first+to.together(), to.x.n); i++ {
		at := (i - first) % m.together() * cols
		row := memory[at : at+cols]
		m.from.make(i, row)
		if m.keep {
			copy(y.row(i), row)
		}
		if to.form.group > 0 {
			to.d.k.Quantise(&to.q, i, row)
		}
	}
	if to.form.group == 0 {
		to.put(part, memory, cols)
	}
}

// fuse gives the steps of a program with those that make rounded activations in the place of
// those that make activations.
func fuse(d *Device, steps []runner, launches []backends.Launch) {
	for j, s := range steps {
		x := roundingOf(s)
		if x == nil || x.of != nil || x.x.n == 0 || x.form.parts > 0 {
			continue
		}
		in := &launches[j].In[0]
		i := j - 1
		for i >= 0 && !launches[i].Writes(in) && roundingOf(steps[i]) == nil {
			i--
		}
		if i < 0 || len(launches[i].Out) == 0 {
			continue
		}
		out := &launches[i].Out[len(launches[i].Out)-1]
		if !sameMemory(out, in) {
			continue
		}
		keep := !backends.ReadOnlyBy(launches, i, out, func(k, n int) bool {
			r := roundingOf(steps[k])
			return n == 0 && r != nil && r.first() == x
		})
		switch from := steps[i].(type) {
		case maker:
			if y := from.made(); y.n == x.x.n && y.cols == x.x.cols {
				steps[i], x.made = newMaking(d, from, x, keep), true
			}
		case *prefillAttention:
			if to := from.rounding(x, keep); to != nil {
				steps[i], x.made = to, true
			}
		}
	}
}

// roundingOf gives the region that brings a step's activations to another form, nil where there is none.
func roundingOf(s runner) *roundX {
	switch t := s.(type) {
	case *linear:
		switch g := t.mul.(type) {
		case *rounding:
			return g.x
		case *unit:
			return g.x
		case *halves:
			return g.x
		case *tiles:
			return g.x
		}
	case *linearID:
		return t.q
	}
	return nil
}

var (
	_ maker = (*norm)(nil)
	_ maker = (*elementwise)(nil)
)
