package platform

import (
	"math/rand/v2"
	"strings"
	"unsafe"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/bench/record"
)

// The processor's benchmarks of memory: STREAM, latency, caches, additions.

// streamTypes are STREAM's four kernels: what they move, and what they give.
var streamTypes = []struct {
	kind   simd.StreamKernel
	name   string
	arrays int
	want   func(a, b float64) float64
}{
	{simd.Copy, "copy", 2, func(a, _ float64) float64 { return a }},
	{simd.Scale, "scale", 2, func(a, _ float64) float64 { return 3 * a }},
	{simd.Add, "add", 3, func(a, b float64) float64 { return a + b }},
	{simd.Triad, "triad", 3, func(a, b float64) float64 { return a + 3*b }},
}

// streamCPU runs STREAM's four kernels (McCalpin) and a read, over arrays of which two
// together are memory's; the read in one stream a thread and in several (simd.ReadStreams),
// the roof being the faster. As STREAM counts: what a store brings in before it writes
// is not counted; streaming stores bring nothing in.
func streamCPU(c *CPU) error {
	n := c.sizes("n", c.elements(ceil(c.away(), 16), 8, 3))[0]
	n = ceil(n, simd.ProbeElements) * simd.ProbeElements
	all, err := alloc[float64](c, 3*n) // one piece: read goes through more than one array
	if err != nil {
		return err
	}
	y, a, b := all[:n], all[n:2*n], all[2*n:]
	var best, bestCopy *record.Result
	for _, threads := range c.crews() {
		for i, x := range [][]float64{y, a, b} {
			fill(c, threads, x, uint32(i))
		}
		for _, streams := range simd.ReadStreams {
			r, err := c.readPoint("read", "", threads, streams, 16*n, words(all))
			if err != nil {
				return err
			}
			best = faster(best, r)
		}
		for _, k := range streamTypes {
			for _, stores := range []string{"regular", "streaming"} {
				params := map[string]string{"stores": stores, "threads": itoa(threads), "n": itoa(n)}
				if stores == "streaming" && c.probe.Name == "go" {
					if err := c.skip(k.name, params, "code in Go has no stores that pass the cache"); err != nil {
						return err
					}
					continue
				}
				p := point{prepare: c.worked(threads, func(w int) {
					pieces(n, threads, w, func(i, j int) { c.probe.Stream(k.kind, y[i:j], a[i:j], b[i:j], 3, stores == "streaming") })
				})}
				p.Bench, p.Params, p.Kernel = k.name, params, "probe."+c.probe.Name
				p.Bytes = 8 * float64(n*k.arrays)
				p.WorkingSet = p.Bytes
				p.Cache, p.Roofs = c.memoryLevel(int(p.WorkingSet))
				p.Roofs.MostGBs = c.firstLevel(threads, true)
				p.check = func() (record.Check, error) {
					return c.wrongOf(n, func(i int) bool { return y[i] == k.want(a[i], b[i]) }), nil
				}
				r, err := c.measure(p)
				if err != nil {
					return err
				}
				clear(y[:min(n, 1<<16)])
				if k.kind == simd.Copy {
					bestCopy = faster(bestCopy, r)
				}
			}
		}
	}
	if err := c.roof("read", nil, best); err != nil {
		return err
	}
	return c.roof("copy", nil, bestCopy)
}

// elements is how many of a size so many arrays may have within half of the memory.
func (c *CPU) elements(wanted, bytes, arrays int) int {
	if c.free > 0 {
		wanted = min(wanted, c.free/2/arrays/bytes)
	}
	return max(wanted, simd.ProbeElements)
}

func words(x []float64) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// readPoint measures the sum of all words of x, once through by all threads
// together, each in so many streams side by side; its check is the sum.
func (c *CPU) readPoint(name, size string, threads, streams, bytes int, x []uint64) (*record.Result, error) {
	x = x[:bytes/8]
	sums := make([]uint64, threads)
	p := point{prepare: c.worked(threads, func(w int) {
		s := uint64(0)
		pieces(len(x), threads, w, func(i, j int) { s += c.probe.Sum(x[i:j], streams) })
		sums[w] = s
	})}
	p.Bench, p.Params, p.Kernel = name, map[string]string{"threads": itoa(threads)}, "probe."+c.probe.Name
	if size != "" {
		p.Params["bytes"] = size
	} else {
		p.Params["n"], p.Params["streams"] = itoa(len(x)), itoa(streams)
	}
	p.Bytes, p.WorkingSet = float64(bytes), float64(bytes)
	p.Cache, p.Roofs = c.memoryLevel(bytes)
	p.Roofs.MostGBs = c.firstLevel(threads, false)
	p.check = func() (record.Check, error) {
		wrong := 0
		for w, got := range sums {
			want := uint64(0)
			from, to := part(len(x), threads, w)
			for _, v := range x[from:to] {
				want += v
			}
			if got != want {
				wrong++
			}
		}
		return exact(wrong, threads), nil
	}
	return c.measure(p)
}

// cacheCPU reads buffers again and again, on one core.
func cacheCPU(c *CPU) error {
	const unit = 8 * simd.ProbeElements
	list := c.sizes("bytes", steps(8<<10, c.elements(c.away(), 1, 2), c.size("step", 200), unit)...)
	x, err := alloc[float64](c, ceil(largest(list), unit)*simd.ProbeElements)
	if err != nil {
		return err
	}
	fill(c, c.threads, x, 1)
	for _, bytes := range list {
		n := max(bytes/unit, 1) * unit
		if _, err := c.readPoint("", itoa(n), 1, 1, n, words(x)); err != nil {
			return err
		}
	}
	return nil
}

// cpuLine is the distance of nodes on processors, bytes.
const cpuLine = 64

// latencyCPU follows a random cycle through all lines of a buffer.
func latencyCPU(c *CPU) error {
	list := c.sizes("bytes", steps(16<<10, c.elements(c.away(), 1, 2), c.size("step", 200), cpuLine)...)
	for _, bytes := range list {
		nodes := max(bytes/cpuLine, 2)
		buf, err := alloc[byte](c, nodes*cpuLine)
		if err != nil {
			return err
		}
		base := unsafe.Pointer(unsafe.SliceData(buf))
		first := chain(base, nodes)
		const steps = 1 << 16
		at, taken := first, 0
		var hz []float64
		p := point{most: 1, least: 1e-9, prepare: func(int) (sampler, func() error, error) {
			return func() (float64, float64, error) {
				hz = append(hz, c.clock())
				took := c.crew(1, func(int) { at = chase(at, steps) })
				taken += steps
				return 0, took / steps, nil
			}, nil, nil
		}}
		for done := 0; done < nodes; done += steps { // the whole cycle once
			at, taken = chase(at, steps), taken+steps
		}
		p.Params, p.Kernel = map[string]string{"bytes": itoa(nodes * cpuLine)}, "go"
		p.WorkingSet = float64(nodes * cpuLine)
		if !c.lastGuess {
			p.Roofs.LastCache = float64(c.last)
		}
		p.check = func() (record.Check, error) {
			if at != walk(base, first, nodes, taken%nodes) {
				return exact(1, 1), nil
			}
			return exact(0, 1), nil
		}
		p.finish = func(r *record.Result) error {
			r.Metrics = map[string]float64{"cycles": median(r.Samples) * median(hz), "clock_MHz": median(hz) / 1e6}
			return nil
		}
		if _, err := c.measure(p); err != nil {
			return err
		}
		c.release()
	}
	return nil
}

// successors gives that of each node in one random cycle (Sattolo's shuffle), the same for as many nodes.
func successors(nodes int) []uint32 {
	next := make([]uint32, nodes)
	for i := range next {
		next[i] = uint32(i)
	}
	r := rand.New(rand.NewPCG(uint64(nodes), 1))
	for i := nodes - 1; i > 0; i-- {
		j := r.IntN(i)
		next[i], next[j] = next[j], next[i]
	}
	return next
}

// chain links the lines of a buffer in a cycle and gives its first.
func chain(base unsafe.Pointer, nodes int) unsafe.Pointer {
	for i, to := range successors(nodes) {
		*(*unsafe.Pointer)(unsafe.Add(base, i*cpuLine)) = unsafe.Add(base, int(to)*cpuLine)
	}
	return base
}

// chase follows the chain so many steps, a multiple of 16.
func chase(p unsafe.Pointer, steps int) unsafe.Pointer {
	for i := 0; i < steps; i += 16 {
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
		p = *(*unsafe.Pointer)(p)
	}
	return p
}

// walk is where so many steps end: by the order of the cycle, made again.
func walk(base, first unsafe.Pointer, nodes, steps int) unsafe.Pointer {
	next := successors(nodes)
	at := uint32(uintptr(first)-uintptr(base)) / cpuLine
	for range steps {
		at = next[at]
	}
	return unsafe.Add(base, int(at)*cpuLine)
}

// vecAddCPU adds vectors of float32 with the device's own kernel.
func vecAddCPU(c *CPU) error {
	for _, n := range vecAddSizes(c.session, c.away()) {
		n = c.elements(n, 4, 3)
		var m [3][]float32
		for i := range m {
			var err error
			if m[i], err = alloc[float32](c, n); err != nil {
				return err
			}
			fill(c, c.threads, m[i], uint32(i))
		}
		p := point{prepare: c.worked(c.threads, func(w int) {
			pieces(n, c.threads, w, func(i, j int) { c.kernels.Add(m[0][i:j], m[1][i:j], m[2][i:j]) })
		})}
		p.Params = map[string]string{"n": itoa(n), "threads": itoa(c.threads)}
		p.Kernel = strings.Join([]string{"add", c.kernels.Name}, ".")
		p.Bytes, p.Flops, p.WorkingSet = 12*float64(n), float64(n), 12*float64(n)
		p.Cache, p.Roofs = c.memoryLevel(12 * n)
		p.Roofs.GFlops = c.flops(c.threads, 4)
		p.Roofs.MostGBs = c.firstLevel(c.threads, true)
		p.check = func() (record.Check, error) {
			return c.wrongOf(n, func(i int) bool { return m[0][i] == m[1][i]+m[2][i] }), nil
		}
		if _, err := c.measure(p); err != nil {
			return err
		}
		c.release()
	}
	return nil
}
