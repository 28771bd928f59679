package serve

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestPenalties: frequency and presence count the answer's tokens alone, the first of a long answer too, and the
// repetition penalty sees the prompt's.
func TestPenalties(t *testing.T) {
	ids := func(o Sampling, n int, logits ...float32) (ids []int32) {
		p, err := newPicker(Request{Prompt: slices.Repeat([]int32{3}, 90), Sampling: o}, 0, nil, 4)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			tok, err := p.pick(slices.Clone(logits))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, tok.ID)
		}
		return ids
	}
	for name, c := range map[string]struct {
		o      Sampling
		logits []float32
		want   []int32
	}{
		"presence":   {Sampling{PresencePenalty: 2}, []float32{0, .5, 0, 1}, []int32{3, 1, 0, 2, 3}},
		"frequency":  {Sampling{FrequencyPenalty: .6}, []float32{0, .5, 0, 1}, []int32{3, 1, 3, 0, 2}},
		"repetition": {Sampling{RepeatPenalty: 3}, []float32{0, .5, 0, 1}, []int32{1, 3, 3, 3, 3}},
	} {
		if got := ids(c.o, len(c.want), c.logits...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	// The penalty of the first token has not been forgotten behind 199 others: its logit is lower by the count of it.
	long := ids(Sampling{FrequencyPenalty: .01}, 200, 0, 0, 0, 0)
	for id := range int32(4) {
		n := 0
		for _, x := range long {
			if x == id {
				n++
			}
		}
		if n != 50 {
			t.Errorf("token %d came %d times of 200, want 50: a penalty saw another number of tokens", id, n)
		}
	}
}

// TestPickerLogprobs: the chosen token and the best ones are told as the model's logits say, before mask and penalties;
// no end comes before the least number of tokens.
func TestPickerLogprobs(t *testing.T) {
	p, err := newPicker(Request{Prompt: []int32{0}, MinTokens: 1, Logprobs: 2, Sampling: Sampling{
		LogitBias: map[int32]float32{1: -9}}}, 0, []int32{3}, 4)
	if err != nil {
		t.Fatal(err)
	}
	logits := []float32{0, 1, 0.5, 2}
	for i, want := range []int32{2, 3} {
		tok, err := p.pick(slices.Clone(logits))
		if err != nil || tok.ID != want || len(tok.Top) != 2 || tok.Top[0].ID != 3 || tok.Top[1].ID != 1 {
			t.Fatalf("token %d: %+v, %v", i, tok, err)
		}
		// log Σ exp of the logits is 2.546006
		if d := tok.Logprob - (logits[want] - 2.546006); d < -1e-5 || d > 1e-5 {
			t.Errorf("token %d has the log-probability %v", i, tok.Logprob)
		}
	}
}

// TestLeastTokens: before the least number of tokens no end comes and no stop token, unless a form has nothing else.
func TestLeastTokens(t *testing.T) {
	only := func(id int32) func() (Mask, error) { return func() (Mask, error) { return oneToken(id), nil } }
	for name, c := range map[string]struct {
		r    Request
		want []int32
	}{
		"end":              {Request{MinTokens: 2}, []int32{1, 1, 3}},
		"stop token":       {Request{MinTokens: 2, Ends: []int32{1}}, []int32{2, 2, 3}},
		"form of an end":   {Request{MinTokens: 2, Mask: only(3)}, []int32{3}},
		"form of one stop": {Request{MinTokens: 2, Ends: []int32{1}, Mask: only(1)}, []int32{1, 1}},
	} {
		c.r.Prompt = []int32{0}
		p, err := newPicker(c.r, 0, []int32{3}, 4)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if tok, err := p.pick([]float32{0, 2, 1, 3}); err != nil || tok.ID != want {
				t.Errorf("%s: token %d is %d, want %d, %v", name, i, tok.ID, want, err)
			}
		}
	}
}

// oneToken is a mask of one token.
type oneToken int32

func (m oneToken) Allowed(bits []uint32) error {
	clear(bits)
	bits[m/32] |= 1 << (m % 32)
	return nil
}

func (oneToken) Accept(int32) error { return nil }

func (oneToken) Forced() []int32 { return nil }

// TestStopBehindLeast: a stop string within the least number of tokens ends nothing.
func TestStopBehindLeast(t *testing.T) {
	_, h := testServer(t, newFake())
	for more, want := range map[string]string{"": "he", `, "min_tokens": 4`: "hell", `, "min_tokens": 5`: "hello"} {
		_, _, body := post(t, h.URL+"/v1/chat/completions", `{"model": "fake", "messages": [{"role": "user",
			"content": "say hello"}], "stop": ["ll", "o"]`+more+`}`)
		if got := as[chatAnswer](t, body).Choices[0].Message.Content; got == nil || *got != want {
			t.Errorf("%s: %s", more, body)
		}
	}
}

// TestTopPZero: a share of nothing leaves the most likely token, whatever the seed; no share leaves all.
func TestTopPZero(t *testing.T) {
	for body, alone := range map[string]bool{`{"top_p": 0}`: true, `{"top_p": 0, "top_k": 3}`: true, `{}`: false,
		`{"top_p": 1}`: false} {
		other := false
		for seed := range int64(20) {
			f := samplingFields{Seed: &seed}
			if err := json.Unmarshal([]byte(body), &f); err != nil {
				t.Fatal(err)
			}
			o, err := f.sampling(4)
			if err != nil {
				t.Fatal(err)
			}
			p, err := newPicker(Request{Prompt: []int32{0}, Sampling: o}, 0, nil, 4)
			if err != nil {
				t.Fatal(err)
			}
			tok, err := p.pick([]float32{0, .1, .2, .1})
			if err != nil {
				t.Fatal(err)
			}
			other = other || tok.ID != 2
		}
		if other == alone {
			t.Errorf("%s: tokens other than the most likely one are drawn: %v", body, other)
		}
	}
}
