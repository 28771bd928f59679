package platform

import (
	"errors"
	"math"

	"github.com/greta-project/greta/backends/hip"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// library: the vendor's own matrix product, the roof for ours. The layout nt is that of
// greta's linear: y = x·wᵀ, all three by rows; nn is y = x·w.
var _ = define(Benchmark{
	Name: "library",
	About: "the vendor's own matrix product, where its library is there, in every type that it has: y = x·wᵀ (nt) " +
		"and y = x·w (nn), by rows",
	Params: map[string]string{"n": "size of the square matrices, multiples of 32"},
	GPU:    libraryGPU,
	Lacks: map[string]string{
		"cpu":    "no vendor's library is loaded for the processor; greta bench op has its products, roofline their roof",
		"vulkan": "Vulkan comes with no library of products",
	},
})

// libraryTypes are the types, the number of each in product.hip, and the error that
// is let through: rounding of the result, and of sums in f32. Hopper's sums of 8-bit
// floats keep fewer bits.
var libraryTypes = []libraryType{{"f32", 0, 4, 1e-5}, {"f16", 1, 2, 1e-3}, {"bf16", 2, 2, 5e-3}, {"f8e4m3", 3, 1, 1e-2}}

type libraryType struct {
	name  string
	kind  int
	size  int
	limit float64
}

func libraryGPU(g *GPU) error {
	h, ok := g.dev.(*hipGPU)
	if !ok {
		return &Missing{"only HIP's vendors have such a library"}
	}
	lib, err := h.raw.BLAS()
	var none *hip.NoLibrary
	if errors.As(err, &none) {
		return &Missing{none.Error()}
	}
	if err != nil {
		return err
	}
	for _, t := range libraryTypes {
		var best *record.Result
		for _, n := range g.sizes("n", 512, 1024, 2048, 4096) {
			if n%32 != 0 {
				return errlist.Join(errors.New("the sizes of library are multiples of 32"), lib.Close())
			}
			for _, layout := range []string{"nt", "nn"} {
				if layout == "nn" && t.size == 1 {
					continue // 8-bit floats are multiplied as y = x·wᵀ alone
				}
				r, err := product(g, lib, t, n, layout)
				if err == nil {
					err = g.release()
				}
				if err != nil {
					return errlist.Join(err, lib.Close())
				}
				best = fasterBy(best, r, func(r *record.Result) float64 { return r.Flops })
			}
		}
		if err := g.roof("product", map[string]string{"type": t.name}, best); err != nil {
			return errlist.Join(err, lib.Close())
		}
	}
	return lib.Close()
}

// productBuffers are how many sets of matrices are gone through in turn.
const productBuffers = 2

func product(g *GPU, lib *hip.RawBLAS, t libraryType, n int, layout string) (*record.Result, error) {
	params := map[string]string{"type": t.name, "m": itoa(n), "n": itoa(n), "k": itoa(n), "layout": layout}
	skipped := &record.Result{Verdict: record.Skipped}
	what := hip.Product{Type: t.name, M: n, N: n, K: n, Plain: layout == "nn"}
	size := t.size
	out := 4
	if what.ResultType() != "f32" {
		out = 2
	}
	macros := []string{"KIND=" + itoa(t.kind)}
	var y, x, w [productBuffers]memory
	var starts []*hip.RawProduct
	for i := range productBuffers {
		for m, bytes := range map[*memory]int{&y[i]: out, &x[i]: size, &w[i]: size} {
			var err error
			if *m, err = g.alloc(bytes * n * n); err != nil {
				return nil, err
			}
		}
		for j, m := range []memory{x[i], w[i]} {
			if err := g.once(code{"product", "fill", plainBlock, macros}, ceil(n*n, plainBlock), m, uint32(n*n),
				uint32(2*i+j+1)); err != nil {
				return nil, err
			}
		}
		p, err := lib.Bind(what, y[i].(*hip.RawMemory), x[i].(*hip.RawMemory), w[i].(*hip.RawMemory))
		var none *hip.NoLibrary
		if errors.As(err, &none) {
			return skipped, g.skip("", params, "%s", none.Error())
		}
		if err != nil {
			return nil, err
		}
		g.owned = append(g.owned, p.Close)
		starts = append(starts, p)
	}
	h := g.dev.(*hipGPU)
	p := point{prepare: func(k int) (sampler, func() error, error) {
		return func() (float64, float64, error) {
			return h.raw.Time(func() error {
				for i := range k {
					if err := starts[i%productBuffers].Start(); err != nil {
						return err
					}
				}
				return nil
			})
		}, nil, nil
	}, least: 1e-2}
	p.Params, p.Kernel = params, lib.File()
	p.Flops = 2 * float64(n) * float64(n) * float64(n)
	p.Bytes = float64(n*n) * float64(2*size+out)
	p.WorkingSet = productBuffers * p.Bytes
	p.Roofs.LastCache = float64(g.limits.lastCache())
	switch t.name {
	case "f32":
		p.Roofs.GFlops = g.peaks.f32
	case "f8e4m3":
		p.Roofs.GFlops = 2 * g.peaks.f16
	default:
		p.Roofs.GFlops = g.peaks.f16
	}
	p.check = func() (record.Check, error) {
		right, err := g.alloc(4 * n * n)
		if err != nil {
			return record.Check{}, err
		}
		if err := g.once(code{"product", "right_" + layout, 1024, macros}, n/32*(n/32), right, x[0], w[0],
			uint32(n)); err != nil {
			return record.Check{}, err
		}
		want, got := make([]byte, 4*n*n), make([]byte, out*n*n)
		if err := errlist.Join(right.Read(0, want), y[0].Read(0, got)); err != nil {
			return record.Check{}, err
		}
		return compareBits(got, tensor.View[float32](want), what.ResultType(), t.limit), nil
	}
	return g.measure(p)
}

// compareBits compares elements of a type with a reference.
func compareBits(got []byte, want []float32, typ string, limit float64) record.Check {
	c := record.Check{Against: "float64", Limit: limit}
	sum, all := 0.0, 0.0
	for i, w := range want {
		var v float64
		switch typ {
		case "f32":
			v = float64(tensor.View[float32](got)[i])
		case "f16":
			v = f16(tensor.View[uint16](got)[i])
		default:
			v = bf16(tensor.View[uint16](got)[i])
		}
		e := v - float64(w)
		sum, all = sum+e*e, all+float64(w)*float64(w)
		if !(math.Abs(e) <= c.MaxAbs) {
			c.MaxAbs = math.Abs(e)
		}
	}
	c.RelL2 = math.Sqrt(sum / all)
	return c
}
