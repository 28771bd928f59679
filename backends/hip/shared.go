package hip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// Memory of other processes, by handles of the driver (IPC), or by descriptors of its virtual memory management.

// handleBytes are a handle's, of both vendors.
const handleBytes = 64

// openLazily lets the driver allow what access between devices the memory needs.
const openLazily = 1

// SharedKind is cuda or hip (backends.Sharer).
func (dev *Device) SharedKind() string {
	if dev.d.vendor() == nvidia {
		return "cuda"
	}
	return "hip"
}

// OpenShared opens memory of another process (backends.Sharer).
func (dev *Device) OpenShared(handle []byte, bytes int) (backends.Buffer, error) {
	switch {
	case len(handle) != handleBytes:
		return nil, fmt.Errorf("a handle of %d bytes: %s's have %d", len(handle), dev.SharedKind(), handleBytes)
	case bytes <= 0:
		return nil, fmt.Errorf("%d bytes of shared memory: it must be positive", bytes)
	}
	defer dev.enter()()
	var pin runtime.Pinner
	defer pin.Unpin()
	at, err := dev.d.get(fnOpenShared, "memory of another process", 0, address(&pin, handle), openLazily)
	if err != nil {
		return nil, notShared(err)
	}
	b := &buffer{dev: dev, at: uintptr(at), size: bytes, use: backends.Arena}
	b.foreign = append(b.foreign, func() error { return dev.d.call(fnCloseShared, "", uintptr(at)) })
	// What the other side says of its size is checked where the driver knows better.
	out := newOuts()
	defer out.keep()
	if dev.d.call(fnAddressRange, "", out.at(0), out.at(1), b.at) == nil {
		if room := out.v[0] + out.v[1] - at; out.v[1] > 0 && uint64(bytes) > room {
			return nil, errlist.Join(fmt.Errorf("the memory of the handle has %d bytes, not %d", room, bytes), b.Free())
		}
	}
	return b, nil
}

// Numbers of both drivers for memory that is mapped.
const (
	byDescriptor = 1 // the type of a handle that is a file's descriptor
	onDevice     = 1 // the kind of a place
	readWrite    = 3
	castFrom     = 70200000 // HIP's version: earlier ones take the address of the descriptor
)

// ImportShared maps a whole allocation of another process (backends.Sharer).
func (dev *Device) ImportShared(descriptor, bytes int) (_ backends.Buffer, err error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("%d bytes of shared memory: it must be positive", bytes)
	}
	defer dev.enter()()
	d, size := dev.d, uintptr(bytes)
	if d.vendor() == amd {
		if v, err := d.get(fnDriverVersion, "", 0); err != nil || v < castFrom {
			return nil, errlist.Join(fmt.Errorf("memory is handed over by a descriptor from HIP 7.2 on; this is %d", v), err)
		}
	}
	handle, err := d.get(fnImport, "memory of another process", 0, uintptr(descriptor), byDescriptor)
	if err != nil {
		return nil, fmt.Errorf("%w: the descriptor is none of memory of a card that this process sees", err)
	}
	b := &buffer{dev: dev, size: bytes, use: backends.Arena}
	undo := func(f fn, args ...uintptr) {
		b.foreign = append(b.foreign, func() error { return d.call(f, "", args...) })
	}
	undo(fnRelease, uintptr(handle))
	defer func() {
		if err != nil {
			err = errlist.Join(err, b.end())
		}
	}()
	at, err := d.get(fnReserve, "memory of another process", 0, size, 0, 0, 0)
	if err != nil {
		return nil, err
	}
	undo(fnUnreserve, uintptr(at), size)
	if err := d.call(fnMap, "memory of another process", uintptr(at), size, 0, uintptr(handle), 0); err != nil {
		return nil, fmt.Errorf("%w: is it an allocation of %d bytes?", err, bytes)
	}
	undo(fnUnmap, uintptr(at), size)
	access := make([]byte, 0, 12) // the place's kind, its number, what is allowed
	for _, word := range []uint32{onDevice, uint32(dev.handle), readWrite} {
		access = binary.NativeEndian.AppendUint32(access, word)
	}
	if err := d.callBytes(fnAccess, 2, access, uintptr(at), size, 1); err != nil {
		return nil, err
	}
	b.at = uintptr(at)
	b.foreign = append(b.foreign, dev.wait) // for what uses it
	return b, nil
}

// end ends the use of another process's memory.
func (b *buffer) end() error {
	var errs []error
	for _, undo := range slices.Backward(b.foreign) {
		errs = append(errs, undo())
	}
	b.foreign = nil
	return errlist.Join(errs...)
}

// notShared explains what drivers answer for memory that is of no kind that has handles, or a handle of this process.
func notShared(err error) error {
	return fmt.Errorf(
		"%w: memory is handed over that was allocated by cudaMalloc or hipMalloc in another process of this "+
			"machine, which sees the same card", err)
}

// Move starts a copy on the device (backends.Sharer).
func (dev *Device) Move(dst backends.Buffer, dstOffset int, src backends.Buffer, srcOffset, n int) error {
	to, err := dev.where(dst, dstOffset, n)
	if err != nil {
		return err
	}
	from, err := dev.where(src, srcOffset, n)
	if err != nil || n == 0 {
		return err
	}
	for _, b := range []backends.Buffer{dst, src} {
		if b.(*buffer).use == backends.Step {
			return errors.New("hip: memory for steps has a host's side: it is written and read by streams")
		}
	}
	defer dev.enter()()
	return dev.d.call(fnCopyDevice, "shared memory", to, from, uintptr(n), dev.stream)
}

// Settle waits for what was started (backends.Sharer).
func (dev *Device) Settle() error {
	defer dev.enter()()
	return dev.wait()
}
