package hip

import (
	"fmt"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Recurrences: a launch plans which slots of the state a step reads and writes, then channels or heads go through the
// step's rows.

var recurrenceFile = newProgram("recurrence.hip")

// Of slots.h, heads.hip and rows.hip.
const (
	recurrenceThreads = 64  // NT
	rowsThreads       = 128 // THREADS
	rowLanes          = 8   // ROW_LANES
	columnLanes       = 4   // COLUMN_LANES
	mostStateRegs     = 32  // that a thread keeps of a state
	mostStateLanes    = 32  // that share a row or a column of many rows
	mostRowsAhead     = 16  // rows of a step in shared memory at once, and their bytes
	mostRowsBytes     = 32 << 10
)

// headsFile takes rows or columns of n elements of heads' states through one row of a step, by so many lanes each.
func headsFile(n, lanes int, flags ...string) program {
	regs := ceil(n, lanes)
	if regs > mostStateRegs {
		regs = 0
	}
	return newProgram("heads.hip", append(flags, define("REGS", regs), onOff("EVEN", n%lanes == 0))...)
}

// rowsFile takes them through many rows, each of which brings so many vectors of n elements, with how many of them a
// block has. There is none for n that are too long to be kept in registers.
func rowsFile(n, lanes, vectors int, flags ...string) (file program, lines int) {
	for lanes > 1 && 2*lanes >= n {
		lanes /= 2
	}
	for lanes < mostStateLanes && lanes*mostStateRegs < n {
		lanes *= 2
	}
	regs := 4 * ceil(n, 4*lanes)
	if regs > mostStateRegs {
		return "", 0
	}
	chunk := mostRowsAhead
	for chunk*vectors*lanes*regs*4 > mostRowsBytes {
		chunk /= 2
	}
	return newProgram("rows.hip", append(flags, define("REGS", regs), define("LANES", lanes), define("CHUNK", chunk))...),
		rowsThreads / lanes
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

// How a step's rows are divided among blocks that stand beside each other.
const (
	undivided = iota
	bySequence
	byRow
)

// recurrence plans a step and starts the function of the operator, with the state, the plan and the result passed: so
// many blocks, the rows divided so, and the number of the operand of positions.
func (b *binder) recurrence(file program, threads, blocks, divided, pos int) *dispatch {
	state, plan := b.dense(b.in(0)), b.scratch()
	rows, shape := b.in(pos).Shape.Elems(), b.in(0).Shape
	var slot uintptr
	if i := ops.SlotOperand(b.l.Node); i >= 0 {
		slot = b.dense(b.in(i))
	} else if divided == bySequence {
		divided = undivided
	}
	b.status(b.start(recurrenceFile, "slots", recurrenceThreads, 1, 1, 1).
		ptr(state, b.dense(b.in(pos)), slot, plan).u32(rows, shape[0], shape[1]))
	per := rows // a block's turn
	if divided != undivided {
		const enough = 2048 // blocks that keep a device busy
		per = ceil(rows, max(1, enough/blocks))
	}
	d := b.start(file, b.l.Node.Op.Name, threads, blocks, ceil(rows, per), 1).ptr(state)
	d.args.add(uint64(plan), uint64(uint32(rows))|uint64(uint32(per))<<32) // struct Plan
	return d.ptr(b.out(1))
}

// channels is recurrence with a thread for each of so many channels.
func (b *binder) channels(n, divided, pos int) *dispatch {
	return b.recurrence(recurrenceFile, recurrenceThreads, ceil(n, recurrenceThreads), divided, pos)
}

// heads is recurrence by rows or columns of n elements of heads' states: groups of `lines` that have the same vectors
// of a row of the step. many: elements have decays of their own.
func (b *binder) heads(n, groups, lines, lanes, vectors int, many bool, pos int, flags ...string) *dispatch {
	flags = append([]string{define(strings.ToUpper(b.l.Node.Op.Name), 1), onOff("MANY", many)}, flags...)
	// An invariant device takes steps of one row as it takes those of many.
	if b.in(pos).Shape.Elems() > 1 || b.dev.invariant {
		if file, some := rowsFile(n, lanes, vectors, flags...); some > 0 {
			return b.recurrence(file, rowsThreads, groups*ceil(lines, some), bySequence, pos)
		}
	}
	return b.recurrence(headsFile(n, lanes, flags...), recurrenceThreads,
		ceil(groups*lines, recurrenceThreads/lanes), undivided, pos)
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
	d := b.channels(channels, byRow, 3)
	b.step(d, 1)
	b.weight(d, 2)
	b.weight(d, 4)
	d.u32(channels, k, b.in(0).Shape[1])
}

func bindScan(b *binder) {
	channels := b.in(2).Shape[1]
	d := b.channels(channels, bySequence, 3)
	b.step(d, 1)
	b.step(d, 2)
	d.u32(channels, b.in(0).Shape[1])
}

func bindWKV(b *binder) {
	channels := b.in(1).Shape[1]
	d := b.channels(channels, bySequence, 5)
	b.step(d, 1)
	b.step(d, 2)
	b.weight(d, 3)
	b.weight(d, 4)
	d.u32(channels, b.in(0).Shape[1])
}

func bindSSM(b *binder) {
	heads, p, m := b.in(1).Shape[1], b.in(1).Shape[2], b.in(3).Shape[1]
	groups, n := b.in(4).Shape[1], b.in(4).Shape[2]
	d := b.heads(n, groups, heads/groups*p, rowLanes, 2, m > 1, 6)
	b.step(d, 1)
	b.step(d, 2)
	b.weight(d, 3)
	b.step(d, 4)
	b.step(d, 5)
	d.u32(heads, p, n, m, heads/groups, b.in(0).Shape[1])
}

func bindDelta(b *binder) {
	heads, dk, dv, dg := b.in(2).Shape[1], b.in(2).Shape[2], b.in(3).Shape[2], b.in(4).Shape[2]
	d := b.heads(dk, heads, dv, columnLanes, 3, dg > 1, 6)
	for i := 1; i <= 5; i++ {
		b.step(d, i)
	}
	d.u32(heads, dk, dv, dg, b.in(0).Shape[1])
}

func bindDPLR(b *binder) {
	heads, dk, dv, dg := b.in(2).Shape[1], b.in(2).Shape[2], b.in(3).Shape[2], b.in(4).Shape[2]
	rank := ops.DPLRRank(b.l.Node)
	d := b.heads(dk, heads, dv, columnLanes, 5, dg > 1, 5, onOff("RANK", rank),
		onOff("EARLY", graph.Attr[ops.DPLRAttr](b.l.Node).Before))
	for i := 1; i <= 4; i++ {
		b.step(d, i)
	}
	if rank {
		b.step(d, 6)
		b.step(d, 7)
	} else {
		d.ptr(0).u32(0).ptr(0).u32(0)
	}
	d.u32(heads, dk, dv, dg, b.in(0).Shape[1])
}
