package simd

import "unsafe"

// widePanels is how many panels a call takes at most; see callElements.
const widePanels = 16

// mulWide is MulPanels with wide kernels; there are columns.
func (k *Kernels) mulWide(y, r []float32, ldy int, m *Panels, p0, p1 int, x *Quants, t0, t1 int, tail []float32) {
	mul, blocks, size := k.w.of(m.Type), blocksOf(m.Cols), PanelBytes(m.Type, m.Cols)
	full := min(p1, m.Rows/PanelRows)
	for t := t0; t < t1; t++ {
		j, xp := t*x.Group, ptr(x.tile(t))
		rows := min(x.Group, x.N-j)
		shape := rows | blocks<<8 | size/64<<36
		whole := full // panels whose products are stored as they come
		if rows < x.Group {
			whole = p0
		}
		for p := p0; p < whole; p += widePanels {
			var add unsafe.Pointer
			if r != nil {
				add = ptr(r[j*ldy+p*PanelRows:])
			}
			mul(ptr(m.Data[p*size:]), xp, ptr(y[j*ldy+p*PanelRows:]), add, ldy, shape|min(widePanels, whole-p)<<28)
		}
		for p := whole; p < p1; p++ {
			mul(ptr(m.Data[p*size:]), xp, ptr(tail[:TailFloats]), nil, PanelRows, shape|1<<28)
			n0, n1 := p*PanelRows, min((p+1)*PanelRows, m.Rows)
			for c := range rows {
				copy(y[(j+c)*ldy+n0:(j+c)*ldy+n1], tail[c*PanelRows:])
			}
			if r != nil {
				k.addRows(y, r, ldy, j, j+rows, n0, n1)
			}
		}
	}
}

// addRows computes y[j, n] += r[j, n] for rows j0 … j1-1 and columns n0 … n1-1 of both.
func (k *Kernels) addRows(y, r []float32, ld, j0, j1, n0, n1 int) {
	for j := j0; j < j1; j++ {
		part := y[j*ld+n0 : j*ld+n1]
		k.Add(part, part, r[j*ld+n0:j*ld+n1])
	}
}
