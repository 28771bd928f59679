package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
)

// align is the alignment of every tensor in a buffer, bytes: a cache line, and
// the widest vector.
const align = 64

// location is where a value lies: in the memory of root, from offset on, its
// rows (dimension 0) stride bytes apart.
type location struct {
	root   *graph.Value
	offset int
	stride int
}

// locations gives the location of every value by ID.
type locations []location

// place resolves views: a view or split whose rows stay dense shares its
// operand's memory, any other one becomes a copy, and so a root of its own.
func place(g *graph.Graph) locations {
	locs := make(locations, len(g.Values))
	for _, v := range g.Values {
		if v.Kind != graph.Computed {
			locs[v.ID] = own(v)
		}
	}
	for _, n := range g.Nodes {
		for i, v := range n.Out {
			switch n.Op.Kind {
			case graph.Update:
				if locs[v.ID] = own(v); i == 0 {
					locs[v.ID] = locs[n.In[0].ID]
				}
			case graph.View:
				var ok bool
				if locs[v.ID], ok = alias(n, i, locs[n.In[0].ID]); !ok {
					locs[v.ID] = own(v)
				}
			default:
				locs[v.ID] = own(v)
			}
		}
	}
	return locs
}

func own(v *graph.Value) location { return location{v, 0, rowBytes(v)} }

// rowBytes is the size of one index of dimension 0.
func rowBytes(v *graph.Value) int {
	if len(v.Shape) == 0 {
		return v.Type.RowBytes(1)
	}
	return v.Type.RowBytes(v.Shape[1:].Elems())
}

// alias gives the location of result i of a view or split inside its
// operand's memory, if rows with one stride can describe it.
func alias(n *graph.Node, i int, in location) (location, bool) {
	x, out := n.In[0], n.Out[i]
	if n.Op == ops.Split {
		if len(x.Shape) != 2 {
			return location{}, false
		}
		for _, before := range n.Out[:i] {
			in.offset += before.Type.RowBytes(before.Shape.Last())
		}
		return in, true
	}
	dense := len(x.Shape) == 0 || x.Shape[0] <= 1 || in.stride == rowBytes(x)
	switch {
	case dense:
		in.stride = rowBytes(out)
	case len(out.Shape) == 0 || out.Shape[0] != x.Shape[0]:
		return location{}, false
	}
	return in, true
}

// aliased says whether a view needs no copy.
func (l locations) aliased(n *graph.Node) bool {
	for _, v := range n.Out {
		if l[v.ID].root == v {
			return false
		}
	}
	return true
}

// slot is a value's place in the arena.
type slot struct {
	value       *graph.Value
	offset      int
	bytes       int
	first, last int // launches between which it is alive
}

// plan is the memory of a step.
type plan struct {
	locs    locations
	slots   []slot
	scratch []int // offset of each node's scratch, -1 without
	arena   int   // bytes
}

// planMemory gives every computed value that is not an output of the graph a
// place in the arena, such that values alive at once never overlap, nor values that
// a device may bring together which moves launches up to window places. Largest first,
// each at the lowest offset that is free during its life.
func planMemory(g *graph.Graph, sel selection, window int) *plan {
	p := &plan{locs: place(g), scratch: make([]int, len(g.Nodes))}
	outputs := map[*graph.Value]bool{}
	for _, v := range g.Outputs {
		outputs[p.locs[v.ID].root] = true
	}
	index := map[*graph.Value]int{}
	touch := func(v *graph.Value, at int) {
		root := p.locs[v.ID].root
		if root.Kind != graph.Computed || outputs[root] {
			return
		}
		k, ok := index[root]
		if !ok {
			k = len(p.slots)
			index[root] = k
			p.slots = append(p.slots, slot{value: root, bytes: roundUp(root.Bytes()), first: at, last: at})
		}
		p.slots[k].last = max(p.slots[k].last, at)
	}
	var scratch []slot
	for i, n := range g.Nodes {
		p.scratch[i] = -1
		for _, v := range n.In {
			if v != nil {
				touch(v, i)
			}
		}
		for _, v := range n.Out {
			touch(v, i)
		}
		if k := sel[i]; k != nil && k.Traits().Scratch > 0 {
			scratch = append(scratch, slot{bytes: roundUp(k.Traits().Scratch), first: i, last: i})
		}
	}
	all := append(slices.Clone(p.slots), scratch...)
	for i := range all {
		all[i].last += window
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return all[b].bytes - all[a].bytes })
	var placed []*slot // by offset
	for _, k := range order {
		s := &all[k]
		at := 0
		for _, o := range placed {
			if o.last < s.first || s.last < o.first {
				continue
			}
			if at+s.bytes <= o.offset {
				break
			}
			at = max(at, o.offset+o.bytes)
		}
		s.offset = at
		p.arena = max(p.arena, at+s.bytes)
		i, _ := slices.BinarySearchFunc(placed, s.offset, func(o *slot, off int) int { return o.offset - off })
		placed = slices.Insert(placed, i, s)
	}
	for i := range p.slots {
		p.slots[i].offset = all[i].offset
	}
	for _, s := range all[len(p.slots):] {
		p.scratch[s.first] = s.offset
	}
	return p
}

func roundUp(n int) int { return (n + align - 1) / align * align }

// text prints a plan for people and for diffs.
func (p *plan) text(g *graph.Graph) string {
	var b strings.Builder
	sum := 0
	for _, s := range p.slots {
		sum += s.bytes
	}
	fmt.Fprintf(&b, "plan %s\narena %d bytes for %d bytes of results\n", g.Name, p.arena, sum)
	for _, s := range p.slots {
		fmt.Fprintf(&b, "%10d +%-10d launches %d-%d  %s\n", s.offset, s.bytes, s.first, s.last, s.value)
	}
	for i, off := range p.scratch {
		if off >= 0 {
			fmt.Fprintf(&b, "%10d scratch of launch %d  %s\n", off, i, g.Nodes[i])
		}
	}
	for _, v := range g.States {
		fmt.Fprintf(&b, "state %s, %d bytes\n", v, v.Bytes())
	}
	return b.String()
}
