package hip

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// dispatch is one start of a function of a program.
type dispatch struct {
	code  code
	grid  [3]int
	block int
	// blockYZ are a block's threads along y and z; zeros: one each.
	blockYZ [2]int
	// waits: it starts only when what is before it has ended, as its code knows nothing of launches that start early.
	waits  bool
	args   args
	shared int // bytes of shared memory that the launch asks for
	// cluster is how many blocks along x reach each other's shared memory.
	cluster int
	// area is the one in which weights are widened, 0: none; soon is which value of the
	// arguments says that they are before the launch waits.
	area, soon int
	// late is which value of the arguments holds back launches behind this one (see
	// vec.hip), or of stepcopy.hip's its soon; 0: it has none.
	late int
}

// args are a function's arguments: values in one slice, their addresses in
// another, both pinned, as the driver reads them through pointers.
type args struct {
	values []uint64
	at     []int // index in values of each argument
	ptrs   []uintptr
	pin    runtime.Pinner
}

func (a *args) add(words ...uint64) {
	a.at = append(a.at, len(a.values))
	a.values = append(a.values, words...)
}

// bound is a launch with its operands' addresses: dispatches in order.
type bound struct {
	what   string
	number int   // of the launch in its program, the first one's where launches are joined
	joined []int // the other launches that it does
	parts  []*dispatch
	spans  []span
	works  bool // the device's workspace is used
}

func (b *bound) programs(all []program) []program {
	for _, p := range b.parts {
		all = append(all, p.code.program)
	}
	return all
}

func (b *bound) free() {
	for _, p := range b.parts {
		p.args.pin.Unpin()
	}
}

// bind finds addresses and chooses code for a launch; number is its place in
// the program, by which kernels report bad data.
func (dev *Device) bind(l *backends.Launch, number int) (*bound, error) {
	k, ok := l.Kernel.(*kernel)
	if !ok || k.dev != dev {
		return nil, fmt.Errorf("%v: a kernel of another device (%T)", l.Node, l.Kernel)
	}
	bd := &binder{dev: dev, l: l, number: number}
	k.choice.bind(bd)
	return bd.bound()
}

// bound ends a binding.
func (bd *binder) bound() (*bound, error) {
	l := bd.l
	if bd.err != nil {
		return nil, fmt.Errorf("%v: %w", l.Node, bd.err)
	}
	b := newBound(l.Kernel.Name()+" of "+l.Node.Name, bd.number, bd.dispatches())
	b.spans, b.works = bd.spans(), bd.works
	return b, nil
}

// newBound pins the arguments of dispatches.
func newBound(what string, number int, parts []*dispatch) *bound {
	b := &bound{what: what, number: number, parts: parts}
	for _, p := range b.parts {
		a := &p.args
		a.ptrs = make([]uintptr, len(a.at))
		if len(a.values) > 0 {
			a.pin.Pin(&a.values[0])
			a.pin.Pin(&a.ptrs[0])
		}
		for i, at := range a.at {
			a.ptrs[i] = uintptr(unsafe.Pointer(&a.values[at]))
		}
	}
	return b
}

// run puts a launch on the device's stream. Its programs must be loaded and the device current.
func (b *bound) run(dev *Device) error { return b.runOn(dev, dev.stream, false) }

// empty says whether a dispatch has nothing to do.
func (p *dispatch) empty() bool { return p.grid[0] == 0 || p.grid[1] == 0 || p.grid[2] == 0 }

// starts says whether a launch has anything to do.
func (b *bound) starts() bool {
	return slices.ContainsFunc(b.parts, func(p *dispatch) bool { return !p.empty() })
}

// runOn puts a launch on a stream. One that follows a kernel there may start
// before that ends, where the driver can: all kernels wait for what they read.
func (b *bound) runOn(dev *Device, stream uintptr, follows bool) error {
	for _, p := range b.parts {
		if p.empty() {
			continue
		}
		f, err := dev.functionOf(p)
		if err != nil {
			return err
		}
		var params uintptr
		if len(p.args.ptrs) > 0 {
			params = uintptr(unsafe.Pointer(&p.args.ptrs[0]))
		}
		early := follows && dev.overlaps && !p.waits
		follows = true
		if early || p.cluster > 1 {
			if err := dev.launchWith(b.what, f, p, early, stream, params); err != nil {
				return err
			}
			continue
		}
		err = dev.d.call(fnLaunch, b.what, f, uintptr(p.grid[0]), uintptr(p.grid[1]), uintptr(p.grid[2]),
			uintptr(p.block), uintptr(max(1, p.blockYZ[0])), uintptr(max(1, p.blockYZ[1])), uintptr(p.shared), stream, params, 0)
		if err != nil {
			return err
		}
	}
	return nil
}

// Capture compiles what a program needs and records it as a graph.
func (dev *Device) Capture(p *backends.Program) (backends.Executable, error) {
	e, programs, err := dev.plan(p, false)
	if err != nil {
		return nil, err
	}
	if err := e.prepareMoves(); err != nil {
		return nil, errlist.Join(err, e.Close())
	}
	e.hurry()
	if err := dev.prepare(e.copies.programs(programs)); err != nil {
		return nil, errlist.Join(err, e.Close())
	}
	if err := e.record(); err != nil {
		return nil, errlist.Join(fmt.Errorf("capture of %s: %w", p.Name, err), e.Close())
	}
	e.submit, e.end = []uintptr{e.graph, dev.stream}, []uintptr{e.done, dev.stream}
	return e, nil
}

// plan binds a program's launches and joins them; alone: only where that changes bits. It gives what they need, too.
func (dev *Device) plan(p *backends.Program, alone bool) (*executable, []program, error) {
	e := &executable{dev: dev, program: p}
	for i := range p.Launches {
		b, err := dev.bind(&p.Launches[i], i)
		if err != nil {
			return nil, nil, errlist.Join(err, e.Close())
		}
		e.launches = append(e.launches, b)
	}
	levels, begins, err := dev.join(p, e.launches, alone)
	if err != nil {
		return nil, nil, errlist.Join(err, e.Close())
	}
	var programs []program
	e.levels, e.serial = levels, holdBack(levels, begins)
	dev.widenSoon(levels)
	for _, level := range levels {
		for _, b := range level {
			programs = b.programs(programs)
			if !slices.Contains(e.launches, b) {
				e.launches = append(e.launches, b)
			}
		}
	}
	if err := e.findSteps(); err != nil {
		return nil, nil, errlist.Join(err, e.Close())
	}
	return e, programs, nil
}

// record captures the launches. A capture that fails is ended all the same:
// a stream that is left capturing is good for nothing.
func (e *executable) record() error {
	dev := e.dev
	defer dev.enter()()
	all := append(e.copies.bounds(), slices.Concat(e.levels...)...)
	for _, b := range all { // modules load lazily: not in a capture
		for _, p := range b.parts {
			if _, err := dev.functionOf(p); err != nil {
				return err
			}
		}
	}
	var err error
	e.graph, err = e.instantiate(len(all), true)
	return err
}

// instantiate captures the copies of inputs and so many of the launches, or of all with
// those of results, as a graph that can be replayed.
func (e *executable) instantiate(launches int, results bool) (uintptr, error) {
	dev, d := e.dev, e.dev.d
	if err := d.call(fnCaptureBegin, "", dev.stream, captureRelaxed); err != nil {
		return 0, err
	}
	failed, follows := e.copyIn(), false
	if failed == nil {
		follows, failed = e.branches(launches)
	}
	if failed == nil && results {
		failed = e.copyOut(follows)
	}
	graph, err := d.get(fnCaptureEnd, "", 1, dev.stream)
	if failed != nil || err != nil {
		if err == nil && graph != 0 {
			err = d.call(fnGraphDestroy, "", uintptr(graph))
		}
		return 0, errlist.Join(failed, err)
	}
	exec, err := d.get(fnGraphInstantiate, "", 0, uintptr(graph), 0)
	if err == nil {
		err = e.upload(uintptr(exec))
	}
	return uintptr(exec), errlist.Join(err, d.call(fnGraphDestroy, "", uintptr(graph)))
}

// upload lets the driver bring a graph to the device now, on the stream, instead
// of at the first replay, where it can.
func (e *executable) upload(graph uintptr) error {
	d := e.dev.d
	if !d.has(fnGraphUpload) {
		return nil
	}
	code := d.invokeChecked(fnGraphUpload, []uintptr{graph, e.dev.stream})
	if code == errNotSupported {
		return nil
	}
	return d.check(fnGraphUpload, "", code)
}

// branches captures the first launches of a program level by level: the first one of a level on
// the stream itself, and those that use the workspace; the others on side streams
// that fork from it and join it. A launch that follows a kernel on the stream may
// start while that ends; follows says whether the stream's last is one.
func (e *executable) branches(launches int) (follows bool, err error) {
	dev, d := e.dev, e.dev.d
	follows = e.copies != nil && e.copies.in != nil
	for l, level := range e.levels {
		level = level[:min(len(level), launches)]
		launches -= len(level)
		follows = follows && !slices.Contains(e.serial, l)
		var own, aside []*bound
		for i, b := range level {
			if i == 0 || b.works || len(aside) == mostSides {
				own = append(own, b)
			} else {
				aside = append(aside, b)
			}
		}
		if err := dev.side(len(aside)); err != nil {
			return false, err
		}
		if len(aside) > 0 {
			if err := d.call(fnEventRecord, "fork", dev.fork, dev.stream); err != nil {
				return false, err
			}
		}
		for i, b := range aside {
			s := dev.sides[i]
			if err := d.call(fnStreamWaitEvent, b.what, s.stream, dev.fork, 0); err != nil {
				return false, err
			}
			if err := b.runOn(dev, s.stream, false); err != nil {
				return false, err
			}
			if err := d.call(fnEventRecord, b.what, s.event, s.stream); err != nil {
				return false, err
			}
		}
		for _, b := range own {
			if err := b.runOn(dev, dev.stream, follows); err != nil {
				return false, err
			}
			follows = follows || b.starts()
		}
		for i := range aside {
			if err := d.call(fnStreamWaitEvent, "join", dev.stream, dev.sides[i].event, 0); err != nil {
				return false, err
			}
			follows = false
		}
	}
	return follows, nil
}

// executable replays a program as a graph, which is never changed.
type executable struct {
	dev      *Device
	program  *backends.Program
	launches []*bound   // each alone, and those that are joined of several
	levels   [][]*bound // what runs
	serial   []int      // the levels that begin only when those before have ended
	graph    uintptr
	submit   []uintptr // arguments of a replay, kept so that it allocates nothing
	done     uintptr   // event of a replay's end, where another is submitted behind it
	end      []uintptr // arguments of its record
	flies    bool      // submitted and not waited for,
	marked   bool      // with its end recorded
	steps    []*buffer // Step memory that is used
	in, out  []stepRange
	copies   *stepCopies // their copies, nil where the driver copies
	events   []uintptr   // of Profile
}

// Submit starts the program. What was written before is seen by it.
func (e *executable) Submit() error {
	runtime.LockOSThread()
	dev := e.dev
	err := dev.d.check(fnSetDevice, "", dev.d.invokeChecked(fnSetDevice, dev.current))
	if err == nil {
		err = e.fly()
	}
	if err == nil {
		err = dev.d.check(fnGraphLaunch, e.program.Name, dev.d.invokeChecked(fnGraphLaunch, e.submit))
	}
	if err == nil && e.copies != nil {
		e.copies.runs++
	}
	runtime.UnlockOSThread()
	return err
}

// Wait waits for the program's end and says what kernels found wrong with its data.
func (e *executable) Wait() error {
	runtime.LockOSThread()
	dev := e.dev
	err := dev.d.check(fnSetDevice, "", dev.d.invokeChecked(fnSetDevice, dev.current))
	if err == nil {
		err = e.land()
	}
	runtime.UnlockOSThread()
	if err != nil {
		return named(err, e.program.Name)
	}
	return dev.fault(e.program)
}

// Close ends the executable; its program's buffers stay.
func (e *executable) Close() error {
	defer e.dev.enter()()
	var errs []error
	if e.graph != 0 {
		errs = append(errs, e.dev.wait(), e.dev.d.call(fnGraphExecDestroy, "", e.graph))
	}
	if e.dev.last == e {
		e.dev.last = nil
	}
	if e.done != 0 {
		errs = append(errs, e.dev.d.call(fnEventDestroy, "", e.done))
	}
	for _, event := range e.events {
		errs = append(errs, e.dev.d.call(fnEventDestroy, "profile", event))
	}
	for _, b := range e.launches {
		b.free()
	}
	if e.copies != nil {
		errs = append(errs, e.copies.free(e.dev))
		e.copies = nil
	}
	e.graph, e.done, e.events, e.launches, e.levels = 0, 0, nil, nil, nil
	return errlist.Join(errs...)
}
