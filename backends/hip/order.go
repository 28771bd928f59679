package hip

import "github.com/greta-project/greta/backends"

// Launches that do not touch each other's memory run at once: a program is
// divided in levels, and a graph has a branch for each launch of a level.

// span is a range of memory that a launch reads or writes.
type span struct {
	from, to uintptr
	written  bool
}

func (b *binder) span(o *backends.Operand, written bool) span {
	if o.Buffer == nil {
		return span{}
	}
	own, ok := o.Buffer.(*buffer)
	if !ok {
		return span{}
	}
	if o.Packing != "" {
		return span{own.at, own.at + uintptr(own.size), written}
	}
	from := own.at + uintptr(o.Offset)
	return span{from, from + uintptr(o.Extent()), written}
}

// spans are what a launch touches. What is common to launches of its kind,
// such as counters, is written by each.
func (b *binder) spans() []span {
	var all []span
	for i := range b.l.In {
		all = append(all, b.span(&b.l.In[i], false))
	}
	for i := range b.l.Out {
		all = append(all, b.span(&b.l.Out[i], true))
	}
	if n := b.l.Kernel.Traits().Scratch; n > 0 {
		s := b.span(&b.l.Scratch, true)
		s.to = s.from + uintptr(n)
		all = append(all, s)
	}
	return append(all, b.common...)
}

// conflict says whether one of two launches writes what the other touches.
func conflict(a, b []span) bool {
	for _, x := range a {
		for _, y := range b {
			if (x.written || y.written) && x.from < y.to && y.from < x.to {
				return true
			}
		}
	}
	return false
}

// levelsOf orders launches by what they touch: each comes in a later level than all before it that
// it is in conflict with. Launches of a level that use the device's workspace run one
// after another all the same.
func levelsOf(spans [][]span) (all [][]int) {
	at := backends.Levels(len(spans), func(i, j int) bool { return conflict(spans[j], spans[i]) })
	for i, level := range at {
		if level == len(all) {
			all = append(all, nil)
		}
		all[level] = append(all[level], i)
	}
	return all
}
