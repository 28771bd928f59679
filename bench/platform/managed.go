package platform

import "github.com/greta-project/greta/bench/record"

// um-stream: memory that the driver moves to whoever touches it, once it has come
// to the device: up to what is free there, never beyond.
var _ = define(Benchmark{
	Name:   "um-stream",
	About:  "triad over managed memory that lies on the device, up to its free memory, never past it",
	Params: map[string]string{"mib": "size of the four arrays together, in MiB"},
	GPU:    managedGPU,
	Lacks: map[string]string{"cpu": "all memory is the processor's own",
		"vulkan": "Vulkan has no memory that moves by itself"},
})

func managedGPU(g *GPU) error {
	if !g.limits.managed {
		return &Missing{"the driver gives no managed memory that host and device use at once"}
	}
	var normal []int
	for n := 1 << 10; n <= g.limits.free>>20/10*9; n *= 4 {
		normal = append(normal, n)
	}
	for _, mib := range g.sizes("mib", normal...) {
		bytes := mib << 20
		params := map[string]string{"mib": itoa(mib)}
		if bytes > g.limits.free/10*9 {
			if err := g.skip("triad", params, "%d bytes are more than nine tenths of what is free", bytes); err != nil {
				return err
			}
			continue
		}
		n := bytes / 32
		s := &streamData{g: g, n: n}
		var err error
		if s.a, err = g.allocKind(8*n, managed); err != nil {
			return err
		}
		for i := range s.in {
			if s.in[i], err = g.allocKind(8*n, managed); err != nil {
				return err
			}
			if err := g.fill(s.in[i], "double", n, i+1); err != nil { // by the device: the pages come to it
				return err
			}
		}
		if s.hits, err = g.counter(); err != nil {
			return err
		}
		l, err := g.dev.bind(code{"stream", "triad", plainBlock, nil}, ceil(n, plainBlock), 0, s.a, s.in[0], s.in[1], s.in[2],
			s.hits, uint32(n))
		if err != nil {
			return err
		}
		p := point{prepare: g.timed(usual, l)}
		p.Bench, p.Params = "triad", params
		p.Bytes, p.WorkingSet = 32*float64(n), 32*float64(n)
		p.Cache, p.Roofs = g.memoryLevel(32 * n)
		p.check = func() (record.Check, error) {
			return g.wrong(n, code{"stream", "check", plainBlock, nil}, ceil(n, plainBlock), s.a, uint32(n), uint32(3))
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
