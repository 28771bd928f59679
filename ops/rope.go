package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// RoPEAttr are the attributes of rope and rope_push. Which of them a scaling
// reads is said at RopeFrequencies.
type RoPEAttr struct {
	// θ of the frequencies θ^(-2i/dims)
	Base float64 `attr:"base"`
	// which two elements rotate together
	Layout string `attr:"layout" words:"half|pair"`
	// how many leading elements rotate; 0: all
	Dims int `attr:"dims"`
	// none and default are the same
	Scaling string  `attr:"scaling" words:"none|default|linear|llama3|yarn|factors|over_head"`
	Factor  float64 `attr:"factor"` // context extension
	// context length in training, tokens
	Original int `attr:"original"`
	// llama3: low_freq_factor
	Low float64 `attr:"low"`
	// llama3: high_freq_factor
	High float64 `attr:"high"`
	// yarn: rotations above which a frequency stays
	BetaFast float64 `attr:"beta_fast"`
	// yarn: rotations below which it is divided by factor
	BetaSlow float64 `attr:"beta_slow"`
	// yarn: on cosine and sine; 0: derived
	AttnFactor float64 `attr:"attn_factor"`
	// yarn: round the ramp's ends outwards
	Truncate bool `attr:"truncate"`
	// yarn: see mscale_all_dim
	MScale float64 `attr:"mscale"`
	// yarn: where both are given, their quotient is the factor
	MScaleAllDim float64 `attr:"mscale_all_dim"`
}

func newRoPEAttr() any {
	return &RoPEAttr{Base: 10000, Layout: "half", Scaling: "none", Factor: 1, Low: 1, High: 4, BetaFast: 32, BetaSlow: 1,
		Truncate: true}
}

// rotated is how many of a head's dh elements rotate.
func (a *RoPEAttr) rotated(dh int) int {
	if a.Dims == 0 {
		return dh
	}
	return a.Dims
}

// RoPE rotates pairs of elements by angles that grow with the position: x [S, H,
// Dh], pos i32[S], factors [dims/2]. With the i-th frequency f[i] of
// RopeFrequencies, divided by factors[i] where they are given (the rope_freqs of
// GGUF), and the angle t = pos[s] f[i],
//
//	y[a] = m (x[a] cos t - x[b] sin t)
//	y[b] = m (x[b] cos t + x[a] sin t)
//
// where (a, b) is (i, i + dims/2) in the layout "half" and (2i, 2i+1) in "pair".
// Elements from dims on are copied. (Su et al., arXiv 2104.09864.)
var RoPE = &graph.Op{
	Name:    "rope",
	Doc:     "y[a], y[b] = rotate(x[a], x[b]; pos·base^(-2i/dims))",
	Sig:     graph.MustSig("(x: T[S, H, Dh], pos: i32[S], factors?: W[F]) -> (y: float[S, H, Dh])"),
	RowWise: true,
	Attr:    newRoPEAttr,
	Check:   func(n *graph.Node) error { return checkRoPE(n, n.In[0], operand(n, 2)) },
	Ref: func(n *graph.Node, in, out []tensor.Tensor) error {
		x, y := in[0].F64(), out[0].F64()
		h, dh := in[0].Shape[1], in[0].Shape[2]
		attr := graph.Attr[RoPEAttr](n)
		freqs, m := RopeFrequencies(attr, dh)
		for i, f := range floats(in, 2) {
			freqs[i] /= f
		}
		copy(y, x)
		half := len(freqs)
		for s, pos := range in[1].I32() {
			if pos < 0 {
				return fmt.Errorf("pos[%d] is %d, a position cannot be negative", s, pos)
			}
			for head := range h {
				at := (s*h + head) * dh
				for i, f := range freqs {
					sin, cos := math.Sincos(float64(pos) * f)
					a, b := at+i, at+i+half
					if attr.Layout == "pair" {
						a, b = at+2*i, at+2*i+1
					}
					y[a] = m * (x[a]*cos - x[b]*sin)
					y[b] = m * (x[b]*cos + x[a]*sin)
				}
			}
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost { return whole(n, ropeFlops(n, n.In[0])) },
}

// ropeFlops counts three operations per rotated element; the table of cosines
// and sines is the same for every head and layer.
func ropeFlops(n *graph.Node, x *graph.Value) float64 {
	dims := graph.Attr[RoPEAttr](n).rotated(x.Shape[2])
	return 3 * float64(x.Shape[0]*x.Shape[1]*dims)
}

func checkRoPE(n *graph.Node, x, factors *graph.Value) error {
	a := graph.Attr[RoPEAttr](n)
	dims := a.rotated(x.Shape[2])
	if dims%2 != 0 || dims <= 0 || dims > x.Shape[2] {
		return fmt.Errorf("%d elements of each head are to rotate: that must be even and at most the %d of %s", dims,
			x.Shape[2], x)
	}
	if factors != nil && factors.Shape[0] != dims/2 {
		return fmt.Errorf("%s must hold a factor for each of the %d pairs that rotate", factors, dims/2)
	}
	if err := positive("base", a.Base); err != nil {
		return err
	}
	if a.Scaling == "none" || a.Scaling == "default" {
		return nil
	}
	if err := positive("factor", a.Factor); err != nil {
		return err
	}
	if a.Scaling == "linear" {
		return nil
	}
	if a.Scaling == "over_head" {
		return nil
	}
	if a.Scaling == "factors" {
		return nonNegative("attn_factor", a.AttnFactor)
	}
	if a.Original <= 0 {
		return fmt.Errorf("scaling=%s needs original=, the context length in training", a.Scaling)
	}
	if a.Scaling == "llama3" {
		if err := positive("low", a.Low); err != nil {
			return err
		}
		if !(a.High > a.Low) {
			return fmt.Errorf("high=%g must be above low=%g", a.High, a.Low)
		}
		return nil
	}
	for _, p := range []struct {
		name string
		v    float64
	}{{"beta_fast", a.BetaFast}, {"beta_slow", a.BetaSlow}} {
		if err := positive(p.name, p.v); err != nil {
			return err
		}
	}
	if a.Base == 1 {
		return fmt.Errorf("scaling=yarn needs a base other than 1")
	}
	return nonNegative("attn_factor", a.AttnFactor)
}

// RopeFrequencies gives the angle per position of each rotating pair of a head
// of dh elements, in radians, and the factor on cosine and sine. Backends make
// their tables from it. With f[i] = base^(-2i/dims):
//
//   - linear: f[i] / factor (Chen et al., arXiv 2306.15595);
//
//   - llama3: by the rotations r = original f[i] / 2π over the training context: below
//     low f[i] / factor, above high f[i], between them a mixture of both, linear in r
//     (Llama 3.1's published code);
//
//   - yarn: a mixture of f[i] / factor and f[i] by a ramp over i between the pairs that
//     rotate beta_fast and beta_slow times over the training context; the factor is
//     attn_factor, or m(mscale) / m(mscale_all_dim) where both are given, or m(1), where
//     m(s) = 0.1 s ln(factor) + 1, and 1 for factor ≤ 1 (Peng et al., arXiv 2309.00071).
//
//   - factors: f[i], which the operand factors divides; the factor is attn_factor, 1 where it is 0 (Ding et al.,
//     arXiv 2402.13753);
//
//   - over_head: exponents over the whole head, base^(-2i/dh), of the first dims/2 pairs; the others, where the
//     layout pairs i with i + dh/2, do not rotate.
//
// They agree with what transformers computes for configurations of the same names.
func RopeFrequencies(a *RoPEAttr, dh int) (freqs []float64, mscale float64) {
	dims := a.rotated(dh)
	freqs = make([]float64, dims/2)
	for i := range freqs {
		freqs[i] = math.Pow(a.Base, -float64(2*i)/float64(dims))
	}
	switch a.Scaling {
	case "linear":
		for i := range freqs {
			freqs[i] /= a.Factor
		}
	case "llama3":
		for i, f := range freqs {
			rotations := float64(a.Original) * f / (2 * math.Pi)
			keep := clamp01((rotations - a.Low) / (a.High - a.Low))
			freqs[i] = (1-keep)*f/a.Factor + keep*f
		}
	case "factors":
		if a.AttnFactor != 0 {
			return freqs, a.AttnFactor
		}
	case "over_head":
		all := make([]float64, dh/2)
		for i := range freqs {
			all[i] = math.Pow(a.Base, -float64(2*i)/float64(dh)) / a.Factor
		}
		return all, 1
	case "yarn":
		lo, hi := a.ramp(dims)
		for i, f := range freqs {
			divided := clamp01((float64(i) - lo) / (hi - lo))
			freqs[i] = divided*f/a.Factor + (1-divided)*f
		}
		return freqs, a.yarnFactor()
	}
	return freqs, 1
}

// ramp gives the indices of the pairs between which yarn goes from keeping to
// dividing: pair i rotates original / (2π base^(2i/dims)) times in training.
func (a *RoPEAttr) ramp(dims int) (lo, hi float64) {
	index := func(rotations float64) float64 {
		return float64(dims) * math.Log(float64(a.Original)/(rotations*2*math.Pi)) / (2 * math.Log(a.Base))
	}
	lo, hi = index(a.BetaFast), index(a.BetaSlow)
	if a.Truncate {
		lo, hi = math.Floor(lo), math.Ceil(hi)
	}
	lo, hi = math.Max(lo, 0), math.Min(hi, float64(dims-1))
	if lo == hi {
		hi += 0.001 // as the published code does against division by zero
	}
	return lo, hi
}

func (a *RoPEAttr) yarnFactor() float64 {
	m := func(scale float64) float64 {
		if a.Factor <= 1 {
			return 1
		}
		return 0.1*scale*math.Log(a.Factor) + 1
	}
	switch {
	case a.AttnFactor != 0:
		return a.AttnFactor
	case a.MScale != 0 && a.MScaleAllDim != 0:
		return m(a.MScale) / m(a.MScaleAllDim)
	}
	return m(1)
}

func clamp01(v float64) float64 { return math.Max(0, math.Min(1, v)) }

// RoPEPush rotates keys and stores them.
var RoPEPush = &graph.Op{
	Name:  "rope_push",
	Doc:   "cache[pos[s]] = rope(x, pos, factors)[s]",
	Sig:   graph.MustSig("(cache: C[N, G, Dh], x: T[S, G, Dh], pos: i32[S], factors?: W[F]) -> (y: C[N, G, Dh])"),
	Kind:  graph.Update,
	Attr:  newRoPEAttr,
	Check: func(n *graph.Node) error { return checkRoPE(n, n.In[1], operand(n, 3)) },
	Body:  "y: push(cache, rope(x, pos, factors), pos)",
	Cost: func(n *graph.Node, _ int) graph.Cost {
		c := pushCost(n, 0)
		c.Flops = ropeFlops(n, n.In[1])
		c.Read += float64(operand(n, 3).Bytes())
		return c
	},
}
