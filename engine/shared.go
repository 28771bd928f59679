package engine

import (
	"fmt"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// Blocks whose rows lie in memory of the device that another process has, and stay there.

// NotShared says that the device, or this memory, is none that processes hand over.
type NotShared struct{ Reason string }

func (e *NotShared) Error() string { return e.Reason }

// sharer gives the engine's device, where it opens other processes' memory.
func (e *Engine) sharer() (backends.Sharer, error) {
	dev, ok := e.dev.(backends.Sharer)
	if !ok {
		d := e.dev.Info()
		return nil, &NotShared{fmt.Sprintf("the model runs on %s (backend %s), which opens no memory of a GPU: load it with "+
			"backend hip on the tensor's card, or give a tensor of the host", d.Name, d.Backend)}
	}
	return dev, nil
}

// OpenShared opens memory that another process has on the engine's device; CloseShared ends that. descriptor is a
// file's, of what m names by FD.
func (e *Engine) OpenShared(m backends.Shared, descriptor int) (b backends.Buffer, err error) {
	dev, err := e.sharer()
	if err != nil {
		return nil, err
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if kind := dev.SharedKind(); m.Kind != kind {
		return nil, &NotShared{fmt.Sprintf("the memory is of the kind %q, the model's device has %s", m.Kind, kind)}
	}
	if here := dev.Location(); m.Location != here {
		return nil, &NotShared{fmt.Sprintf("the tensor lies on the card at %s, the model on that at %s: load it with "+
			"device=… of the tensor's card, or move the tensor", m.Location, here)}
	}
	if m.FD != 0 {
		b, err = dev.ImportShared(descriptor, m.Bytes)
	} else {
		b, err = dev.OpenShared(m.Handle, m.Bytes)
	}
	if err != nil {
		return nil, &NotShared{err.Error()}
	}
	return b, nil
}

// CloseShared closes memory of OpenShared.
func (e *Engine) CloseShared(b backends.Buffer) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	return b.Free()
}

// OutputWidth is the length of the rows of a block's output.
func (s *Session) OutputWidth() int { return s.engine.first.Outputs[0].Shape.Last() }

// BlockShared is Block on n rows of f32 that lie behind each other in memory of the device, from byte at of x on. The
// output's rows go to out, from byte outAt on: nothing comes to the host.
func (s *Session) BlockShared(x backends.Buffer, at, n int, out backends.Buffer, outAt int) error {
	dev, err := s.engine.sharer()
	if err != nil {
		return err
	}
	in := s.engine.first.Input("x")
	if in == nil || len(in.Shape) != 2 {
		return fmt.Errorf("%s has no input x of rows", s.engine.opt.Model.Name())
	}
	if n < 1 || n > s.Left() {
		return &TooLong{n, s.pos, s.engine.opt.Context}
	}
	s.enter()
	defer s.leave()
	st, err := s.stepOf(stepKind{Tokens: n, Rows: 1, onDevice: true}, nil)
	if err != nil {
		return err
	}
	v := st.Graph.Outputs[0]
	loc := st.locs[v.ID]
	from, ok := st.heldAt[loc.root]
	if !ok || v.Type != tensor.F32 {
		return fmt.Errorf("output %s is none of f32 in memory of the device", v)
	}
	for _, v := range st.Graph.Inputs { // x, and the stream r, which begins as it
		if offset, ok := st.heldAt[v]; ok && v.Kind == graph.Input {
			if v.Type != tensor.F32 {
				return fmt.Errorf("the input %s is none of f32", v)
			}
			if err := dev.Move(st.held, offset, x, at, v.Bytes()); err != nil {
				return err
			}
		}
	}
	if err := s.begin(st, nil); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	from += loc.offset
	width, size := rowBytes(v), v.Bytes()
	if loc.stride == width {
		err = dev.Move(out, outAt, st.held, from, size)
	} else {
		for row := 0; row*width < size && err == nil; row++ {
			err = dev.Move(out, outAt+row*width, st.held, from+row*loc.stride, width)
		}
	}
	return errlist.Join(err, dev.Settle())
}
