package hip

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/greta-project/greta/backends"
)

// Memory of other processes, by handles of the driver (IPC).

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
	b := &buffer{dev: dev, at: uintptr(at), size: bytes, use: backends.Arena, foreign: true}
	// What the other side says of its size is checked where the driver knows better.
	out := newOuts()
	defer out.keep()
	if dev.d.call(fnAddressRange, "", out.at(0), out.at(1), b.at) == nil {
		if room := out.v[0] + out.v[1] - at; out.v[1] > 0 && uint64(bytes) > room {
			return nil, errors.Join(fmt.Errorf("the memory of the handle has %d bytes, not %d", room, bytes), b.Free())
		}
	}
	return b, nil
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
