package engine

import (
	"math"
	"math/bits"

	"github.com/greta-project/greta/ops"
)

// Drawing a token: each logit that the filters leave gets noise of its own over the temperature, a function of seed,
// position and token, and the largest is taken (ops.Draw, which devices have).

// among chooses from the most likely tokens, the best first, as many as the choice needs: as Sample does from all
// logits. None may be a NaN.
func (s *Sampler) among(best []candidate, position int) int32 {
	if s.opt.Temperature == 0 || math.IsInf(float64(best[0].logit), 0) {
		return best[0].id
	}
	r := takeRoom()
	defer r.leave()
	r.x, r.ids = r.x[:0], r.ids[:0]
	for _, c := range best {
		r.x, r.ids = append(r.x, c.logit), append(r.ids, c.id)
	}
	return s.draw(r, tokens{r.x, r.ids}, best[0], position)
}

// draw draws a token by the number of a position. best is the most likely one, the first of equals.
func (s *Sampler) draw(r *room, t tokens, best candidate, position int) int32 {
	o := &s.opt
	if o.TopK > 0 && o.TopK < len(t.x) {
		t = r.keep(r.mostLikely(t, o.TopK))
	}
	if o.TypicalP > 0 && o.TypicalP < 1 {
		t = r.mostTypical(t, best.logit, o.TypicalP)
		best = t.best()
	}
	last := ^uint64(0) // the last place that the filters leave
	if o.TopP > 0 && o.TopP < 1 {
		last = r.nucleus(t, best.logit, o.TopP)
	}
	if o.MinP > 0 {
		last = min(last, placeOf(leastOf(best.logit, o.MinP), math.MaxInt32))
	}
	return noisiest(t, best, last, ops.DrawKey(o.Seed, position), 1/o.Temperature)
}

// best is the most likely token, of equals that of the least number.
func (t *tokens) best() candidate {
	least := ^uint64(0)
	for i, v := range t.x {
		if v == v {
			least = min(least, placeOf(v, t.id(i)))
		}
	}
	return placed(least)
}

// noisiest is the token of the largest logit with noise up to the place last, of equals that of the least number.
func noisiest(t tokens, best candidate, last uint64, key [4]uint32, rate float64) int32 {
	end := candidate{math.MaxInt32, float32(math.Inf(-1))}
	if last != ^uint64(0) {
		end = placed(last)
	}
	noise := newNoise(key)
	chosen, most := best.id, float64(rate*float64(best.logit))-math.Log(ops.DrawExponential(noise.word(best.id)))
	quad, words := int32(-1), [4]uint32{}
	for i, x := range t.x {
		if !(x >= end.logit) { // a NaN too
			continue
		}
		score := float64(rate * float64(x))
		if !(score+mostNoise > most) {
			continue
		}
		id := t.id(i)
		if id>>2 != quad {
			quad = id >> 2
			words = noise.words(quad)
		}
		word := words[id&3]
		// −ln(1 − u) is at least u, so that the noise is at most −ln u, which the leading zeros of u bound.
		if !(score+math.Ln2*float64(bits.LeadingZeros32(word)+1) > most) || x == end.logit && id > end.id {
			continue
		}
		score -= math.Log(ops.DrawExponential(word))
		if score > most || score == most && id < chosen {
			chosen, most = id, score
		}
	}
	return chosen
}

// mostNoise is more than any noise: words are numbers from 2⁻³² on.
const mostNoise = 33 * math.Ln2

// noise are the random words of a row: ops.DrawWords, with what is the same for all of its tokens made once.
type noise struct {
	low, high uint32        // of the position
	keys      [10][2]uint32 // of the rounds
}

func newNoise(key [4]uint32) (n noise) {
	n.low, n.high = key[2], key[3]
	a, b := key[0], key[1]
	for i := range n.keys {
		n.keys[i] = [2]uint32{a, b}
		a += 0x9e3779b9
		b += 0xbb67ae85
	}
	return n
}

// words are those of the four tokens from 4 quad on.
func (n *noise) words(quad int32) [4]uint32 {
	c0, c1, c2, c3 := n.low, n.high, uint32(quad), uint32(1)
	for i := range n.keys {
		k := &n.keys[i]
		a, b := uint64(c0)*0xd2511f53, uint64(c2)*0xcd9e8d57
		c0, c1, c2, c3 = uint32(b>>32)^c1^k[0], uint32(b), uint32(a>>32)^c3^k[1], uint32(a)
	}
	return [4]uint32{c0, c1, c2, c3}
}

func (n *noise) word(id int32) uint32 { return n.words(id >> 2)[id&3] }
