package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/greta-project/greta/engine/draft"
)

// thinks is a model: logits that are a function of the last two tokens.
func thinks(logits []float32, past []int32) {
	r := rand.New(rand.NewPCG(uint64(past[len(past)-1]), uint64(past[max(0, len(past)-2)])))
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 2)
	}
}

// speculated continues a prompt as a step with guesses does: every row's token is chosen by the same rule
// behind the tokens before it, guessed or not, and those count that follow right guesses.
func speculated(t *testing.T, o Sampling, prompt []int32, n, vocabulary int, propose func(past,
	dst []int32) []int32) (text []int32, right int) {
	t.Helper()
	s := NewSampler(o)
	logits := make([]float32, vocabulary)
	past := slices.Clone(prompt)
	for len(past) < len(prompt)+n {
		guesses := propose(past, nil)
		var chosen []int32
		for i := range len(guesses) + 1 {
			row := slices.Concat(past, guesses[:i])
			thinks(logits, row)
			id, err := s.Sample(logits, row)
			if err != nil {
				t.Fatal(err)
			}
			chosen = append(chosen, id)
		}
		a := draft.Accepted(guesses, chosen)
		right += a
		past = append(past, chosen[:a+1]...)
	}
	return past[len(prompt) : len(prompt)+n], right
}

// TestSpeculationKeepsTheText: with guesses, good and bad ones, a text is the one without, greedy and drawn, with
// all options; so its distribution is the same too, which is tested by itself for the second token.
func TestSpeculationKeepsTheText(t *testing.T) {
	const vocabulary = 12
	r := rand.New(rand.NewPCG(9, 9))
	guessers := map[string]func(past, dst []int32) []int32{
		"n-gram": func(past, dst []int32) []int32 { return draft.New(nil).Propose(past, dst, 5) },
		"random": func(past, dst []int32) []int32 {
			for range r.IntN(4) {
				dst = append(dst, int32(r.IntN(vocabulary)))
			}
			return dst
		},
	}
	right := 0
	all := map[string]Sampling{"greedy": {}}
	for name, o := range samplings {
		all[name] = o
	}
	for name, o := range all {
		for seed := range uint64(5) {
			o.Seed = seed
			want, _ := speculated(t, o, []int32{1, 2, 3}, 80, vocabulary, func(_, dst []int32) []int32 { return dst })
			for g, propose := range guessers {
				got, a := speculated(t, o, []int32{1, 2, 3}, 80, vocabulary, propose)
				if right += a; !slices.Equal(got, want) {
					t.Fatalf("%s, guesses of %s: %v, without %v", name, g, got, want)
				}
			}
		}
	}
	if right == 0 {
		t.Error("no guess was ever right")
	}
	const n, alpha = 5000, 0.001
	logits := make([]float32, vocabulary)
	p := make([]float64, vocabulary)
	thinks(logits, []int32{1, 2, 3})
	first := wanted(Sampling{Temperature: 1}, logits, nil, nil)
	for id, q := range first {
		thinks(logits, []int32{1, 2, 3, int32(id)})
		for i, v := range wanted(Sampling{Temperature: 1}, logits, nil, nil) {
			p[i] += q * v
		}
	}
	got := make([]int, vocabulary)
	for seed := range uint64(n) {
		text, _ := speculated(t, Sampling{Temperature: 1, Seed: seed}, []int32{1, 2, 3}, 2, vocabulary, guessers["random"])
		got[text[1]]++
	}
	if q := chiSquared(t, "second token", got, p); q < alpha {
		t.Errorf("second tokens are so far from their distribution once in %.3g", 1/q)
	}
}
