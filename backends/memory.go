package backends

// What launches have of memory in common: by these questions a device decides which of them become one, and in which
// order they may run.

// Extent is the number of bytes from an operand's first to its last.
func (o *Operand) Extent() int {
	if o.Rows() == 0 || o.RowElems() == 0 {
		return 0
	}
	return (o.Rows()-1)*o.Stride + o.Type.RowBytes(o.RowElems())
}

// span is a range of a buffer, in bytes.
type span struct{ from, to int }

func (o *Operand) span() span { return span{o.Offset, o.Offset + o.Extent()} }

func (s span) overlaps(o span) bool { return max(s.from, o.from) < min(s.to, o.to) }

// Overlaps says whether two operands share bytes.
func (o *Operand) Overlaps(p *Operand) bool {
	return o.Buffer != nil && o.Buffer == p.Buffer && o.span().overlaps(p.span())
}

// Same says whether two operands are the same elements, in the same shape.
func (o *Operand) Same(p *Operand) bool {
	return o.Buffer == p.Buffer && o.Offset == p.Offset && o.Stride == p.Stride && o.Type == p.Type &&
		o.Shape.Equal(p.Shape)
}

// used is a buffer that knows its use.
type used interface{ Use() Use }

// Inside says whether an operand is memory for results inside a step, which nothing but launches reads.
func (o *Operand) Inside() bool {
	b, ok := o.Buffer.(used)
	return ok && b.Use() == Arena
}

// Changes says whether an operand's elements may differ from step to step: it is memory for something else than
// weights. nil is none.
func (o *Operand) Changes() bool {
	if o == nil {
		return false
	}
	b, ok := o.Buffer.(used)
	return ok && b.Use() != Weights
}

// Writes says whether a launch writes some of o.
func (l *Launch) Writes(o *Operand) bool {
	for n := range l.Out {
		if l.Out[n].Overlaps(o) {
			return true
		}
	}
	return l.Scratch.Overlaps(o)
}

// Conflicts says whether one of two launches writes what the other reads or writes.
func (l *Launch) Conflicts(m *Launch) bool {
	for n := range m.In {
		if l.Writes(&m.In[n]) {
			return true
		}
	}
	for n := range m.Out {
		if l.Writes(&m.Out[n]) {
			return true
		}
	}
	for n := range l.In {
		if m.Writes(&l.In[n]) {
			return true
		}
	}
	return l.Writes(&m.Scratch)
}

// LastWriter is the number of the last launch that writes some of o, -1 where none does.
func LastWriter(launches []Launch, o *Operand) int {
	i := len(launches) - 1
	for i >= 0 && !launches[i].Writes(o) {
		i--
	}
	return i
}

// ReadOnlyBy says whether nothing but launches reads what launch i leaves in o, and by takes each operand by which they
// do: then o need not be written where these come by its elements in another way.
func ReadOnlyBy(launches []Launch, i int, o *Operand, by func(launch, operand int) bool) bool {
	return o.Inside() && Readers(launches, i, o, by)
}

// Readers calls each for the operands by which launches behind launch i read what it leaves in o, in order, until
// others have overwritten all of that. It ends where each says false, and says so by false.
func Readers(launches []Launch, i int, o *Operand, each func(launch, operand int) bool) bool {
	if o.Buffer == nil {
		return true
	}
	live := []span{o.span()}
	for k := i + 1; k < len(launches) && len(live) > 0; k++ {
		l := &launches[k]
		for n := range l.In {
			if l.In[n].Buffer == o.Buffer && anyOverlaps(live, l.In[n].span()) && !each(k, n) {
				return false
			}
		}
		for n := range l.Out {
			live = overwritten(live, o, &l.Out[n])
		}
		live = overwritten(live, o, &l.Scratch)
	}
	return true
}

func anyOverlaps(all []span, s span) bool {
	for _, x := range all {
		if x.overlaps(s) {
			return true
		}
	}
	return false
}

// overwritten is what is left of ranges of o's buffer when by is written. Between rows that have gaps all is left.
func overwritten(live []span, o, by *Operand) []span {
	if by.Buffer != o.Buffer || !by.Dense() || !anyOverlaps(live, by.span()) {
		return live
	}
	return without(live, by.span())
}

// without cuts a range out of ranges.
func without(all []span, cut span) []span {
	var left []span
	for _, s := range all {
		if !s.overlaps(cut) {
			left = append(left, s)
			continue
		}
		if s.from < cut.from {
			left = append(left, span{s.from, cut.from})
		}
		if cut.to < s.to {
			left = append(left, span{cut.to, s.to})
		}
	}
	return left
}
