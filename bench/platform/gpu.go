package platform

import (
	"cmp"
	"embed"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/errlist"
)

// GPU is a device with kernels, through HIP or Vulkan. What it gives is freed when
// the benchmark is over.
type GPU struct {
	*session
	dev    gpuDevice
	limits limits
	peaks  peaks
	MHz    float64 // of the shader's clock, measured; 0 where kernels cannot read it
	// spinOut is what the kernel that measures the clock writes.
	spinOut memory
	owned   []func() error
}

//go:embed kernels/*.hip kernels/spirv
var kernelFiles embed.FS

// limits are a device's attributes, 0 where unknown.
type limits struct {
	name, arch, pci string
	units, wave     int
	clockMHz        float64
	memoryGBs       float64 // modelled
	l2              int     // bytes; see lastCache for what may lie behind it
	sharedPerUnit   int
	threadsPerUnit  int
	free            int // bytes of memory
	mostBuffer      int // bytes of one buffer
	mostBlock       int // threads
	managed         bool
}

type memoryKind int

const (
	onDevice memoryKind = iota
	pinned
	managed
)

// memory is what kernels reach.
type memory interface {
	Size() int
	Write(offset int, src []byte) error
	Read(offset int, dst []byte) error
	// Address is where kernels find it, 0 where they have descriptors instead.
	Address() uint64
	Host() []byte // nil for the device's
	Free() error
}

// code names a kernel: a file of kernels/, a function of it, and what it is compiled for.
// HIP compiles the source at run time with BLOCK and the macros; Vulkan takes
// the module that make.sh made: FILE_FUNCTION_MACRO….
type code struct {
	file, function string
	block          int
	macros         []string // "STEPS=4"
}

// launch is a kernel with its grid and arguments.
type launch any

// submission is how launches reach the device.
type submission int

const (
	// usual is the way that costs a backend least for kernels that take some time.
	usual submission = iota
	// inStream starts each launch by a call of its own.
	inStream
	// captured records them once, as a graph or a command buffer.
	captured
)

// gpuDevice is what a backend gives to benchmarks.
type gpuDevice interface {
	limits() (limits, error)
	alloc(bytes int, kind memoryKind) (memory, error)
	// bind makes a launch. Arguments are memories, uint32, float32 and, for HIP
	// alone, uint64, in the kernel's order; in Vulkan memories are bindings 0, 1, …
	// and the others push constants, each in that order.
	bind(c code, grid, shared int, args ...any) (launch, error)
	// resident is how many blocks stay on a multiprocessor, 0 where unknown.
	resident(c code, shared int) (int, error)
	// sequence makes a sampler of all launches one after another, n times over.
	sequence(how submission, n int, list ...launch) (sampler, func() error, error)
	// trips makes a sampler that starts a launch and waits for it, n times over, by
	// the host's clock.
	trips(l launch, n int) (sampler, func() error, error)
	// copies makes a sampler of n copies of so many bytes between device and pinned
	// memory, from one end of both to the other, again and again.
	copies(to, from memory, bytes, n int) (sampler, func() error, error)
	// noPageable and noGridBarrier say why there are no copies of pageable memory,
	// and no barrier over a grid; "" where there are.
	noPageable() string
	// noType says why kernels cannot compute in a type, "f64".
	noType(name string) string
	// wholes is the type of elements of 8 bytes that holds whole numbers.
	wholes() string
	forget() // the launches that were bound: none is used any more
	noGridBarrier() string
	close() error
}

func (g *GPU) run(b *Benchmark) (bool, error) {
	if b.GPU == nil {
		return false, nil
	}
	err := b.GPU(g)
	return true, errlist.Join(err, g.release())
}

// release frees what was allocated.
func (g *GPU) release() error {
	var errs []error
	for i := len(g.owned) - 1; i >= 0; i-- {
		errs = append(errs, g.owned[i]())
	}
	g.owned = nil
	g.dev.forget()
	return errlist.Join(errs...)
}

func (g *GPU) close() error {
	err := g.release()
	if g.spinOut != nil {
		err = errlist.Join(err, g.spinOut.Free())
	}
	return errlist.Join(err, g.dev.close())
}

// measure takes a figure, and says at which clock.
func (g *GPU) measure(p point) (*record.Result, error) {
	own := p.finish
	p.finish = func(r *record.Result) error {
		if err := g.clock(1 << 20); err != nil {
			return err
		}
		if own != nil {
			if err := own(r); err != nil {
				return err
			}
		}
		if g.MHz > 0 {
			if r.Metrics == nil {
				r.Metrics = map[string]float64{}
			}
			r.Metrics["clock_MHz"] = g.MHz
		}
		return nil
	}
	return g.session.measure(p)
}

// alloc gives device memory of arbitrary content.
func (g *GPU) alloc(bytes int) (memory, error) { return g.allocKind(bytes, onDevice) }

func (g *GPU) allocKind(bytes int, kind memoryKind) (memory, error) {
	m, err := g.dev.alloc(bytes, kind)
	if err == nil {
		g.owned = append(g.owned, m.Free)
	}
	return m, err
}

// once runs a launch to its end.
func (g *GPU) once(c code, grid int, args ...any) error {
	l, err := g.dev.bind(c, grid, 0, args...)
	if err != nil {
		return err
	}
	run, end, err := g.dev.sequence(inStream, 1, l)
	if err != nil {
		return err
	}
	_, _, err = run()
	return errlist.Join(err, closed(end))
}

// sampler is sequence for what is used until the benchmark is over.
func (g *GPU) sampler(how submission, n int, list ...launch) (sampler, error) {
	run, end, err := g.dev.sequence(how, n, list...)
	if err == nil && end != nil {
		g.owned = append(g.owned, end)
	}
	return run, err
}

// plainBlock is the block of kernels for which its size does not matter.
const plainBlock = 256

func ceil(a, b int) int { return (a + b - 1) / b }

// fill writes value(i, seed) to n elements of a type, "double" or "float".
func (g *GPU) fill(m memory, elem string, n, seed int) error {
	return g.once(code{"fill", "fill", plainBlock, []string{"ELEM=" + elem}}, ceil(n, plainBlock), m, uint32(n),
		uint32(seed))
}

// counter gives a word that is zero.
func (g *GPU) counter() (memory, error) {
	m, err := g.alloc(64)
	if err != nil {
		return nil, err
	}
	return m, m.Write(0, make([]byte, 64))
}

// count reads a counter and sets it to zero again.
func (g *GPU) count(m memory) (int, error) {
	b := make([]byte, 4)
	if err := m.Read(0, b); err != nil {
		return 0, err
	}
	return int(binary.LittleEndian.Uint32(b)), m.Write(0, make([]byte, 4))
}

// wrong runs a kernel that counts wrong elements, of total, in a word that is
// its last argument, and makes a check of that.
func (g *GPU) wrong(total int, c code, grid int, args ...any) (record.Check, error) {
	n, err := g.counter()
	if err != nil {
		return record.Check{}, err
	}
	if err := g.once(c, grid, append(args, n)...); err != nil {
		return record.Check{}, err
	}
	k, err := g.count(n)
	return exact(k, total), err
}

// timed prepares a launch as a point's operation.
func (g *GPU) timed(how submission, list ...launch) func(n int) (sampler, func() error, error) {
	return func(n int) (sampler, func() error, error) { return g.dev.sequence(how, n, list...) }
}

// room is how many elements of a size a buffer may have so that it and others of
// its kind, in all, fit on the device, no more than wanted, in multiples of unit.
func (g *GPU) room(wanted, bytes, buffers, unit int) int {
	n := min(wanted, g.limits.mostBuffer/bytes, g.limits.free*8/10/buffers/bytes)
	return max(n/unit, 1) * unit
}

// away is the size in bytes from which on a working set is memory's, not a cache's.
func (g *GPU) away() int { return 4 * cmp.Or(g.limits.lastCache(), 64<<20) }

func (g *GPU) roofs(memory, gflops float64) record.Roofs {
	return record.Roofs{ReadGBs: memory, GFlops: gflops, LastCache: float64(g.limits.lastCache())}
}

// warmUp adds vectors until the clocks have risen from idle, and measures them where kernels read one.
func (g *GPU) warmUp() (err error) {
	bytes := 16 << 20
	if g.opt.Device.Info().Level == "software" { // without clocks of its own, and slow
		bytes = 64 << 10
	}
	_, l, err := g.additions(bytes / 16)
	if err != nil {
		return err
	}
	run, end, err := g.dev.sequence(inStream, 100, l)
	if err == nil {
		_, err = guard.WarmUp(g.ctx, func() (time.Duration, error) {
			_, host, err := run()
			return time.Duration(host * float64(time.Second)), err
		})
		err = errlist.Join(err, closed(end), g.release())
	}
	if err != nil || g.backend != "hip" { // elsewhere kernels read no clock
		return err
	}
	if g.spinOut, err = g.dev.alloc(16, onDevice); err != nil {
		return err
	}
	return g.clock(4 << 20)
}

// clock measures the shader's clock: the cycles that a kernel of one thread counts,
// by the time that it takes. A round is four cycles or so.
func (g *GPU) clock(rounds int) error {
	if g.spinOut == nil {
		return nil
	}
	l, err := g.dev.bind(code{"latency", "spin", 32, nil}, 1, 0, g.spinOut, uint32(rounds))
	if err != nil {
		return err
	}
	run, end, err := g.dev.sequence(inStream, 1, l)
	if err != nil {
		return err
	}
	device, _, err := run()
	if err != nil {
		return errlist.Join(err, closed(end))
	}
	cycles, err := readWords(g.spinOut, 2)
	if err == nil && device > 0 {
		g.MHz = float64(cycles[1]) / device / 1e6
	}
	return errlist.Join(err, closed(end))
}

// readWords reads n words of 64 bits.
func readWords(m memory, n int) ([]uint64, error) {
	b := make([]byte, 8*n)
	if err := m.Read(0, b); err != nil {
		return nil, err
	}
	w := make([]uint64, n)
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return w, nil
}

// inSeconds turns samples that are cycles into seconds, by the clock that was measured
// behind them, and gives the median of the cycles.
func (g *GPU) inSeconds(r *record.Result) (cycles float64) {
	cycles = median(r.Samples)
	for i := range r.Samples {
		r.Samples[i] /= g.MHz * 1e6
	}
	return cycles
}

func itoa(n int) string { return strconv.Itoa(n) }

// source gives the text of a kernel file for HIP.
func source(file string) (string, error) {
	common, err := kernelFiles.ReadFile("kernels/common.hip")
	if err != nil {
		return "", err
	}
	text, err := kernelFiles.ReadFile("kernels/" + file + ".hip")
	if err != nil {
		return "", &Missing{fmt.Sprintf("there is no kernel %s for HIP", file)}
	}
	return string(common) + string(text), nil
}
