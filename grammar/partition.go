// Which bytes an expression does not tell apart, seen from its form (Owens, Reppy, Turon 2009, section 4.2): one
// derivative serves for all of them.

package grammar

import "slices"

// partitions are divisions of the classes of bytes: by class, the first one of its part. Equal ones are one.
type partitions struct {
	first  [][]uint8
	ids    map[string]int32
	met    map[[2]int32]int32 // by two: the coarsest that divides as both do
	of     []int32            // by node: 1 + its partition; 0: not yet known
	digits int32              // each character of a number by itself
}

const (
	partWhole  = 0 // one part
	partSingle = 1 // each class by itself
	maxParts   = 10000
)

// partition gives a division of the classes: derivatives by those of one part are equal.
func (a *arena) partition(r rx) int32 {
	p := &a.parts
	if len(p.first) == 0 {
		p.id(make([]uint8, len(a.member)))
		single := make([]uint8, len(a.member))
		for c := range single {
			single[c] = uint8(c)
		}
		p.id(single)
		p.digits = a.apart([]byte("0123456789+-.eE"))
	}
	if int(r) < len(p.of) && p.of[r] != 0 {
		return p.of[r] - 1
	}
	id := a.partitionOf(&a.nodes[r])
	if int(r) >= len(p.of) {
		p.of = append(p.of, make([]int32, len(a.nodes)-len(p.of))...)
	}
	p.of[r] = id + 1
	return id
}

func (a *arena) partitionOf(n *rxNode) int32 {
	switch n.kind {
	case kNone, kEps:
		return partWhole
	case kSet:
		first := make([]uint8, len(a.member))
		in, out := -1, -1
		for c := range first {
			at := &out
			if a.sets[n.m].has(a.member[c]) {
				at = &in
			}
			if *at < 0 {
				*at = c
			}
			first[c] = uint8(*at)
		}
		return a.parts.id(first)
	case kCat:
		if x, y := n.a, n.b; a.null(x) {
			return a.parts.both(a.partition(x), a.partition(y))
		}
		return a.partition(n.a)
	case kAlt, kAnd:
		id := int32(partWhole)
		for _, x := range n.list {
			id = a.parts.both(id, a.partition(x))
		}
		return id
	case kNot, kRep, kTag:
		return a.partition(n.a)
	case kStr:
		if n.m != 0 {
			return partSingle
		}
		bytes := []byte{'"', '\\'}
		if n.x != 0 {
			bytes[0] = byte(n.x)
		}
		for b := range byte(0x20) {
			bytes = append(bytes, b)
		}
		return a.parts.both(a.partition(n.a), a.apart(bytes))
	case kTrie:
		return a.apart(a.tries[n.m].nodes[n.n].bytes)
	case kCmp, kMod:
		return a.parts.digits
	}
	return partSingle
}

// apart is the division of some bytes, each by itself, and the rest.
func (a *arena) apart(bytes []byte) int32 {
	first := make([]uint8, len(a.member))
	alone := make([]bool, len(a.member))
	for _, b := range bytes {
		alone[a.class[b]] = true
	}
	rest := slices.Index(alone, false)
	for c := range first {
		if first[c] = uint8(c); !alone[c] {
			first[c] = uint8(rest)
		}
	}
	return a.parts.id(first)
}

func (p *partitions) id(first []uint8) int32 {
	id, ok := p.ids[string(first)]
	switch {
	case ok:
		return id
	case len(p.first) > maxParts:
		return partSingle
	}
	id = int32(len(p.first))
	p.first = append(p.first, first)
	p.ids[string(first)] = id
	return id
}

// both divides as either of two does.
func (p *partitions) both(x, y int32) int32 {
	if x > y {
		x, y = y, x
	}
	switch {
	case x == partWhole || x == y:
		return y
	case x == partSingle:
		return x
	}
	id, ok := p.met[[2]int32{x, y}]
	if ok {
		return id
	}
	first := make([]uint8, len(p.first[x]))
	known := map[[2]uint8]uint8{}
	for c := range first {
		key := [2]uint8{p.first[x][c], p.first[y][c]}
		if _, is := known[key]; !is {
			known[key] = uint8(c)
		}
		first[c] = known[key]
	}
	id = p.id(first)
	p.met[[2]int32{x, y}] = id
	return id
}
