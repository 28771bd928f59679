package hip

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/greta-project/greta/backends"
)

// provider is a loaded runtime: addresses behind the table, or a fake one in tests.
type provider interface {
	vendor() vendor
	// has says whether the function was found.
	has(f fn) bool
	// invoke calls a function. Pointers among the arguments are kept alive by the caller.
	invoke(f fn, args []uintptr) uintptr
	// files are the libraries that were loaded.
	files() []string
	// targets are the architectures that the compiler knows; nil: ask it.
	targets() []string
}

// driver is a provider with its conventions: every code is checked and named.
//
// Ownership: what create, alloc and load functions of this package return is
// the caller's to destroy; nothing is freed by the collector.
type driver struct {
	provider
}

// Error is a failed call of a driver or compiler.
type Error struct {
	Call string // "cuLaunchKernel"
	What string // "linear.f16 of blk.3.q", may be empty
	Code int
	Name string // "CUDA_ERROR_INVALID_VALUE"
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%s failed with %d", e.Call, e.Code)
	if e.Name != "" {
		text += " (" + e.Name + ")"
	}
	if e.What != "" {
		text = e.What + ": " + text
	}
	return text
}

// lostCodes are those, the same of both runtimes, behind which a context is of no use: states that are not allowed,
// memory that could not be corrected, an address or an instruction that is none, a kernel that took
// too long, asserted or failed.
var lostCodes = []int{214, 401, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719}

// Is says whether the device is lost: its driver's errors of some codes are backends.ErrLost.
func (e *Error) Is(target error) bool {
	compiles := strings.HasPrefix(e.Call, "hiprtc") || strings.HasPrefix(e.Call, "nvrtc")
	return target == backends.ErrLost && !compiles && slices.Contains(lostCodes, e.Code)
}

// noDevice says that there is no GPU to run on, and why.
func noDevice(reason string) error { return &backends.NoDevice{Kind: "HIP", Reason: reason} }

// call invokes a function that returns a code. what names the kernel or tensor
// for which it is called.
//
//go:uintptrescapes
func (d *driver) call(f fn, what string, args ...uintptr) error {
	return d.check(f, what, d.invokeChecked(f, args))
}

// invokeChecked answers 'not found' for a function that the library lacks.
func (d *driver) invokeChecked(f fn, args []uintptr) int32 {
	if !d.has(f) {
		return codeMissing
	}
	return int32(d.invoke(f, args))
}

// codeMissing is our own: the library has no such function.
const codeMissing = -1000

func (d *driver) check(f fn, what string, code int32) error {
	if code == 0 {
		return nil
	}
	e := &Error{Call: d.vendor().symbol(f), What: what, Code: int(code)}
	switch {
	case code == codeMissing:
		e.Name = "the library has no such function"
	case f < fnRtcVersion:
		e.Name = d.errorName(code)
	}
	return e
}

// errorName asks the driver for the name of a code.
func (d *driver) errorName(code int32) string {
	if !d.has(fnErrorName) {
		return ""
	}
	if d.vendor() == amd {
		return goString(d.invoke(fnErrorName, []uintptr{uintptr(code)}))
	}
	out := newOuts()
	defer out.keep()
	if d.invoke(fnErrorName, []uintptr{uintptr(code), out.at(0)}) != 0 {
		return ""
	}
	return goString(uintptr(out.v[0]))
}

// goString reads a C string that a library owns, up to 256 bytes.
func goString(p uintptr) string {
	if p == 0 {
		return ""
	}
	at := *(*unsafe.Pointer)(unsafe.Pointer(&p)) // the library's memory, not Go's
	n := 0
	for n < 256 && *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}

// outs is memory for results of calls. It comes from a pool, so it is on the
// heap and does not move.
type outs struct{ v [4]uint64 }

var outsPool = sync.Pool{New: func() any { return new(outs) }}

func newOuts() *outs {
	o := outsPool.Get().(*outs)
	o.v = [4]uint64{}
	return o
}

// at is the address of result i.
func (o *outs) at(i int) uintptr { return uintptr(unsafe.Pointer(&o.v[i])) }

// keep ends the use of o: results must have been read.
func (o *outs) keep() {
	runtime.KeepAlive(o)
	outsPool.Put(o)
}

// get calls a function whose argument number at is the address of a result.
func (d *driver) get(f fn, what string, at int, args ...uintptr) (uint64, error) {
	out := newOuts()
	defer out.keep()
	all := make([]uintptr, 0, len(args)+1)
	all = append(all, args[:at]...)
	all = append(all, out.at(0))
	all = append(all, args[at:]...)
	err := d.check(f, what, d.invokeChecked(f, all))
	return out.v[0], err
}

// callBytes calls a function that has the address of bytes as its argument at.
func (d *driver) callBytes(f fn, at int, b []byte, args ...uintptr) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	all := append([]uintptr{}, args[:at]...)
	all = append(all, address(&pin, b))
	all = append(all, args[at:]...)
	return d.check(f, "", d.invokeChecked(f, all))
}

// word32 sees a library's result of 32 bits.
func word32(p uintptr) *int32 { return (*int32)(*(*unsafe.Pointer)(unsafe.Pointer(&p))) }

// view sees memory of a library as bytes.
func view(p uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&p))), n)
}
