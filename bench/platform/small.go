package platform

import (
	"github.com/greta-project/greta/bench/record"
)

// small-kernels: a = f·b to and fro, so small that starting it matters: what
// T = V/(a + V/b) has for a, the cost of a start, and b, the rate without it.
var _ = define(Benchmark{
	Name: "small-kernels",
	About: "scaling between two buffers, from few elements to many, in a stream, as a graph and in a kernel that " +
		"stays; fitted by T = V/(a + V/b)",
	Params: map[string]string{"n": "elements of 8 bytes"},
	GPU:    smallGPU,
	CPU:    smallCPU,
})

// scaleBytes is what one element of the ping-pong moves.
const scaleBytes = 16

func smallSizes(s *session, most int) []int {
	var list []int
	for n := 4 << 10; n <= min(most, 128<<20); n *= 2 {
		list = append(list, n)
	}
	return s.sizes("n", list...)
}

func smallGPU(g *GPU) error {
	most := g.room(128<<20, 8, 2, 1)
	sizes := smallSizes(g.session, most)
	for _, how := range []string{"stream", "captured", "persistent"} {
		var volumes, times []float64
		for _, n := range sizes {
			if n > most {
				continue
			}
			r, err := smallPoint(g, how, n)
			if err != nil {
				return err
			}
			if r.Verdict == record.Skipped {
				break
			}
			volumes, times = append(volumes, r.Bytes), append(times, median(r.Samples))
			if err := g.release(); err != nil {
				return err
			}
		}
		if err := g.emitFit(how, volumes, times); err != nil {
			return err
		}
	}
	return nil
}

func smallPoint(g *GPU, how string, n int) (*record.Result, error) {
	if how == "persistent" {
		if why := g.dev.noGridBarrier(); why != "" {
			return &record.Result{Verdict: record.Skipped}, g.skip(how, nil, "%s", why)
		}
		k, err := newPersistent(g, n)
		if err != nil {
			return nil, err
		}
		p := k.point(max(2, min(1000, (64<<20)/n)) / 2 * 2)
		return g.measure(p)
	}
	a, b, err := pingPong(g, n)
	if err != nil {
		return nil, err
	}
	c := code{"small", "scale", plainBlock, nil}
	there, err := g.dev.bind(c, ceil(n, plainBlock), 0, a, b, uint32(n), float32(0.5))
	if err != nil {
		return nil, err
	}
	back, err := g.dev.bind(c, ceil(n, plainBlock), 0, b, a, uint32(n), float32(2))
	if err != nil {
		return nil, err
	}
	way := inStream
	if how == "captured" {
		way = captured
	}
	p := smallResult(how, n)
	p.Roofs = g.roofs(g.cachedRoof(scaleBytes*n), 0)
	p.prepare = func(n int) (sampler, func() error, error) { // there and back are two operations
		run, end, err := g.dev.sequence(way, n, there, back)
		return func() (float64, float64, error) {
			d, h, err := run()
			return d / 2, h / 2, err
		}, end, err
	}
	p.most, p.least = 500, 2e-3
	p.check = func() (record.Check, error) { return smallCheck(g, a, b, n) }
	return g.measure(p)
}

func smallResult(how string, n int) point {
	var p point
	p.Bench = how
	p.Params = map[string]string{"n": itoa(n)}
	p.WorkingSet = float64(scaleBytes * n)
	p.Bytes = scaleBytes * float64(n)
	return p
}

// pingPong gives two buffers, of which b is filled.
func pingPong(g *GPU, n int) (a, b memory, err error) {
	if a, err = g.alloc(8 * n); err == nil {
		b, err = g.alloc(8 * n)
	}
	if err == nil {
		err = g.fill(b, "double", n, 1)
	}
	return a, b, err
}

// smallCheck: after there and back b is what it was, and a half of that.
func smallCheck(g *GPU, a, b memory, n int) (record.Check, error) {
	x, err := g.wrong(n, code{"small", "check", plainBlock, nil}, ceil(n, plainBlock), a, uint32(n), float32(0.5))
	if err != nil {
		return x, err
	}
	y, err := g.wrong(n, code{"small", "check", plainBlock, nil}, ceil(n, plainBlock), b, uint32(n), float32(1))
	return exact(int(x.MaxAbs+y.MaxAbs), 2*n), err
}

// persistentKernel is a launch whose blocks stay for many rounds.
type persistentKernel struct {
	g              *GPU
	a, b, count    memory
	n, grid, block int
}

// newPersistent makes a kernel of as many blocks as stay on the device at once.
func newPersistent(g *GPU, n int) (*persistentKernel, error) {
	if why := g.dev.noGridBarrier(); why != "" {
		return nil, &Missing{why}
	}
	a, b, err := pingPong(g, n)
	if err != nil {
		return nil, err
	}
	k := &persistentKernel{g: g, a: a, b: b, n: n, block: 1024}
	if k.count, err = g.counter(); err != nil {
		return nil, err
	}
	most, err := k.most()
	// Few elements do not need all blocks, and the barrier is dearer the more there are.
	k.grid = max(1, min(most, ceil(n, k.block)))
	return k, err
}

// most is how many blocks stay on the device at once.
func (k *persistentKernel) most() (int, error) {
	per, err := k.g.dev.resident(k.code(), 0)
	return k.g.limits.units * max(per, 1), err
}

func (k *persistentKernel) code() code { return code{"small", "persistent", k.block, nil} }

// point measures one round of so many, an even number.
func (k *persistentKernel) point(rounds int) point {
	g := k.g
	p := smallResult("persistent", k.n)
	p.Params["blocks"] = itoa(k.grid)
	p.Roofs = g.roofs(g.cachedRoof(scaleBytes*k.n), 0)
	p.most = 1
	p.prepare = func(int) (sampler, func() error, error) {
		l, err := g.dev.bind(k.code(), k.grid, 0, k.a, k.b, k.count, uint32(k.n), uint32(k.grid), uint32(rounds))
		if err != nil {
			return nil, nil, err
		}
		run, end, err := g.dev.sequence(inStream, 1, l)
		return func() (float64, float64, error) {
			if _, err := g.count(k.count); err != nil { // sets it to zero
				return 0, 0, err
			}
			d, h, err := run()
			return d / float64(rounds), h / float64(rounds), err
		}, end, err
	}
	p.check = func() (record.Check, error) { return smallCheck(g, k.a, k.b, k.n) }
	return p
}
