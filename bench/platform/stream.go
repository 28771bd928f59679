package platform

import (
	"fmt"

	"github.com/greta-project/greta/bench/record"
)

// stream: bandwidth of memory. On GPUs as one load a thread gives it, over sizes
// of blocks and occupancies, and as much as it gives at all, with several wide loads
// a thread under way: those are the measured roofs.
var _ = define(Benchmark{
	Name:  "stream",
	About: "bandwidth of memory: init, read, scale, triad and stencils; STREAM's four on the processor",
	Params: map[string]string{
		"n":        "elements of 8 bytes in each array",
		"block":    "threads of a block (GPU)",
		"resident": "blocks on a multiprocessor, held down by shared memory (HIP); 0: as many as there is room for",
		"threads":  "threads (CPU)",
	},
	GPU: streamGPU,
	CPU: streamCPU,
})

// streamKernel is one of the kernels of stream.hip, in the order of their numbers.
type streamKernel struct {
	name    string
	arrays  int // that it moves
	buffers int // that it works on
}

var streamKernels = []streamKernel{{"init", 1, 1}, {"read", 1, 1}, {"scale", 2, 2}, {"triad", 4, 4}, {"stencil3", 2, 2},
	{"stencil5", 2, 2}}

// hidden are the elements that a kernel that only reads must find.
const hidden, hideStep = 0xdeadbeef, 65521

// streamElements is the size of an array for which one alone is memory's.
func streamElements(g *GPU) int {
	return g.sizes("n", g.room(max(g.away()/8, 1<<26), 8, 4, 1<<16))[0]
}

func streamGPU(g *GPU) error {
	if err := wideGPU(g); err != nil {
		return err
	}
	if err := g.release(); err != nil {
		return err
	}
	n := streamElements(g)
	s, err := newStreamData(g, n)
	if err != nil {
		return err
	}
	for _, block := range g.sizes("block", 256, 512, 1024) {
		for _, resident := range g.sizes("resident", 0) {
			for kind, k := range streamKernels {
				if err := s.point(kind, k, block, resident); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// streamData are the four arrays of the stream kernels.
type streamData struct {
	g       *GPU
	n       int
	a       memory
	in      [3]memory
	hits    memory
	planted int
}

func newStreamData(g *GPU, n int) (*streamData, error) {
	s := &streamData{g: g, n: n}
	var err error
	if s.a, err = g.alloc(8 * n); err != nil {
		return nil, err
	}
	for i := range s.in {
		if s.in[i], err = g.alloc(8 * n); err != nil {
			return nil, err
		}
		if err := g.fill(s.in[i], "double", n, i+1); err != nil {
			return nil, err
		}
	}
	s.hits, err = g.counter()
	return s, err
}

// plant hides the number for which read looks, or takes it away again.
func (s *streamData) plant(on bool) error {
	g := s.g
	if !on {
		return g.fill(s.in[0], "double", s.n, 1)
	}
	s.planted = ceil(s.n, hideStep)
	return g.once(code{"stream", "hide", plainBlock, nil}, ceil(s.planted, plainBlock), s.in[0], uint32(s.n),
		uint32(hideStep))
}

func (s *streamData) point(kind int, k streamKernel, block, resident int) error {
	g, n := s.g, s.n
	c := code{"stream", k.name, block, nil}
	params := map[string]string{"block": itoa(block), "n": itoa(n)}
	shared := 0
	if resident > 0 {
		params["resident"] = itoa(resident)
		if g.limits.sharedPerUnit == 0 {
			return g.skip(k.name, params, "the device does not say how much shared memory a multiprocessor has")
		}
		shared = g.limits.sharedPerUnit/resident - 1024 // the driver keeps one for itself
	}
	if block > g.limits.mostBlock {
		return g.skip(k.name, params, "a block has %d threads at most here", g.limits.mostBlock)
	}
	l, err := g.dev.bind(c, ceil(n, block), shared, s.a, s.in[0], s.in[1], s.in[2], s.hits, uint32(n))
	if err != nil {
		return err
	}
	launches := 0
	if k.name == "read" {
		if err := s.plant(true); err != nil {
			return err
		}
	}
	p := point{prepare: counted(g.timed(usual, l), &launches)}
	p.Bench, p.Params = k.name, params
	p.Bytes = 8 * float64(n) * float64(k.arrays)
	p.WorkingSet = 8 * float64(n) * float64(k.buffers)
	p.Cache, p.Roofs = g.memoryLevel(int(p.WorkingSet))
	p.check = func() (record.Check, error) {
		if k.name == "read" {
			found, err := g.count(s.hits)
			want := uint32(launches) * uint32(s.planted)
			if uint32(found) == want {
				return exact(0, n), err
			}
			return exact(s.planted, n), err
		}
		return g.wrong(n, code{"stream", "check", plainBlock, nil}, ceil(n, plainBlock), s.a, uint32(n), uint32(kind))
	}
	p.finish = func(r *record.Result) error {
		per, err := g.dev.resident(c, shared)
		if per > 0 && g.limits.threadsPerUnit > 0 {
			r.Metrics = map[string]float64{"occupancy": float64(per*block) / float64(g.limits.threadsPerUnit)}
		}
		return err
	}
	if _, err := g.count(s.hits); err != nil {
		return err
	}
	if _, err = g.measure(p); err != nil {
		return err
	}
	if k.name == "read" {
		return s.plant(false)
	}
	return nil
}

// counted counts the operations that samplers run.
func counted(prepare func(n int) (sampler, func() error, error), launches *int) func(n int) (sampler, func() error,
	error) {
	return func(n int) (sampler, func() error, error) {
		run, end, err := prepare(n)
		return func() (float64, float64, error) {
			*launches += n
			return run()
		}, end, err
	}
}

// memoryLevel says of a working set whether it is memory's, and which roof that has.
func (g *GPU) memoryLevel(bytes int) (cache string, r record.Roofs) {
	switch {
	case g.limits.lastCache() == 0:
		return "", g.roofs(g.peaks.memory, 0)
	case bytes >= g.away():
		return record.Cold, g.roofs(g.peaks.memory, 0)
	}
	return record.Warm, g.roofs(g.cachedRoof(bytes), 0)
}

// cachedRoof is the modelled rate for a working set that is gone through again and
// again: a part of it stays in the cache even where it does not fit, so that below
// four times the cache only the cache's rate is a bound.
func (g *GPU) cachedRoof(bytes int) float64 {
	if bytes >= g.away() {
		return g.peaks.memory
	}
	return g.peaks.l2
}

// wideGPU takes the measured roofs of memory: read, copy and write by 16 bytes.
func wideGPU(g *GPU) error {
	const block = 256
	n := g.room(max(g.away()/16, 1<<26), 16, 2, 1<<16) // pieces
	if list := g.sizes("n"); len(list) > 0 {
		n = ceil(list[0]/2, 8*block) * 8 * block // as large as an array of the others
	}
	a, err := g.alloc(16 * n)
	if err != nil {
		return err
	}
	b, err := g.alloc(16 * n)
	if err != nil {
		return err
	}
	hits, err := g.counter()
	if err != nil {
		return err
	}
	word := code{"fill", "words", plainBlock, nil}
	if err := g.once(word, ceil(4*n, plainBlock), b, uint32(4*n), uint32(copySeed)); err != nil {
		return err
	}
	for _, name := range []string{"read", "copy", "write"} {
		var best *record.Result
		for _, loads := range []int{1, 2, 4, 8} {
			c := code{"wide", name, block, []string{"LOADS=" + itoa(loads)}}
			l, err := g.dev.bind(c, n/(block*loads), 0, a, b, hits, uint32(n))
			if err != nil {
				return err
			}
			launches, planted := 0, ceil(4*n, hideStep)
			p := point{prepare: counted(g.timed(usual, l), &launches)}
			p.Bench, p.Params = "wide/"+name, map[string]string{"loads": itoa(loads), "n": itoa(n)}
			p.Bytes = 16 * float64(n)
			if name == "copy" {
				p.Bytes *= 2
			}
			p.WorkingSet = p.Bytes
			p.Cache, p.Roofs = g.memoryLevel(int(p.WorkingSet))
			plain := func(function string, args ...any) (record.Check, error) {
				return g.wrong(4*n, code{"wide", function, plainBlock, nil}, ceil(4*n, plainBlock), args...)
			}
			p.check = func() (record.Check, error) {
				switch name {
				case "copy":
					return g.wrong(4*n, code{"fill", "same", plainBlock, nil}, ceil(4*n, plainBlock), a, b, uint32(4*n))
				case "write":
					return plain("constant", a, uint32(4*n), uint32(n))
				}
				found, err := g.count(hits)
				if want := uint32(launches) * uint32(planted); uint32(found) != want {
					return exact(planted, n), err
				}
				return exact(0, n), err
			}
			if name == "read" && loads == 1 {
				hide := code{"wide", "hide", plainBlock, nil}
				if err := g.once(hide, ceil(planted, plainBlock), b, uint32(4*n), uint32(hideStep)); err != nil {
					return err
				}
			}
			if _, err := g.count(hits); err != nil {
				return err
			}
			r, err := g.measure(p)
			if err != nil {
				return err
			}
			best = faster(best, r)
		}
		if err := g.roof(name, nil, best); err != nil {
			return err
		}
	}
	return nil
}

// faster gives the result with the higher rate of those that are OK.
func faster(a, b *record.Result) *record.Result {
	return fasterBy(a, b, func(r *record.Result) float64 { return r.Bytes })
}

func fasterBy(a, b *record.Result, work func(*record.Result) float64) *record.Result {
	if b.Verdict != record.OK {
		return a
	}
	if a == nil || work(b)/median(b.Samples) > work(a)/median(a.Samples) {
		return b
	}
	return a
}

// roof emits a result once more, as a measured roof of the device.
func (s *session) roof(name string, params map[string]string, best *record.Result) error {
	if best == nil {
		return nil
	}
	r := *best
	r.Bench, r.Params, r.Config = RoofPrefix+name, params, ""
	r.Metrics = nil
	if r.Kernel == "" {
		r.Kernel = fmt.Sprint(best.Name())
	}
	return s.emit(&r)
}
