package platform

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/tensor"
)

// roofline: from memory's roof to that of arithmetic. Two chains of multiply-adds
// for each element that is read and written, more and more of them.
var _ = define(Benchmark{
	Name:   "roofline",
	About:  "two chains of multiply-adds for each element read and written, N of them: from memory's roof to arithmetic's",
	Params: map[string]string{"steps": "N, multiply-adds in a chain: 0 to 64, or multiples of 64", "n": "elements"},
	GPU:    rooflineGPU,
	CPU:    rooflineCPU,
})

// chainSteps are the lengths of chains that are compiled for Vulkan too.
var chainSteps = []int{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}

// chainLimit is the relative error that is let through: a thousand roundings of f32. A
// step more or less changes results by more.
const chainLimit = 1e-4

// chains computes what the kernel gives for each of the 256 numbers.
func chains(steps int) (table [256]float64) {
	for v := range table {
		n := float64(v + 1)
		x, s, t := 1-n/(1<<18), n/256, 1.0
		for range steps {
			s, t = math.FMA(s, x, 0.25), math.FMA(t, x, 0.75)
		}
		table[v] = s + t
	}
	return table
}

func rooflineGPU(g *GPU) error {
	for _, elem := range []struct {
		name, ctype string
		size        int
		peak        float64
	}{{"f32", "float", 4, g.peaks.f32}, {"f64", "double", 8, g.peaks.f64}} {
		n := g.sizes("n", g.room(max(g.away()/elem.size, 1<<26), elem.size, 2, plainBlock))[0]
		if err := rooflineOf(g, elem.name, elem.ctype, elem.size, n, elem.peak); err != nil {
			return err
		}
		if err := g.release(); err != nil {
			return err
		}
	}
	return nil
}

func rooflineOf(g *GPU, name, ctype string, size, n int, peak float64) error {
	if why := g.dev.noType(name); why != "" {
		return g.skip("", map[string]string{"type": name}, "%s", why)
	}
	a, err := g.alloc(size * n)
	if err != nil {
		return err
	}
	b, err := g.alloc(size * n)
	if err != nil {
		return err
	}
	table, err := g.alloc(size * 256)
	if err != nil {
		return err
	}
	if err := g.fill(b, ctype, n, 1); err != nil {
		return err
	}
	var best *record.Result
	for _, steps := range g.sizes("steps", chainSteps...) {
		if steps > 64 && steps%64 != 0 {
			return fmt.Errorf("steps=%d: chains longer than 64 are multiples of 64", steps)
		}
		macros := []string{"STEPS=" + itoa(steps), "ELEM=" + ctype}
		l, err := g.dev.bind(code{"roofline", "chains", plainBlock, macros}, ceil(n, plainBlock), 0, a, b, uint32(n))
		if err != nil {
			return err
		}
		p := point{prepare: g.timed(usual, l)}
		p.Params = map[string]string{"type": name, "steps": itoa(steps), "n": itoa(n)}
		p.Bytes, p.Flops = 2*float64(size*n), 4*float64(steps)*float64(n)
		p.WorkingSet = p.Bytes
		p.Cache, p.Roofs = g.memoryLevel(int(p.WorkingSet))
		p.Roofs.GFlops = peak
		p.check = func() (record.Check, error) {
			want := chains(steps)
			bytes := tensor.Bytes(want[:])
			if size == 4 {
				narrow := make([]float32, 256)
				for i, v := range want {
					narrow[i] = float32(v)
				}
				bytes = tensor.Bytes(narrow)
			}
			if err := table.Write(0, bytes); err != nil {
				return record.Check{}, err
			}
			c, err := g.wrong(n, code{"roofline", "check", plainBlock, []string{"ELEM=" + ctype}}, ceil(n, plainBlock), a, table,
				uint32(n), float32(chainLimit))
			c.Against = "float64"
			return c, err
		}
		p.finish = func(r *record.Result) error {
			r.Metrics = map[string]float64{"flops_per_byte": p.Flops / p.Bytes}
			return nil
		}
		r, err := g.measure(p)
		if err != nil {
			return err
		}
		if r.Flops > 0 {
			best = fasterBy(best, r, func(r *record.Result) float64 { return r.Flops })
		}
	}
	return g.roof("fma", map[string]string{"type": name}, best)
}
