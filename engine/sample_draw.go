package engine

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/greta-project/greta/ops"
)

// Drawing a token: each candidate's logit over the temperature gets noise of its own, a function of seed, position and
// token, and the largest is taken (ops.Draw, which devices have). Where a filter looks at the most likely ones they
// come one by one from a heap, so that a vocabulary is not sorted for them.

// among chooses from the most likely tokens, the best first, as many as the choice
// needs: as Sample does from all logits. None may be a NaN.
func (s *Sampler) among(best []candidate, position int) int32 {
	if s.opt.Temperature == 0 || math.IsInf(float64(best[0].logit), 0) {
		return best[0].id
	}
	s.cand = append(s.cand[:0], best...)
	slices.Reverse(s.cand)
	s.sorted, s.all = len(s.cand), 0
	return s.drawn(position)
}

func (s *Sampler) draw(logits []float32, position int) int32 {
	if !s.opt.filters() {
		return s.noisiest(logits, position)
	}
	s.cand, s.sorted = s.cand[:0], 0
	least, all := s.least(logits)
	s.all = all
	for i, v := range logits {
		if v >= least {
			s.cand = append(s.cand, candidate{int32(i), v})
		}
	}
	for i := len(s.cand)/2 - 1; i >= 0; i-- {
		s.sink(i, len(s.cand))
	}
	return s.drawn(position)
}

// least is a logit below which no filter leaves a token, and with top-p the sum of exp(logit − top) of all: what is
// below comes to less than what top-p leaves out, or than min-p wants of a token.
func (s *Sampler) least(logits []float32) (least float32, all float64) {
	o := &s.opt
	top, from := float64(logits[largest(logits)]), math.Inf(-1)
	switch {
	case o.TopK > 0 || o.TypicalP > 0 && o.TypicalP < 1: // they look at tokens by their number, or at all
	case o.TopP > 0 && o.TopP < 1:
		for _, v := range logits {
			if v == v {
				all += math.Exp(float64(v) - top)
			}
		}
		from = top + math.Log((1-o.TopP)*all/float64(len(logits)))
	case o.MinP > 0:
		from = top + math.Log(o.MinP)
	}
	return float32(from - 1e-3*(1+math.Abs(from))), all // rounding leaves some more
}

// ahead says that a is more likely than b, or the first of equals.
func ahead(a, b candidate) bool { return a.logit > b.logit || a.logit == b.logit && a.id < b.id }

// sink puts candidate i of the heap of the first n in its place.
func (s *Sampler) sink(i, n int) {
	for {
		c := 2*i + 1
		if c >= n {
			return
		}
		if c+1 < n && ahead(s.cand[c+1], s.cand[c]) {
			c++
		}
		if !ahead(s.cand[c], s.cand[i]) {
			return
		}
		s.cand[i], s.cand[c] = s.cand[c], s.cand[i]
		i = c
	}
}

// at gives the i-th most likely candidate.
func (s *Sampler) at(i int) candidate {
	for s.sorted <= i {
		last := len(s.cand) - 1 - s.sorted
		s.cand[0], s.cand[last] = s.cand[last], s.cand[0]
		s.sorted++
		s.sink(0, last)
	}
	return s.cand[len(s.cand)-1-i]
}

// drawn draws from the candidates by the number of a position.
func (s *Sampler) drawn(position int) int32 {
	n := len(s.cand) // the n most likely are left
	if k := s.opt.TopK; k > 0 && k < n {
		n = k
	}
	if p := s.opt.TypicalP; p > 0 && p < 1 {
		n = s.keepTypical(n, p)
	}
	top := float64(s.at(0).logit)
	if p := s.opt.TopP; p > 0 && p < 1 {
		total := s.all
		if total == 0 {
			total = s.total(n, top, 1)
		}
		for i, sum := 0, 0.0; i < n; i++ {
			if sum += math.Exp(float64(s.at(i).logit) - top); sum >= p*total {
				n = i + 1
				break
			}
		}
	}
	if p := s.opt.MinP; p > 0 {
		i := 1
		for i < n && math.Exp(float64(s.at(i).logit)-top) >= p {
			i++
		}
		n = i
	}
	key := ops.DrawKey(s.opt.Seed, position)
	chosen, best := s.at(0).id, math.Inf(-1)
	for i := range n {
		c := s.at(i)
		score := float64(c.logit)/s.opt.Temperature + ops.DrawNoise(key, int(c.id))
		if score > best || score == best && c.id < chosen {
			chosen, best = c.id, score
		}
	}
	return chosen
}

// noisiest draws from all logits that are numbers.
func (s *Sampler) noisiest(logits []float32, position int) int32 {
	key, rate := ops.DrawKey(s.opt.Seed, position), 1/s.opt.Temperature
	chosen, best := int32(0), math.Inf(-1)
	var words [4]uint32
	for v, x := range logits {
		if v%4 == 0 {
			words = ops.DrawWords(key, v/4)
		}
		word, score := words[v%4], rate*float64(x)
		// −ln(1 − u) is at least u, so that the noise is at most −ln u, which the leading zeros of u bound.
		if !(score+math.Ln2*float64(bits.LeadingZeros32(word)+1) > best) {
			continue
		}
		if score -= math.Log(ops.DrawExponential(word)); score > best {
			chosen, best = int32(v), score
		}
	}
	return chosen
}

// total is the sum of the n most likely candidates' exp((logit − top)/t).
func (s *Sampler) total(n int, top, t float64) float64 {
	sum := 0.0
	if n < len(s.cand) {
		s.at(n - 1)
	}
	for _, c := range s.cand[len(s.cand)-n:] { // all of them, or those in order
		sum += math.Exp((float64(c.logit) - top) / t)
	}
	return sum
}

type typical struct {
	candidate
	p, far float64
}

// keepTypical leaves of the n most likely candidates the fewest whose probabilities reach p, those
// first whose surprise −ln p is nearest to the expected one (Meister et al., "Locally typical sampling",
// 2022), and gives their number.
func (s *Sampler) keepTypical(n int, p float64) int {
	top := float64(s.at(0).logit)
	total := s.total(n, top, 1)
	s.typ = s.typ[:0]
	entropy := 0.0
	for _, c := range s.cand[len(s.cand)-n:] {
		q := math.Exp(float64(c.logit)-top) / total
		if q > 0 {
			entropy -= q * math.Log(q)
		}
		s.typ = append(s.typ, typical{candidate: c, p: q})
	}
	for i := range s.typ {
		s.typ[i].far = math.Abs(-math.Log(s.typ[i].p) - entropy)
	}
	slices.SortFunc(s.typ, func(a, b typical) int {
		return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
	})
	s.cand = s.cand[:0]
	for i, sum := 0, 0.0; i < len(s.typ); i++ {
		s.cand = append(s.cand, s.typ[i].candidate)
		if sum += s.typ[i].p; sum >= p {
			break
		}
	}
	slices.SortFunc(s.cand, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.logit, b.logit), cmp.Compare(b.id, a.id))
	})
	s.sorted = len(s.cand)
	return len(s.cand)
}
