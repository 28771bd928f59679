package hip

import (
	"errors"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
)

// staging moves bytes between the host and the device through pinned memory,
// asynchronously and in the order of the stream: a write returns when its bytes
// are copied to pinned memory, a read when they have arrived.
type staging struct {
	slots []slot
	next  int
	args  [4]uintptr // of the call under way, kept so that nothing is allocated
}

// slot is a piece of pinned memory with the event after which it is free.
type slot struct {
	at    uintptr
	bytes []byte
	event uintptr
	busy  bool
}

const (
	smallSlots, smallBytes = 16, 64 << 10 // what steps write and read
	bigSlots, bigBytes     = 4, 16 << 20  // weights: many goroutines fill one while those before it are on their way
)

// slotFor gives a slot that is free, for up to n bytes, making them at first use.
func (s *staging) slotFor(dev *Device, n int) (*slot, error) {
	if s.slots == nil {
		if err := s.open(dev); err != nil {
			return nil, err
		}
	}
	var k *slot
	if n <= smallBytes {
		k = &s.slots[s.next%smallSlots]
	} else {
		k = &s.slots[smallSlots+s.next%bigSlots]
	}
	s.next++
	if k.busy {
		s.args[0] = k.event
		if err := dev.d.check(fnEventWait, "", dev.d.invokeChecked(fnEventWait, s.args[:1])); err != nil {
			return nil, err
		}
		k.busy = false
	}
	return k, nil
}

func (s *staging) open(dev *Device) error {
	s.slots = make([]slot, 0, smallSlots+bigSlots)
	for i := range smallSlots + bigSlots {
		n := smallBytes
		if i >= smallSlots {
			n = bigBytes
		}
		at, err := dev.d.get(fnHostAlloc, "staging", 0, uintptr(n), 0)
		if err != nil {
			return errlist.Join(err, s.close(dev))
		}
		s.slots = append(s.slots, slot{at: uintptr(at), bytes: view(uintptr(at), n)})
		event, err := dev.d.get(fnEventCreate, "staging", 0, eventDefault)
		if err != nil {
			return errlist.Join(err, s.close(dev))
		}
		s.slots[i].event = uintptr(event)
	}
	return nil
}

func (s *staging) close(dev *Device) error {
	var errs []error
	for _, k := range s.slots {
		if k.event != 0 {
			errs = append(errs, dev.d.call(fnEventDestroy, "staging", k.event))
		}
		errs = append(errs, dev.d.call(fnHostFree, "staging", k.at))
	}
	s.slots = nil
	return errlist.Join(errs...)
}

// write copies src to device memory. The device must be current.
func (dev *Device) write(to uintptr, src []byte) error {
	s := &dev.staging
	for len(src) > 0 {
		k, err := s.slotFor(dev, len(src))
		if err != nil {
			return err
		}
		n := mapped.Copy(k.bytes, src)
		s.args = [4]uintptr{to, k.at, uintptr(n), dev.stream}
		if err := dev.d.check(fnCopyIn, "", dev.d.invokeChecked(fnCopyIn, s.args[:4])); err != nil {
			return err
		}
		s.args[0], s.args[1] = k.event, dev.stream
		if err := dev.d.check(fnEventRecord, "", dev.d.invokeChecked(fnEventRecord, s.args[:2])); err != nil {
			return err
		}
		k.busy = true
		src, to = src[n:], to+uintptr(n)
	}
	return nil
}

// read copies device memory to dst and waits for it.
func (dev *Device) read(from uintptr, dst []byte) error {
	s := &dev.staging
	for len(dst) > 0 {
		k, err := s.slotFor(dev, len(dst))
		if err != nil {
			return err
		}
		n := min(len(dst), len(k.bytes))
		s.args = [4]uintptr{k.at, from, uintptr(n), dev.stream}
		if err := dev.d.check(fnCopyOut, "", dev.d.invokeChecked(fnCopyOut, s.args[:4])); err != nil {
			return err
		}
		if err := dev.wait(); err != nil {
			return err
		}
		mapped.Copy(dst, k.bytes[:n])
		dst, from = dst[n:], from+uintptr(n)
	}
	return nil
}

// wait waits for all work of the stream.
func (dev *Device) wait() error {
	dev.staging.args[0] = dev.stream
	return dev.d.check(fnStreamWait, "", dev.d.invokeChecked(fnStreamWait, dev.staging.args[:1]))
}

// Stream runs launches one by one, and moves bytes. All streams of a device
// share its queue, so that what one writes is there for what another runs.
func (dev *Device) Stream() (backends.Stream, error) { return &stream{dev}, nil }

type stream struct{ dev *Device }

func (s *stream) Close() error { return nil }

func (s *stream) Write(dst backends.Buffer, offset int, src []byte) error {
	at, err := s.dev.where(dst, offset, len(src))
	if err != nil || len(src) == 0 {
		return err
	}
	b := dst.(*buffer)
	if side, err := b.hostSide(); err != nil || side != nil {
		if err == nil {
			err = b.writeStep(side, offset, src)
		}
		return err
	}
	leave := s.dev.enter()
	err = s.dev.write(at, src)
	leave()
	return err
}

func (s *stream) Read(src backends.Buffer, offset int, dst []byte) error {
	at, err := s.dev.where(src, offset, len(dst))
	if err != nil || len(dst) == 0 {
		return err
	}
	b := src.(*buffer)
	if side, err := b.hostSide(); err != nil || side != nil {
		if err == nil {
			err = b.readStep(side, offset, dst)
		}
		return err
	}
	leave := s.dev.enter()
	err = s.dev.read(at, dst)
	leave()
	return err
}

// Launch runs a launch to its end.
func (s *stream) Launch(l *backends.Launch) error {
	b, err := s.dev.bind(l, 0)
	if err != nil {
		return err
	}
	defer b.free()
	if err := s.dev.prepare(b.programs(nil)); err != nil {
		return err
	}
	steps, err := stepBuffers([]backends.Launch{*l})
	if err != nil {
		return err
	}
	leave := s.dev.enter()
	defer leave()
	if err := directly(steps); err != nil {
		return err
	}
	if err := b.run(s.dev); err != nil {
		return err
	}
	if err := s.dev.wait(); err != nil {
		return named(err, b.what)
	}
	return s.dev.fault(&backends.Program{Launches: []backends.Launch{*l}})
}

// named adds to a driver's error what was running.
func named(err error, what string) error {
	var e *Error
	if errors.As(err, &e) && e.What == "" {
		e.What = what
	}
	return err
}
