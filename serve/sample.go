// Choosing the tokens of models that answer one request at a time.

package serve

import (
	"math"
	"slices"

	"github.com/greta-project/greta/engine"
)

// sampling is what the engine is asked for. Penalties see what they see in OpenAI's and vLLM's servers: frequency and
// presence the answer's tokens, repetition those of the prompt too, however many.
func (r *Request) sampling() engine.Sampling {
	o := r.Sampling
	return engine.Sampling{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP, TypicalP: o.TypicalP,
		RepeatPenalty: o.RepeatPenalty, RepeatLast: math.MaxInt, FrequencyPenalty: o.FrequencyPenalty,
		PresencePenalty: o.PresencePenalty, CountFrom: len(r.Prompt), LogitBias: o.LogitBias, Seed: o.Seed}
}

// mask is nil where every token is allowed.
func (r *Request) mask(ends []int32) (*freshMask, error) {
	if r.Mask == nil && r.MinTokens <= 0 {
		return nil, nil
	}
	m := &freshMask{make: r.Mask, least: r.MinTokens, ends: slices.Concat(ends, r.Ends)}
	return m, m.begin()
}

// picker chooses the tokens of one answer.
type picker struct {
	sampler *engine.Sampler
	tokens  []int32 // of prompt and answer
	mask    *freshMask
	bits    []uint32
	top     int // as Request.Logprobs
}

func newPicker(r Request, choice int, ends []int32, vocabulary int) (*picker, error) {
	o := r.sampling()
	o.Seed += uint64(choice)
	p := &picker{sampler: engine.NewSampler(o), top: r.Logprobs}
	p.tokens = append(p.tokens, r.Prompt...)
	var err error
	if p.mask, err = r.mask(ends); p.mask != nil {
		p.bits = make([]uint32, (vocabulary+31)/32)
	}
	return p, err
}

// pick chooses a token from logits, which it changes. Logprobs are those of the model's own
// distribution, before penalties and filters, as OpenAI's and vLLM's are.
func (p *picker) pick(logits []float32) (t Token, err error) {
	if p.mask != nil {
		if err := p.mask.Allowed(p.bits); err != nil {
			return t, err
		}
	}
	if p.top == 0 {
		t.ID, err = p.sampler.Masked(logits, p.tokens, p.bits)
	} else {
		var c engine.Chosen
		c, err = p.sampler.Choose(logits, p.tokens, p.bits, max(0, p.top))
		t.ID, t.Logprob, t.Top = c.ID, c.Logprob, topOf(c.Top)
	}
	if err != nil {
		return t, err
	}
	p.tokens = append(p.tokens, t.ID)
	if p.mask != nil {
		err = p.mask.Accept(t.ID)
	}
	return t, err
}

// topOf copies the best tokens.
func topOf(list []engine.TokenLogprob) []TokenLogprob {
	if len(list) == 0 {
		return nil
	}
	out := make([]TokenLogprob, len(list))
	for i, x := range list {
		out[i] = TokenLogprob(x)
	}
	return out
}
