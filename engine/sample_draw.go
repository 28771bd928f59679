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
	n := noise{words: ops.NewDrawWords(key), rate: rate, end: candidate{math.MaxInt32, float32(math.Inf(-1))}}
	if last != ^uint64(0) {
		n.end = placed(last)
	}
	a, b, c, d := n.words.Of(uint32(best.id) / 4)
	n.chosen, n.most, n.least = best.id, math.Inf(-1), n.end.logit
	n.offer(best.id, best.logit, [...]uint32{a, b, c, d}[best.id%4])
	if t.ids != nil {
		quad := uint32(best.id) / 4
		for i, x := range t.x {
			if !(x >= n.least) {
				continue
			}
			id := t.ids[i]
			if q := uint32(id) / 4; q != quad { // those that filters leave are often in the order of their numbers
				quad = q
				a, b, c, d = n.words.Of(q)
			}
			n.offer(id, x, [...]uint32{a, b, c, d}[id%4])
		}
		return n.chosen
	}
	x := t.x
	top := n.rate * float64(best.logit)
	for quad := uint32(0); len(x) >= 4; quad, x = quad+1, x[4:] {
		if !(x[0] >= n.least || x[1] >= n.least || x[2] >= n.least || x[3] >= n.least) {
			continue
		}
		a, b, c, d := n.words.Of(quad)
		most := bound(min(a, b, c, d))
		if top+most < n.most { // where logits are flat this tells; where they are not, what follows
			continue
		}
		if n.rate*float64(max(x[0], x[1], x[2], x[3]))+most < n.most { // false where one is a NaN
			continue
		}
		id := int32(4 * quad)
		n.offer(id, x[0], a)
		n.offer(id+1, x[1], b)
		n.offer(id+2, x[2], c)
		n.offer(id+3, x[3], d)
	}
	id := len(t.x) &^ 3
	a, b, c, d = n.words.Of(uint32(id) / 4)
	for i, x := range x {
		n.offer(int32(id+i), x, [...]uint32{a, b, c, d}[i])
	}
	return n.chosen
}

// noise are the random words of a row, and the token that has won so far.
type noise struct {
	words  ops.DrawWords
	rate   float64
	end    candidate // the last that may win
	least  float32   // the logit below which none can win
	most   float64   // the winner's logit with noise
	chosen int32
}

// bound is what a word's noise does not exceed: −ln(1 − u) is at least u, so that the noise is at most −ln u, which the
// leading zeros of u bound.
func bound(word uint32) float64 { return math.Ln2 * float64(bits.LeadingZeros32(word)+1) }

// offer takes a token that wins.
func (n *noise) offer(id int32, x float32, word uint32) {
	score := float64(n.rate * float64(x)) // not fused with what comes
	if !(score+bound(word) > n.most) || !(x >= n.end.logit) || x == n.end.logit && id > n.end.id {
		return
	}
	score -= math.Log(ops.DrawExponential(word))
	if score > n.most || score == n.most && id < n.chosen {
		n.chosen, n.most = id, score
		n.least = max(n.end.logit, math.Nextafter32(float32((score-bound(0))/n.rate), float32(math.Inf(-1))))
	}
}
