package cpu

// Mat-vecs as a sequence: a token is some hundred of them, which read all weights once, and
// memory rests between two unless something is done about it.

import (
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/internal/pool"
)

// sequence orders the steps of a program as they are best run: mat-vecs joined where nothing
// forbids it, and each told of the next. A step that another one does becomes nil.
func sequence(d *Device, steps []runner, launches []backends.Launch) []runner {
	if d.pool.Size() == 1 {
		return steps
	}
	all := join(steps, launches, d.pool.Size())
	var next *pool.Ahead
	for _, s := range slices.Backward(all) {
		switch t := s.(type) {
		case *linear:
			t.next = next
			if m, c := t.single(); m != nil {
				t.redo = redoable(d, t, t)
				next = newOpening(d.k, m, c, d.pool.Size())
			}
		case *joined:
			t.next = next
			t.redo = redoable(d, t, t.parts...)
			m, c := t.parts[0].single()
			next = newOpening(d.k, m, c, d.pool.Size())
		}
	}
	return all
}

// single gives the weights of a mat-vec over panels and their chunks, nil for other products.
func (t *linear) single() (*simd.Panels, cuts) {
	switch g := t.mul.(type) {
	case *plain:
		if t.x.n == 1 {
			return g.m, g.cuts
		}
	case *rounding:
		if t.x.n == 1 {
			return g.m, g.cuts
		}
	}
	return nil, nil
}

// redoable gives a task of mat-vecs as one whose chunks can be computed twice, with the memory
// that this takes. Go's own kernels are not: a result that is dropped may come from activations
// that another step was writing, which Go forbids.
func redoable(d *Device, task pool.Redo, parts ...*linear) *pool.Redo {
	if d.k.Name == "go" {
		return nil
	}
	for _, t := range parts {
		_, c := t.single()
		most := 0
		for i := range c.chunks() {
			p0, p1 := c.of(i)
			most = max(most, p1-p0)
		}
		t.results = make([][]float32, d.pool.Size())
		for i := range t.results {
			t.results[i] = cut(d, i, []int{simd.TailFloats, most * simd.PanelRows})[1]
		}
	}
	return &task
}

// Compute computes a chunk of a mat-vec into the worker's memory.
func (t *linear) Compute(worker, chunk int) {
	m, c := t.single()
	p0, p1 := c.of(chunk)
	if p0 == p1 {
		return
	}
	part := m.Part(p0, p1)
	switch g := t.mul.(type) {
	case *plain:
		g.k.MatVecPanels(t.results[worker], &part, 0, p1-p0, t.x.row(0), g.tail[worker])
	case *rounding:
		row := g.x.q.Row(0)
		g.k.MulPanels(t.results[worker], nil, part.Rows, &part, 0, p1-p0, &row, 0, 1, g.tail[worker])
	}
}

// Commit puts the worker's results where they belong, and adds what is added to them.
func (t *linear) Commit(worker, chunk int) {
	m, c := t.single()
	p0, p1 := c.of(chunk)
	r0, r1 := panelRows(m, p0, p1)
	if r0 >= r1 {
		return
	}
	y := t.y.row(0)[r0:r1]
	copy(y, t.results[worker])
	t.add(0, r0, r1)
}

// aheadBytes is how much of its share of the next mat-vec's weights a worker reads while it
// waits: some ten microseconds' worth, and no more than a second-level cache has room for.
const aheadBytes = 256 << 10

// opening is what each worker reads first in a mat-vec: the beginning of its range of chunks.
type opening struct {
	k     *simd.Kernels
	parts [][]byte
}

func newOpening(k *simd.Kernels, m *simd.Panels, c cuts, threads int) *pool.Ahead {
	size, o := m.PanelSize(), &opening{k: k, parts: make([][]byte, threads)}
	for i := range threads {
		from, end := int(c[i*c.chunks()/threads])*size, int(c[(i+1)*c.chunks()/threads])*size
		o.parts[i] = m.Data[from:min(end, from+aheadBytes)]
	}
	var a pool.Ahead = o
	return &a
}

func (o *opening) Step(worker, step int) bool {
	const bytes = 4 << 10
	part := o.parts[worker]
	from, to := step*bytes, min((step+1)*bytes, len(part))
	if from < to {
		o.k.Read(part[from:to], 1)
	}
	return to < len(part)
}

// joined is several mat-vecs with the same activations, such as those of Q, K and V, as one
// region: at the end of a region memory rests until all threads have met, and then until the
// next one's first weights come.
type joined struct {
	parts   []*linear
	from    []int // chunks of a thread's share before each part, and of all of them
	next    *pool.Ahead
	redo    *pool.Redo // may be nil
	threads int
}

// joinReach is how many launches ahead a mat-vec is looked for.
const joinReach = 6

// join puts a joined in the place of the first of its parts, and nil in those of the others. All
// parts round their activations or none does: between a step that rounds what it makes and the
// products that take that, no other may come that rounds (see fuse).
func join(all []runner, launches []backends.Launch, threads int) []runner {
	for i := range all {
		parts := single(all[i])
		if parts == nil {
			continue
		}
		for j := i + 1; j < min(i+joinReach, len(all)); j++ {
			more := single(all[j])
			if more != nil && (roundingOf(parts[0]) == nil) == (roundingOf(more[0]) == nil) &&
				sameMemory(&launches[i].In[0], &launches[j].In[0]) && movable(launches[i:j], &launches[j]) {
				parts, all[j] = append(parts, more...), nil
			}
		}
		if len(parts) > 1 {
			all[i] = newJoined(parts, threads)
		}
	}
	return all
}

// single gives a step that is a mat-vec over panels, nil for others.
func single(s runner) []*linear {
	if t, ok := s.(*linear); ok {
		if m, _ := t.single(); m != nil && t.y.cols > 0 {
			return []*linear{t}
		}
	}
	return nil
}

func newJoined(parts []*linear, threads int) *joined {
	g := &joined{parts: parts, from: []int{0}, threads: threads}
	for _, t := range parts {
		g.from = append(g.from, g.from[len(g.from)-1]+t.mul.chunks()/threads)
	}
	return g
}

func sameMemory(a, b *backends.Operand) bool {
	return a.Buffer == b.Buffer && a.Offset == b.Offset && a.Extent() == b.Extent()
}

// movable says whether a launch may run before others: they write nothing that it reads or
// writes, and read nothing that it writes.
func movable(others []backends.Launch, l *backends.Launch) bool {
	for i := range others {
		if l.Conflicts(&others[i]) {
			return false
		}
	}
	return true
}

func (g *joined) run(p *pool.Pool) error {
	for _, t := range g.parts {
		t.mul.prepare(p)
	}
	chunks := g.threads * g.from[len(g.parts)]
	if g.redo != nil {
		p.RunRedo(g.redo, chunks, g.next)
	} else {
		p.RunAhead(g, chunks, g.next)
	}
	return nil
}

// part gives a chunk's mat-vec, and which of its chunks it is. A thread's range has its share
// of each part, one after another.
func (g *joined) part(chunk int) (*linear, int) {
	per := g.from[len(g.parts)]
	thread, at := chunk/per, chunk%per
	i := 0
	for at >= g.from[i+1] {
		i++
	}
	return g.parts[i], thread*(g.from[i+1]-g.from[i]) + at - g.from[i]
}

func (g *joined) Do(worker, chunk int) {
	t, c := g.part(chunk)
	t.Do(worker, c)
}

func (g *joined) Compute(worker, chunk int) {
	t, c := g.part(chunk)
	t.Compute(worker, c)
}

func (g *joined) Commit(worker, chunk int) {
	t, c := g.part(chunk)
	t.Commit(worker, c)
}
