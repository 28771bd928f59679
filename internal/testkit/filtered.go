package testkit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mathext"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/ops/optest"
	"github.com/greta-project/greta/tensor"
)

// Filtered holds a device's filter and draw against the host's sampler: rows of logits of every kind, with all mixtures
// of filters, temperatures and masks, and the frequency of what is drawn against the probabilities by
// chi-squared. Of the largest vocabulary there are most rows.
func Filtered(t *testing.T, dev backends.Device, most int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(31, 4))
	for _, vocabulary := range []int{7, 1003, 33001} {
		for _, kind := range []struct {
			name  string
			logit func() float64
		}{
			{"normal", func() float64 { return 3 * rng.NormFloat64() }},
			{"flat", func() float64 { return 5 + rng.NormFloat64()/64 }},
			{"peaked", func() float64 { return 16 * rng.NormFloat64() }},
			{"equals", func() float64 { return float64(rng.IntN(7)) }},
		} {
			t.Run(fmt.Sprint(kind.name, "/", vocabulary), func(t *testing.T) {
				rows := 48
				if vocabulary > 1<<14 {
					rows = most
				}
				c := newChoices(rows, vocabulary)
				for i := range c.x {
					c.x[i] = float32(kind.logit())
				}
				for r := range rows {
					c.set(r, randomSampling(rng, vocabulary), rng.IntN(1000))
					for w := range c.allowed[r*c.words : (r+1)*c.words] {
						if r%2 == 0 { // some token is, in the first word
							c.allowed[r*c.words+w] = int32(rng.Uint32()) | 1
						}
					}
				}
				c.hostsTokens(t, dev)
			})
		}
	}
	t.Run("chi-squared", func(t *testing.T) { followProbabilities(t, dev) })
}

// randomSampling has each filter or has it not.
func randomSampling(rng *rand.Rand, vocabulary int) (o engine.Sampling) {
	o = engine.Sampling{Temperature: 0.3 + 2*rng.Float64(), Seed: rng.Uint64()}
	for _, f := range []func(){func() { o.TopK = 1 + rng.IntN(vocabulary) }, func() { o.TypicalP = rng.Float64() },
		func() { o.TopP = rng.Float64() }, func() { o.MinP = math.Pow(rng.Float64(), 3) }} {
		if rng.IntN(2) == 0 {
			f()
		}
	}
	return o
}

// choices are rows of logits, and how a token of each is chosen.
type choices struct {
	vocabulary, words int
	x                 []float32
	most              []int32
	shares, rate      []float32
	keys, allowed     []int32
	options           []engine.Sampling
	positions         []int
}

func newChoices(rows, vocabulary int) *choices {
	c := &choices{vocabulary: vocabulary, words: (vocabulary + 31) / 32}
	c.x, c.most, c.rate = make([]float32, rows*vocabulary), make([]int32, rows), make([]float32, rows)
	c.shares, c.keys = make([]float32, 3*rows), make([]int32, 4*rows)
	c.allowed = slices.Repeat([]int32{-1}, rows*c.words)
	c.options, c.positions = make([]engine.Sampling, rows), make([]int, rows)
	return c
}

func (c *choices) set(r int, o engine.Sampling, position int) {
	c.options[r], c.positions[r] = o, position
	c.most[r], c.rate[r] = int32(o.TopK), float32(1/o.Temperature)
	copy(c.shares[3*r:], []float32{float32(o.TypicalP), float32(o.TopP), float32(o.MinP)})
	for i, k := range ops.DrawKey(o.Seed, position) {
		c.keys[4*r+i] = int32(k)
	}
}

// run launches an operator of rows of logits and other operands.
func (c *choices) run(dev backends.Device, op, others string, x []byte, data ...[]byte) ([]float32, error) {
	rows := len(c.most)
	p, err := optest.Case{Name: op, Eq: "y: " + op, Args: fmt.Sprintf("x float[%d, %d]; %s; allowed i32[%[1]d, %[4]d] <2",
		rows, c.vocabulary, strings.ReplaceAll(others, "R", strconv.Itoa(rows)), c.words)}.Prepare(tensor.F32)
	if err != nil {
		return nil, err
	}
	for i, d := range append(append([][]byte{x}, data...), tensor.Bytes(c.allowed)) {
		p.In[i].Data = d
	}
	y, err := p.Results(dev)
	if err != nil {
		return nil, err
	}
	return y[0].F32(), nil
}

// left gives the logits that a device leaves.
func (c *choices) left(dev backends.Device) ([]float32, error) {
	return c.run(dev, "filter(x, most, shares, allowed)", "most i32[R] <2; shares float[R, 3]", tensor.Bytes(c.x),
		tensor.Bytes(c.most), tensor.Bytes(c.shares))
}

// drawn gives the tokens that a device draws from logits.
func (c *choices) drawn(dev backends.Device, x []float32) (tokens []int32, err error) {
	z, err := c.run(dev, "draw(x, rate, keys, allowed)", "rate float[R]; keys i32[R, 4] <2", tensor.Bytes(x),
		tensor.Bytes(c.rate), tensor.Bytes(c.keys))
	for row := range slices.Chunk(z, c.vocabulary) {
		at := 0
		for i, v := range row {
			if v > row[at] {
				at = i
			}
		}
		tokens = append(tokens, int32(at))
	}
	return tokens, err
}

// hostsTokens holds what the device leaves and draws against the reference and the host's sampler. By rounding a token
// at the end of a filter may be on its other side, and of two numbers that hardly differ the other may be the largest.
func (c *choices) hostsTokens(t *testing.T, dev backends.Device) {
	left, err := c.left(dev)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := c.drawn(dev, left)
	if err != nil {
		t.Fatal(err)
	}
	other, want := 0, make([]float32, c.vocabulary)
	for r, o := range c.options {
		x := c.x[r*c.vocabulary : (r+1)*c.vocabulary]
		allowed := c.allowed[r*c.words : (r+1)*c.words]
		s := c.shares[3*r:]
		ops.FilterRow(want, x, o.TopK, [3]float64{float64(s[0]), float64(s[1]), float64(s[2])}, allowed)
		differ := 0
		for i, v := range left[r*c.vocabulary : (r+1)*c.vocabulary] {
			if v != want[i] {
				differ++
			}
		}
		if differ > 1 {
			t.Errorf("row %d, %+v: %d tokens are left by one alone", r, o, differ)
		}
		id, err := engine.NewSampler(o).Masked(slices.Clone(x), make([]int32, c.positions[r]), tensor.View[uint32](
			tensor.Bytes(allowed)))
		if err != nil {
			t.Fatal(err)
		}
		if id != tokens[r] {
			other++
		}
	}
	if other > len(tokens)/40 {
		t.Errorf("%d of %d tokens are not those of the host", other, len(tokens))
	}
}

// followProbabilities draws many times from the same logits, with each filter alone and with all. α is 0.001 over the
// number of tests (Bonferroni): were the draws right, and the seeds others, one run in a thousand would fail.
func followProbabilities(t *testing.T, dev backends.Device) {
	const n, alpha, vocabulary = 20000, 0.001, 50
	rng := rand.New(rand.NewPCG(1, 2))
	logits := make([]float32, vocabulary)
	for i := range logits {
		logits[i] = float32(2 * rng.NormFloat64())
	}
	all := []engine.Sampling{{Temperature: 1}, {Temperature: 0.5, TopK: 7}, {Temperature: 3, TypicalP: 0.6},
		{Temperature: 1, TopP: 0.7}, {Temperature: 1, MinP: 0.2},
		{Temperature: 0.8, TopK: 30, TypicalP: 0.95, TopP: 0.9, MinP: 0.02}}
	for _, o := range all {
		o.Seed = 7
		one, c := newChoices(1, vocabulary), newChoices(n, vocabulary)
		one.x = logits
		one.set(0, o, 0)
		left, err := one.left(dev)
		if err != nil {
			t.Fatal(err)
		}
		for r := range n {
			c.set(r, o, r)
		}
		tokens, err := c.drawn(dev, slices.Repeat(left, n))
		if err != nil {
			t.Fatal(err)
		}
		got, p, sum := make([]int, vocabulary), make([]float64, vocabulary), 0.0
		for _, id := range tokens {
			got[id]++
		}
		ops.FilterRow(left, logits, o.TopK, [3]float64{o.TypicalP, o.TopP, o.MinP}, c.allowed)
		for i, v := range left {
			p[i] = math.Exp(float64(v) / o.Temperature)
			sum += p[i]
		}
		for i := range p {
			p[i] *= n / sum
		}
		if q := survival(t, got, p); q < alpha/float64(len(all)) {
			t.Errorf("%+v: so far from the probabilities once in %.3g", o, 1/q)
		}
	}
}

// survival is how likely counts at least so far from what is expected are by chance, by chi-squared. What is rare is
// counted together.
func survival(t *testing.T, got []int, want []float64) float64 {
	t.Helper()
	sum, cells, rest, restWant := 0.0, 0, 0.0, 0.0
	cell := func(got, want float64) {
		sum += (got - want) * (got - want) / want
		cells++
	}
	for i, n := range got {
		switch {
		case want[i] == 0 && n > 0:
			t.Errorf("token %d came %d times, it has no probability", i, n)
		case want[i] < 8:
			rest, restWant = rest+float64(n), restWant+want[i]
		default:
			cell(float64(n), want[i])
		}
	}
	if restWant >= 8 {
		cell(rest, restWant)
	}
	return mathext.GammaIncRegComp(float64(max(1, cells-1))/2, sum/2) // of chi-squared
}
