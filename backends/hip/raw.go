package hip

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// The device below the contract of backends: kernels from any source text,
// memory of every kind, launches one by one, graphs of any launches, times by
// events. Microbenchmarks use it; programs do not.

// Raw is a device as microbenchmarks see it. It belongs to one goroutine, which
// is bound to its thread from Raw to Close; the device must be closed after it.
type Raw struct {
	dev    *Device
	leave  func()
	events [2]uintptr
}

// Raw opens the device's lower side.
func (dev *Device) Raw() (*Raw, error) {
	r := &Raw{dev: dev, leave: dev.enter()}
	for i := range r.events {
		event, err := dev.d.get(fnEventCreate, "raw", 0, eventDefault)
		if err != nil {
			return nil, errlist.Join(err, r.Close())
		}
		r.events[i] = uintptr(event)
	}
	return r, nil
}

// Close ends the use of the lower side. What it gave must be closed before.
func (r *Raw) Close() error {
	var errs []error
	for _, e := range r.events {
		if e != 0 {
			errs = append(errs, r.dev.d.call(fnEventDestroy, "raw", e))
		}
	}
	r.events = [2]uintptr{}
	r.leave()
	return errlist.Join(errs...)
}

// Limits are a device's attributes. What a driver does not say is 0.
type Limits struct {
	Name, Arch     string
	Units          int // multiprocessors or compute units
	Wave           int // threads of a warp or wavefront
	ClockMHz       float64
	MemoryMHz      float64
	BusBits        int
	L2             int // bytes
	SharedPerUnit  int // bytes
	SharedPerBlock int // bytes, the most that a launch may ask for
	ThreadsPerUnit int
	Managed        bool // memory that moves by itself
	Free, Memory   int  // bytes
	PCI            string
}

var (
	attrL2             = attribute{19, 38}
	attrThreadsPerUnit = attribute{57, 39}
	attrSharedPerUnit  = attribute{92, 81}
	attrSharedOptIn    = attribute{75, 97}
	attrSharedPerBlock = attribute{74, 8}
	attrManaged        = attribute{9, 89} // at once from host and device
	attrPCIDomain      = attribute{69, 50}
	attrPCIBus         = attribute{67, 33}
	attrPCIDevice      = attribute{68, 34}
)

// Limits asks the driver.
func (r *Raw) Limits() (Limits, error) {
	dev := r.dev
	l := dev.d.limits(dev.handle)
	l.Name, l.Arch = dev.info.Name, dev.info.Level
	out := newOuts()
	defer out.keep()
	if err := dev.d.call(fnMemoryInfo, "", out.at(0), out.at(1)); err != nil {
		return l, err
	}
	l.Free, l.Memory = int(min(out.v[0], 1<<62)), int(min(out.v[1], 1<<62))
	return l, nil
}

// Attributes gives what HIP's drivers say of the device at a PCI address, such as
// "0000:c1:00.0", without opening it; false where they have none there. Who reaches
// a device by other ways knows its clocks and widths by that.
func Attributes(location string) (Limits, bool) {
	for _, who := range []vendor{amd, nvidia} {
		p, err := load(who)
		if err != nil {
			continue
		}
		d := &driver{p}
		found, err := d.devices()
		if err != nil {
			continue
		}
		for _, f := range found {
			handle, err := d.get(fnDevice, "", 0, uintptr(f.Index))
			if err != nil {
				continue
			}
			if l := d.limits(uintptr(handle)); l.PCI == location {
				l.Name, l.Arch, l.Memory = f.Name, f.Arch, int(min(f.Memory, 1<<62))
				return l, true
			}
		}
	}
	return Limits{}, false
}

// limits asks for a device's attributes.
func (d *driver) limits(handle uintptr) (l Limits) {
	ask := func(a attribute) int {
		n, err := d.attribute(a, handle)
		if err != nil {
			return 0
		}
		return n
	}
	l.Units, l.Wave = ask(attrUnits), ask(attrWarpSize)
	l.ClockMHz, l.MemoryMHz = float64(ask(attrClock))/1e3, float64(ask(attrMemoryClock))/1e3
	l.BusBits, l.L2, l.ThreadsPerUnit = ask(attrBusWidth), ask(attrL2), ask(attrThreadsPerUnit)
	l.SharedPerUnit, l.SharedPerBlock = ask(attrSharedPerUnit), max(ask(attrSharedPerBlock), ask(attrSharedOptIn))
	l.Managed = ask(attrManaged) != 0
	l.PCI = fmt.Sprintf("%04x:%02x:%02x.0", ask(attrPCIDomain), ask(attrPCIBus), ask(attrPCIDevice))
	return l
}

// RawKernel is a function of a compiled source.
type RawKernel struct {
	name   string
	handle uintptr
}

// Compile compiles a source, or takes it from the cache, and finds a function
// of it. Macros are "NAME=value". The line #include "prelude.h" is the common
// dialect of the backend's own kernels. name is for messages.
func (r *Raw) Compile(name, source, function string, macros ...string) (*RawKernel, error) {
	dev := r.dev
	var b strings.Builder
	for _, m := range macros {
		b.WriteString("#define " + strings.Replace(m, "=", " ", 1) + "\n")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(source) {
		if file, ok := strings.CutPrefix(line, "#include \""); ok {
			if err := include(&b, strings.TrimRight(file, "\"\n"), seen); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		b.WriteString(line)
	}
	text := b.String()
	key := dev.c.target.key(text)
	p := program(strings.Join(append([]string{name}, macros...), " ") + " " + key)
	if _, ok := dev.modules[p]; !ok {
		image := dev.c.cache.load(key)
		if image == nil {
			var err error
			if image, err = dev.c.compile(p, text); err != nil {
				return nil, err
			}
			dev.c.cache.store(key, p, image) // a cache that cannot be written costs time, nothing else
		}
		out := newOuts()
		defer out.keep()
		if err := dev.d.call(fnModuleLoad, name, out.at(0), uintptr(unsafe.Pointer(unsafe.SliceData(image)))); err != nil {
			return nil, err
		}
		dev.modules[p] = uintptr(out.v[0])
	}
	f, err := dev.function(code{p, function})
	return &RawKernel{name + "." + function, f}, err
}

// attrDynamicShared is CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
const attrDynamicShared = 8

// defaultShared is what a launch may ask for without saying so before.
const defaultShared = 48 << 10

// Resident is how many blocks of a number of threads and bytes of shared memory
// stay on a multiprocessor at once.
func (r *Raw) Resident(k *RawKernel, block, shared int) (int, error) {
	if err := r.allow(k, shared); err != nil {
		return 0, err
	}
	n, err := r.dev.d.get(fnOccupancy, k.name, 0, k.handle, uintptr(block), uintptr(shared))
	return int(int32(n)), err
}

// allow lets a kernel ask for more shared memory than is given unasked.
func (r *Raw) allow(k *RawKernel, shared int) error {
	if shared <= defaultShared || r.dev.d.vendor() == amd {
		return nil
	}
	return r.dev.d.call(fnSetFunction, k.name, k.handle, attrDynamicShared, uintptr(shared))
}

// RawLaunch is a launch with its arguments, ready to be started many times.
type RawLaunch struct {
	what string
	args args
	call []uintptr
}

// Bind makes a launch. Arguments are *RawMemory, uint64 (also addresses), or
// uint32, int32, float32, float64, in the kernel's order.
func (r *Raw) Bind(k *RawKernel, grid, block, shared int, arguments ...any) (*RawLaunch, error) {
	if grid <= 0 || block <= 0 || shared < 0 {
		return nil, fmt.Errorf("%s: a launch of %d blocks of %d threads with %d bytes of shared memory is not possible",
			k.name, grid, block, shared)
	}
	if err := r.allow(k, shared); err != nil {
		return nil, err
	}
	l := &RawLaunch{what: k.name}
	a := &l.args
	for i, v := range arguments {
		switch v := v.(type) {
		case *RawMemory:
			a.add(uint64(v.at))
		case uint64:
			a.add(v)
		case uint32:
			a.add(uint64(v))
		case int32:
			a.add(uint64(uint32(v)))
		case float32:
			a.add(uint64(math.Float32bits(v)))
		case float64:
			a.add(math.Float64bits(v))
		default:
			return nil, fmt.Errorf("%s: argument %d is a %T", k.name, i, v)
		}
	}
	var params uintptr
	if len(a.at) > 0 {
		a.ptrs = make([]uintptr, len(a.at))
		a.pin.Pin(&a.values[0])
		a.pin.Pin(&a.ptrs[0])
		for i, at := range a.at {
			a.ptrs[i] = uintptr(unsafe.Pointer(&a.values[at]))
		}
		params = uintptr(unsafe.Pointer(&a.ptrs[0]))
	}
	l.call = []uintptr{k.handle, uintptr(grid), 1, 1, uintptr(block), 1, 1, uintptr(shared), r.dev.stream, params, 0}
	return l, nil
}

// Free ends a launch.
func (l *RawLaunch) Free() { l.args.pin.Unpin() }

// Start puts a launch on the stream. It allocates nothing.
func (r *Raw) Start(l *RawLaunch) error {
	if code := r.dev.d.invokeChecked(fnLaunch, l.call); code != 0 {
		return r.dev.d.check(fnLaunch, l.what, code)
	}
	return nil
}

// Wait waits for all that was started.
func (r *Raw) Wait() error { return r.dev.wait() }

// Time gives the seconds between an event before what run starts and one
// behind it, by the device's clock, and from the first call to the end of the
// wait by the host's.
func (r *Raw) Time(run func() error) (device, host float64, err error) {
	d, s := r.dev.d, r.dev.stream
	begin := time.Now()
	if err := d.call(fnEventRecord, "raw", r.events[0], s); err != nil {
		return 0, 0, err
	}
	if err := run(); err != nil {
		return 0, 0, err
	}
	if err := d.call(fnEventRecord, "raw", r.events[1], s); err != nil {
		return 0, 0, err
	}
	if err := r.Wait(); err != nil {
		return 0, 0, err
	}
	host = time.Since(begin).Seconds()
	bits, err := d.get(fnEventElapsed, "raw", 0, r.events[0], r.events[1])
	return float64(f32(uint32(bits))) * 1e-3, host, err
}

// RawGraph is a graph of launches, ready to be started.
type RawGraph struct {
	r    *Raw
	exec uintptr
	call []uintptr
}

// Capture records what run starts as a graph: a chain of nodes.
func (r *Raw) Capture(run func() error) (*RawGraph, error) {
	d, s := r.dev.d, r.dev.stream
	if err := d.call(fnCaptureBegin, "raw", s, captureRelaxed); err != nil {
		return nil, err
	}
	failed := run()
	graph, err := d.get(fnCaptureEnd, "raw", 1, s)
	if err = errlist.Join(failed, err); err != nil {
		if graph != 0 {
			err = errlist.Join(err, d.call(fnGraphDestroy, "raw", uintptr(graph)))
		}
		return nil, err
	}
	exec, err := d.get(fnGraphInstantiate, "raw", 0, uintptr(graph), 0)
	err = errlist.Join(err, d.call(fnGraphDestroy, "raw", uintptr(graph)))
	if err != nil {
		return nil, err
	}
	return &RawGraph{r, uintptr(exec), []uintptr{uintptr(exec), s}}, nil
}

// Start puts the graph on the stream.
func (g *RawGraph) Start() error {
	d := g.r.dev.d
	return d.check(fnGraphLaunch, "raw", d.invokeChecked(fnGraphLaunch, g.call))
}

// Close gives the graph back.
func (g *RawGraph) Close() error { return g.r.dev.d.call(fnGraphExecDestroy, "raw", g.exec) }

// MemoryKind is where memory lies.
type MemoryKind int

// The kinds of memory.
const (
	OnDevice MemoryKind = iota
	Pinned              // the host's, locked, which the device reaches
	Managed             // moves to whoever touches it
)

// RawMemory is memory that kernels reach.
type RawMemory struct {
	r    *Raw
	at   uintptr
	size int
	kind MemoryKind
}

// Alloc gives memory, whose bytes are arbitrary. A full device is an *backends.OutOfMemory.
func (r *Raw) Alloc(bytes int, kind MemoryKind) (*RawMemory, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("hip: cannot allocate %d bytes", bytes)
	}
	var at uint64
	var err error
	switch d := r.dev.d; kind {
	case Pinned:
		at, err = d.get(fnHostAlloc, "pinned memory", 0, uintptr(bytes), 0)
	case Managed:
		at, err = d.get(fnAllocManaged, "managed memory", 0, uintptr(bytes), 1)
	default:
		at, err = d.get(fnAlloc, "memory", 0, uintptr(bytes))
	}
	var e *Error
	if errors.As(err, &e) && e.Code == errOutOfMemory {
		return nil, &backends.OutOfMemory{Need: int64(bytes), What: "a benchmark", Err: err}
	}
	if err != nil {
		return nil, err
	}
	return &RawMemory{r, uintptr(at), bytes, kind}, nil
}

// Size is in bytes.
func (m *RawMemory) Size() int { return m.size }

// Address is where kernels find the memory.
func (m *RawMemory) Address() uint64 { return uint64(m.at) }

// Host sees pinned or managed memory as bytes; nil for the device's.
func (m *RawMemory) Host() []byte {
	if m.kind == OnDevice {
		return nil
	}
	return view(m.at, m.size)
}

// Free gives the memory back. Nothing may be using it.
func (m *RawMemory) Free() error {
	if m.at == 0 {
		return nil
	}
	at := m.at
	m.at = 0
	if m.kind == Pinned {
		return m.r.dev.d.call(fnHostFree, "raw", at)
	}
	return m.r.dev.d.call(fnFree, "raw", at)
}

func (m *RawMemory) check(offset, n int) error {
	if m.at == 0 || offset < 0 || n < 0 || n > m.size || offset > m.size-n {
		return fmt.Errorf("hip: bytes [%d, %d) of a benchmark's %d, or a use after its end", offset, offset+n, m.size)
	}
	return nil
}

// Write copies host memory in, pinned or not, and waits for it.
func (m *RawMemory) Write(offset int, src []byte) error { return m.copy(fnCopyIn, offset, src) }

// Read copies memory out, and waits for it.
func (m *RawMemory) Read(offset int, dst []byte) error { return m.copy(fnCopyOut, offset, dst) }

func (m *RawMemory) copy(f fn, offset int, host []byte) error {
	if err := m.check(offset, len(host)); err != nil || len(host) == 0 {
		return err
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	d, at := m.r.dev.d, address(&pin, host)
	to, from := m.at+uintptr(offset), at
	if f == fnCopyOut {
		to, from = from, to
	}
	if err := d.call(f, "raw", to, from, uintptr(len(host)), m.r.dev.stream); err != nil {
		return err
	}
	return m.r.Wait()
}

// StartCopy starts a copy of n bytes between device memory and pinned memory, at the
// same offset in both, in the stream's order.
func (r *Raw) StartCopy(to, from *RawMemory, offset, n int) error {
	if err := errlist.Join(to.check(offset, n), from.check(offset, n)); err != nil {
		return err
	}
	f := fnCopyIn
	if to.kind == Pinned {
		f = fnCopyOut
	}
	if (to.kind == Pinned) == (from.kind == Pinned) {
		return errors.New("hip: a copy goes between device memory and pinned memory")
	}
	return r.dev.d.call(f, "raw", to.at+uintptr(offset), from.at+uintptr(offset), uintptr(n), r.dev.stream)
}
