//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"maps"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/tensor"
)

// In a step of one token, what lies between two stages takes as long as their work: the last
// workgroups end, caches are flushed, workgroups of the next stage start and wait for their
// first weights. Where a driver starts workgroups in the order of dispatches, a stage of
// kernels that know how is recorded without a barrier before it: its workgroups start as
// those before leave room, ask for their first weights, and look at what they read until it is
// there (handed.glsl). For that each result of such a step has memory of its own, which is
// filled with words that are no results before the first stage: nothing needs to be counted, and no
// write must be seen before another. Nothing waits for what has not started, so
// that none waits forever. Vulkan promises no such order, so this is a path of drivers that are
// known to keep it, which a health check tries (handedtry.go); and a wait has an end: a step in which one was in
// vain fails. Between programs the memory is always filled: who used it has it filled behind its end.

// notYet is handed.glsl's NOT_YET. handWords is the number of constants, a kernel's last ones, that
// say whether it waits.
const notYet, handWords = 0x80808080, 1

// mostApart is the most memory that results of their own take, of one step or of a round of them.
const mostApart = 128 << 20

// handRoom is for how many elements of x kernels of a format have room in shared memory at least, which decides how
// many workgroups share a multiprocessor: what was fastest on one H200.
var handRoom = map[tensor.Type]int{tensor.Q4_0: 11008, tensor.Q8_0: 11008}

// handOne are the formats whose products before a norm take a row a subgroup and 1,024 invocations there.
var handOne = map[tensor.Type]bool{tensor.Q4_0: true, tensor.Q8_0: true}

// aheadOf is the room for x in a product of so many columns that can be handed over, in elements, 0: it cannot.
func (b *bind) aheadOf(t tensor.Type, cols int) int {
	const each, others = 44, 1024 // bytes of 32 elements with their scale and sum of squares; of what else is shared
	room := max(cols, handRoom[t])
	switch {
	case b.places == nil || cols%128 != 0 || cols/32*each+others > b.d.p.Shared:
		return 0
	case room/32*each+others > b.d.p.Shared:
		return cols
	}
	return room
}

// hand binds what all dispatches that can be handed over share: the word that says that a wait was in vain. y is
// what others may wait for, x and r are what the dispatch reads and may wait for.
func (b *bind) hand(c *dispatch, can bool, y *backends.Operand, x []*buffer, r *backends.Operand) {
	if !can {
		b.none(c)
		return
	}
	c.bound = append(c.bound, span{b: b.places.vain, to: b.places.vain.bytes})
	c.waits, c.says = true, y.Inside()
	c.asks[0] = x
	if r != nil {
		c.asks[1] = buffersOf(r)
	}
}

// buffersOf gives the buffers of operands.
func buffersOf(list ...*backends.Operand) (all []*buffer) {
	for _, o := range list {
		if b, ok := o.Buffer.(*buffer); ok {
			all = append(all, b)
		}
	}
	return all
}

// places is memory in which every result of a program has a place of its own.
type places struct {
	d     *Device
	vain  *buffer
	list  []*buffer
	bytes uint64
}

// take gives a place.
func (a *places) take(size int) *buffer {
	n := uint64(size+255) &^ 255
	b := &buffer{d: a.d, size: int(n), bytes: n, base: a.bytes, use: backends.Arena}
	a.list, a.bytes = append(a.list, b), a.bytes+n
	return b
}

// leave takes back the places of results that nobody writes, as their launches are folded into others.
func (a *places) leave(p *backends.Program, f *folds) {
	unwritten := map[*buffer]bool{}
	for i := range p.Launches {
		for _, b := range buffersOf(outs(&p.Launches[i])...) {
			unwritten[b] = f.folded(i)
		}
	}
	a.bytes = 0
	for _, b := range a.list {
		if b.base = a.bytes; !unwritten[b] {
			a.bytes += b.bytes
		}
	}
}

// outs are the results of a launch.
func outs(l *backends.Launch) (all []*backends.Operand) {
	for i := range l.Out {
		all = append(all, &l.Out[i])
	}
	return all
}

// reserved gives memory for what is written in place of a result: of its own, or what programs share.
func (b *bind) reserved(what string, size int) (*buffer, error) {
	if b.places != nil {
		return b.places.take(size), nil
	}
	return b.d.temporary(what, size)
}

// noPlaces says that there is no memory for places.
type noPlaces struct{ err *backends.OutOfMemory }

func (e *noPlaces) Error() string { return e.err.Error() }
func (e *noPlaces) Unwrap() error { return e.err }

// separate gives a program of one step of one token with results in places of their own instead of the arena, and the
// program itself where that cannot be.
func (d *Device) separate(p *backends.Program) (*backends.Program, *places) {
	type result struct {
		was backends.Operand
		in  *buffer
	}
	var all []result
	a := &places{d: d}
	a.vain = a.take(4)
	out := &backends.Program{Name: p.Name, Launches: slices.Clone(p.Launches)}
	for i := range out.Launches {
		l := &out.Launches[i]
		l.In, l.Out = slices.Clone(l.In), slices.Clone(l.Out)
		for n := range l.In {
			o := &l.In[n]
			if !o.Inside() {
				continue
			}
			for _, r := range slices.Backward(all) {
				if r.was.Overlaps(o) {
					if o.Offset < r.was.Offset || o.Offset+o.Extent() > r.was.Offset+r.was.Extent() {
						return p, nil
					}
					o.Buffer, o.Offset = r.in, o.Offset-r.was.Offset
					break
				}
			}
		}
		for n := range l.Out {
			o := &l.Out[n]
			if !o.Inside() {
				continue
			}
			if len(o.Shape) == 0 || o.Shape[0] != 1 {
				return p, nil
			}
			r := result{*o, a.take(o.Extent())}
			all = append(all, r)
			o.Buffer, o.Offset = r.in, 0
		}
	}
	if a.bytes > d.mostApart {
		return p, nil
	}
	return out, a
}

// stages are dispatches between barriers, in the order of recording.
func stages(list []dispatch, order []int) (all [][]int) {
	var last stage
	for _, i := range order {
		if last.add(&list[i]) || len(all) == 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], i)
	}
	return all
}

// author says who wrote a buffer in this program: dispatches that say when a result is there, others.
type author struct{ says, mute bool }

// awaits gives the bits of what a dispatch waits for, which are for what x and r are: only what its author says to be
// there, as any word may be in what the host, or a dispatch before a barrier, wrote. false: of some it is not known.
func (x *dispatch) awaits(by map[*buffer]author) (bits uint32, ok bool) {
	for i, list := range x.asks {
		said := 0
		for _, b := range list {
			a := by[b]
			if a.says && a.mute {
				return 0, false
			}
			if a.says {
				said++
			}
		}
		if said > 0 {
			bits |= 1 << i
		}
		if said > 0 && said < len(list) {
			return 0, false
		}
	}
	return bits, true
}

// chained says whether a dispatch, behind those of open without a barrier, comes behind each of
// them that it conflicts with because it waits for its words, or for those of one that does. behind
// holds the like of those of open, and then its own.
func (e *executable) chained(i int, open []int, behind map[int]map[int]bool) bool {
	x := &e.dispatches[i]
	mine := map[int]bool{}
	behind[i] = mine
	for _, j := range open {
		if slices.ContainsFunc(e.dispatches[j].used, func(s span) bool {
			return s.write && (slices.Contains(x.asks[0], s.b) || slices.Contains(x.asks[1], s.b))
		}) {
			mine[j] = true
			maps.Copy(mine, behind[j])
		}
	}
	return !slices.ContainsFunc(open, func(j int) bool { return !mine[j] && conflict(x.used, e.dispatches[j].used) })
}

// handOver finds stages that can wait for the ones before by themselves; it says whether there are some. Where there
// are none the program's results belong into the arena.
func (e *executable) handOver() bool {
	for i := range e.links {
		e.links[i].handOver(e)
	}
	return e.handed
}

// handOver finds those of a link: the stages before, up to a barrier, say when their results are there, and it touches
// nothing else of theirs.
func (l *link) handOver(e *executable) {
	said := false  // by the stage before
	var open []int // dispatches since the last barrier
	by, behind := map[*buffer]author{}, map[int]map[int]bool{}
	for _, stage := range stages(e.dispatches, l.order(e)) {
		waits, says := said, true
		for _, i := range stage {
			x := &e.dispatches[i]
			_, known := x.awaits(by)
			waits, says = waits && x.waits && known && e.chained(i, open, behind), says && x.says
		}
		if !waits {
			open = open[:0]
			clear(behind)
		}
		open = append(open, stage...)
		for _, i := range stage {
			if x := &e.dispatches[i]; waits {
				x.push[len(x.push)-handWords], _ = x.awaits(by)
				x.handed, e.handed = true, true
			}
		}
		for _, i := range stage {
			x := &e.dispatches[i]
			for _, s := range x.used {
				if s.write {
					a := by[s.b]
					by[s.b] = author{a.says || x.says, a.mute || !x.says}
				}
			}
		}
		said = says
	}
}
