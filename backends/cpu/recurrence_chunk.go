package cpu

import (
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

const (
	// chunkTokens are the tokens of a chunk: the more, the more they have with each other, and the less with the state.
	chunkTokens = 64
	// chunkFrom is from how many rows of one sequence on products gain more than laying out their operands costs.
	chunkFrom = 16
)

// chunked is the chunked form of recurrences whose heads hold a matrix h [dk, dv] and have one decay each: ssm (SSD,
// Dao and Gu, arXiv 2405.21060) and delta (the WY form, Yang et al., arXiv 2412.06464). With D[t,i] the decays of the
// tokens i+1 … t of a chunk of n, D[t] those of all up to t, and h the state before it:
//
//	r[t] = D[t] k[t]ᵀh + Σ(i<t) D[t,i] (k[t]ᵀk[i]) u[i]
//	y[t] = D[t] q[t]ᵀh + Σ(i≤t) D[t,i] (q[t]ᵀk[i]) u[i]
//	h    = D[n] h + Σ(i≤n) D[n,i] k[i] u[i]ᵀ
//
// where u are ssm's values times dt, and delta's beta (v - r): r has r before it, the rest are products of matrices.
//
// Each D is a decay times the D before it: nothing is divided, and no logarithms are subtracted, so that decays of 0
// and of 1 are as exact as in steps.
type chunked struct {
	d             *Device
	share, dk, dv int // share: heads of a group of queries and keys
	q, key, v, y  rows
	decay, gain   func(token, head int) float32 // gain is what values are times
	delta         bool
	turned        bool // states are [dv, dk], and heads of a group follow each other in run
	work          []chunkWork
}

// chunkWork is one worker's memory, for C = chunkTokens.
type chunkWork struct {
	keys       []float32 // [C, dk]: times the decays behind them
	lower, all []float32 // [C, C], [C]: D[t,i] and D[t]
	qk, kk     []float32 // [C, C]: products of queries and keys of a group
	m          []float32 // [C, C]: what stands before u in y, or in r
	u, r       []float32 // [C, dv]
	xq, xk, x  []float32 // panels of NR: queries, keys, others
	wk, wc, wu []float32 // panels of MR: keys by tokens, by columns, and u
	wh         []float32 // panels of MR: the state
	group      int       // whose queries and keys are in xq, xk, wk, wc, qk and kk; -1: nobody's
}

// chunks says whether a node's rows may go by chunks.
func chunks(d *Device, n *graph.Node) bool {
	decays := 3 // ssm's a
	if n.Op.Name == "delta" {
		decays = 4
	}
	return n.In[1].Shape[0] >= chunkFrom && !d.invariant && n.In[decays].Shape.Last() == 1
}

// whyChunks is the reason of ssm and delta.
func whyChunks(d *Device, n *graph.Node) string {
	switch {
	case chunks(d, n):
		return "many rows, one decay a head: chunks of a sequence's rows by products of matrices, few rows by steps"
	case d.invariant:
		return "invariant: token by token, as in decode"
	}
	return byToken(d, n)
}

// ready gives the workers their memory; y is the result.
func (c *chunked) ready(y rows) *chunked {
	c.y, c.work = y, make([]chunkWork, c.d.pool.Size())
	const n = chunkTokens
	k := c.d.k
	up := func(n, to int) int { return (n + to - 1) / to * to }
	mr, nr := k.TileWidth(), k.PanelRows()
	nx := up(n, nr)
	for i := range c.work {
		w := &c.work[i]
		parts := cut(c.d, i, []int{n * c.dk, n * n, n, n * n, n * n, n * n, n * c.dv, n * c.dv, nx * c.dk, nx * c.dk,
			max(nr*n, k.PackedLen(max(c.dk, c.dv), n)), up(n, mr) * c.dk, up(c.dk, mr) * n, up(c.dv, mr) * n,
			up(c.dv, mr) * c.dk})
		for j, p := range []*[]float32{&w.keys, &w.lower, &w.all, &w.qk, &w.kk, &w.m, &w.u, &w.r, &w.xq, &w.xk, &w.x, &w.wk,
			&w.wc, &w.wu, &w.wh} {
			*p = parts[j]
		}
	}
	return c
}

// takes says whether tokens [from, to) of a sequence go by chunks. A nil c takes none.
func (c *chunked) takes(from, to int) bool { return c != nil && to-from >= chunkFrom }

// run takes heads [h0, h1) with their states through tokens [from, to).
func (c *chunked) run(worker, h0, h1, from, to int, state []float32) {
	w := &c.work[worker]
	for ; from < to; from += chunkTokens {
		n := min(chunkTokens, to-from)
		w.group = -1
		for h := h0; h < h1; h++ {
			if g := h / c.share; g != w.group {
				c.pair(w, g, from, n)
			}
			c.head(w, h, from, n, state[(h-h0)*c.dk*c.dv:][:c.dk*c.dv])
		}
	}
}

// matrixOf sees floats as a matrix.
func matrixOf(data []float32, rows, cols, ld int) simd.Matrix {
	return simd.Matrix{Type: tensor.F32, Rows: rows, Cols: cols, Stride: 4 * ld, Data: tensor.Bytes(data)}
}

// of sees row i of dimension 1 of n tokens as a matrix.
func of(r *rows, i, from, n int) simd.Matrix {
	return matrixOf(r.data[from*r.stride+i*r.cols:], n, r.cols, r.stride)
}

// pack lays the first n rows of m into panels of width rows.
func (c *chunked) pack(dst []float32, m simd.Matrix, n, width int) {
	for i := 0; i < n; i += width {
		c.d.k.PackTile(dst[i*m.Cols:], m, i, min(width, n-i), width)
	}
}

// pair multiplies the queries and the keys of group g of a chunk with its keys.
func (c *chunked) pair(w *chunkWork, g, from, n int) {
	k, key := c.d.k, of(&c.key, g, from, n)
	w.group = g
	c.pack(w.xq, of(&c.q, g, from, n), n, k.PanelRows())
	c.pack(w.wk, key, n, k.TileWidth())
	c.causal(w.qk, w.wk, w.xq, n)
	if c.delta {
		c.pack(w.xk, key, n, k.PanelRows())
		c.causal(w.kk, w.wk, w.xk, n)
	}
	if c.turned {
		k.PackColumns(w.wc, c.key.data[from*c.key.stride+g*c.dk:], c.key.stride, n, c.dk)
	}
}

// causal computes y[t,i] of tokens t in the panels x and i in w, for i ≤ t and some more.
func (c *chunked) causal(y, w, x []float32, n int) {
	k := c.d.k
	nr := k.PanelRows()
	for t := 0; t < n; t += nr {
		k.MulTiles(y[t*chunkTokens:], chunkTokens, min(n, t+nr), w, c.dk*k.TileWidth(), x[t*c.dk:], c.dk*nr, min(nr, n-t),
			c.dk, false)
	}
}

// head takes head h with its state through a chunk.
func (c *chunked) head(w *chunkWork, h, from, n int, state []float32) {
	k, dk, dv, ldy := c.d.k, c.dk, c.dv, c.y.stride
	mr, nr := k.TileWidth(), k.PanelRows()
	c.decays(w, h, from, n)
	if c.turned {
		c.pack(w.wh, matrixOf(state, dv, dk, dk), dv, mr)
	} else {
		k.PackColumns(w.wh, state, dv, dk, dv)
	}
	c.values(w, h, from, n)
	k.PackColumns(w.wu, w.u, dv, n, dv)
	y := c.y.data[from*ldy+h*dv:]
	k.MulTiles(y, ldy, dv, w.wh, dk*mr, w.xq, dk*nr, n, dk, false)
	for t := range n {
		row := y[t*ldy:][:dv]
		k.Scale(row, w.all[t], row)
		k.Mul(w.m[t*chunkTokens:][:t+1], w.qk[t*chunkTokens:][:t+1], w.lower[t*chunkTokens:][:t+1])
		clear(w.m[t*chunkTokens+t+1:][:n-t-1])
	}
	for t := 0; t < n; t += nr {
		rows, cols := min(nr, n-t), min(n, t+nr)
		k.PackTile(w.x, matrixOf(w.m[t*chunkTokens:], rows, cols, chunkTokens), 0, rows, nr)
		k.MulTiles(y[t*ldy:], ldy, dv, w.wu, n*mr, w.x, cols*nr, rows, cols, true)
	}
	k.Scale(state, w.all[n-1], state)
	behind := w.lower[(n-1)*chunkTokens:][:n]
	if c.turned { // the decays are in u, so that heads of a group share their keys
		for i, f := range behind {
			row := w.u[i*dv:][:dv]
			k.Scale(row, f, row)
		}
		k.SpreadRows(w.x, matrixOf(w.u, n, dv, dv), 0, n)
		k.MulTiles(state, dk, dk, w.wc, n*mr, w.x, n*nr, dv, n, true)
		return
	}
	for i, f := range behind {
		k.Scale(w.keys[i*dk:][:dk], f, at(&c.key, from+i, h/c.share))
	}
	k.SpreadRows(w.x, matrixOf(w.keys, n, dk, dk), 0, n)
	k.MulTiles(state, dv, dv, w.wu, n*mr, w.x, n*nr, dk, n, true)
}

// at gives row i of dimension 1 of an operand's token.
func at(r *rows, token, i int) []float32 { return r.row(token*r.inner + i) }

// nothing is what is left of a token when its decays are taken for 0: subnormal numbers are slow on some processors.
const nothing = 1e-30

// decays fills lower and all of a chunk.
func (c *chunked) decays(w *chunkWork, h, from, n int) {
	all, gone := float32(1), 0
	for t := range n {
		d := c.decay(from+t, h)
		row := w.lower[t*chunkTokens:][:t+1]
		if t > 0 {
			c.d.k.Scale(row[:t], d, w.lower[(t-1)*chunkTokens:][:t])
		}
		row[t] = 1
		for ; gone < t && row[gone] < nothing; gone++ {
			row[gone] = 0
		}
		if all *= d; all < nothing {
			all = 0
		}
		w.all[t] = all
	}
}

// values computes u of a chunk, of delta from the state in wh.
func (c *chunked) values(w *chunkWork, h, from, n int) {
	k, dk, dv := c.d.k, c.dk, c.dv
	if c.delta {
		k.MulTiles(w.r, dv, dv, w.wh, dk*k.TileWidth(), w.xk, dk*k.PanelRows(), n, dk, false)
	}
	u := matrixOf(w.u, n, dv, dv)
	for t := range n {
		gain, row, v := c.gain(from+t, h), w.u[t*dv:][:dv], at(&c.v, from+t, h)
		if !c.delta {
			k.Scale(row, gain, v)
			continue
		}
		r, m := w.r[t*dv:][:dv], w.m[:t]
		k.Scale(r, w.all[t], r)
		k.Mul(m, w.kk[t*chunkTokens:][:t], w.lower[t*chunkTokens:][:t])
		k.WeightedSum(r, u, 0, m)
		k.Scale(row, -gain, r)
		k.Axpy(row, gain, v)
	}
}
