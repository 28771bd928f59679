package platform

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/bench/record"
)

// cache: the rate at which a core, a multiprocessor or a compute unit reads again
// and again what it has read, over sizes. On GPUs one block on each of them, all
// reading the same buffer: first-level caches, then the second level.
var _ = define(Benchmark{
	Name:  "cache",
	About: "one block a multiprocessor, all reading the same buffer again and again; on the processor one core",
	Params: map[string]string{"bytes": "size of the buffer", "step": "growth of the sizes in percent",
		"block": "threads of a block (GPU)"},
	GPU: cacheGPU,
	CPU: cacheCPU,
})

func cacheGPU(g *GPU) error {
	if g.limits.units == 0 {
		return &Missing{"nothing says how many multiprocessors the device has"}
	}
	asked := g.size("block", 1024)
	block := min(asked, g.limits.mostBlock)
	if len(g.params["block"]) > 0 && block < asked {
		return fmt.Errorf("a block of %d threads: this device's have %d at most", asked, block)
	}
	normal := steps(16<<10, 256<<10, 200, 16*block)
	normal = append(normal, 3*normal[len(normal)-1]/4)
	normal = append(normal, steps(320<<10, max(g.away(), 32<<20), g.size("step", 150), 16*block)...)
	data, err := g.alloc(max(max(g.away(), 32<<20), largest(g.sizes("bytes", normal...))) + 16*block)
	if err != nil {
		return err
	}
	if err := g.fill(data, g.dev.wholes(), data.Size()/8, 1); err != nil {
		return err
	}
	out, err := g.alloc(8 * block * g.limits.units)
	if err != nil {
		return err
	}
	for _, bytes := range g.sizes("bytes", normal...) {
		n := max(bytes/(16*block), 1) * block // doubles in each half
		loads := 8
		for n%(block*loads) != 0 {
			loads /= 2
		}
		times := max(2, 64<<20/(16*n))
		macros := []string{"LOADS=" + itoa(loads)}
		if n == block*loads {
			macros = append(macros, "ONCE=1")
		}
		l, err := g.dev.bind(code{"cache", "sum", block, macros}, g.limits.units, 0, data, out, uint32(n), uint32(times),
			uint32(0))
		if err != nil {
			return err
		}
		p := point{prepare: g.timed(usual, l)}
		p.Params = map[string]string{"bytes": itoa(16 * n)}
		if len(g.params["block"]) > 0 { // what was measured before had no name for the usual one
			p.Params["block"] = itoa(block)
		}
		p.WorkingSet = 16 * float64(n)
		p.Bytes = 16 * float64(n) * float64(times) * float64(g.limits.units)
		p.Cache = record.Warm
		// All read the same lines at about the same time: what one has fetched may be
		// handed on to others before it comes from the second level again. Only the way
		// into a multiprocessor is a bound.
		p.Roofs = g.roofs(g.peaks.l1, 0)
		p.check = func() (record.Check, error) {
			return cacheSums(out, n, times, block, g.limits.units, g.dev.wholes() != "double")
		}
		if _, err := g.measure(p); err != nil {
			return err
		}
	}
	return nil
}

func largest(list []int) int {
	most := 0
	for _, n := range list {
		most = max(most, n)
	}
	return most
}

// cacheSums compares each thread's sum with that of the numbers themselves: a double
// from HIP's kernel, twice the sum modulo 2^32 from Vulkan's.
func cacheSums(out memory, n, times, block, blocks int, modulo bool) (record.Check, error) {
	want := make([]uint64, block)
	for t := range want {
		sum := uint64(0)
		for i := t; i < n; i += block {
			sum += uint64(value(uint32(i), 1)) * uint64(value(uint32(n+i), 1))
		}
		sum *= uint64(times)
		want[t] = math.Float64bits(float64(sum))
		if modulo {
			want[t] = uint64(uint32(sum))<<32 | uint64(uint32(sum))
		}
	}
	got, err := readWords(out, block*blocks)
	if err != nil {
		return record.Check{}, err
	}
	wrong := 0
	for i, w := range got {
		if w != want[i%block] {
			wrong++
		}
	}
	return exact(wrong, block*blocks), nil
}

// l2-cache: what the second level gives to all together.
var _ = define(Benchmark{
	Name:   "l2-cache",
	About:  "many blocks, block b reading chunk b mod R of half a megabyte: the second level, then memory",
	Params: map[string]string{"chunks": "R", "step": "growth of R in percent"},
	GPU:    l2CacheGPU,
	Lacks:  map[string]string{"cpu": "a core's second level is what cache measures"},
})

func l2CacheGPU(g *GPU) error {
	const loads = 64
	block := min(1024, g.limits.mostBlock)
	chunk := loads * block * 8
	most := min(max(g.away(), 32<<20), g.limits.free/2, g.limits.mostBuffer) / chunk
	list := g.sizes("chunks", append(steps(3, most, g.size("step", 140), 1), most+1)...)
	data, err := g.alloc(largest(list) * chunk)
	if err != nil {
		return err
	}
	if err := g.fill(data, g.dev.wholes(), data.Size()/8, 1); err != nil {
		return err
	}
	out, err := g.alloc(largest(list) * block * 8)
	if err != nil {
		return err
	}
	macros := []string{"LOADS=" + itoa(loads)}
	for _, run := range list {
		blocks := max(40*g.limits.units, 2*run)
		l, err := g.dev.bind(code{"l2cache", "sum", block, macros}, blocks, 0, data, out, uint32(run), uint32(blocks))
		if err != nil {
			return err
		}
		p := point{prepare: g.timed(usual, l)}
		p.Params = map[string]string{"bytes": itoa(run * chunk)}
		p.WorkingSet = float64(run * chunk)
		p.Bytes = float64(blocks) * float64(chunk)
		p.Roofs = g.roofs(g.peaks.l2, 0)
		if run*chunk <= g.limits.lastCache() {
			p.Cache = record.Warm
		}
		// Blocks that run at once may share a chunk's way from memory while there are
		// fewer chunks than blocks.
		if run*chunk >= g.away() && run >= 4*g.limits.units {
			p.Cache, p.Roofs.ReadGBs = record.Cold, g.peaks.memory
		}
		p.check = func() (record.Check, error) {
			return g.wrong(run*block, code{"l2cache", "check", block, macros}, run, out, uint32(run))
		}
		if _, err := g.measure(p); err != nil {
			return err
		}
	}
	return nil
}

// l2-stream: the stream kernels over fewer elements than threads.
var _ = define(Benchmark{
	Name:  "l2-stream",
	About: "the stream kernels over an index modulo the length: each level's rate with stores",
	Params: map[string]string{"n": "elements of 8 bytes in each array", "step": "growth of the sizes in percent",
		"threads": "of a launch"},
	GPU:   l2StreamGPU,
	Lacks: map[string]string{"cpu": "STREAM's four kernels over sizes are what stream and cache measure"},
})

func l2StreamGPU(g *GPU) error {
	block := min(512, g.limits.mostBlock) // starting smaller ones takes longer than their work
	normal := steps(64<<10, max(g.away()/8, 1<<20), g.size("step", 200), block)
	list := g.sizes("n", normal...)
	s, err := newStreamData(g, g.room(largest(list), 8, 4, block))
	if err != nil {
		return err
	}
	for _, n := range list {
		if n > s.n {
			continue
		}
		for kind, k := range streamKernels[:4] {
			chunks := max(n/block, 1)
			repeats := max(1, g.size("threads", 64<<20)/(chunks*block))
			l, err := g.dev.bind(code{"l2stream", k.name, block, nil}, chunks*repeats, 0, s.a, s.in[0], s.in[1], s.in[2], s.hits,
				uint32(chunks))
			if err != nil {
				return err
			}
			elements, launches := chunks*block, 0
			p := point{prepare: counted(g.timed(usual, l), &launches)}
			p.Bench, p.Params = k.name, map[string]string{"n": itoa(elements)}
			p.WorkingSet = 8 * float64(elements*k.buffers)
			p.Bytes = 8 * float64(elements*repeats*k.arrays)
			p.Cache, p.Roofs = g.memoryLevel(int(p.WorkingSet))
			if p.Cache == record.Warm {
				p.Roofs.ReadGBs = g.peaks.l1 // neighbours in time may meet in a first level
			}
			p.check = func() (record.Check, error) {
				if k.name == "read" {
					found, err := g.count(s.hits)
					if want := uint32(launches) * uint32(ceil(elements, hideStep)*repeats); uint32(found) != want {
						return exact(1, elements), err
					}
					return exact(0, elements), err
				}
				return g.wrong(elements, code{"stream", "check", plainBlock, nil}, ceil(elements, plainBlock), s.a,
					uint32(elements), uint32(kind))
			}
			if err := s.plant(k.name == "read"); err != nil {
				return err
			}
			if _, err := g.count(s.hits); err != nil {
				return err
			}
			if _, err := g.measure(p); err != nil {
				return err
			}
		}
	}
	return nil
}
