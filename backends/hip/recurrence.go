package hip

import (
	"fmt"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Recurrences: a launch plans which slots of the state a step reads and writes, then channels or heads go through the
// step's rows.

var recurrenceFile = newProgram("recurrence.hip")

// Of slots.h and heads.hip.
const (
	recurrenceThreads = 64 // NT
	rowLanes          = 8  // ROW_LANES
	columnLanes       = 4  // COLUMN_LANES
	mostStateRegs     = 32 // that a thread keeps of a state
)

// headsFile goes through rows or columns of n elements of heads' states, by so many lanes each.
func headsFile(n, lanes int) program {
	regs := ceil(n, lanes)
	if regs > mostStateRegs {
		regs = 0
	}
	return newProgram("heads.hip", define("REGS", regs), onOff("EVEN", n%lanes == 0))
}

func init() {
	const why = "slots are planned, then a thread keeps a channel's or a part of a head's state"
	for name, bind := range map[string]func(*binder){"short_conv": bindShortConv, "scan": bindScan, "wkv": bindWKV,
		"ssm": bindSSM, "delta": bindDelta, "dplr": bindDPLR} {
		e := checked(only("recurrence", why, bind, 2, 3, 4), checkState)
		e.scratch = func(_ *Device, n *graph.Node) int { return 8 * n.In[1].Shape[0] }
		table[name] = e
	}
}

func checkState(n *graph.Node) error {
	if t := n.In[0].Type; t != tensor.F32 {
		return fmt.Errorf("a state of %s; f32 is wanted", t)
	}
	return nil
}

// recurrence plans a step and starts the function of the operator, with the state, the plan and the result passed: n
// threads, and the number of the operand of positions.
func (b *binder) recurrence(file program, n, pos int) *dispatch {
	state, plan := b.dense(b.in(0)), b.scratch()
	rows, shape := b.in(pos).Shape.Elems(), b.in(0).Shape
	var slot uintptr
	if i := ops.SlotOperand(b.l.Node); i >= 0 {
		slot = b.dense(b.in(i))
	}
	b.status(b.start(recurrenceFile, "slots", recurrenceThreads, 1, 1, 1).
		ptr(state, b.dense(b.in(pos)), slot, plan).u32(rows, shape[0], shape[1]))
	d := b.start(file, b.l.Node.Op.Name, recurrenceThreads, ceil(n, recurrenceThreads), 1, 1).ptr(state)
	d.args.add(uint64(plan), uint64(uint32(rows))) // struct Plan
	return d.ptr(b.out(1))
}

// step passes an operand of the step and how far its rows are apart.
func (b *binder) step(d *dispatch, i int) {
	o := b.in(i)
	if o.Type != tensor.F32 {
		b.failf("operand %d of f32 is wanted, not %s", i, o.Type)
	}
	d.ptr(b.pointer(o)).u32(o.Stride / 4)
}

// weight passes a weight of any plain float and its type's number.
func (b *binder) weight(d *dispatch, i int) {
	at, typ := b.plain(b.in(i))
	d.ptr(at).u32(typ)
}

func bindShortConv(b *binder) {
	channels, k := b.in(2).Shape[0], b.in(2).Shape[1]
	d := b.recurrence(recurrenceFile, channels, 3)
	b.step(d, 1)
	b.weight(d, 2)
	b.weight(d, 4)
	d.u32(channels, k, b.in(0).Shape[1])
}

func bindScan(b *binder) {
	channels := b.in(2).Shape[1]
	d := b.recurrence(recurrenceFile, channels, 3)
	b.step(d, 1)
	b.step(d, 2)
	d.u32(channels, b.in(0).Shape[1])
}

func bindWKV(b *binder) {
	channels := b.in(1).Shape[1]
	d := b.recurrence(recurrenceFile, channels, 5)
	b.step(d, 1)
	b.step(d, 2)
	b.weight(d, 3)
	b.weight(d, 4)
	d.u32(channels, b.in(0).Shape[1])
}

func bindSSM(b *binder) {
	heads, p, m := b.in(1).Shape[1], b.in(1).Shape[2], b.in(3).Shape[1]
	groups, n := b.in(4).Shape[1], b.in(4).Shape[2]
	d := b.recurrence(headsFile(n, rowLanes), rowLanes*heads*p, 6)
	b.step(d, 1)
	b.step(d, 2)
	b.weight(d, 3)
	b.step(d, 4)
	b.step(d, 5)
	d.u32(heads, p, n, m, heads/groups, b.in(0).Shape[1])
}

func bindDelta(b *binder) {
	heads, dk, dv, dg := b.in(2).Shape[1], b.in(2).Shape[2], b.in(3).Shape[2], b.in(4).Shape[2]
	d := b.recurrence(headsFile(dk, columnLanes), columnLanes*8*ceil(heads*dv, 8), 6)
	for i := 1; i <= 5; i++ {
		b.step(d, i)
	}
	d.u32(heads, dk, dv, dg, b.in(0).Shape[1])
}

func bindDPLR(b *binder) {
	heads, dk, dv, dg := b.in(2).Shape[1], b.in(2).Shape[2], b.in(3).Shape[2], b.in(4).Shape[2]
	d := b.recurrence(headsFile(dk, columnLanes), columnLanes*8*ceil(heads*dv, 8), 5)
	for i := 1; i <= 4; i++ {
		b.step(d, i)
	}
	if ops.DPLRRank(b.l.Node) {
		b.step(d, 6)
		b.step(d, 7)
	} else {
		d.ptr(0).u32(0).ptr(0).u32(0)
	}
	d.u32(heads, dk, dv, dg, flagged(graph.Attr[ops.DPLRAttr](b.l.Node).Before), b.in(0).Shape[1])
}
