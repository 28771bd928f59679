package platform

import (
	"encoding/binary"

	"github.com/greta-project/greta/bench/record"
)

// strides: what loads from shared memory cost whose addresses fall on the same banks.
var _ = define(Benchmark{
	Name:  "strides",
	About: "one block, strided and blocked loads from shared memory: cycles a load of a warp",
	Params: map[string]string{"stride": "words of 4 bytes between neighbouring threads",
		"rounds": "of eight loads a thread"},
	GPU:   stridesGPU,
	Lacks: map[string]string{"cpu": "a processor has no shared memory of a block"},
})

func stridesGPU(g *GPU) error {
	var normal []int
	for s := 0; s <= 64; s++ {
		if s <= 8 || s%4 == 0 || s == 31 || s == 33 {
			normal = append(normal, s)
		}
	}
	block := min(1024, g.limits.mostBlock)
	out, err := g.alloc(4 * block)
	if err != nil {
		return err
	}
	cycles, err := g.alloc(16)
	if err != nil {
		return err
	}
	rounds := g.size("rounds", 512)
	if _, given := g.params["rounds"]; g.MHz == 0 && !given {
		rounds *= 8 // timed from outside: its start must not count
	}
	for _, mode := range []string{"strided", "blocked"} {
		for _, stride := range g.sizes("stride", normal...) {
			limit := uint32(1 << 31) // never met
			if mode == "blocked" {
				limit = uint32(max(stride, 1))
			}
			c := code{"strides", "loads", block, nil}
			l, err := g.dev.bind(c, 1, 0, out, cycles, uint32(stride), limit, uint32(rounds))
			if err != nil {
				return err
			}
			run, err := g.sampler(inStream, 1, l)
			if err != nil {
				return err
			}
			warps := block / max(g.limits.wave, 1)
			loads := float64(rounds * 8 * warps)
			p := point{most: 1, prepare: func(int) (sampler, func() error, error) {
				return func() (float64, float64, error) {
					d, h, err := run()
					if err != nil || g.MHz == 0 {
						return d / loads, h / loads, err
					}
					// Counted inside, so that the start does not count; in seconds below.
					w, err := readWords(cycles, 1)
					if err != nil {
						return 0, 0, err
					}
					return float64(w[0]) / loads, h / loads, err
				}, nil, nil
			}, least: 1e-9}
			p.Bench, p.Params = mode, map[string]string{"stride": itoa(stride)}
			p.Bytes = 4 * float64(g.limits.wave)
			if stride == 0 {
				p.Bytes = 4 // one word for all threads
			}
			if g.limits.units > 0 {
				p.Roofs.ReadGBs = g.peaks.l1 / float64(g.limits.units) // of one multiprocessor
			}
			p.check = func() (record.Check, error) { return strideSums(out, block, stride, int(limit), rounds) }
			p.finish = func(r *record.Result) error {
				if g.MHz > 0 {
					c := g.inSeconds(r)
					r.Metrics = map[string]float64{"cycles": c, "bytes_per_cycle": p.Bytes / c}
				}
				return nil
			}
			if _, err := g.measure(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func strideSums(out memory, block, stride, limit, rounds int) (record.Check, error) {
	b := make([]byte, 4*block)
	if err := out.Read(0, b); err != nil {
		return record.Check{}, err
	}
	const words = 8192
	var s [words + 8]uint32
	for i := range s {
		s[i] = value(uint32(i), 7)
	}
	wrong := 0
	for t := range block {
		sum, k := uint32(0), 0
		for range rounds {
			for u := range 8 {
				sum += s[(t*stride+k)&(words-1)+u]
			}
			if k += 8; k >= limit {
				k = 0
			}
		}
		if binary.LittleEndian.Uint32(b[4*t:]) != sum {
			wrong++
		}
	}
	return exact(wrong, block), nil
}
