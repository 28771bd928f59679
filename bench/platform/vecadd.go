package platform

import "github.com/greta-project/greta/bench/record"

// vec_add: the addition of two vectors of floats, from caches to four times the last.
var _ = define(Benchmark{
	Name:   "vec_add",
	About:  "c = a + b in float32, from small vectors to four times the last-level cache",
	Params: map[string]string{"n": "elements of each vector"},
	GPU:    vecAddGPU,
	CPU:    vecAddCPU,
})

// vecAddSizes go from 64 Ki elements to the first size of which three vectors are memory's.
func vecAddSizes(s *session, away int) []int {
	var list []int
	for n := 64 << 10; ; n *= 4 {
		if 12*n >= away {
			return s.sizes("n", append(list, ceil(away, 12*1024)*1024)...)
		}
		list = append(list, n)
	}
}

// additions is a launch that adds two vectors of so many times four elements of f32, and their sum.
func (g *GPU) additions(four int) (memory, launch, error) {
	var m [3]memory
	for i := range m {
		var err error
		if m[i], err = g.alloc(16 * four); err != nil {
			return nil, nil, err
		}
		if err := g.fill(m[i], "float", 4*four, i); err != nil {
			return nil, nil, err
		}
	}
	l, err := g.dev.bind(code{"vecadd", "add", plainBlock, nil}, ceil(four, plainBlock), 0, m[0], m[1], m[2], uint32(four))
	return m[0], l, err
}

func vecAddGPU(g *GPU) error {
	for _, n := range vecAddSizes(g.session, g.away()) {
		four := ceil(n, 4)
		sum, l, err := g.additions(four)
		if err != nil {
			return err
		}
		// As nodes of a graph: started one by one, small additions take what starting takes.
		p := point{most: 2000, prepare: g.timed(captured, l)}
		p.Params = map[string]string{"n": itoa(n)}
		p.Bytes, p.Flops, p.WorkingSet = 12*float64(n), float64(n), 12*float64(n)
		p.Cache, p.Roofs = g.memoryLevel(12 * n)
		p.Roofs.GFlops = g.peaks.f32
		p.check = func() (record.Check, error) {
			return g.wrong(4*four, code{"vecadd", "check", plainBlock, nil}, ceil(4*four, plainBlock), sum, uint32(4*four))
		}
		if _, err := g.measure(p); err != nil {
			return err
		}
		if err := g.release(); err != nil {
			return err
		}
	}
	return nil
}
