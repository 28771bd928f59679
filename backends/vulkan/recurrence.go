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

// bindChannels binds short_conv, scan and wkv.
func bindChannels(b *bind) error {
	l := b.l
	op, pos := uint32(0), 3
	x, second := &l.In[1], (*backends.Operand)(nil)
	var w, bias *backends.Operand
	k := 0
	switch l.Node.Op {
	case ops.ShortConv:
		w, bias, k = &l.In[2], at(l.In, 4), l.In[2].Shape[1]
	case ops.Scan:
		op, second, x = 1, &l.In[1], &l.In[2]
	case ops.WKV:
		op, second, w, bias, pos = 2, &l.In[2], &l.In[3], &l.In[4], 5
	}
	c, stateoff, planoff, err := b.recurrence("recur", pos)
	if err != nil {
		return err
	}
	vx, va := b.floats(c, x, false), rows{}
	if second != nil {
		va = b.floats(c, second, false)
	} else {
		b.none(c)
	}
	woff, wtype := b.vector(c, w)
	boff, btype := b.vector(c, bias)
	vy := b.floats(c, &l.Out[1], true)
	channels := x.Shape[1]
	c.spec = []uint32{64, op, wtype, btype}
	c.push = []uint32{uint32(x.Shape[0]), uint32(channels), uint32(k), uint32(l.In[0].Shape[1]), stateoff, planoff,
		vx.off, vx.stride, va.off, va.stride, woff, boff, vy.off, vy.stride}
	b.run(c, (channels+63)/64, 1)
	return nil
}

func bindSSM(b *bind) error {
	l := b.l
	c, stateoff, planoff, err := b.recurrence("ssm", 6)
	if err != nil {
		return err
	}
	x, dt := b.floats(c, &l.In[1], false), b.floats(c, &l.In[2], false)
	aoff, atype := b.vector(c, &l.In[3])
	into, out := b.floats(c, &l.In[4], false), b.floats(c, &l.In[5], false)
	y := b.floats(c, &l.Out[1], true)
	heads, p, n := l.In[1].Shape[1], l.In[1].Shape[2], l.In[4].Shape[2]
	c.spec = []uint32{64, atype}
	c.push = []uint32{uint32(l.In[1].Shape[0]), uint32(heads), uint32(p), uint32(n), uint32(l.In[3].Shape[1]),
		uint32(heads / l.In[4].Shape[1]), uint32(l.In[0].Shape[1]), stateoff, planoff, x.off, x.stride, dt.off, dt.stride,
		aoff, into.off, into.stride, out.off, out.stride, y.off, y.stride}
	b.run(c, (heads*p+7)/8, 1)
	return nil
}

func bindDelta(b *bind) error {
	l := b.l
	c, stateoff, planoff, err := b.recurrence("delta", 6)
	if err != nil {
		return err
	}
	heads, dk, dv, dg := l.In[2].Shape[1], l.In[2].Shape[2], l.In[3].Shape[2], l.In[4].Shape[2]
	c.spec = []uint32{64}
	c.push = []uint32{uint32(l.In[2].Shape[0]), uint32(heads), uint32(dk), uint32(dv), uint32(dg),
		uint32(l.In[0].Shape[1]), stateoff, planoff}
	for i := 1; i <= 5; i++ {
		v := b.floats(c, &l.In[i], false)
		c.push = append(c.push, v.off, v.stride)
	}
	y := b.floats(c, &l.Out[1], true)
	c.push = append(c.push, y.off, y.stride)
	b.run(c, (heads*dv+63)/64, 1)
	return nil
}

func bindDPLR(b *bind) error {
	l := b.l
	c, stateoff, planoff, err := b.recurrence("dplr", 5)
	if err != nil {
		return err
	}
	heads, dk, dv, dg := l.In[2].Shape[1], l.In[2].Shape[2], l.In[3].Shape[2], l.In[4].Shape[2]
	rank := ops.DPLRRank(l.Node)
	c.spec = []uint32{64, flag(rank), flag(graph.Attr[ops.DPLRAttr](l.Node).Before)}
	c.push = []uint32{uint32(l.In[2].Shape[0]), uint32(heads), uint32(dk), uint32(dv), uint32(dg),
		uint32(l.In[0].Shape[1]), stateoff, planoff}
	for _, i := range []int{1, 2, 3, 4, 6, 7} {
		if i > 4 && !rank {
			b.none(c)
			c.push = append(c.push, 0, 0)
			continue
		}
		v := b.floats(c, &l.In[i], false)
		c.push = append(c.push, v.off, v.stride)
	}
	y := b.floats(c, &l.Out[1], true)
	if y.stride != uint32(heads*dv) {
		return fmt.Errorf("a result with gaps")
	}
	c.push = append(c.push, y.off)
	b.run(c, (heads*dv+63)/64, 1)
	return nil
}
