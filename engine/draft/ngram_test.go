package draft

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// speculate continues a prompt by a text that is known, and counts the steps and their cost.
func speculate(g *NGram, prompt, text []int32, cost func(int) float64) (steps int, spent float64, drafted,
	accepted int) {
	tokens := slices.Clone(prompt)
	var guesses []int32
	for left := text; len(left) > 0; {
		guesses = g.Propose(tokens, guesses[:0], len(left)-1)
		n := Accepted(guesses, left[:len(guesses)+1])
		g.Verified(len(guesses), n)
		tokens, left = append(tokens, left[:n+1]...), left[n+1:]
		steps++
		spent += cost(len(guesses))
		drafted, accepted = drafted+len(guesses), accepted+n
	}
	if !slices.Equal(tokens[len(prompt):], text) {
		panic("another text")
	}
	return
}

func words(r *rand.Rand, n, vocabulary int) []int32 {
	w := make([]int32, n)
	for i := range w {
		w[i] = int32(r.IntN(vocabulary))
	}
	return w
}

func fifth(n int) float64 { return 1 + float64(n)/20 }

// TestAnEditIsGuessed: a text that is the prompt with a change here and there takes few steps.
func TestAnEditIsGuessed(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	prompt := words(r, 4000, 5000)
	text := slices.Clone(prompt)
	for i := 0; i < len(text); i += 60 + r.IntN(40) {
		text[i] = int32(r.IntN(5000))
	}
	steps, spent, drafted, accepted := speculate(New(fifth), prompt, text, fifth)
	if gain := float64(len(text)) / spent; gain < 3 {
		t.Errorf("an edit gains %.2f times: %d steps, %d of %d guesses right", gain, steps, accepted, drafted)
	}
}

// TestSilentWhereItLoses: on texts whose repeats mislead, what is lost by guesses stays below 3 %.
func TestSilentWhereItLoses(t *testing.T) {
	dear := func(n int) float64 { return 1 + 0.6*float64(n) } // where a row costs nearly what a step does
	for name, text := range map[string][]int32{
		"no repeats":    words(rand.New(rand.NewPCG(1, 1)), 4000, 1<<30),
		"two words":     words(rand.New(rand.NewPCG(1, 2)), 4000, 2),
		"seven words":   words(rand.New(rand.NewPCG(1, 3)), 4000, 7),
		"hundred words": words(rand.New(rand.NewPCG(1, 4)), 4000, 100),
	} {
		for i, cost := range []func(int) float64{fifth, dear} {
			steps, spent, drafted, accepted := speculate(New(cost), []int32{1, 2, 3}, text, cost)
			if gain := float64(len(text)) / spent; gain < 0.97 {
				t.Errorf("%s, cost %d: %.3f times as fast: %d steps, %d of %d guesses right", name, i, gain, steps, accepted,
					drafted)
			}
		}
	}
}

// TestALoopIsGuessed beyond its end: what is guessed repeats too.
func TestALoopIsGuessed(t *testing.T) {
	loop := []int32{1, 2, 3, 4, 5, 6, 7}
	tokens := slices.Concat(loop, loop)
	g := New(func(int) float64 { return 1 })
	if got, want := g.Propose(tokens, nil, 12), []int32{1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("%v follows, not %v", got, want)
	}
	if got := g.Propose(append(tokens, 99), nil, 12); len(got) != 0 {
		t.Errorf("%v follows what never came before", got)
	}
	if got := g.Propose(tokens[:9], []int32{5}, 12); !slices.Equal(got[:1], []int32{5}) {
		t.Errorf("a sequence that was cut: %v", got)
	}
}

// TestDepthGrowsAgain when a text begins to repeat after it did not for long.
func TestDepthGrowsAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	noise := words(r, 3000, 3)
	g := New(fifth)
	speculate(g, nil, noise, fifth)
	page := words(r, 1000, 5000)
	steps, _, _, _ := speculate(g, slices.Concat(noise, page), page, fifth)
	if steps > 400 {
		t.Errorf("1,000 tokens of a repeated page take %d steps behind noise", steps)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	g := New(nil)
	text := words(rand.New(rand.NewPCG(3, 3)), 3000, 4)
	dst := make([]int32, 0, Most)
	g.Propose(text[:2001], dst, Most) // room for twice as many
	n := 2002
	if a := testing.AllocsPerRun(500, func() {
		g.Verified(len(g.Propose(text[:n], dst, Most)), 1)
		n++
	}); a != 0 {
		t.Errorf("a proposal allocates %v times", a)
	}
}

func TestAccepted(t *testing.T) {
	for _, c := range []struct {
		guesses, chosen []int32
		want            int
	}{
		{nil, []int32{1}, 0}, {[]int32{1, 2}, []int32{1, 2, 3}, 2}, {[]int32{1, 2}, []int32{1, 9, 2}, 1}, {[]int32{1},
			[]int32{2, 1}, 0}, {[]int32{1}, nil, 0},
	} {
		if got := Accepted(c.guesses, c.chosen); got != c.want {
			t.Errorf("%v of %v: %d", c.guesses, c.chosen, got)
		}
	}
}

func BenchmarkPropose(b *testing.B) {
	text := words(rand.New(rand.NewPCG(3, 3)), 1<<20, 30)
	g := New(nil)
	dst := make([]int32, 0, Most)
	n := 1000
	for b.Loop() {
		if n++; n == 8000 {
			n = 1000
		}
		g.Verified(len(g.Propose(text[:n], dst, Most)), 1)
	}
}
