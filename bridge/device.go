package bridge

// Tensors in memory of a GPU, which is the client's: it is open here for one request, or until the client says so.

import (
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// checkHeld refuses what is not wholly on a device.
func checkHeld(x, out *Tensor) error {
	switch {
	case x == nil || x.Device == nil:
		return usagef("out is for a block's x in memory of a GPU; this one lies in the host's")
	case out == nil:
		return usagef("x lies in memory of a GPU: out says where the output goes there")
	case out.Device == nil:
		return usagef("out lies in the host's memory, x in a GPU's: expected is out on the same device")
	}
	for i, t := range []*Tensor{x, out} {
		name := [...]string{"x", "out"}[i]
		n, err := t.elements()
		switch {
		case err != nil:
			return usagef("%s: %v", name, err)
		case t.Type != "f32":
			return usagef("%s is a tensor of type %q, expected is f32: memory of a GPU is used as it lies", name, t.Type)
		case t.Path != "" || t.Handle != 0:
			return usagef("%s names memory of the host beside that of a GPU: one of both is expected", name)
		case t.Offset < 0 || t.Offset%4 != 0:
			return usagef("%s begins at byte %d: a multiple of 4 is expected", name, t.Offset)
		case !within(t.Offset, 4*n, t.Device.Bytes):
			return usagef("%s has %d bytes from byte %d on, its memory has %d", name, 4*n, t.Offset, t.Device.Bytes)
		}
	}
	return nil
}

// blockHeld runs a block on rows in memory of a GPU, and leaves its output there. Both are closed again
// before the answer: then nothing of the client's is in use.
func (s *server) blockHeld(q *request, u *session, x, out *Tensor) error {
	if err := u.checkRows(x); err != nil {
		return err
	}
	if n, width := x.Shape[0], u.inner.OutputWidth(); len(out.Shape) != 2 || out.Shape[0] != n || out.Shape[1] != width {
		return usagef("out has the shape %v, the output has %v", out.Shape, []int{n, width})
	}
	run := func() (err error) {
		held := map[uint64]*lent{} // what both lie in is opened once, where it is by a descriptor
		var open [2]backends.Buffer
		for i, t := range []*Tensor{x, out} {
			var done func() error
			if open[i], done, err = u.model.openHeld(q, t.Device, held); err != nil {
				return err
			}
			defer func() { err = errlist.Join(err, done()) }()
		}
		return u.inner.BlockShared(open[0], x.Offset, x.Shape[0], open[1], out.Offset)
	}
	if err := run(); err != nil {
		return err
	}
	return q.ok(map[string]any{"pos": u.inner.Pos()}, nil)
}

// arrivalsLast is how long a descriptor waits for the request that names it.
const arrivalsLast = 10 * time.Second

// mostKept is how much memory of clients a model keeps open.
const mostKept = 64

// lent is memory of the client's that was opened by a descriptor.
type lent struct {
	backends.Buffer
	users int  // requests that use it
	gone  bool // closed with its last user: it is not kept, or forgotten meanwhile
}

// taken gives a request the descriptors that it names, which it closes.
func (s *server) taken(tensors ...*Tensor) map[uint64]int {
	var files map[uint64]int
	for _, t := range tensors {
		if t == nil || t.Device == nil || t.Device.FD == 0 {
			continue
		}
		if fd, ok := s.files.take(t.Device.FD); ok {
			if files == nil {
				files = map[uint64]int{}
			}
			files[t.Device.FD] = fd
		}
	}
	return files
}

// forget closes memory that a model has kept open.
func (s *server) forget(r message) {
	var a struct {
		Model  uint64 `json:"model"`
		Target uint64 `json:"target"`
	}
	if err := strict(r.Args, &a); err != nil {
		s.fail(r.ID, err)
		return
	}
	if fd, ok := s.files.take(a.Target); ok { // no request has named it
		closeDescriptor(fd)
	}
	s.mu.Lock()
	m := s.models[a.Model]
	s.mu.Unlock()
	if m == nil { // it has closed its own
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.kept[a.Target]
	if l == nil || m.closed {
		return
	}
	delete(m.kept, a.Target)
	if l.gone = true; l.users == 0 {
		m.users.Add(1)
		s.requests.Go(func() { // the device may be in use
			defer m.users.Done()
			if err := m.Engine().CloseShared(l.Buffer); err != nil {
				s.opt.Log.Printf("memory of a GPU: %v", err)
			}
		})
	}
}

// openHeld opens memory of the client's for a request, which calls done at its end. held is what it has open by
// descriptors.
func (m *loaded) openHeld(q *request, d *backends.Shared, held map[uint64]*lent) (b backends.Buffer, done func() error,
	err error) {
	e := m.Engine()
	if d.FD == 0 { // drivers count how often it is open
		b, err = e.OpenShared(*d, 0)
		return b, func() error { return e.CloseShared(b) }, err
	}
	m.mu.Lock()
	l := m.kept[d.FD]
	if l == nil {
		l = held[d.FD]
	}
	if l != nil {
		l.users++
	}
	m.mu.Unlock()
	done = func() error {
		m.mu.Lock()
		l.users--
		last := l.gone && l.users == 0
		m.mu.Unlock()
		if last {
			return e.CloseShared(l.Buffer)
		}
		return nil
	}
	switch fd, ok := q.files[d.FD]; {
	case l != nil && l.Size() != d.Bytes:
		return nil, nil, errlist.Join(usagef("the memory of descriptor %d has %d bytes, not %d", d.FD, l.Size(), d.Bytes),
			done())
	case l != nil:
	case !ok:
		return nil, nil, usagef("there is no descriptor %d: it is sent by the socket that hello named, before the request "+
			"that names it and within %v of it, and is taken once", d.FD, arrivalsLast)
	default:
		if b, err = e.OpenShared(*d, fd); err != nil {
			return nil, nil, err
		}
		l = &lent{Buffer: b, users: 1, gone: true}
		if d.Keep {
			if err := m.keep(d.FD, l); err != nil {
				return nil, nil, errlist.Join(err, done())
			}
		}
	}
	held[d.FD] = l
	return l.Buffer, done, nil
}

// keep leaves memory open behind its request.
func (m *loaded) keep(number uint64, l *lent) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed: // it closes what it has kept
		return nil
	case m.kept[number] != nil: // by a request beside this one
		return nil
	case len(m.kept) >= mostKept:
		return usagef("%d pieces of memory are kept open already: forget some", mostKept)
	}
	m.kept[number], l.gone = l, false
	return nil
}
