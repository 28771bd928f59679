package bridge

// Tensors in memory of a GPU, which is the client's: it is open here for one request.

import (
	"errors"

	"github.com/greta-project/greta/backends"
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
		e := u.model.Engine()
		var open [2]backends.Buffer // of one memory too: drivers count how often it is open
		for i, t := range []*Tensor{x, out} {
			if open[i], err = e.OpenShared(*t.Device); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, e.CloseShared(open[i])) }()
		}
		return u.inner.BlockShared(open[0], x.Offset, x.Shape[0], open[1], out.Offset)
	}
	if err := run(); err != nil {
		return err
	}
	return q.ok(map[string]any{"pos": u.inner.Pos()}, nil)
}
