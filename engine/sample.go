package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Sampling says how a token is chosen from logits. The zero value is greedy. What changes
// logits and the filters apply in this order: repeat penalty, frequency and presence penalty,
// bias, mask, top-k, typical, top-p, min-p, temperature.
type Sampling struct {
	Temperature   float64 // 0: the most likely token
	TopK          int     // keep the k most likely; 0: all
	TypicalP      float64 // keep the fewest of the most typical whose probabilities reach p; 0 or 1: all
	TopP          float64 // keep the fewest whose probabilities reach p; 0 or 1: all
	MinP          float64 // keep those with at least this share of the best's probability; 0: all
	RepeatPenalty float64 // divide (multiply, if negative) the logits of recent tokens; 0 or 1: none
	RepeatLast    int     // how many recent tokens the penalties see; 0: 64

	FrequencyPenalty float64           // taken from a recent token's logit as often as the token came
	PresencePenalty  float64           // taken from a recent token's logit once
	CountFrom        int               // these two see tokens from this position on, such as an answer's alone
	LogitBias        map[int32]float32 // added to tokens' logits; −Inf: never. Not changed while in use

	// Seed decides the draws: the token at a position is a function of it, of the position
	// and of the logits.
	Seed uint64
}

// Validate refuses values outside their ranges.
func (o Sampling) Validate() error {
	bad := func(name string, v any, want string) error {
		return fmt.Errorf("%s is %v, it must be %s", name, v, want)
	}
	finite := func(v float64) bool { return !math.IsInf(v, 0) && v == v }
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	switch {
	case !(o.Temperature >= 0) || !finite(o.Temperature):
		return bad("temperature", o.Temperature, "0 or more")
	case o.TopK < 0:
		return bad("top-k", o.TopK, "0 or more")
	case !share(o.TypicalP):
		return bad("typical-p", o.TypicalP, "between 0 and 1")
	case !share(o.TopP):
		return bad("top-p", o.TopP, "between 0 and 1")
	case !share(o.MinP):
		return bad("min-p", o.MinP, "between 0 and 1")
	case !(o.RepeatPenalty >= 0) || !finite(o.RepeatPenalty):
		return bad("repeat penalty", o.RepeatPenalty, "0 or more")
	case o.RepeatLast < 0:
		return bad("repeat-last", o.RepeatLast, "0 or more")
	case o.CountFrom < 0:
		return bad("the position from which tokens are counted", o.CountFrom, "0 or more")
	case !finite(o.FrequencyPenalty):
		return bad("frequency penalty", o.FrequencyPenalty, "a finite number")
	case !finite(o.PresencePenalty):
		return bad("presence penalty", o.PresencePenalty, "a finite number")
	}
	for t, b := range o.LogitBias {
		if b != b || math.IsInf(float64(b), 1) {
			return bad(fmt.Sprintf("logit bias of token %d", t), b, "a finite number or -Inf")
		}
		if t < 0 {
			return bad("a token of the logit bias", t, "0 or more")
		}
	}
	return nil
}

// changes says that logits are changed before a token is chosen, so that all of them are needed.
func (o *Sampling) changes() bool { return o.penalises() || len(o.LogitBias) > 0 }

// filters says that not all tokens with a logit can be drawn.
func (o *Sampling) filters() bool {
	share := func(p float64) bool { return p > 0 && p < 1 }
	return o.TopK > 0 || share(o.TypicalP) || share(o.TopP) || o.MinP > 0
}

func (o *Sampling) penalises() bool {
	return o.RepeatPenalty != 0 && o.RepeatPenalty != 1 || o.FrequencyPenalty != 0 || o.PresencePenalty != 0
}

// Sampler chooses tokens. It holds nothing of what it chose.
type Sampler struct {
	opt  Sampling
	top  []TokenLogprob
	logs int      // of how many best tokens log is to tell; 0: it tells nothing
	log  []Chosen // what a generation chose
}

type candidate struct {
	id    int32
	logit float32
}

// TokenLogprob is a token and the natural logarithm of its probability.
type TokenLogprob struct {
	ID      int32   `json:"id"`
	Logprob float32 `json:"logprob"`
}

// Chosen is a token with what the model thought of it: its log-probability, and the best
// tokens with theirs, as the logits say before any option changes them.
type Chosen struct {
	TokenLogprob
	Top []TokenLogprob `json:"top"` // the sampler's memory, valid until its next choice
}

var errNothingAllowed = errors.New(
	"no token is allowed: the mask, or a bias of -Inf, leaves none whose logit is a number")

// NewSampler makes a sampler; its choices are a function of the seed, the position and the logits.
func NewSampler(opt Sampling) *Sampler {
	if opt.RepeatLast == 0 {
		opt.RepeatLast = 64
	}
	return &Sampler{opt: opt}
}

// Sample chooses the token behind recent, which are all tokens so far: the number of them is the
// position that the draw depends on. The logits are changed by penalties and biases. It fails
// where no logit is a number.
func (s *Sampler) Sample(logits []float32, recent []int32) (int32, error) {
	return s.Masked(logits, recent, nil)
}

// Masked is Sample among allowed tokens: bit t%32 of word t/32 says that token t is. nil allows all,
// tokens behind the mask's end are not allowed. The logits of others become NaN.
func (s *Sampler) Masked(logits []float32, recent []int32, allowed []uint32) (int32, error) {
	return s.sample(logits, -1, recent, allowed)
}

// sample is Masked. best is the first of the greatest logits, −1 where it is not known.
func (s *Sampler) sample(logits []float32, best int32, recent []int32, allowed []uint32) (int32, error) {
	r := takeRoom()
	defer r.leave()
	return s.sampleIn(r, logits, best, recent, allowed)
}

func (s *Sampler) sampleIn(r *room, logits []float32, best int32, recent []int32, allowed []uint32) (int32, error) {
	r.changed = r.changed[:0]
	if s.opt.penalises() {
		s.penalise(r, logits, recent)
	}
	for t, b := range s.opt.LogitBias {
		if int(t) < len(logits) {
			r.changed = append(r.changed, candidate{t, logits[t]})
			if logits[t] += b; math.IsInf(float64(b), -1) {
				logits[t] = float32(math.NaN())
			}
		}
	}
	if allowed != nil {
		forbid(logits, allowed)
	}
	if allowed != nil || len(r.changed) > 0 {
		best, r.of = -1, nil
	}
	if best < 0 {
		best = largest(logits)
	}
	if best < 0 {
		if allowed != nil || len(s.opt.LogitBias) > 0 {
			return 0, errNothingAllowed
		}
		return 0, noNumber(logits)
	}
	if s.opt.Temperature == 0 || math.IsInf(float64(logits[best]), 0) {
		return best, nil
	}
	return s.draw(r, tokens{x: logits}, candidate{best, logits[best]}, len(recent)), nil
}

// Choose is Masked, with the log-probabilities of the chosen token and of the top best.
func (s *Sampler) Choose(logits []float32, recent []int32, allowed []uint32, top int) (Chosen, error) {
	best := largest(logits)
	if best < 0 {
		return Chosen{}, noNumber(logits)
	}
	return s.choose(logits, best, recent, allowed, top)
}

func noNumber(logits []float32) error {
	return fmt.Errorf("none of the %d logits is a number", len(logits))
}

// choose is Choose. best is the first of the greatest logits.
func (s *Sampler) choose(logits []float32, best int32, recent []int32, allowed []uint32, top int) (Chosen, error) {
	r := takeRoom()
	defer r.leave()
	norm := r.norm(logits, logits[best])
	s.top = r.best(s.top[:0], logits, top, norm)
	id, err := s.sampleIn(r, logits, best, recent, allowed)
	if err != nil {
		return Chosen{}, err
	}
	raw := logits[id]
	for _, c := range slices.Backward(r.changed) { // as it was before its first change
		if c.id == id {
			raw = c.logit
		}
	}
	return Chosen{TokenLogprob{id, float32(float64(raw) - norm)}, s.top}, nil
}

// best appends the top most likely tokens, the best first.
func (r *room) best(to []TokenLogprob, logits []float32, top int, norm float64) []TokenLogprob {
	if top <= 0 {
		return to
	}
	list := r.mostLikely(tokens{x: logits}, top)
	slices.SortFunc(list, func(a, b item) int { return cmp.Compare(a.key, b.key) })
	for _, it := range list {
		c := placed(it.key)
		to = append(to, TokenLogprob{c.id, float32(float64(c.logit) - norm)})
	}
	return to
}

// Logprob gives what the model thought of a token that follows: its log-probability, and the top best tokens with
// theirs.
func Logprob(logits []float32, id int32, top int) (Chosen, error) {
	best, ok := greatest(logits)
	if !ok {
		i, _ := Finite(logits)
		return Chosen{}, fmt.Errorf("logit %d is %v", i, logits[i])
	}
	if id < 0 || int(id) >= len(logits) {
		return Chosen{}, fmt.Errorf("token %d, there are %d logits", id, len(logits))
	}
	r := takeRoom()
	defer r.leave()
	norm := r.norm(logits, logits[best])
	return Chosen{TokenLogprob{id, float32(float64(logits[id]) - norm)}, r.best(nil, logits, top, norm)}, nil
}

func forbid(logits []float32, allowed []uint32) {
	nan := float32(math.NaN())
	for i := 0; i < len(logits); i += 32 {
		word, x := uint32(0), logits[i:min(i+32, len(logits))]
		if i/32 < len(allowed) {
			word = ^allowed[i/32]
		} else {
			word = ^word
		}
		for ; word != 0; word &= word - 1 {
			if at := bits.TrailingZeros32(word); at < len(x) {
				x[at] = nan
			}
		}
	}
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

// greatest gives the first of the largest numbers; false where one is infinite or none, or where there are none.
func greatest(x []float32) (at int32, ok bool) {
	if len(x) == 0 {
		return 0, false
	}
	top, bits := x[0], uint32(0)
	for i, v := range x {
		bits |= math.Float32bits(v)&0x7fffffff + 1<<23 // carries where all bits of the exponent are ones
		if v > top {
			top, at = v, int32(i)
		}
	}
	return at, bits>>31 == 0
}

// change is what penalties and a bias do to a token's logit (ops.Adjust).
type change struct {
	id       int32
	by, plus float32
}

// penalise changes the logits of recent tokens.
func (s *Sampler) penalise(r *room, logits []float32, recent []int32) {
	from := max(0, len(recent)-s.opt.RepeatLast)
	r.changes = s.penalties(r, r.changes[:0], len(logits), recent[from:], from)
	for _, c := range r.changes {
		r.changed = append(r.changed, candidate{c.id, logits[c.id]})
		if x := logits[c.id]; x > 0 {
			logits[c.id] = x/c.by + c.plus
		} else {
			logits[c.id] = float32(x*c.by) + c.plus
		}
	}
}

// penalties adds what penalties change to a list: of the tokens that they see, the first of which is at position first.
func (s *Sampler) penalties(r *room, list []change, vocabulary int, seen []int32, first int) []change {
	o, from := &s.opt, len(list)
	if len(r.counts) < vocabulary {
		r.counts = make([]int32, vocabulary)
	}
	for i, t := range seen {
		if t < 0 || int(t) >= vocabulary {
			continue
		}
		if r.counts[t] == 0 {
			r.counts[t] = 1
			list = append(list, change{t, 1, 0})
		}
		if first+i >= o.CountFrom {
			r.counts[t]++
		}
	}
	for i := from; i < len(list); i++ {
		c := &list[i]
		if o.RepeatPenalty != 0 {
			c.by = float32(o.RepeatPenalty)
		}
		if n := r.counts[c.id] - 1; n > 0 {
			c.plus = -float32(float64(n)*o.FrequencyPenalty + o.PresencePenalty)
		}
		r.counts[c.id] = 0
	}
	return list
}

// adjustments adds what penalties and biases change to a list, each token once.
func (s *Sampler) adjustments(r *room, list []change, vocabulary int, seen []int32, first int) []change {
	from := len(list)
	if s.opt.penalises() {
		list = s.penalties(r, list, vocabulary, seen, first)
	}
	if len(s.opt.LogitBias) == 0 {
		return list
	}
	if len(r.counts) < vocabulary {
		r.counts = make([]int32, vocabulary)
	}
	for i, c := range list[from:] {
		r.counts[c.id] = int32(from + i + 1)
	}
	penalised := len(list)
	for t, b := range s.opt.LogitBias {
		switch {
		case int(t) >= vocabulary:
		case r.counts[t] > 0:
			list[r.counts[t]-1].plus += b
		default:
			list = append(list, change{t, 1, b})
		}
	}
	for _, c := range list[from:penalised] {
		r.counts[c.id] = 0
	}
	return list
}
