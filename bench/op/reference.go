package op

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/floats"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// reference computes a case's results in float64, on all cores. Products do not
// decode their weights whole, other operators are computed by ops' own
// references, row by row where their rows do not depend on each other.
func (c *Case) reference(ctx context.Context, data [][]byte) ([]tensor.Tensor, error) {
	n := c.Node
	switch n.Op {
	case ops.Linear, ops.LinearBias, ops.LinearResidual, ops.LinearID:
		y, err := products(ctx, n, data)
		return []tensor.Tensor{y}, err
	}
	in, out := make([]tensor.Tensor, len(n.In)), make([]tensor.Tensor, len(n.Out))
	for i, v := range n.In {
		if v == nil {
			continue
		}
		var err error
		if n.Op == ops.Embed && v.Name == "w" {
			in[i] = tensor.Tensor{Type: v.Type, Shape: v.Shape, Data: data[i]}
			continue
		}
		if in[i], err = optest.Decode(v.Type, v.Shape, data[i]); err != nil {
			return nil, err
		}
	}
	for i, v := range n.Out {
		out[i] = tensor.New(tensor.F64, v.Shape...)
		if v.Type == tensor.I32 {
			out[i] = tensor.New(tensor.I32, v.Shape...)
		}
	}
	if n.Op.Kind == graph.Update {
		out[0] = in[0]
	}
	switch {
	case n.Op == ops.Embed:
		return out, lookUp(n, in, out[0])
	case n.Op == ops.Attention && len(n.In) <= 5: // a span's rows are the step's own
		return out, byRows(ctx, n, in, out, []int{0, 3})
	case n.Op.RowWise && n.Op.Kind == graph.Compute:
		return out, byRows(ctx, n, in, out, leading(n))
	}
	return out, n.Reference(ops.Table, in, out)
}

// leading are the operands whose first dimension is that of the results' rows.
func leading(n *graph.Node) []int {
	rows := n.Out[0].Shape
	var all []int
	for i, v := range n.In {
		if v == nil || len(v.Shape) < 2 && v.Type != tensor.I32 || v.Kind == graph.Weight || len(rows) == 0 ||
			v.Shape[0] != rows[0] {
			continue
		}
		if (n.Op == ops.Add || n.Op == ops.Mul) && len(v.Shape) != len(rows) {
			continue // its rows are shared by those of the other operand
		}
		all = append(all, i)
	}
	return all
}

// byRows runs a node's reference on ranges of the rows of some operands, which
// are those of the results.
func byRows(ctx context.Context, n *graph.Node, in, out []tensor.Tensor, split []int) error {
	rows := 0
	if len(n.Out[0].Shape) > 1 && len(split) > 0 {
		rows = n.Out[0].Shape[0]
	}
	if rows < 2 {
		return n.Reference(ops.Table, in, out)
	}
	return parallel(ctx, rows, max(1, rows/(4*runtime.GOMAXPROCS(0))), func(from, to int) error {
		part := *n
		part.In, part.Out = slices.Clone(n.In), slices.Clone(n.Out)
		pin, pout := slices.Clone(in), slices.Clone(out)
		cut := func(v **graph.Value, t *tensor.Tensor) {
			w := **v
			w.Shape = slices.Clone(w.Shape)
			w.Shape[0] = to - from
			size := len(t.Data) / (*v).Shape[0]
			*t = tensor.Tensor{Type: t.Type, Shape: w.Shape, Data: t.Data[from*size : to*size]}
			*v = &w
		}
		for _, i := range split {
			cut(&part.In[i], &pin[i])
		}
		for i := range part.Out {
			cut(&part.Out[i], &pout[i])
		}
		return part.Reference(ops.Table, pin, pout)
	})
}

// lookUp is embed, decoding only the rows that are looked up.
func lookUp(n *graph.Node, in []tensor.Tensor, y tensor.Tensor) error {
	w := n.In[1]
	row := w.Type.RowBytes(w.Shape[1])
	for s, id := range in[0].I32() {
		if id < 0 || int(id) >= w.Shape[0] {
			return fmt.Errorf("%s: id %d of %d", n, id, w.Shape[0])
		}
		if err := quant.DecodeF64(w.Type, y.F64()[s*w.Shape[1]:(s+1)*w.Shape[1]],
			in[1].Data[int(id)*row:(int(id)+1)*row]); err != nil {
			return err
		}
	}
	return nil
}

// products is y[r] = w[expert of r] x[r] (+ b) (+ residual) in float64: rows of w
// are decoded a few at a time, and met by all rows of x while they are in the cache.
func products(ctx context.Context, n *graph.Node, data [][]byte) (tensor.Tensor, error) {
	y := tensor.New(tensor.F64, n.Out[0].Shape...)
	xt, err := optest.Decode(n.In[0].Type, n.In[0].Shape, data[0])
	if err != nil {
		return y, err
	}
	w := n.In[1]
	k := w.Shape.Last()
	rows := w.Shape[len(w.Shape)-2] // of one matrix
	pairs, err := pairsOf(n, data)
	if err != nil {
		return y, err
	}
	var bias []float64
	if v := operand(n, "b"); v != nil {
		i := slices.Index(n.In, v)
		t, err := optest.Decode(v.Type, v.Shape, data[i])
		if err != nil {
			return y, err
		}
		bias = t.F64()
	}
	if v := operand(n, "r"); v != nil {
		t, err := optest.Decode(v.Type, v.Shape, data[slices.Index(n.In, v)])
		if err != nil {
			return y, err
		}
		copy(y.F64(), t.F64())
	}
	const block = 16 // rows of w at a time
	blocks := (rows + block - 1) / block
	x, out, rowBytes := xt.F64(), y.F64(), w.Type.RowBytes(k)
	return y, parallel(ctx, blocks*len(pairs), 1, func(from, to int) error {
		buf := make([]float64, block*k)
		for b := from; b < to; b++ {
			expert, first := b/blocks, b%blocks*block
			count := min(block, rows-first)
			if len(pairs[expert]) == 0 {
				continue
			}
			at := (expert*rows + first) * rowBytes
			if err := quant.DecodeF64(w.Type, buf[:count*k], data[1][at:at+count*rowBytes]); err != nil {
				return err
			}
			for _, p := range pairs[expert] {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				xr, yr := x[p.x*k:(p.x+1)*k], out[p.y*rows:(p.y+1)*rows]
				for j := range count {
					v := floats.Dot(buf[j*k:(j+1)*k], xr)
					if bias != nil {
						v += bias[expert*rows+first+j]
					}
					yr[first+j] += v
				}
			}
		}
		return nil
	})
}

// pair says which row of x gives which row of y.
type pair struct{ x, y int }

// pairsOf lists, for each matrix, what it multiplies.
func pairsOf(n *graph.Node, data [][]byte) ([][]pair, error) {
	if n.Op != ops.LinearID {
		all := make([]pair, n.In[0].Shape.Rows())
		for r := range all {
			all[r] = pair{r, r}
		}
		return [][]pair{all}, nil
	}
	e := n.In[2]
	each, a := e.Shape[1], n.In[0].Shape[1]
	all := make([][]pair, n.In[1].Shape[0])
	for i, id := range tensor.View[int32](data[2]) {
		if id < 0 || int(id) >= len(all) {
			return nil, fmt.Errorf("%s: expert %d of %d", n, id, len(all))
		}
		from := i / each
		if a == each {
			from = i
		}
		all[id] = append(all[id], pair{from, i})
	}
	return all, nil
}

// parallel runs f over ranges of [0, n) on all cores until one fails.
func parallel(ctx context.Context, n, chunk int, f func(from, to int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, runtime.GOMAXPROCS(0))
	for w := range errs {
		wg.Go(func() {
			for {
				from := int(next.Add(int64(chunk))) - chunk
				if from >= n || ctx.Err() != nil {
					return
				}
				if errs[w] = f(from, min(n, from+chunk)); errs[w] != nil {
					next.Store(int64(n))
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
