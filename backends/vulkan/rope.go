//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
	"github.com/greta-project/greta/weights/quant"
)

// table is a constant that launches share, such as the frequencies of rope.
type table struct{ buffer *buffer }

// constant gives device memory that holds data, the same for equal data.
func (d *Device) constant(data []byte) (*buffer, error) {
	if t := d.tables[string(data)]; t != nil {
		return t.buffer, nil
	}
	buf, err := d.newBuffer(len(data), d.types.local, "constants")
	if err != nil {
		return nil, err
	}
	s := &stream{d}
	if err := s.Write(buf, 0, data); err != nil {
		buf.release()
		return nil, err
	}
	d.tables[string(data)] = &table{buf}
	return buf, nil
}

// turns gives frequencies, in radians per position, as fractions of a turn in
// 64 bits: whole turns do not count.
func turns(freqs []float64) []uint64 {
	out := make([]uint64, len(freqs))
	for i, f := range freqs {
		_, part := math.Modf(f / (2 * math.Pi))
		if part < 0 {
			part++
		}
		hi := math.Floor(part * (1 << 32))
		lo := math.Floor((part*(1<<32) - hi) * (1 << 32))
		out[i] = uint64(hi)<<32 | uint64(lo)
	}
	return out
}

// frequencies is the table of a node that rotates heads of dh elements, divided by factors that are weights.
func (b *bind) frequencies(dh int, factors *backends.Operand) (*buffer, int, float64, error) {
	freqs, scale := ops.RopeFrequencies(graph.Attr[ops.RoPEAttr](b.l.Node), dh)
	if factors != nil && factors.Buffer != nil {
		if factors.Shape.Elems() != len(freqs) || !factors.Dense() {
			return nil, 0, 0, fmt.Errorf("%v frequency factors for %d pairs", factors.Shape, len(freqs))
		}
	}
	switch {
	case factors.Changes():
		for i, f := range freqs { // whole turns are left out of the table, and would be missing from quotients
			if f >= 2*math.Pi {
				return nil, 0, 0, fmt.Errorf("pair %d turns once a position: no factors that a step computes can divide that", i)
			}
		}
	case factors != nil && factors.Buffer != nil:
		raw := make([]byte, factors.Type.RowBytes(len(freqs)))
		s := &stream{b.d}
		if err := s.Read(factors.Buffer, factors.Offset, raw); err != nil {
			return nil, 0, 0, err
		}
		by := make([]float64, len(freqs))
		if err := quant.DecodeF64(factors.Type, by, raw); err != nil {
			return nil, 0, 0, err
		}
		freqs = append([]float64(nil), freqs...)
		for i := range freqs {
			freqs[i] /= by[i]
		}
	}
	buf, err := b.d.constant(tensor.Bytes(turns(freqs)))
	return buf, len(freqs), scale, err
}

func bindRoPE(b *bind) error {
	return b.store(&b.l.In[0], &b.l.In[1], &b.l.Out[0], at(b.l.In, 2), true, false)
}

func bindPush(b *bind) error {
	return b.store(&b.l.In[1], &b.l.In[2], &b.l.In[0], nil, false, true)
}

func bindRoPEPush(b *bind) error {
	return b.store(&b.l.In[1], &b.l.In[2], &b.l.In[0], at(b.l.In, 3), true, true)
}

// store runs rope.comp, or rope_rows.comp for many tokens: x [S, H, Dh] to y, a cache where rows go to positions.
func (b *bind) store(x, pos, y, factors *backends.Operand, rotate, cache bool) error {
	dh := x.Shape[2]
	size := cacheUnit(y.Type)
	if y.Offset%size != 0 || y.Stride%size != 0 {
		return fmt.Errorf("offset %d and stride %d are not multiples of %s's %d bytes", y.Offset, y.Stride, y.Type, size)
	}
	c := b.call("rope")
	vx := b.floats(c, x, false)
	posoff := b.ints(c, pos)
	pairs, scale, pair, divided := 0, 1.0, false, rotate && factors.Changes()
	if rotate {
		table, n, m, err := b.frequencies(dh, factors)
		if err != nil {
			return err
		}
		b.bytes(c, table, 0, table.size, false)
		pairs, scale, pair = n, m, graph.Attr[ops.RoPEAttr](b.l.Node).Layout == "pair"
	} else {
		b.none(c)
	}
	yoff := b.operand(c, y, true) / uint32(size)
	b.status(c)
	if !divided {
		factors = nil
	}
	lacks := b.lacking()
	limit := 0
	if cache {
		limit = y.Shape[0]
	}
	if b.d.storesRows(x, y) && !divided && (!rotate || !pair && 2*pairs == dh) {
		c.shader = "rope_rows"
		b.lacked(c, lacks)
		part := dh / 4 // invocations of a head
		c.spec = []uint32{uint32(part * min(x.Shape[1], 256/part)), flag(rotate), flag(cache), typeCodes[y.Type],
			flag(lacks.sums != nil)}
		c.push = []uint32{uint32(x.Rows()), uint32(x.Shape[1]), uint32(dh), vx.off, vx.stride, posoff,
			yoff, uint32(y.Stride / size), uint32(limit), bits(scale), uint32(b.number), uint32(lacks.first),
			uint32(lacks.count)}
		b.run(c, x.Rows(), 1)
		return nil
	}
	n := x.RowElems()
	by, kind := b.vector(c, factors)
	if divided && kind != typeCodes[tensor.F32] {
		return fmt.Errorf("factors of %s that a step computes", factors.Type)
	}
	c.spec = []uint32{64, flag(rotate), flag(pair), flag(cache), typeCodes[y.Type], flag(divided)}
	c.push = []uint32{uint32(x.Rows()), uint32(x.Shape[1]), uint32(dh), uint32(pairs), vx.off, vx.stride, posoff,
		yoff, uint32(y.Stride / size), uint32(limit), bits(scale), uint32(b.number), by}
	b.run(c, groups((n+1)/2, 64), x.Rows())
	return nil
}

// storesRows says whether rope_rows.comp stores x in y, two elements at a time, where it need not be rotated.
func (d *Device) storesRows(x, y *backends.Operand) bool {
	dh := x.Shape.Last()
	_, size := y.Type.Block()
	return !isCoded(y.Type) && d.rows(x.Rows()) > fewTokens && dh%4 == 0 && dh <= 256 && x.Offset%8 == 0 &&
		x.Stride%8 == 0 && y.Offset%(2*size) == 0 && y.Stride%(2*size) == 0
}
