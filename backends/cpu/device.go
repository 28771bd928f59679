// Package cpu runs programs on the processor's cores: the default device, which
// needs nothing but Go. Activations are float32; caches are float32, float16 or
// bfloat16. Weights of most types are packed in panels at load, others are read as
// files store them. In products with block formats activations are rounded to
// eight bits, so that the products are dot products of bytes, and in those of several
// rows with weights of bf16 to bf16, where the processor has dot products of it; Exact
// leaves that out.
//
// A launch is bound once, at capture, to an object that holds its operands as
// slices; replay runs these objects in order over a pool of workers and
// allocates nothing.
package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/memlimit"
	"github.com/greta-project/greta/internal/pool"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Device is the processor.
type Device struct {
	k    *simd.Kernels
	pool *pool.Pool
	info backends.Info

	mutex     backends.FairMutex
	perWorker [][]float32    // scratch of each worker
	common    []float32      // scratch of all of them
	rounded   rounded        // activations in eight bits
	turns     []*turns       // of the program that is being bound
	changing  []func() error // conversions before each run of the launch that is being bound
	exact     bool
	invariant bool
	bf16      bool                       // products of bf16
	choose    func(n *graph.Node) string // see Choose
}

// Option changes how a device computes.
type Option func(*Device)

// Exact keeps activations in float32 in all products, which takes more time: by
// default those with block formats round them to eight bits, and those of several
// rows with weights of bf16 to bf16.
func Exact(d *Device) { d.exact, d.bf16 = true, false }

// Invariant makes results of a row the same, bit for bit, whatever rows are beside it in a step: every product takes
// its rows one by one, and attention the positions of each row page by page. That takes more time in steps of several
// rows.
func Invariant(d *Device) { d.invariant, d.bf16 = true, false }

// Invariant says whether the device was opened so.
func (d *Device) Invariant() bool { return d.invariant }

// New opens the processor with a number of threads; 0 means all cores. The
// level of its kernels is the best that the processor has, or what GRETA_CPU names.
func New(threads int, opts ...Option) (*Device, error) {
	k, err := simd.Default()
	if err != nil {
		return nil, err
	}
	return open(k, threads, opts)
}

// NewLevel is New with the kernels of a level that this machine has: "amx", "avx512",
// "avx2", "i8mm", "dotprod", "neon" or "go", which every machine has.
func NewLevel(level string, threads int, opts ...Option) (*Device, error) {
	k, err := simd.Select(level)
	if err != nil {
		return nil, err
	}
	return open(k, threads, opts)
}

func open(k *simd.Kernels, threads int, opts []Option) (*Device, error) {
	if threads < 0 || threads > 4096 {
		return nil, fmt.Errorf("%d threads are not possible", threads)
	}
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	d := &Device{k: k, pool: pool.New(threads), bf16: k.HasBF16(), info: backends.Info{
		Backend: "cpu", Name: processorName(), Level: k.Name, Threads: threads, Float: tensor.F32, Align: 64,
		Fusions: fusions, Memory: int(max(memlimit.Now().Bytes, 0)),
	}}
	for _, o := range opts {
		o(d)
	}
	return d, nil
}

// Turn is for goroutines that share the device.
func (d *Device) Mutex() *backends.FairMutex { return &d.mutex }

// Info describes the processor.
func (d *Device) Info() backends.Info { return d.info }

// Close stops the workers.
func (d *Device) Close() error {
	d.pool.Close()
	return nil
}

// runner is a launch bound to its operands.
type runner interface{ run(p *pool.Pool) error }

// binder makes the runner of a launch.
type binder func(d *Device, l *backends.Launch) (runner, error)

// Rounding is what products round: nothing where activations are to stay exact.
func (d *Device) Rounding() ops.Rounding { return ops.Rounding{Quant: !d.exact, BF16: d.bf16} }

// kernel is the choice for a node.
type kernel struct {
	name    string
	bind    binder
	packing *backends.Packing // of operand 1
	variant variant
	why     string
	rel     float64
}

func (k *kernel) Name() string { return k.name }

func (k *kernel) Traits() backends.Traits { return backends.Traits{Tolerance: k.rel, Why: k.why} }

// Packing is that of a product's weights.
func (k *kernel) Packing(arg int) *backends.Packing {
	if arg != 1 {
		return nil
	}
	return k.packing
}

// Kernel chooses the kernel of a node.
func (d *Device) Kernel(n *graph.Node) (backends.Kernel, error) {
	e, ok := table[n.Op.Name]
	if !ok {
		return nil, backends.Unsupportedf("cpu", n, "it is not in the table of kernels")
	}
	if e.check != nil {
		if err := e.check(n); err != nil {
			return nil, backends.Unsupportedf("cpu", n, "%v", err)
		}
	}
	for _, v := range n.Out {
		if n.Op.Kind != graph.Update && v.Type != tensor.F32 && v.Type != tensor.I32 {
			return nil, backends.Unsupportedf("cpu", n, "%s: results are f32 here", v)
		}
	}
	for i, v := range n.In {
		if v == nil || v.Type == tensor.F32 || v.Type == tensor.I32 {
			continue
		}
		if v.Root().Kind != graph.Weight && v.Root().Kind != graph.State || !readable(v.Type) {
			return nil, backends.Unsupportedf("cpu", n, "operand %d is %s: activations are f32 here", i, v)
		}
	}
	name := n.Op.Name
	if e.suffix != nil {
		name += e.suffix(n)
	}
	p := d.packing(n)
	if p != nil {
		name += ".panels"
	}
	v, chosen, err := d.chosen(n)
	if err != nil {
		return nil, err
	}
	name += "." + d.k.Name
	if chosen != "" {
		name += "/" + chosen
	}
	rounding := d.Rounding()
	return &kernel{name, e.bind, p, v, e.reason(d, n), rounding.Tolerance(n)}, nil
}

func (d *Device) bind(l *backends.Launch) (runner, error) {
	k, ok := l.Kernel.(*kernel)
	if !ok {
		return nil, fmt.Errorf("%v: a kernel of another device (%T)", l.Node, l.Kernel)
	}
	d.changing = nil
	r, err := k.bind(d, l)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", l.Node, err)
	}
	if len(d.changing) > 0 {
		r = &converting{r, d.changing}
	}
	return r, nil
}

// forget begins a program: it shares nothing with the one before.
func (d *Device) forget() {
	d.rounded.forget()
	d.turns = nil
}

// Stream runs launches one by one.
func (d *Device) Stream() (backends.Stream, error) { return &stream{d}, nil }

type stream struct{ d *Device }

func (s *stream) Launch(l *backends.Launch) error {
	s.d.forget()
	r, err := s.d.bind(l)
	if err != nil {
		return err
	}
	defer s.d.pool.Settle()
	if err := r.run(s.d.pool); err != nil {
		return fmt.Errorf("%v: %w", l.Node, err)
	}
	return nil
}

func (s *stream) Write(dst backends.Buffer, offset int, src []byte) error {
	b, err := hostRange(dst, offset, len(src))
	copy(b, src)
	return err
}

func (s *stream) Read(src backends.Buffer, offset int, dst []byte) error {
	b, err := hostRange(src, offset, len(dst))
	copy(dst, b)
	return err
}

// Copy moves bytes within the device's memory.
func (s *stream) Copy(dst backends.Buffer, to int, src backends.Buffer, from, bytes int) error {
	a, err := hostRange(dst, to, bytes)
	if err != nil {
		return err
	}
	b, err := hostRange(src, from, bytes)
	copy(a, b)
	return err
}

func (s *stream) Close() error { return nil }

// Capture binds every launch of a program.
func (d *Device) Capture(p *backends.Program) (backends.Executable, error) {
	e := &executable{d: d, program: p, steps: make([]runner, len(p.Launches))}
	d.forget()
	for i := range p.Launches {
		var err error
		if e.steps[i], err = d.bind(&p.Launches[i]); err != nil {
			return nil, err
		}
		d.rounded.written(p.Launches[i].Out)
	}
	e.sequence = slices.Clone(e.steps)
	fuse(d, e.sequence, p.Launches)
	e.sequence = sequence(d, e.sequence, p.Launches)
	return e, nil
}

// executable replays a program on the calling goroutine and the pool.
type executable struct {
	d        *Device
	program  *backends.Program
	steps    []runner // one for each launch
	sequence []runner // the same, as they are run: nil where another one does it
	err      error
}

// Submit runs the program to its end; Wait tells what went wrong.
func (e *executable) Submit() error {
	e.err, e.d.rounded.now = nil, nil
	for i, r := range e.sequence {
		if r == nil {
			continue
		}
		if err := r.run(e.d.pool); err != nil {
			e.err = fmt.Errorf("%v: %w", e.program.Launches[i].Node, err)
			break
		}
	}
	return nil
}

func (e *executable) Wait() error { return e.err }

// Close waits until no worker reads the program's memory.
func (e *executable) Close() error {
	e.steps, e.sequence = nil, nil
	e.d.pool.Settle()
	return nil
}

// Profile runs the program once, launch by launch, and times each, its barrier included.
func (e *executable) Profile() ([]time.Duration, error) {
	times := make([]time.Duration, len(e.steps))
	e.d.rounded.now = nil
	for i, r := range e.steps {
		start := time.Now()
		if err := r.run(e.d.pool); err != nil {
			return nil, fmt.Errorf("%v: %w", e.program.Launches[i].Node, err)
		}
		times[i] = time.Since(start)
	}
	return times, nil
}
