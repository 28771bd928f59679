package cpu

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Operators that models use on small tensors: plain loops, shared among workers where there are many rows.

// eachRow runs do for each of n rows that cost about cost elements each.
type eachRow struct {
	n, per int
	do     func(i int) error
	failed []error // by chunk
}

func newEachRow(n, cost int, do func(i int) error) *eachRow {
	r := &eachRow{n: n, do: do}
	_, r.per = chunksOf(n, max(1, elementChunk/4/max(1, cost)))
	r.failed = make([]error, (n+max(r.per, 1)-1)/max(r.per, 1))
	return r
}

func (r *eachRow) run(p *pool.Pool) error {
	if r.n == 0 {
		return nil
	}
	clear(r.failed)
	p.Run(r, len(r.failed))
	for _, err := range r.failed {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *eachRow) Do(_, chunk int) {
	for i := chunk * r.per; i < min((chunk+1)*r.per, r.n); i++ {
		if err := r.do(i); err != nil {
			r.failed[chunk] = err
			return
		}
	}
}

// values sees an operand as dense float32: activations where they lie, weights converted once.
func values(d *Device, o *backends.Operand) ([]float32, error) {
	if o.Buffer != nil && o.Type == tensor.F32 && !o.Dense() {
		return nil, fmt.Errorf("an operand with gaps between its rows")
	}
	return vector(d, o)
}

// rowsOrWeight sees an operand as rows of float32; weights of other types are converted once.
func rowsOrWeight(d *Device, o *backends.Operand) (rows, error) {
	if o.Type == tensor.F32 {
		return floats(o)
	}
	v, err := vector(d, o)
	cols := max(o.Shape.Last(), 1)
	inner := 1
	if len(o.Shape) > 1 {
		inner = tensor.Shape(o.Shape[1 : len(o.Shape)-1]).Elems()
	}
	return rows{data: v, n: len(v) / cols, cols: cols, inner: inner, stride: inner * cols}, err
}

// bindFunction binds an operator of single elements by its function in float64.
func bindFunction(d *Device, l *backends.Launch) (runner, error) {
	f := ops.UnaryFunc(l.Node)
	a, xielu := l.Node.Attr.(*ops.XIELUAttr)
	if f == nil && !xielu {
		return nil, fmt.Errorf("%s is not elementwise", l.Node.Op.Name)
	}
	loop := func(z, x, _ []float32) {
		for i, v := range x {
			z[i] = float32(f(float64(v)))
		}
	}
	if xielu {
		var err error
		if loop, err = xieluLoop(d, l, *a); err != nil {
			return nil, err
		}
	}
	switch a := l.Node.Attr.(type) {
	case *ops.AffineAttr:
		by, plus := float32(a.By), float32(a.Plus)
		loop = func(z, x, _ []float32) {
			for i, v := range x {
				z[i] = by*v + plus
			}
		}
	case *ops.ClampAttr:
		low, high := float32(a.Low), float32(a.High)
		loop = func(z, x, _ []float32) {
			for i, v := range x {
				z[i] = min(max(v, low), high)
			}
		}
	}
	switch l.Node.Op {
	case ops.ReLU:
		loop = func(z, x, _ []float32) {
			for i, v := range x {
				z[i] = max(v, 0)
			}
		}
	case ops.ReLU2:
		loop = func(z, x, _ []float32) {
			for i, v := range x {
				v = max(v, 0)
				z[i] = v * v
			}
		}
	}
	x := l.In[0]
	if x.Type != tensor.F32 {
		return bindConverted(d, l, loop)
	}
	return newElementwise(&x, nil, &l.Out[0], loop)
}

// xieluLoop gives the loop of xIELU, whose numbers are operands.
func xieluLoop(d *Device, l *backends.Launch, given ops.XIELUAttr) (func(z, x, _ []float32), error) {
	var of [4][]float32 // p, n, beta, eps
	for i := range min(len(of), len(l.In)-1) {
		var err error
		if of[i], err = values(d, &l.In[1+i]); err != nil {
			return nil, err
		}
	}
	return func(z, x, _ []float32) {
		a := given
		if of[2] != nil {
			a.Beta = float64(of[2][0])
		}
		if of[3] != nil {
			a.Eps = float64(of[3][0])
		}
		f := ops.XIELUFunc(&a, float64(of[0][0]), float64(of[1][0]))
		for i, v := range x {
			z[i] = float32(f(float64(v)))
		}
	}, nil
}

// bindConverted is an elementwise operator on a weight of another type than f32.
func bindConverted(d *Device, l *backends.Launch, loop func(z, x, _ []float32)) (runner, error) {
	x, err := rowsOrWeight(d, &l.In[0])
	if err != nil {
		return nil, err
	}
	z, err := floats(&l.Out[0])
	if err != nil {
		return nil, err
	}
	return newEachRow(z.n, z.cols, func(i int) error {
		loop(z.row(i), x.row(i), nil)
		return nil
	}), nil
}

// bindPair binds an operator of two tensors of which one may be spread over the other.
func bindPair(d *Device, l *backends.Launch) (runner, error) {
	if ops.PlainBinary(l.Node) && (l.Node.Op == ops.Add || l.Node.Op == ops.Mul) && l.In[0].Type == tensor.F32 {
		return bindAddMul(d, l)
	}
	x, err := rowsOrWeight(d, &l.In[0])
	if err != nil {
		return nil, err
	}
	y, err := rowsOrWeight(d, &l.In[1])
	if err != nil {
		return nil, err
	}
	z, err := floats(&l.Out[0])
	if err != nil {
		return nil, err
	}
	lead := func(s tensor.Shape) tensor.Shape {
		if len(s) == 0 {
			return tensor.Shape{}
		}
		return s[:len(s)-1]
	}
	zs := lead(l.Out[0].Shape)
	ix, iy := ops.NewIndexer(lead(l.In[0].Shape), zs), ops.NewIndexer(lead(l.In[1].Shape), zs)
	f := pairLoop(l.Node.Op)
	stepX, stepY := min(x.cols-1, 1), min(y.cols-1, 1)
	return newEachRow(z.n, z.cols, func(i int) error {
		f(z.row(i), x.row(ix.At(i)), y.row(iy.At(i)), stepX, stepY)
		return nil
	}), nil
}

// pairLoop gives the loop of an operator of two rows; a step of 0 stays at a row's only element.
func pairLoop(op *graph.Op) func(z, x, y []float32, stepX, stepY int) {
	switch op {
	case ops.Add:
		return func(z, x, y []float32, sx, sy int) {
			for i := range z {
				z[i] = x[i*sx] + y[i*sy]
			}
		}
	case ops.Mul:
		return func(z, x, y []float32, sx, sy int) {
			for i := range z {
				z[i] = x[i*sx] * y[i*sy]
			}
		}
	case ops.Sub:
		return func(z, x, y []float32, sx, sy int) {
			for i := range z {
				z[i] = x[i*sx] - y[i*sy]
			}
		}
	}
	f := ops.BinaryFunc(op)
	return func(z, x, y []float32, sx, sy int) {
		for i := range z {
			z[i] = float32(f(float64(x[i*sx]), float64(y[i*sy])))
		}
	}
}

// bindConcat, bindSlice and bindExpand copy parts of rows.
func bindConcat(d *Device, l *backends.Launch) (runner, error) {
	y, err := values(d, &l.Out[0])
	if err != nil {
		return nil, err
	}
	axis := backends.Axis(graph.Attr[ops.ConcatAttr](l.Node).Axis, l.Out[0].Shape)
	row := l.Out[0].Shape[axis:].Elems()
	type part struct {
		x       *gapped
		at, len int
	}
	var parts []part
	at := 0
	for i := range l.In {
		if l.In[i].Buffer == nil {
			continue
		}
		x, err := gaps(d, &l.In[i])
		if err != nil {
			return nil, err
		}
		n := l.In[i].Shape[axis:].Elems()
		parts = append(parts, part{x, at, n})
		at += n
	}
	return newEachRow(len(y)/max(row, 1), row, func(r int) error {
		for _, p := range parts {
			p.x.copy(y[r*row+p.at:][:p.len], r*p.len)
		}
		return nil
	}), nil
}

func bindSlice(d *Device, l *backends.Launch) (runner, error) {
	a := graph.Attr[ops.SliceAttr](l.Node)
	axis := backends.Axis(a.Axis, l.In[0].Shape)
	x, err := gaps(d, &l.In[0])
	if err != nil {
		return nil, err
	}
	y, err := values(d, &l.Out[0])
	if err != nil {
		return nil, err
	}
	row, part := l.In[0].Shape[axis:].Elems(), l.Out[0].Shape[axis:].Elems()
	from := a.From * l.In[0].Shape[axis+1:].Elems()
	return newEachRow(len(y)/max(part, 1), part, func(r int) error {
		x.copy(y[r*part:(r+1)*part], r*row+from)
		return nil
	}), nil
}

func bindExpand(d *Device, l *backends.Launch) (runner, error) {
	a := graph.Attr[ops.ExpandAttr](l.Node)
	x, y, err := inOut(l)
	if err != nil {
		return nil, err
	}
	g := l.In[0].Shape[1]
	return newEachRow(y.n, y.cols, func(i int) error {
		copy(y.row(i), x.row(a.Source(i, g)))
		return nil
	}), nil
}

// gapped gives elements of a tensor whose rows may have gaps, by their place without these.
type gapped struct {
	data        []float32
	row, stride int // elements of dimension 0, and how far they are apart
}

func gaps(d *Device, o *backends.Operand) (*gapped, error) {
	if o.Type != tensor.F32 || o.Dense() {
		v, err := values(d, o)
		return &gapped{v, max(len(v), 1), max(len(v), 1)}, err
	}
	b, err := operandBytes(o)
	return &gapped{tensor.View[float32](b), o.RowElems(), o.Stride / 4}, err
}

// copy copies elements from place at on, which lie in one row.
func (p *gapped) copy(dst []float32, at int) {
	for len(dst) > 0 {
		n := min(p.row-at%p.row, len(dst))
		copy(dst[:n], p.data[at/p.row*p.stride+at%p.row:])
		dst, at = dst[n:], at+n
	}
}

func bindGatherRow(_ *Device, l *backends.Launch) (runner, error) {
	x, y, err := inOut(l)
	if err != nil {
		return nil, err
	}
	e, err := ints(&l.In[1])
	if err != nil {
		return nil, err
	}
	return newEachRow(y.n, y.cols, func(i int) error {
		from, to := x.row(i), y.row(i)
		for j := range to {
			at := e[i*y.cols+j]
			if at < 0 || int(at) >= len(from) {
				return fmt.Errorf("index %d of row %d is %d, a row has %d", j, i, at, len(from))
			}
			to[j] = from[at]
		}
		return nil
	}), nil
}

// bindReduce binds sums, means and maxima of rows, and running sums.
func bindReduce(_ *Device, l *backends.Launch) (runner, error) {
	x, y, err := inOut(l)
	if err != nil {
		return nil, err
	}
	op := l.Node.Op
	return newEachRow(x.n, x.cols, func(i int) error {
		from, to := x.row(i), y.row(i)
		s, top := 0.0, from[0]
		for j, v := range from {
			s += float64(v)
			top = max(top, v)
			if op == ops.Cumsum {
				to[j] = float32(s)
			}
		}
		switch op {
		case ops.Sum:
			to[0] = float32(s)
		case ops.Mean:
			to[0] = float32(s / float64(len(from)))
		case ops.Largest:
			to[0] = top
		}
		return nil
	}), nil
}

// bindSinkhorn binds a matrix a row of the step, by turns its columns and its rows divided by their sums.
func bindSinkhorn(_ *Device, l *backends.Launch) (runner, error) {
	x, y, err := inOut(l)
	if err != nil {
		return nil, err
	}
	a, size := graph.Attr[ops.SinkhornAttr](l.Node), l.In[0].Shape[2]
	return newEachRow(l.In[0].Shape[0], 4*a.Iters*size*size, func(s int) error {
		for i := range size {
			copy(y.row(s*size+i), x.row(s*size+i))
		}
		for turn := range 2*a.Iters - 1 {
			for line := range size {
				sum := a.Eps
				for i := range size {
					sum += float64(*lineOf(&y, s*size, line, i, turn%2 == 0))
				}
				for i := range size {
					e := lineOf(&y, s*size, line, i, turn%2 == 0)
					*e = float32(float64(*e) / sum)
				}
			}
		}
		return nil
	}), nil
}

// lineOf is element i of a column, or of a row, of the matrix whose first row is that of number first.
func lineOf(y *rows, first, line, i int, column bool) *float32 {
	if column {
		line, i = i, line
	}
	return &y.row(first + line)[i]
}

func bindShift(_ *Device, l *backends.Launch) (runner, error) {
	x, err := ints(&l.In[0])
	if err != nil {
		return nil, err
	}
	y, err := ints(&l.Out[0])
	by := int32(graph.Attr[ops.ShiftAttr](l.Node).By)
	return newEachRow(len(x), 1, func(i int) error {
		y[i] = x[i] + by
		return nil
	}), err
}

func bindReal(_ *Device, l *backends.Launch) (runner, error) {
	x, err := ints(&l.In[0])
	if err != nil {
		return nil, err
	}
	y, err := floats(&l.Out[0])
	return newEachRow(len(x), 1, func(i int) error {
		y.row(i)[0] = float32(x[i])
		return nil
	}), err
}

// bindPerHead binds a matrix for each head.
func bindPerHead(d *Device, l *backends.Launch) (runner, error) {
	x, y, err := inOut(l)
	if err != nil {
		return nil, err
	}
	w, err := rowsOrWeight(d, &l.In[1])
	if err != nil {
		return nil, err
	}
	var b []float32
	if len(l.In) > 2 {
		if b, err = values(d, &l.In[2]); err != nil {
			return nil, err
		}
	}
	heads, n := l.In[1].Shape[0], l.In[1].Shape[1]
	return newEachRow(y.n, n*x.cols, func(i int) error {
		from, to, h := x.row(i), y.row(i), i%heads
		for j := range to {
			to[j] = d.k.Dot(w.row(h*n+j), from)
			if b != nil {
				to[j] += b[h*n+j]
			}
		}
		return nil
	}), nil
}

// bindPool binds means of ranges of rows.
func bindPool(_ *Device, l *backends.Launch) (runner, error) {
	x, err := floats(&l.In[0])
	if err != nil {
		return nil, err
	}
	at, err := ints(&l.In[1])
	if err != nil {
		return nil, err
	}
	y, err := floats(&l.Out[0])
	if err != nil {
		return nil, err
	}
	rows, d := l.In[0].Shape[0], l.In[0].Shape[1]
	return newEachRow(l.Out[0].Shape[0], rows*d, func(r int) error {
		from, to := at[2*r], at[2*r+1]
		if err := ops.CheckRange(r, from, to, rows); err != nil {
			return err
		}
		result := y.span(r, 1)
		copy(result, x.span(int(from), 1))
		for i := from + 1; i < to; i++ {
			for c, v := range x.span(int(i), 1) {
				result[c] += v
			}
		}
		if n := float32(to - from); n > 1 {
			for c := range result {
				result[c] /= n
			}
		}
		return nil
	}), nil
}
