// Choosing tokens on the host, for models that give logits: penalties, bias and mask are applied here,
// the filters and the draw are the engine's.

package serve

import (
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/engine"
)

// picker chooses the tokens of one answer.
type picker struct {
	opt     Sampling
	sampler *engine.Sampler
	counts  map[int32]int // of the answer's tokens
	recent  []int32       // prompt and answer, for the repeat penalty
	mask    Mask
	bits    []uint32
	ends    []int32 // banned before min tokens have come
	min, at int
	top     int // as Request.Logprobs
	sorted  []TokenLogprob
}

func newPicker(r Request, choice int, ends []int32, vocabulary int) (*picker, error) {
	o := r.Sampling
	p := &picker{opt: o, counts: map[int32]int{}, min: r.MinTokens, ends: ends, top: r.Logprobs}
	p.sampler = engine.NewSampler(engine.Sampling{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP,
		MinP: o.MinP, RepeatPenalty: o.RepeatPenalty, Seed: o.Seed + uint64(choice)})
	p.recent = append(p.recent, r.Prompt...)
	if r.Mask != nil {
		var err error
		if p.mask, err = r.Mask(); err != nil {
			return nil, err
		}
		p.bits = make([]uint32, (vocabulary+31)/32)
	}
	return p, nil
}

// pick chooses a token from logits, which it changes. Logprobs are those of the model's own
// distribution, before penalties and filters, as OpenAI's and vLLM's are.
func (p *picker) pick(logits []float32) (Token, error) {
	var t Token
	norm := 0.0
	if p.top != 0 {
		norm = logSumExp(logits)
		t.Top = p.best(logits, norm)
	}
	raw := logits
	if p.top != 0 && p.changes() {
		raw = slices.Clone(logits)
	}
	if err := p.change(logits); err != nil {
		return t, err
	}
	id, err := p.sampler.Sample(logits, p.recent)
	if err != nil {
		return t, err
	}
	if t.ID = id; p.top != 0 {
		t.Logprob = float32(float64(raw[id]) - norm)
	}
	if p.mask != nil {
		if err := p.mask.Accept(id); err != nil {
			return t, err
		}
	}
	p.at++
	p.counts[id]++
	p.recent = append(p.recent, id)
	return t, nil
}

func (p *picker) changes() bool {
	o := p.opt
	return o.FrequencyPenalty != 0 || o.PresencePenalty != 0 || len(o.LogitBias) > 0 || p.mask != nil || p.at < p.min ||
		o.RepeatPenalty != 0 && o.RepeatPenalty != 1
}

func (p *picker) change(logits []float32) error {
	o := p.opt
	if o.FrequencyPenalty != 0 || o.PresencePenalty != 0 {
		for id, n := range p.counts {
			logits[id] -= float32(o.FrequencyPenalty*float64(n) + o.PresencePenalty)
		}
	}
	for id, b := range o.LogitBias {
		if id >= 0 && int(id) < len(logits) {
			logits[id] += b
		}
	}
	if p.at < p.min {
		for _, id := range p.ends {
			logits[id] = float32(math.Inf(-1))
		}
	}
	if p.mask == nil {
		return nil
	}
	if err := p.mask.Allowed(p.bits); err != nil {
		return err
	}
	some := false
	for i := range logits {
		if p.bits[i/32]>>(i%32)&1 == 0 {
			logits[i] = float32(math.NaN()) // never chosen, at any temperature
		} else {
			some = true
		}
	}
	if !some {
		return fmt.Errorf("the grammar allows no token behind %d of the answer", p.at)
	}
	return nil
}

// best gives the most likely tokens, as many as are asked for.
func (p *picker) best(logits []float32, norm float64) []TokenLogprob {
	n := p.top
	if n <= 0 {
		return nil
	}
	p.sorted = p.sorted[:0]
	for i, v := range logits {
		if v != v {
			continue
		}
		if len(p.sorted) == n && v <= p.sorted[n-1].Logprob {
			continue
		}
		at := len(p.sorted)
		for at > 0 && p.sorted[at-1].Logprob < v {
			at--
		}
		if len(p.sorted) == n {
			p.sorted = p.sorted[:n-1]
		}
		p.sorted = slices.Insert(p.sorted, at, TokenLogprob{int32(i), v})
	}
	out := slices.Clone(p.sorted)
	for i := range out {
		out[i].Logprob = float32(float64(out[i].Logprob) - norm)
	}
	return out
}

// logSumExp is log Σ exp x, NaNs left out.
func logSumExp(x []float32) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		if f := float64(v); f > top {
			top = f
		}
	}
	sum := 0.0
	for _, v := range x {
		if v == v {
			sum += math.Exp(float64(v) - top)
		}
	}
	return top + math.Log(sum)
}
