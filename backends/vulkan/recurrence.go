//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Recurrences: slots.comp plans which slots of the state a step reads and writes, then channels or heads go through
// the step's rows.

// slotScratch is room for the plan: two words a row.
func slotScratch(_ *Device, n *graph.Node) int { return 8 * n.In[1].Shape[0] }

// recurrence plans a step and starts the dispatch of a shader behind the plan, with the state and the plan bound. pos
// is the number of the operand of positions.
func (b *bind) recurrence(shader string, pos int) (c *dispatch, stateoff, planoff uint32, err error) {
	l := b.l
	state := &l.In[0]
	if state.Type != tensor.F32 || !state.Dense() {
		return nil, 0, 0, fmt.Errorf("a dense state of f32 is wanted, not %s with stride %d", state.Type, state.Stride)
	}
	p := b.call("slots")
	so := b.operand(p, state, true) / 4
	po := b.ints(p, &l.In[pos])
	slot, slotoff := ops.SlotOperand(l.Node), uint32(0)
	if slot >= 0 {
		slotoff = b.ints(p, &l.In[slot])
	} else {
		b.none(p)
	}
	to := b.bytes(p, l.Scratch.Buffer, l.Scratch.Offset, slotScratch(b.d, l.Node), true) / 4
	b.status(p)
	p.spec = []uint32{64, flag(slot >= 0)}
	p.push = []uint32{uint32(l.In[pos].Shape.Elems()), uint32(state.Shape[0]), uint32(state.Shape[1]), so, po, slotoff, to,
		uint32(b.number)}
	b.run(p, 1, 1)
	c = b.call(shader)
	stateoff = b.operand(c, state, true) / 4
	planoff = b.bytes(c, l.Scratch.Buffer, l.Scratch.Offset, slotScratch(b.d, l.Node), false) / 4
	return c, stateoff, planoff, nil
}

// overRows is how many workgroups stand beside each other over the rows of a step, where so many do over its channels:
// as many as keep a device busy. To begin one costs a processor more than its rows.
func (b *bind) overRows(across int) int {
	enough := 2048
	if b.d.p.Kind == Software {
		enough = 2 * across
	}
	return max(1, min(b.l.In[1].Shape[0], enough/across))
}

// sequences is overRows where each workgroup takes whole sequences.
func (b *bind) sequences(across int) int {
	if ops.SlotOperand(b.l.Node) < 0 {
		return 1
	}
	return b.overRows(across)
}

func bindShortConv(b *bind) error {
	l := b.l
	c, stateoff, planoff, err := b.recurrence("short_conv", 3)
	if err != nil {
		return err
	}
	x := b.floats(c, &l.In[1], false)
	woff, wtype := b.vector(c, &l.In[2])
	boff, btype := b.vector(c, at(l.In, 4))
	y := b.floats(c, &l.Out[1], true)
	channels, k := l.In[2].Shape[0], l.In[2].Shape[1]
	c.spec = []uint32{64, wtype, btype}
	c.push = []uint32{uint32(l.In[1].Shape[0]), uint32(channels), uint32(k), uint32(l.In[0].Shape[1]), stateoff, planoff,
		x.off, x.stride, woff, boff, y.off, y.stride}
	across := (channels + 63) / 64
	b.run(c, across, b.overRows(across))
	return nil
}

// bindChannels binds scan and wkv.
func bindChannels(b *bind) error {
	l := b.l
	wkv, pos := l.Node.Op == ops.WKV, 3
	x, second := &l.In[2], &l.In[1]
	var decay, bonus *backends.Operand
	if wkv {
		x, second, decay, bonus, pos = &l.In[1], &l.In[2], &l.In[3], &l.In[4], 5
	}
	c, stateoff, planoff, err := b.recurrence("recur", pos)
	if err != nil {
		return err
	}
	vx, va := b.floats(c, x, false), b.floats(c, second, false)
	woff, wtype := b.vector(c, decay)
	boff, btype := b.vector(c, bonus)
	y := b.floats(c, &l.Out[1], true)
	channels := x.Shape[1]
	c.spec = []uint32{64, flag(wkv), wtype, btype}
	c.push = []uint32{uint32(x.Shape[0]), uint32(channels), uint32(l.In[0].Shape[1]), stateoff, planoff,
		vx.off, vx.stride, va.off, va.stride, woff, boff, y.off, y.stride}
	across := (channels + 63) / 64
	b.run(c, across, b.sequences(across))
	return nil
}

// Of heads.glsl: how many elements of a state an invocation keeps in registers at most (ELEMS), the invocations of a
// workgroup, and of one that has many rows, of which it brings so many to shared memory at once at most (CHUNK).
const mostHeld, headsSize, headsWide, headsChunk = 16, 64, 128, 16

// stateLanes is how many invocations share n elements of a state, and whether they can keep them in registers.
func (d *Device) stateLanes(n int) (lanes int, held bool) {
	for lanes = 1; lanes < 8 && 2*lanes <= n; lanes *= 2 {
	}
	for lanes < headsSize && lanes*mostHeld < n {
		lanes *= 2
	}
	most := 8 // what subgroups have at least, whatever a driver makes of their size
	if d.has.sizes {
		most = d.p.MinSubgroup
	}
	most = min(most, d.p.MinSubgroup, headsSize)
	if d.p.shuffle && (n+mostHeld-1)/mostHeld <= most {
		return min(lanes, most), true
	}
	return 8, false
}

// chunk is how many rows a workgroup of size invocations brings to shared memory at once, each with so many vectors of
// n elements and so many floats a line beside.
func (b *bind) chunk(size, n, lanes, vectors, beside int) int {
	wide := (n + 4*lanes - 1) / (4 * lanes) * lanes * 16
	row := vectors*wide + 4*size + 4*beside*size/lanes + 24
	chunk := 1
	for chunk < headsChunk && chunk < b.l.In[1].Shape[0] && 2*chunk*row+8 <= min(b.d.p.Shared, 32<<10) {
		chunk *= 2
	}
	return chunk
}

// heads is recurrence for rows or columns of n elements of heads' states; many: each element has a decay of its own.
// Rows bring so many vectors of n elements, and so many floats beside of each row or column.
func (b *bind) heads(shader string, n int, many bool, pos, vectors, beside int) (c *dispatch, stateoff, planoff uint32,
	err error) {
	lanes, held := b.d.stateLanes(n)
	if !held {
		shader += "_long"
	}
	if c, stateoff, planoff, err = b.recurrence(shader, pos); err != nil {
		return nil, 0, 0, err
	}
	size := headsSize
	if held && b.l.In[1].Shape[0] > 1 {
		size = headsWide
	}
	if many {
		vectors++
	}
	c.spec = []uint32{uint32(size), uint32(n), uint32(lanes), flag(many), 0, 0,
		uint32(b.chunk(size, n, lanes, vectors, beside)), 0}
	return c, stateoff, planoff, nil
}

// runHeads starts what heads has begun, over units that share what rows bring, of so many rows or columns each. The
// operands of vectors of n elements can be read 16 bytes at a time, or not.
func (b *bind) runHeads(c *dispatch, units, lines int, vectors ...rows) {
	whole := c.spec[1]%4 == 0
	for _, v := range vectors {
		whole = whole && v.off%4 == 0 && v.stride%4 == 0
	}
	c.spec[7] = flag(whole)
	per := int(c.spec[0] / c.spec[2])
	across := units * ((lines + per - 1) / per)
	b.run(c, across, b.sequences(across))
}

func bindSSM(b *bind) error {
	l := b.l
	heads, p, m, n := l.In[1].Shape[1], l.In[1].Shape[2], l.In[3].Shape[1], l.In[4].Shape[2]
	c, stateoff, planoff, err := b.heads("ssm", n, m > 1, 6, 2, 2)
	if err != nil {
		return err
	}
	x, dt := b.floats(c, &l.In[1], false), b.floats(c, &l.In[2], false)
	aoff, atype := b.vector(c, &l.In[3])
	into, out := b.floats(c, &l.In[4], false), b.floats(c, &l.In[5], false)
	y := b.floats(c, &l.Out[1], true)
	c.spec[4] = atype
	c.push = []uint32{uint32(l.In[1].Shape[0]), uint32(heads), uint32(p), uint32(heads / l.In[4].Shape[1]),
		uint32(l.In[0].Shape[1]), stateoff, planoff, x.off, x.stride, dt.off, dt.stride,
		aoff, into.off, into.stride, out.off, out.stride, y.off, y.stride}
	groups := l.In[4].Shape[1]
	b.runHeads(c, groups, heads/groups*p, into, out)
	return nil
}

func bindDelta(b *bind) error {
	heads, dv := b.l.In[3].Shape[1], b.l.In[3].Shape[2]
	c, vectors, err := b.columns("delta", 6, 2, 1, 2, 3, 4, 5)
	if err != nil {
		return err
	}
	b.runHeads(c, heads, dv, vectors...)
	return nil
}

func bindDPLR(b *bind) error {
	heads, dv := b.l.In[3].Shape[1], b.l.In[3].Shape[2]
	rank := ops.DPLRRank(b.l.Node)
	last, beside := []int{6, 7}, 4
	if !rank {
		last, beside = []int{0, 0}, 2
	}
	c, vectors, err := b.columns("dplr", 5, beside, 1, 2, 3, 4, last[0], last[1])
	if err != nil {
		return err
	}
	c.spec[4], c.spec[5] = flag(rank), flag(graph.Attr[ops.DPLRAttr](b.l.Node).Before)
	b.runHeads(c, heads, dv, vectors...)
	return nil
}

// columns begins delta or dplr, with the operands of these numbers bound, 0 for one that is not there, and the result.
// So many of them are vectors of a head's elements, which it gives.
func (b *bind) columns(shader string, pos, count int, operands ...int) (c *dispatch, vectors []rows, err error) {
	l := b.l
	heads, dk, dv, dg := l.In[2].Shape[1], l.In[2].Shape[2], l.In[3].Shape[2], l.In[4].Shape[2]
	c, stateoff, planoff, err := b.heads(shader, dk, dg > 1, pos, count, 2)
	if err != nil {
		return nil, nil, err
	}
	c.push = []uint32{uint32(l.In[2].Shape[0]), uint32(heads), uint32(dv), uint32(l.In[0].Shape[1]), stateoff, planoff}
	for _, i := range operands {
		if i == 0 {
			b.none(c)
			c.push = append(c.push, 0, 0)
			continue
		}
		v := b.floats(c, &l.In[i], false)
		c.push = append(c.push, v.off, v.stride)
		if i != 3 && i != 4 && len(l.In[i].Shape) == 3 {
			vectors = append(vectors, v)
		}
	}
	y := b.floats(c, &l.Out[1], true)
	c.push = append(c.push, y.off, y.stride)
	return c, vectors, nil
}
