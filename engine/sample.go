package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling says how a token is chosen from logits. The zero value is greedy.
// The filters apply in this order: repeat penalty, top-k, top-p, min-p, temperature.
type Sampling struct {
	Temperature   float64 // 0: the most likely token
	TopK          int     // keep the k most likely; 0: all
	TopP          float64 // keep the fewest whose probabilities reach p; 0 or 1: all
	MinP          float64 // keep those with at least this share of the best's probability; 0: all
	RepeatPenalty float64 // divide (multiply, if negative) the logits of recent tokens; 0 or 1: none
	RepeatLast    int     // how many recent tokens; 0: 64
	Seed          uint64
}

// Validate refuses values outside their ranges.
func (o Sampling) Validate() error {
	bad := func(name string, v any, want string) error {
		return fmt.Errorf("%s is %v, it must be %s", name, v, want)
	}
	switch {
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 0):
		return bad("temperature", o.Temperature, "0 or more")
	case o.TopK < 0:
		return bad("top-k", o.TopK, "0 or more")
	case !(o.TopP >= 0 && o.TopP <= 1):
		return bad("top-p", o.TopP, "between 0 and 1")
	case !(o.MinP >= 0 && o.MinP <= 1):
		return bad("min-p", o.MinP, "between 0 and 1")
	case !(o.RepeatPenalty >= 0) || math.IsInf(o.RepeatPenalty, 0):
		return bad("repeat penalty", o.RepeatPenalty, "0 or more")
	case o.RepeatLast < 0:
		return bad("repeat-last", o.RepeatLast, "0 or more")
	}
	return nil
}

// Sampler chooses tokens. It keeps its memory from call to call.
type Sampler struct {
	opt  Sampling
	rng  *rand.Rand
	cand []candidate
	seen []int32
}

type candidate struct {
	id    int32
	logit float32
}

// NewSampler makes a sampler; its choices are a function of the seed and the logits.
func NewSampler(opt Sampling) *Sampler {
	if opt.RepeatLast == 0 {
		opt.RepeatLast = 64
	}
	return &Sampler{opt: opt, rng: rand.New(rand.NewPCG(opt.Seed, 0x9e3779b97f4a7c15))}
}

// Sample chooses the next token. recent are the tokens so far. The logits are
// changed by a repeat penalty. It fails where no logit is a number.
func (s *Sampler) Sample(logits []float32, recent []int32) (int32, error) {
	if p := s.opt.RepeatPenalty; p != 0 && p != 1 {
		s.penalise(logits, recent, float32(p))
	}
	best := largest(logits)
	if best < 0 {
		return 0, fmt.Errorf("none of the %d logits is a number", len(logits))
	}
	if s.opt.Temperature == 0 || math.IsInf(float64(logits[best]), 0) {
		return best, nil
	}
	return s.draw(logits), nil
}

// largest gives the first of the largest numbers, -1 where there is no number.
func largest(x []float32) int32 {
	at := slices.IndexFunc(x, func(v float32) bool { return v == v })
	if at < 0 {
		return -1
	}
	top := x[at]
	for i := at + 1; i < len(x); i++ {
		if v := x[i]; v > top { // never for a NaN
			top, at = v, i
		}
	}
	return int32(at)
}

// among chooses from the most likely tokens, the best first, as many as the choice
// needs: as Sample does from all logits. None may be a NaN.
func (s *Sampler) among(best []candidate) int32 {
	if s.opt.Temperature == 0 || math.IsInf(float64(best[0].logit), 0) {
		return best[0].id
	}
	return s.drawSorted(best)
}

func (s *Sampler) penalise(logits []float32, recent []int32, p float32) {
	recent = recent[max(0, len(recent)-s.opt.RepeatLast):]
	s.seen = append(s.seen[:0], recent...)
	slices.Sort(s.seen)
	for _, t := range slices.Compact(s.seen) {
		if t < 0 || int(t) >= len(logits) {
			continue
		}
		if logits[t] > 0 {
			logits[t] /= p
		} else {
			logits[t] *= p
		}
	}
}

func (s *Sampler) draw(logits []float32) int32 {
	s.cand = s.cand[:0]
	for i, v := range logits {
		if v == v {
			s.cand = append(s.cand, candidate{int32(i), v})
		}
	}
	slices.SortFunc(s.cand, func(a, b candidate) int {
		if a.logit != b.logit {
			return cmp.Compare(b.logit, a.logit)
		}
		return cmp.Compare(a.id, b.id)
	})
	return s.drawSorted(s.cand)
}

// drawSorted draws from candidates, the most likely first.
func (s *Sampler) drawSorted(c []candidate) int32 {
	if k := s.opt.TopK; k > 0 && k < len(c) {
		c = c[:k]
	}
	top := float64(c[0].logit)
	if p := s.opt.TopP; p > 0 && p < 1 {
		total := 0.0
		for _, x := range c {
			total += math.Exp(float64(x.logit) - top)
		}
		sum := 0.0
		for i, x := range c {
			if sum += math.Exp(float64(x.logit) - top); sum >= p*total {
				c = c[:i+1]
				break
			}
		}
	}
	if p := s.opt.MinP; p > 0 {
		n := 1
		for n < len(c) && math.Exp(float64(c[n].logit)-top) >= p {
			n++
		}
		c = c[:n]
	}
	t := s.opt.Temperature
	total := 0.0
	for _, x := range c {
		total += math.Exp((float64(x.logit) - top) / t)
	}
	at := s.rng.Float64() * total
	for _, x := range c {
		if at -= math.Exp((float64(x.logit) - top) / t); at < 0 {
			return x.id
		}
	}
	return c[len(c)-1].id
}
