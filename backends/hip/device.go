package hip

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// Device is a GPU. As the contract has it, one goroutine uses it at a time; it
// may do so from any thread.
type Device struct {
	mutex   backends.FairMutex
	d       *driver
	info    backends.Info
	current []uintptr // what fnSetDevice takes: a device's number or a context
	handle  uintptr   // of the device
	context bool      // a context is retained
	stream  uintptr
	sides   []sideStream // for branches of graphs
	last    *executable  // that was submitted and not waited for
	fork    uintptr      // event
	c       *compiler
	units   int             // multiprocessors or compute units
	gflops  float64         // the peak without fp8 instructions
	wave    int             // lanes of a wavefront as kernels have it
	off     map[string]bool // paths that are not used

	modules   map[program]uintptr
	funcs     map[code]uintptr
	kernels   map[string]*kernel
	staging   staging
	status    []uint32 // errors that kernels found, in host memory that they reach
	statusAt  uintptr
	tables    map[string]*buffer       // constants of kernels, by what they are
	counters  []*buffer                // zeroed words; the last is the largest
	ticketsOf *buffer                  // counters of launches
	tickets   int                      // given so far
	works     []*buffer                // memory inside launches; the last is the largest
	areas     [2][]*buffer             // widened weights, the same
	asked     func(*graph.Node) string // for variants, nil: the defaults
	alone     bool                     // launches are not joined
	invariant bool                     // a row's results do not depend on the rows beside it
	overlaps  bool                     // launches may start before the one before them ends
	early     *earlyLaunch
	shares    map[uintptr]int // shared memory that functions may ask for, by their handles
	askFits   sync.Once       // when a product first needs to know
	clusters  [2]int          // of two and of four blocks that run at once, 0: it is not known; see fits
}

// code names a function of a program.
type code struct {
	program program
	name    string
}

func openDevice(d *driver, f Found, opt Options) (*Device, error) {
	dev := &Device{d: d, modules: map[program]uintptr{}, funcs: map[code]uintptr{}, tables: map[string]*buffer{},
		kernels: map[string]*kernel{}, shares: map[uintptr]int{}, early: new(earlyLaunch), invariant: opt.Invariant}
	cache := DefaultCache()
	if opt.Cache != nil {
		cache = *opt.Cache
	}
	var err error
	if dev.c, err = newCompiler(d, f.Arch, cache, opt.Built); err != nil {
		return nil, err
	}
	if len(opt.Compiler) > 0 && d.vendor() == amd {
		dev.c.worker = &compileWorker{command: opt.Compiler, limit: compileLimit}
	}
	if err := dev.start(f); err != nil {
		return nil, errlist.Join(err, dev.Close())
	}
	dev.openPaths(opt.FP16)
	return dev, nil
}

func (dev *Device) start(f Found) error {
	d := dev.d
	handle, err := d.get(fnDevice, "", 0, uintptr(f.Index))
	if err != nil {
		return err
	}
	dev.handle, dev.current = uintptr(handle), []uintptr{uintptr(f.Index)}
	if d.vendor() == nvidia {
		ctx, err := d.get(fnRetainContext, "", 0, dev.handle)
		if err != nil {
			return none(err)
		}
		dev.current[0], dev.context = uintptr(ctx), true
	}
	defer dev.enter()()
	if err := d.check(fnSetDevice, "", d.invokeChecked(fnSetDevice, dev.current)); err != nil {
		return none(err)
	}
	stream, err := d.get(fnStreamCreate, "", 0, streamNonBlocking)
	if err != nil {
		return err
	}
	dev.stream = uintptr(stream)
	status, err := d.get(fnHostAlloc, "status", 0, 64, 0)
	if err != nil {
		return err
	}
	dev.statusAt = uintptr(status)
	dev.status = tensor.View[uint32](view(dev.statusAt, 64))
	clear(dev.status)
	out := newOuts()
	defer out.keep()
	if err := d.call(fnMemoryInfo, "", out.at(0), out.at(1)); err != nil {
		return err
	}
	free := out.v[0]
	values := make([]int, 5)
	for i, a := range []attribute{attrUnits, attrWarpSize, attrBusWidth, attrMemoryClock, attrClock} {
		if values[i], err = d.attribute(a, dev.handle); err != nil {
			return err
		}
	}
	dev.units, dev.wave = values[0], values[1]
	name, err := d.driverName(dev.c.target.version)
	if err != nil {
		return err
	}
	dev.info = backends.Info{
		Backend: "hip", Name: f.Name, Level: f.Arch, Driver: name, Threads: dev.units, Float: tensor.F32, Align: 64,
		Fusions: fusions,
		Running: backends.Running{Queued: true, Picks: pickMost, Window: joinWindow, Chain: chainLaunches},
		Memory:  int(min(free, 1<<62)),
		// Two transfers a clock, as all memories since DDR have.
		Roofs: backends.Roofs{ReadGBs: 2 * float64(values[2]) / 8 * float64(values[3]) / 1e6},
	}
	dev.gflops = 2 * float64(dev.units*multiplyAdds(f.Arch)) * float64(values[4]) / 1e6
	dev.overlaps = f.Arch == "sm_90" && d.has(fnLaunchConfig)
	return nil
}

// multiplyAdds is how many multiply-adds a unit starts per clock at most: those
// of its matrix cores on f16 where products use them, by the makers' published
// peaks, else those of its f32 lanes.
func multiplyAdds(arch string) int {
	switch {
	case arch == "sm_75":
		return 64
	case arch == "sm_80":
		return 1024
	case arch == "sm_90":
		return 2048
	case strings.HasPrefix(arch, "sm_8"), strings.HasPrefix(arch, "sm_12"):
		return 512
	case hasMatrixCores(arch) && strings.HasPrefix(arch, "sm_"):
		return 4096
	case arch == "gfx90a":
		return 512
	case arch == "gfx942":
		return 1024
	case strings.HasPrefix(arch, "gfx11"):
		return 256
	case strings.HasPrefix(arch, "gfx12"):
		return 512
	}
	return 128
}

// Turn is for goroutines that share the device.
func (dev *Device) Mutex() *backends.FairMutex { return &dev.mutex }

// Info describes the device.
func (dev *Device) Info() backends.Info { return dev.info }

// enter binds the goroutine to its thread and makes the device that thread's
// current one. The function that it gives ends that. An error shows at the
// next call, which then fails for want of a context.
func (dev *Device) enter() func() {
	runtime.LockOSThread()
	dev.d.invokeChecked(fnSetDevice, dev.current)
	return runtime.UnlockOSThread
}

// sideStream is a stream that forks from the device's while a graph is
// captured, and the event at which it joins again.
type sideStream struct{ stream, event uintptr }

// mostSides bounds the branches of a level.
const mostSides = 3

// side makes n side streams, or as many as there may be.
func (dev *Device) side(n int) error {
	d := dev.d
	if n > 0 && dev.fork == 0 {
		event, err := d.get(fnEventCreate, "fork", 0, eventDefault)
		if err != nil {
			return err
		}
		dev.fork = uintptr(event)
	}
	for len(dev.sides) < min(n, mostSides) {
		stream, err := d.get(fnStreamCreate, "branch", 0, streamNonBlocking)
		if err != nil {
			return err
		}
		dev.sides = append(dev.sides, sideStream{stream: uintptr(stream)})
		event, err := d.get(fnEventCreate, "branch", 0, eventDefault)
		if err != nil {
			return err
		}
		dev.sides[len(dev.sides)-1].event = uintptr(event)
	}
	return nil
}

// Close frees all that the device holds. Buffers and executables must be closed before.
func (dev *Device) Close() error {
	defer dev.enter()()
	var errs []error
	end := func(f fn, args ...uintptr) { errs = append(errs, dev.d.call(f, "", args...)) }
	if dev.stream != 0 {
		end(fnStreamWait, dev.stream)
	}
	for _, m := range dev.modules {
		end(fnModuleUnload, m)
	}
	for _, b := range dev.tables {
		errs = append(errs, b.Free())
	}
	for _, b := range dev.counters {
		errs = append(errs, b.Free())
	}
	for _, b := range slices.Concat(dev.works, dev.areas[0], dev.areas[1]) {
		errs = append(errs, b.Free())
	}
	if dev.ticketsOf != nil {
		errs = append(errs, dev.ticketsOf.Free())
		dev.ticketsOf = nil
	}
	for _, s := range dev.sides {
		if s.event != 0 {
			end(fnEventDestroy, s.event)
		}
		end(fnStreamDestroy, s.stream)
	}
	if dev.fork != 0 {
		end(fnEventDestroy, dev.fork)
	}
	errs = append(errs, dev.staging.close(dev))
	if dev.statusAt != 0 {
		end(fnHostFree, dev.statusAt)
	}
	if dev.stream != 0 {
		end(fnStreamDestroy, dev.stream)
	}
	if dev.context {
		end(fnReleaseContext, dev.handle)
	}
	dev.modules, dev.tables, dev.counters, dev.works, dev.sides, dev.fork = nil, nil, nil, nil, nil, 0
	dev.areas = [2][]*buffer{}
	dev.statusAt, dev.stream, dev.context = 0, 0, false
	errs = append(errs, dev.c.cache.trim())
	return errlist.Join(errs...)
}

// buffer is device memory.
type buffer struct {
	dev  *Device
	at   uintptr
	size int
	use  backends.Use
	side *stepSide // the host's side of Step memory
	// foreign is not empty where it is another process's memory, which is not freed: what ends its use, the last first.
	foreign []func() error
}

func (b *buffer) Size() int         { return b.size }
func (b *buffer) Use() backends.Use { return b.use }

func (b *buffer) Free() error {
	if b.at == 0 {
		return nil
	}
	defer b.dev.enter()()
	at := b.at
	b.at = 0
	if len(b.foreign) > 0 {
		return b.end()
	}
	return errlist.Join(b.freeSide(), b.dev.d.call(fnFree, "", at))
}

// Alloc gives zeroed device memory. Its error says how much was asked for; a
// full device is an *backends.OutOfMemory.
func (dev *Device) Alloc(bytes int, use backends.Use) (backends.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("hip: cannot allocate %d bytes", bytes)
	}
	b, err := dev.alloc(bytes, use.String())
	if err != nil {
		return nil, err
	}
	b.use = use
	return b, nil
}

func (dev *Device) alloc(bytes int, what string) (*buffer, error) {
	defer dev.enter()()
	b := &buffer{dev: dev, size: bytes}
	n := uintptr(max(bytes, 1))
	at, err := dev.d.get(fnAlloc, what, 0, n)
	if err != nil {
		var e *Error
		if errors.As(err, &e) && e.Code == errOutOfMemory {
			return nil, &backends.OutOfMemory{Need: int64(bytes), What: what, Err: err}
		}
		return nil, err
	}
	b.at = uintptr(at)
	if err := dev.d.call(fnFill, what, b.at, 0, n, dev.stream); err != nil {
		return nil, errlist.Join(err, b.Free())
	}
	return b, nil
}

// where gives the address of a range of a buffer of this device.
func (dev *Device) where(b backends.Buffer, offset, n int) (uintptr, error) {
	own, ok := b.(*buffer)
	if !ok || own.dev != dev {
		return 0, fmt.Errorf("hip: a buffer of another device (%T) was given", b)
	}
	if own.at == 0 {
		return 0, fmt.Errorf("hip: a buffer was used after it was freed")
	}
	if offset < 0 || n < 0 || offset > own.size || n > own.size-offset {
		return 0, fmt.Errorf("hip: bytes [%d, %d) lie outside a buffer of %d", offset, offset+n, own.size)
	}
	return own.at + uintptr(offset), nil
}

// table gives a constant of kernels in device memory, made once by its key.
func (dev *Device) table(key string, data func() []byte) (uintptr, error) {
	if b := dev.tables[key]; b != nil {
		return b.at, nil
	}
	bytes := data()
	b, err := dev.alloc(len(bytes), key)
	if err != nil {
		return 0, err
	}
	if err := dev.write(b.at, bytes); err != nil {
		return 0, errlist.Join(err, b.Free())
	}
	dev.tables[key] = b
	return b.at, nil
}

// zeroed gives n words that are zero between launches.
func (dev *Device) zeroed(n int) (uintptr, error) {
	if k := len(dev.counters); k > 0 && dev.counters[k-1].size >= 4*n {
		return dev.counters[k-1].at, nil
	}
	b, err := dev.alloc(4*max(n, 4096), "counters")
	if err != nil {
		return 0, err
	}
	dev.counters = append(dev.counters, b)
	return b.at, nil
}

// tickets is how many launches there may be before counters are given again.
const tickets = 128

// ticketWords is the words of a launch's counters: see COUNTERS in vec.hip.
const ticketWords = 32 * vecThreads / 32

// ticket gives ticketWords words that are zero whenever a launch begins that they are given to.
func (dev *Device) ticket() (uintptr, error) {
	if dev.ticketsOf == nil {
		b, err := dev.alloc(4*ticketWords*tickets, "tickets")
		if err != nil {
			return 0, err
		}
		dev.ticketsOf = b
	}
	dev.tickets++
	return dev.ticketsOf.at + uintptr(4*ticketWords*(dev.tickets%tickets)), nil
}

// workspace gives n bytes that a launch may use while it runs; launches that use
// it run one after another.
func (dev *Device) workspace(n int) (uintptr, error) {
	if k := len(dev.works); k > 0 && dev.works[k-1].size >= n {
		return dev.works[k-1].at, nil
	}
	b, err := dev.alloc(n, "workspace")
	if err != nil {
		return 0, err
	}
	dev.works = append(dev.works, b)
	return b.at, nil
}

// fault gives and clears what kernels found wrong with a program's data, as an error.
func (dev *Device) fault(p *backends.Program) error {
	if dev.status[0] == 0 {
		return nil
	}
	launch, index, value := int(dev.status[1]), dev.status[2], int32(dev.status[3])
	clear(dev.status)
	if n := len(p.Launches); launch < n {
		step := ""
		if p.Steps > 1 {
			step = fmt.Sprintf("step %d of %d: ", launch/(n/p.Steps)+1, p.Steps)
		}
		return fmt.Errorf("%s%v: index %d is %d, which is out of range", step, p.Launches[launch].Node, index, value)
	}
	return fmt.Errorf("hip: index %d of launch %d is %d, which is out of range", index, launch, value)
}

// module loads a program's code, compiled before, and finds its functions as asked.
func (dev *Device) function(c code) (uintptr, error) {
	if f, ok := dev.funcs[c]; ok {
		return f, nil
	}
	m, ok := dev.modules[c.program]
	if !ok {
		return 0, fmt.Errorf("hip: %s was not compiled", c.program)
	}
	name := append([]byte(c.name), 0)
	out := newOuts()
	defer out.keep()
	var pin runtime.Pinner
	defer pin.Unpin()
	if err := dev.d.call(fnModuleFunction, string(c.program)+" "+c.name, out.at(0), m, address(&pin, name)); err != nil {
		return 0, err
	}
	f := uintptr(out.v[0])
	dev.funcs[c] = f
	return f, nil
}

// sharedUnasked is the shared memory that every function of NVIDIA's may ask for.
const sharedUnasked = 48 << 10

// allowShared lets launches of a function ask for so many bytes of shared memory.
func (dev *Device) allowShared(what string, f uintptr, bytes int) error {
	const mostDynamicShared = 8
	return dev.d.call(fnSetFunction, what, f, mostDynamicShared, uintptr(bytes))
}

// functionOf is function for a dispatch: it may ask for its shared memory.
func (dev *Device) functionOf(p *dispatch) (uintptr, error) {
	f, err := dev.function(p.code)
	if err != nil || p.shared <= max(sharedUnasked, dev.shares[f]) || dev.d.vendor() == amd {
		return f, err
	}
	if err := dev.allowShared(string(p.code.program), f, p.shared); err != nil {
		return 0, err
	}
	dev.shares[f] = p.shared
	return f, nil
}

// prepare compiles the programs that are not loaded yet, all at once, and loads them.
func (dev *Device) prepare(programs []program) error {
	var missing []program
	seen := map[program]bool{}
	for _, p := range programs {
		if _, ok := dev.modules[p]; !ok && !seen[p] {
			seen[p] = true
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return dev.c.all(missing, func(p program, image []byte) error {
		defer dev.enter()()
		out := newOuts()
		defer out.keep()
		if err := dev.d.call(fnModuleLoad, string(p), out.at(0),
			uintptr(unsafe.Pointer(unsafe.SliceData(image)))); err != nil {
			return err
		}
		dev.modules[p] = uintptr(out.v[0])
		return nil
	})
}
