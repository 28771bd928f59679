package platform

import (
	"encoding/binary"
	"time"

	"github.com/greta-project/greta/backends/cpu/simd"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/pool"
)

// The processor's benchmarks of its cores: regions of the pool, chains, peaks.

// count is a task that counts its chunks.
type countTask struct{ done []uint64 }

func (t *countTask) Do(worker, _ int) { t.done[8*worker]++ }

func (t *countTask) total() (n int) {
	for i := 0; i < len(t.done); i += 8 {
		n += int(t.done[i])
	}
	return n
}

// launchCPU: what a parallel region costs, while the workers spin and after they have
// gone to sleep.
func launchCPU(c *CPU) error {
	p := pool.New(c.threads)
	defer p.Close()
	task := &countTask{make([]uint64, 8*c.threads)}
	for _, w := range []struct {
		name string
		rest time.Duration
	}{{"region", 0}, {"region_parked", 5 * time.Millisecond}} {
		regions := 0
		clear(task.done)
		x := point{prepare: func(n int) (sampler, func() error, error) {
			return func() (float64, float64, error) {
				time.Sleep(w.rest)
				begin := time.Now()
				for range n {
					p.RunAll(task, c.threads)
				}
				took := time.Since(begin).Seconds()
				regions += n
				return 0, took, nil
			}, nil, nil
		}}
		if w.rest > 0 {
			x.most = 1
		}
		x.Bench, x.Params = w.name, map[string]string{"threads": itoa(c.threads)}
		x.check = func() (record.Check, error) {
			want := regions * c.threads
			return exact(max(want, task.total())-min(want, task.total()), want), nil
		}
		if _, err := c.measure(x); err != nil {
			return err
		}
	}
	return nil
}

// scaleTask is a region of a ping-pong.
type scaleTask struct {
	c      *CPU
	to, by []float64
	f      float32
	chunks int
}

func (t *scaleTask) Do(_, chunk int) {
	from, to := part(len(t.to), t.chunks, chunk)
	for ; from < to; from += callElements {
		j := min(from+callElements, to)
		t.c.probe.Stream(simd.Scale, t.to[from:j], t.by[from:j], nil, t.f, false)
	}
}

// smallCPU: regions of the pool that scale a buffer, from few elements to many.
func smallCPU(c *CPU) error {
	p := pool.New(c.threads)
	defer p.Close()
	var volumes, times []float64
	for _, n := range smallSizes(c.session, c.elements(16<<20, 8, 2)) {
		n = ceil(n, simd.ProbeElements) * simd.ProbeElements
		a, err := alloc[float64](c, n)
		if err != nil {
			return err
		}
		b, err := alloc[float64](c, n)
		if err != nil {
			return err
		}
		fill(c, c.threads, b, 1)
		chunks := c.threads * max(1, min(8, n/c.threads/4096))
		there, back := &scaleTask{c, a, b, 0.5, chunks}, &scaleTask{c, b, a, 2, chunks}
		x := smallResult("pool", n)
		x.Params["threads"] = itoa(c.threads)
		x.prepare = func(k int) (sampler, func() error, error) {
			return func() (float64, float64, error) {
				begin := time.Now()
				for range k {
					p.RunAll(there, chunks)
					p.RunAll(back, chunks)
				}
				return 0, time.Since(begin).Seconds() / 2, nil
			}, nil, nil
		}
		x.Cache, x.Roofs = c.memoryLevel(scaleBytes * n)
		x.Roofs.MostGBs = c.firstLevel(c.threads, true)
		x.check = func() (record.Check, error) {
			return c.wrongOf(n, func(i int) bool {
				v := float64(value(uint32(i), 1))
				return b[i] == v && a[i] == v/2
			}), nil
		}
		r, err := c.measure(x)
		if err != nil {
			return err
		}
		volumes, times = append(volumes, r.Bytes), append(times, median(r.Samples))
		c.release()
	}
	return c.emitFit("pool", volumes, times)
}

// rooflineCPU: chains of multiply-adds for each element, and the peaks of each type:
// twelve chains of whole vectors in registers.
func rooflineCPU(c *CPU) error {
	n := c.sizes("n", c.elements(ceil(c.away(), 8), 4, 2))[0]
	n = ceil(n, simd.ProbeElements) * simd.ProbeElements
	v, err := alloc[float32](c, n)
	if err != nil {
		return err
	}
	y, err := alloc[float32](c, n)
	if err != nil {
		return err
	}
	fill(c, c.threads, v, 1)
	for _, steps := range c.sizes("steps", 0, 1, 2, 4, 8, 16, 32, 64, 128) {
		p := point{prepare: c.worked(c.threads, func(w int) {
			from, to := part(n, c.threads, w)
			// A long chain takes shorter pieces, so that no call lasts long.
			piece := max(callElements/max(steps, 1), 4) / 4 * simd.ProbeElements
			for ; from < to; from += piece {
				j := min(from+piece, to)
				c.probe.Roof(y[from:j], v[from:j], steps)
			}
		})}
		p.Params = map[string]string{"type": "f32", "steps": itoa(steps), "n": itoa(n), "threads": itoa(c.threads)}
		p.Kernel = "probe." + c.probe.Name
		p.Bytes, p.Flops = 8*float64(n), 4*float64(steps)*float64(n)
		p.WorkingSet = p.Bytes
		p.Cache, p.Roofs = c.memoryLevel(int(p.WorkingSet))
		p.Roofs.GFlops = c.flops(c.threads, 4)
		p.Roofs.MostGBs = c.firstLevel(c.threads, true)
		p.check = func() (record.Check, error) {
			want := chains(steps)
			r := c.wrongOf(n, func(i int) bool {
				w := want[int(v[i])-1]
				e := float64(y[i]) - w
				return e <= w*chainLimit && -e <= w*chainLimit
			})
			r.Against = "float64"
			return r, nil
		}
		p.finish = func(r *record.Result) error {
			r.Metrics = map[string]float64{"flops_per_byte": p.Flops / p.Bytes}
			return nil
		}
		if _, err := c.measure(p); err != nil {
			return err
		}
	}
	c.release()
	return c.peakPoints()
}

// peakRounds is how long a chain runs in one call, and peakCalls how many calls an
// operation is.
const peakRounds, peakCalls = 2000, 20

// peakPoints measures what the cores compute at most, and emits it as roofs.
func (c *CPU) peakPoints() error {
	bytes := float64(c.probe.Vector)
	if bytes == 8 {
		bytes = 4 // Go's code: an int32 at a time
	}
	for _, k := range []struct {
		name   string
		what   string
		peak   float64
		run    func(w int) (elements int)
		check  func() record.Check
		perSum float64 // operations for an element in a round
	}{
		c.chainPeak("f32"), c.chainPeak("f64"), c.bytePeak(), c.bf16Peak(),
	} {
		params := map[string]string{"type": k.name, "threads": itoa(c.threads)}
		if k.run == nil {
			if err := c.skip("peak", params, "the processor, or this build, has no dot products of %s", k.name); err != nil {
				return err
			}
			continue
		}
		elements := make([]int, c.threads)
		p := point{prepare: c.worked(c.threads, func(w int) { elements[w] = k.run(w) })}
		p.Bench, p.Params, p.Kernel = "peak", params, "probe."+c.probe.Name
		k.run(0)
		p.Flops = k.perSum * float64(k.run(0)) * peakRounds * peakCalls * float64(c.threads)
		c.clock()
		p.Roofs.GFlops = k.peak
		p.check = func() (record.Check, error) { return k.check(), nil }
		r, err := c.measure(p)
		if err != nil {
			return err
		}
		var ok *record.Result
		if r.Verdict == record.OK {
			ok = r
		}
		if err := c.roof(k.what, map[string]string{"type": k.name}, ok); err != nil {
			return err
		}
	}
	return nil
}

type peakPoint = struct {
	name   string
	what   string
	peak   float64
	run    func(w int) (elements int)
	check  func() record.Check
	perSum float64
}

// chainPeak is the peak of multiply-adds. Each call begins anew, so that its end
// is known.
func (c *CPU) chainPeak(name string) peakPoint {
	const vectors = 12
	start := func(i int) float64 { return float64(1+i%64) / 32 }
	want := make([]float64, simd.MostChain)
	for i := range want {
		want[i] = start(i)
		for range peakRounds {
			want[i] = incoreOps[0].step(want[i])
		}
	}
	p := peakPoint{name: name, what: "fma", perSum: 2, peak: c.flops(c.threads, 4)}
	x32 := make([][simd.MostChain]float32, c.threads)
	x64 := make([][simd.MostChain]float64, c.threads)
	if name == "f64" {
		p.peak = c.flops(c.threads, 8)
	}
	n := 0
	p.run = func(w int) (elements int) {
		for range peakCalls {
			for i := range want {
				x32[w][i], x64[w][i] = float32(start(i)), start(i)
			}
			if name == "f64" {
				elements = c.probe.Chain64(&x64[w], simd.FMA, vectors, peakRounds, chainFactor, chainTerm)
			} else {
				elements = c.probe.Chain32(&x32[w], simd.FMA, vectors, peakRounds, chainFactor, chainTerm)
			}
		}
		if w == 0 {
			n = elements
		}
		return elements
	}
	p.check = func() record.Check {
		var got, all []float64
		limit := 1e-12
		for w := range c.threads {
			for i := range n {
				v := x64[w][i]
				if name != "f64" {
					v, limit = float64(x32[w][i]), chainLimit
				}
				got, all = append(got, v), append(all, want[i])
			}
		}
		return compare(got, all, limit)
	}
	return p
}

// bytePeak is the peak of dot products of bytes: two operations for each product.
func (c *CPU) bytePeak() peakPoint {
	p := peakPoint{name: "i8", what: "dot", perSum: 8, peak: 4 * c.flops(c.threads, 4)}
	var w, x [64]byte
	for i := range w {
		w[i], x[i] = byte(value(uint32(i), 1))%16, byte(value(uint32(i), 2))
	}
	sums, n := make([][simd.MostChain]int32, c.threads), 0
	p.run = func(worker int) (elements int) {
		clear(sums[worker][:])
		for range peakCalls {
			elements = c.probe.DotI8(&sums[worker], &w, &x, peakRounds)
		}
		if worker == 0 {
			n = elements
		}
		return elements
	}
	p.check = func() record.Check {
		wrong := 0
		for t := range c.threads {
			for i, got := range sums[t][:n] {
				at, want := i%(n/simd.DotVectors)*4, int32(0)
				for k := range 4 {
					want += int32(w[at+k]) * int32(int8(x[at+k]))
				}
				if got != want*peakRounds*peakCalls {
					wrong++
				}
			}
		}
		return exact(wrong, n*c.threads)
	}
	return p
}

// bf16Peak is the peak of dot products of bf16.
func (c *CPU) bf16Peak() peakPoint {
	p := peakPoint{name: "bf16", what: "dot", perSum: 4, peak: 2 * c.flops(c.threads, 4)}
	var w, x [64]byte
	for i := 0; i < 64; i += 2 { // 1 to 4 by ½, 1 and 2: sums are exact far beyond a call
		binary.LittleEndian.PutUint16(w[i:], 0x3f80+uint16(i/2%4)*0x20)
		binary.LittleEndian.PutUint16(x[i:], 0x3f80+uint16(i/2%2)*0x80)
	}
	sums, n := make([][simd.MostChain]float32, c.threads), 0
	if c.probe.DotBF16(&sums[0], &w, &x, 1) == 0 {
		return p
	}
	p.run = func(worker int) (elements int) {
		for range peakCalls {
			clear(sums[worker][:])
			elements = c.probe.DotBF16(&sums[worker], &w, &x, peakRounds)
		}
		if worker == 0 {
			n = elements
		}
		return elements
	}
	value := func(b []byte) float64 { return bf16(binary.LittleEndian.Uint16(b)) }
	p.check = func() record.Check {
		wrong := 0
		for t := range c.threads {
			for i, got := range sums[t][:n] {
				at := i % (n / simd.DotVectors) * 4
				want := value(w[at:])*value(x[at:]) + value(w[at+2:])*value(x[at+2:])
				if float64(got) != want*peakRounds {
					wrong++
				}
			}
		}
		return exact(wrong, n*c.threads)
	}
	return p
}

// incoreCPU: chains of vectors on one core, in cycles by the clock measured beside them.
func incoreCPU(c *CPU) error {
	const rounds = 1000
	for _, name := range []string{"f32", "f64"} {
		for op, o := range incoreOps {
			for _, vectors := range c.sizes("chains", simd.ChainVectors...) {
				var x32 [simd.MostChain]float32
				var x64 [simd.MostChain]float64
				elements := 0
				run := func(int) {
					for i := range x32 {
						x64[i] = float64(1+i%64) / 32
						x32[i] = float32(x64[i])
					}
					if name == "f64" {
						elements = c.probe.Chain64(&x64, simd.ChainOp(op), vectors, rounds, chainFactor, chainTerm)
					} else {
						elements = c.probe.Chain32(&x32, simd.ChainOp(op), vectors, rounds, chainFactor, chainTerm)
					}
				}
				run(0)
				p := point{prepare: c.worked(1, run)}
				p.Bench = o.name
				p.Params = map[string]string{"type": name, "chains": itoa(vectors)}
				p.Kernel = "probe." + c.probe.Name
				p.Flops = o.flops * float64(elements*rounds)
				hz := c.clock()
				size, limit := 4, chainLimit
				if name == "f64" {
					size, limit = 8, 1e-12
				}
				p.Roofs.GFlops = c.flops(1, size)
				p.check = func() (record.Check, error) {
					got, want := make([]float64, elements), make([]float64, elements)
					for i := range got {
						got[i], want[i] = x64[i], float64(1+i%64)/32
						if name != "f64" {
							got[i] = float64(x32[i])
						}
						for range rounds {
							want[i] = o.step(want[i])
						}
					}
					return compare(got, want, limit), nil
				}
				p.finish = func(r *record.Result) error {
					hz = max(hz, c.clock())
					cycles := median(r.Samples) * hz / rounds
					r.Metrics = map[string]float64{"cycles": cycles, "cycles_per_op": cycles / float64(vectors), "clock_MHz": hz / 1e6}
					return nil
				}
				if _, err := c.measure(p); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
