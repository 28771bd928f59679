package ops

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// Draw readies rows of logits for choices by chance: x [R, V], rate [R], keys i32[R, 4], allowed i32[R, W] with
// 32 W ≥ V give y [R, V]. Where bit v%32 of allowed[r, v/32] is not set y is −∞; elsewhere it is x for rate[r] = 0, and
//
//	y[r, v] = rate[r] x[r, v] − ln(−ln(1 − u[r, v]))
//
// for rates above, so that the place of the row's largest is v with the probability softmax(rate x)[v] (the Gumbel-max
// trick: Gumbel, "Statistical theory of extreme values", 1954; Maddison, Tarlow, Minka, arXiv 1411.0030). The rate is
// one over the temperature. u is DrawUniform of the row's key and v: a number a token, so that the choice depends on
// nothing but the logits and the key.
var Draw = &graph.Op{
	Name: "draw",
	Doc:  "y = x, or rate x with noise by keys, where allowed: the place of its largest is a choice; −∞ elsewhere",
	Sig:  graph.MustSig("(x: T[R, V], rate: T[R], keys: i32[R, 4], allowed: i32[R, W]) -> (y: float[R, V])"),
	Check: func(n *graph.Node) error {
		if x, allowed := n.In[0], n.In[3]; 32*allowed.Shape.Last() < x.Shape.Last() {
			return fmt.Errorf("%s has too few bits for the %d of %s", allowed, x.Shape.Last(), x)
		}
		return nil
	},
	Ref: func(_ *graph.Node, in, out []tensor.Tensor) error {
		x, rate, keys, allowed, y := in[0].F64(), in[1].F64(), in[2].I32(), in[3].I32(), out[0].F64()
		cols, words := in[0].Shape.Last(), in[3].Shape.Last()
		for r, by := range rate {
			key := [4]uint32{uint32(keys[4*r]), uint32(keys[4*r+1]), uint32(keys[4*r+2]), uint32(keys[4*r+3])}
			for v := range cols {
				at := r*cols + v
				switch {
				case uint32(allowed[r*words+v/32])>>(v%32)&1 == 0:
					y[at] = math.Inf(-1)
				case by == 0:
					y[at] = x[at]
				default:
					y[at] = by*x[at] + DrawNoise(key, v)
				}
			}
		}
		return nil
	},
	Cost: func(n *graph.Node, _ int) graph.Cost {
		return whole(n, 24*elems(n.Out[0]))
	},
}

// Philox is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011).
func Philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	k := philoxKeys(key)
	a, b, c, d := k.words(counter[0], counter[1], counter[2], counter[3])
	return [4]uint32{a, b, c, d}
}

// rounds are the keys of Philox's rounds.
type rounds [10][2]uint32

func philoxKeys(key [2]uint32) (k rounds) {
	for i := range k {
		k[i] = key
		key[0] += 0x9e3779b9
		key[1] += 0xbb67ae85
	}
	return k
}

func (r *rounds) words(c0, c1, c2, c3 uint32) (_, _, _, _ uint32) {
	for i := range r {
		k := &r[i]
		a, b := uint64(c0)*0xd2511f53, uint64(c2)*0xcd9e8d57
		c0, c1, c2, c3 = uint32(b>>32)^c1^k[0], uint32(b), uint32(a>>32)^c3^k[1], uint32(a)
	}
	return c0, c1, c2, c3
}

// DrawKey is the key of the token at a position, drawn with a seed.
func DrawKey(seed uint64, position int) [4]uint32 {
	p := uint64(position)
	return [4]uint32{uint32(seed), uint32(seed >> 32), uint32(p), uint32(p >> 32)}
}

// DrawWords are the random words of a row's tokens.
type DrawWords struct {
	low, high uint32 // of the position
	keys      rounds // what is the same for all tokens, made once
}

// NewDrawWords gives those of a key.
func NewDrawWords(key [4]uint32) DrawWords {
	return DrawWords{key[2], key[3], philoxKeys([2]uint32{key[0], key[1]})}
}

// Of gives the words of the four tokens from 4 quad on.
func (w *DrawWords) Of(quad uint32) (_, _, _, _ uint32) { return w.keys.words(w.low, w.high, quad, 1) }

// DrawUniform is a word as a number in (0, 1) that a float32 holds: the word over 2³², of its 24 highest bits where it
// has more, and not less than 2⁻³².
func DrawUniform(word uint32) float64 {
	if word >= 1<<24 {
		word &^= 0xff
	}
	return float64(max(word, 1)) * 0x1p-32
}

// DrawExponential is −ln(1 − u) of a word: an exponential variate of mean 1.
func DrawExponential(word uint32) float64 { return -math.Log1p(-DrawUniform(word)) }

// DrawNoise is −ln(−ln(1 − u)) of token v: a standard Gumbel variate.
func DrawNoise(key [4]uint32, v int) float64 {
	w := NewDrawWords(key)
	a, b, c, d := w.Of(uint32(v / 4))
	return -math.Log(DrawExponential([...]uint32{a, b, c, d}[v%4]))
}
