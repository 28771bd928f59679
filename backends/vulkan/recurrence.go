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

// Of heads.glsl: how many elements of a state an invocation keeps in registers at most (ELEMS), and the invocations of
// a workgroup.
const mostHeld, headsSize = 16, 64

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

// heads is recurrence for rows or columns of n elements of heads' states; many: each element has a decay of its own.
func (b *bind) heads(shader string, n int, many bool, pos int) (c *dispatch, stateoff, planoff uint32, err error) {
	lanes, held := b.d.stateLanes(n)
	if !held {
		shader += "_long"
	}
	if c, stateoff, planoff, err = b.recurrence(shader, pos); err != nil {
		return nil, 0, 0, err
	}
	c.spec = []uint32{headsSize, uint32(n), uint32(lanes), flag(many)}
	return c, stateoff, planoff, nil
}

// runHeads starts what heads has begun.
func (b *bind) runHeads(c *dispatch, count int) {
	across := (count*int(c.spec[2]) + headsSize - 1) / headsSize
	b.run(c, across, b.sequences(across))
}

func bindSSM(b *bind) error {
	l := b.l
	heads, p, m, n := l.In[1].Shape[1], l.In[1].Shape[2], l.In[3].Shape[1], l.In[4].Shape[2]
	c, stateoff, planoff, err := b.heads("ssm", n, m > 1, 6)
	if err != nil {
		return err
	}
	x, dt := b.floats(c, &l.In[1], false), b.floats(c, &l.In[2], false)
	aoff, atype := b.vector(c, &l.In[3])
	into, out := b.floats(c, &l.In[4], false), b.floats(c, &l.In[5], false)
	y := b.floats(c, &l.Out[1], true)
	c.spec = append(c.spec, atype)
	c.push = []uint32{uint32(l.In[1].Shape[0]), uint32(heads), uint32(p), uint32(heads / l.In[4].Shape[1]),
		uint32(l.In[0].Shape[1]), stateoff, planoff, x.off, x.stride, dt.off, dt.stride,
		aoff, into.off, into.stride, out.off, out.stride, y.off, y.stride}
	b.runHeads(c, heads*p)
	return nil
}

func bindDelta(b *bind) error {
	heads, dv := b.l.In[3].Shape[1], b.l.In[3].Shape[2]
	c, err := b.columns("delta", 6, 1, 2, 3, 4, 5)
	if err != nil {
		return err
	}
	b.runHeads(c, heads*dv)
	return nil
}

func bindDPLR(b *bind) error {
	heads, dv := b.l.In[3].Shape[1], b.l.In[3].Shape[2]
	rank := ops.DPLRRank(b.l.Node)
	last := []int{6, 7}
	if !rank {
		last = []int{0, 0}
	}
	c, err := b.columns("dplr", 5, 1, 2, 3, 4, last[0], last[1])
	if err != nil {
		return err
	}
	c.spec = append(c.spec, flag(rank), flag(graph.Attr[ops.DPLRAttr](b.l.Node).Before))
	b.runHeads(c, heads*dv)
	return nil
}

// columns begins delta or dplr, with the operands of these numbers bound, 0 for one that is not there, and the result.
func (b *bind) columns(shader string, pos int, operands ...int) (*dispatch, error) {
	l := b.l
	heads, dk, dv, dg := l.In[2].Shape[1], l.In[2].Shape[2], l.In[3].Shape[2], l.In[4].Shape[2]
	c, stateoff, planoff, err := b.heads(shader, dk, dg > 1, pos)
	if err != nil {
		return nil, err
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
	}
	y := b.floats(c, &l.Out[1], true)
	c.push = append(c.push, y.off, y.stride)
	return c, nil
}
