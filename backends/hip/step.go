package hip

import (
	"errors"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/sorting"
)

// Step memory has two sides: the device's, which kernels read, and pinned
// memory of the host, which Write and Read use without a call of the driver. A
// captured program begins by copying what it reads of it to the device, and ends
// by copying back what it wrote. Launches outside of a captured program see to
// the sides themselves.

// stepSide is the host's side of a buffer for a step.
type stepSide struct {
	at    uintptr
	bytes []byte
	dirty bool // the host's side has what the device's has not
	ahead bool // the device's side has what the host's has not
	// flying says that a captured program that uses it was submitted and not waited for.
	flying bool
}

// hostSide gives the host's side of a buffer, made at first use; nil for a
// buffer that is not for steps.
func (b *buffer) hostSide() (*stepSide, error) {
	if b.use != backends.Step || b.size == 0 {
		return nil, nil
	}
	if b.side == nil {
		defer b.dev.enter()()
		at, err := b.dev.d.get(fnHostAlloc, "step", 0, uintptr(b.size), 0)
		if err != nil {
			return nil, err
		}
		b.side = &stepSide{at: uintptr(at), bytes: view(uintptr(at), b.size)}
		clear(b.side.bytes)
	}
	return b.side, nil
}

// freeSide frees the host's side. The device must be current.
func (b *buffer) freeSide() error {
	if b.side == nil {
		return nil
	}
	at := b.side.at
	b.side = nil
	return b.dev.d.call(fnHostFree, "step", at)
}

// settle waits for a program that may be using a side.
func (s *stepSide) settle(dev *Device) error {
	if !s.flying {
		return nil
	}
	leave := dev.enter()
	err := dev.wait()
	leave()
	if err == nil {
		s.flying = false
	}
	return err
}

// writeStep puts bytes in a buffer for a step. The range has been checked.
func (b *buffer) writeStep(s *stepSide, offset int, src []byte) error {
	if err := s.settle(b.dev); err != nil {
		return err
	}
	copy(s.bytes[offset:], src)
	if !s.ahead {
		s.dirty = true
		return nil
	}
	leave := b.dev.enter()
	err := b.dev.write(b.at+uintptr(offset), src)
	leave()
	return err
}

// readStep gets bytes of a buffer for a step.
func (b *buffer) readStep(s *stepSide, offset int, dst []byte) error {
	if err := s.settle(b.dev); err != nil {
		return err
	}
	if !s.ahead {
		copy(dst, s.bytes[offset:])
		return nil
	}
	leave := b.dev.enter()
	err := b.dev.read(b.at+uintptr(offset), dst)
	leave()
	return err
}

// toDevice makes the device's side whole, for launches outside of a captured
// program. The device must be current.
func (b *buffer) toDevice(s *stepSide) error {
	if !s.dirty {
		return nil
	}
	err := b.dev.write(b.at, s.bytes)
	if err == nil {
		s.dirty = false
	}
	return err
}

// toHost makes the host's side whole. The device must be current.
func (b *buffer) toHost(s *stepSide) error {
	if !s.ahead {
		return nil
	}
	err := b.dev.read(b.at, s.bytes)
	if err == nil {
		s.ahead = false
	}
	return err
}

// stepBuffers lists the buffers for steps that launches use, each once.
func stepBuffers(launches []backends.Launch) ([]*buffer, error) {
	var all []*buffer
	for i := range launches {
		for _, list := range [][]backends.Operand{launches[i].In, launches[i].Out} {
			for j := range list {
				b, ok := list[j].Buffer.(*buffer)
				if !ok || slices.Contains(all, b) {
					continue
				}
				s, err := b.hostSide()
				if err != nil {
					return nil, err
				}
				if s != nil {
					all = append(all, b)
				}
			}
		}
	}
	return all, nil
}

// directly prepares the buffers for launches outside of a captured program: the
// device's side is made whole, and is ahead from then on.
func directly(all []*buffer) error {
	for _, b := range all {
		if err := b.toDevice(b.side); err != nil {
			return err
		}
		b.side.ahead = true
	}
	return nil
}

// stepRange is a part of a buffer for steps.
type stepRange struct {
	b        *buffer
	from, to int
}

// stepRanges gives what a program reads of a buffer before it has written it,
// and what it writes; what lies between results that are copied at once is of both.
func stepRanges(b *buffer, launches []backends.Launch) (in, out []stepRange) {
	extent := func(o *backends.Operand) (stepRange, bool) {
		if own, ok := o.Buffer.(*buffer); !ok || own != b {
			return stepRange{}, false
		}
		n := o.Type.RowBytes(o.RowElems())
		if o.Rows() > 0 {
			n += (o.Rows() - 1) * o.Stride
		}
		return stepRange{b, o.Offset, min(o.Offset+n, b.size)}, n > 0
	}
	for i := range launches {
		l := &launches[i]
		for j := range l.In {
			if r, ok := extent(&l.In[j]); ok && !slices.ContainsFunc(out, func(w stepRange) bool {
				return w.from <= r.from && r.to <= w.to
			}) {
				in = append(in, r)
			}
		}
		for j := range l.Out {
			if r, ok := extent(&l.Out[j]); ok {
				out = append(out, r)
				if !l.Out[j].Dense() { // what lies between its rows must survive
					in = append(in, r)
				}
			}
		}
	}
	const near = 256 // ranges so close are one copy
	out = joinRanges(out, 0)
	for i := 1; i < len(out); i++ {
		if a, b := out[i-1], out[i]; b.from <= a.to+near { // the host's bytes between them come back as they were
			in = append(in, stepRange{a.b, a.to, b.from})
		}
	}
	return joinRanges(in, near), joinRanges(out, near)
}

// joinRanges makes ranges that are no more than near apart one.
func joinRanges(list []stepRange, near int) []stepRange {
	sorting.Sort(list, func(a, b stepRange) int { return a.from - b.from })
	var all []stepRange
	for _, r := range list {
		if n := len(all); n > 0 && r.from <= all[n-1].to+near {
			all[n-1].to = max(all[n-1].to, r.to)
			continue
		}
		all = append(all, r)
	}
	return all
}

// copyIn and copyOut are the first and the last of a captured program.
func (e *executable) copyIn() error {
	if e.copies != nil {
		return e.copies.run(e.dev, e.copies.in, false)
	}
	for _, r := range e.in {
		if err := e.dev.d.call(fnCopyIn, "step", r.b.at+uintptr(r.from), r.b.side.at+uintptr(r.from), uintptr(r.to-r.from),
			e.dev.stream); err != nil {
			return err
		}
	}
	return nil
}

func (e *executable) copyOut(follows bool) error {
	if e.copies != nil {
		return e.copies.run(e.dev, e.copies.out, follows)
	}
	for _, r := range e.out {
		if err := e.dev.d.call(fnCopyOut, "step", r.b.side.at+uintptr(r.from), r.b.at+uintptr(r.from), uintptr(r.to-r.from),
			e.dev.stream); err != nil {
			return err
		}
	}
	return nil
}

// findSteps notes the buffers for steps of the executable's program, and what is
// copied of them.
func (e *executable) findSteps() error {
	var err error
	if e.steps, err = stepBuffers(e.program.Launches); err != nil {
		return err
	}
	for _, b := range e.steps {
		in, out := stepRanges(b, e.program.Launches)
		e.in, e.out = append(e.in, in...), append(e.out, out...)
	}
	defer e.dev.enter()() // an event belongs to the thread's current device
	done, err := e.dev.d.get(fnEventCreate, "end of "+e.program.Name, 0, eventNoTiming)
	e.done = uintptr(done)
	return err
}

var errFreed = errors.New("hip: a buffer of the program was freed")

// fly prepares a submission: the end of the program before it is recorded, where
// nobody has waited for that yet, and the sides are in use.
func (e *executable) fly() error {
	if before := e.dev.last; before != nil && before != e && before.flies && !before.marked {
		if err := e.dev.d.check(fnEventRecord, before.program.Name,
			e.dev.d.invokeChecked(fnEventRecord, before.end)); err != nil {
			return err
		}
		before.marked = true
	}
	e.dev.last, e.flies, e.marked = e, true, false
	for _, b := range e.steps {
		if b.side == nil {
			return errFreed
		}
		if err := b.toHost(b.side); err != nil {
			return err
		}
		b.side.flying = true
	}
	return nil
}

// land waits for the program's end: where it tells that by no word, or not soon, for that
// of the stream, or for an event's where another was submitted behind it.
func (e *executable) land() error {
	var err error
	if e.copies != nil && e.copies.ended() {
		// nothing to wait for
	} else if e.marked {
		err = e.dev.d.check(fnEventWait, "", e.dev.d.invokeChecked(fnEventWait, e.end[:1]))
	} else {
		err = e.dev.wait()
	}
	if err == nil {
		e.landed()
	}
	return err
}

// landed notes that the program has ended.
func (e *executable) landed() {
	e.flies, e.marked = false, false
	if e.dev.last == e {
		e.dev.last = nil
	}
	for _, b := range e.steps {
		if b.side != nil {
			b.side.flying = false
		}
	}
}
