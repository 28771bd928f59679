package platform

import (
	"math"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/tensor"
)

// incore: how long operations take that wait for each other, and how many of them a
// multiprocessor has under way: warps by independent chains.
var _ = define(Benchmark{
	Name:   "incore",
	About:  "dependent multiply-adds, divisions and square roots in one block: warps by independent chains, cycles",
	Params: map[string]string{"warps": "warps of the block", "chains": "independent chains of each thread: 1, 2, 4 or 8"},
	GPU:    incoreGPU,
	CPU:    incoreCPU,
	Lacks: map[string]string{"vulkan": "the shaders read no clock (VK_KHR_shader_clock is not used), and starting a " +
		"workgroup takes longer than its chains"},
})

// incoreOps are the operations in the order of their numbers, and what a chain of
// them computes.
var incoreOps = []struct {
	name  string
	flops float64
	step  func(x float64) float64
}{
	{"fma", 2, func(x float64) float64 { return math.FMA(x, chainFactor, chainTerm) }},
	{"div", 1, func(x float64) float64 { return chainTerm / x }},
	{"sqrt", 1, math.Sqrt},
}

// chainFactor and chainTerm are those of the multiply-adds: after a thousand steps each
// still changes the result.
const chainFactor, chainTerm = 1 - 1.0/1024, 0.25

func incoreGPU(g *GPU) error {
	const rounds, unrolled = 64, 16
	wave := max(g.limits.wave, 1)
	out, err := g.alloc(8 * 1024)
	if err != nil {
		return err
	}
	cycles, err := g.alloc(8 * 64)
	if err != nil {
		return err
	}
	for _, elem := range []struct {
		name, ctype string
		size        int
		limit, peak float64
	}{{"f32", "float", 4, chainLimit, g.peaks.f32}, {"f64", "double", 8, 1e-12, g.peaks.f64}} {
		if why := g.dev.noType(elem.name); why != "" {
			if err := g.skip("", map[string]string{"type": elem.name}, "%s", why); err != nil {
				return err
			}
			continue
		}
		for op, o := range incoreOps {
			for _, ilp := range g.sizes("chains", 1, 2, 4, 8) {
				for _, warps := range g.sizes("warps", 1, 2, 4, 8, 16, 32) {
					threads := warps * wave
					if threads > g.limits.mostBlock {
						continue
					}
					macros := []string{"ELEM=" + elem.ctype, "OP=" + itoa(op), "ILP=" + itoa(ilp)}
					l, err := g.dev.bind(code{"incore", "chains", threads, macros}, 1, 0, out, cycles, uint32(rounds),
						float32(chainFactor), float32(chainTerm))
					if err != nil {
						return err
					}
					run, err := g.sampler(inStream, 1, l)
					if err != nil {
						return err
					}
					p := point{most: 1, prepare: func(int) (sampler, func() error, error) {
						return func() (float64, float64, error) {
							d, h, err := run()
							if err != nil || g.MHz == 0 {
								return d, h, err
							}
							w, err := readWords(cycles, warps)
							slowest := uint64(0)
							for _, c := range w {
								slowest = max(slowest, c)
							}
							return float64(slowest), h, err
						}, nil, nil
					}, least: 1e-9}
					p.Bench = o.name
					p.Params = map[string]string{"type": elem.name, "warps": itoa(warps), "chains": itoa(ilp)}
					p.Flops = o.flops * float64(rounds*unrolled*ilp*threads)
					if g.limits.units > 0 {
						p.Roofs.GFlops = elem.peak / float64(g.limits.units) // of one multiprocessor
					}
					p.check = func() (record.Check, error) {
						return incoreSums(out, elem.size, threads, ilp, rounds*unrolled, elem.limit, o.step)
					}
					p.finish = func(r *record.Result) error {
						if g.MHz > 0 {
							c := g.inSeconds(r)
							r.Metrics = map[string]float64{"cycles": c / (rounds * unrolled),
								"cycles_per_op": c / float64(rounds*unrolled*ilp*warps)}
						}
						return nil
					}
					if _, err := g.measure(p); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// incoreSums compares each thread's sum with that in float64.
func incoreSums(out memory, size, threads, ilp, steps int, limit float64, step func(float64) float64) (record.Check,
	error) {
	b := make([]byte, size*threads)
	if err := out.Read(0, b); err != nil {
		return record.Check{}, err
	}
	var got []float64
	if size == 8 {
		got = tensor.View[float64](b)
	} else {
		for _, v := range tensor.View[float32](b) {
			got = append(got, float64(v))
		}
	}
	want := make([]float64, threads)
	for t := range want {
		for j := range ilp {
			x := float64(1+(t+j)%64) / 32
			for range steps {
				x = step(x)
			}
			want[t] += x
		}
	}
	return compare(got, want, limit), nil
}

// compare gives the errors of got against a reference in float64.
func compare(got, want []float64, limit float64) record.Check {
	c := record.Check{Against: "float64", Limit: limit}
	sum, all := 0.0, 0.0
	for i, w := range want {
		e := got[i] - w
		sum, all = sum+e*e, all+w*w
		if !(math.Abs(e) <= c.MaxAbs) {
			c.MaxAbs = math.Abs(e)
		}
	}
	c.RelL2 = math.Sqrt(sum / all)
	return c
}
