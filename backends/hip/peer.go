package hip

import (
	"errors"

	"github.com/greta-project/greta/internal/errlist"
)

// Copies from one device's memory to another's.

// Reach lets this device use the other's memory directly, where the machine can do that: over a link between the two
// or over the bus. Where it cannot, which is no error, copies go by way of the host.
func (r *Raw) Reach(other *Raw) (direct bool, err error) {
	d := r.dev.d
	if d.vendor() != other.dev.d.vendor() {
		return false, errors.New("hip: devices of two vendors do not reach each other")
	}
	can, err := d.get(fnPeerCan, "peer", 0, r.dev.handle, other.dev.handle)
	if err != nil || int32(can) == 0 {
		return false, err
	}
	if code := d.invokeChecked(fnPeerEnable, []uintptr{other.dev.current[0], 0}); code != errPeerEnabled {
		return code == 0, d.check(fnPeerEnable, "peer", code)
	}
	return true, nil
}

// StartPeerCopy starts a copy of n bytes at an offset of both memories, one of which is this device's, on its stream.
func (r *Raw) StartPeerCopy(to, from *RawMemory, offset, n int) error {
	if err := errlist.Join(to.check(offset, n), from.check(offset, n)); err != nil {
		return err
	}
	if to.kind != OnDevice || from.kind != OnDevice || to.r == from.r || to.r != r && from.r != r {
		return errors.New("hip: a copy between devices goes from memory of one to memory of another")
	}
	return r.dev.d.call(fnPeerCopy, "peer", to.at+uintptr(offset), to.r.dev.current[0], from.at+uintptr(offset),
		from.r.dev.current[0], uintptr(n), r.dev.stream)
}
