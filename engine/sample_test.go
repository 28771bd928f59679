package engine

import (
	"math"
	"testing"
)

func sampleOnce(t *testing.T, opt Sampling, logits []float32, recent ...int32) int32 {
	t.Helper()
	id, err := NewSampler(opt).Sample(append([]float32(nil), logits...), recent)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestGreedy(t *testing.T) {
	nan := float32(math.NaN())
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		logits []float32
		want   int32
	}{
		{[]float32{1, 3, 2}, 1},
		{[]float32{2, 5, 5}, 1}, // the lower id of equals
		{[]float32{nan, -3, nan, -2}, 3},
		{[]float32{-inf, -inf}, 0},
		{[]float32{0, inf, 1}, 1},
	} {
		if got := sampleOnce(t, Sampling{}, c.logits); got != c.want {
			t.Errorf("%v: token %d, not %d", c.logits, got, c.want)
		}
	}
	if _, err := NewSampler(Sampling{}).Sample([]float32{nan, nan}, nil); err == nil {
		t.Error("a token was chosen from logits none of which is a number")
	}
}

func TestRepeatPenalty(t *testing.T) {
	opt := Sampling{RepeatPenalty: 2}
	if got := sampleOnce(t, opt, []float32{1, 3, 2}, 1); got != 2 {
		t.Errorf("3/2 is less than 2, but token %d was chosen", got)
	}
	if got := sampleOnce(t, opt, []float32{-1, -0.8, -5}, 1); got != 0 {
		t.Errorf("-0.8*2 is less than -1, but token %d was chosen", got)
	}
	if got := sampleOnce(t, Sampling{RepeatPenalty: 2, RepeatLast: 1}, []float32{1, 3, 2}, 1, 0); got != 1 {
		t.Errorf("token 1 is out of the penalty's reach, but %d was chosen", got)
	}
	if got := sampleOnce(t, opt, []float32{1, 3, 2}, -5, 99); got != 1 {
		t.Errorf("tokens outside the vocabulary must not matter, but %d was chosen", got)
	}
}

// TestDrawsFollowProbabilities draws often and compares with the softmax.
func TestDrawsFollowProbabilities(t *testing.T) {
	logits := []float32{0, 1, 2, -1}
	const n = 40000
	for _, c := range []struct {
		name string
		opt  Sampling
		keep []bool
	}{
		{"all", Sampling{Temperature: 1}, []bool{true, true, true, true}},
		{"cool", Sampling{Temperature: 0.5}, []bool{true, true, true, true}},
		{"top-k", Sampling{Temperature: 1, TopK: 2}, []bool{false, true, true, false}},
		{"top-p", Sampling{Temperature: 1, TopP: 0.7}, []bool{false, true, true, false}},
		{"min-p", Sampling{Temperature: 1, MinP: 0.2}, []bool{false, true, true, false}},
	} {
		var want [4]float64
		sum := 0.0
		for i, v := range logits {
			if c.keep[i] {
				want[i] = math.Exp(float64(v) / c.opt.Temperature)
				sum += want[i]
			}
		}
		c.opt.Seed = 5
		s := NewSampler(c.opt)
		var got [4]float64
		for range n {
			id, err := s.Sample(logits, nil)
			if err != nil {
				t.Fatal(err)
			}
			got[id]++
		}
		for i := range want {
			p := want[i] / sum
			if dev := math.Abs(got[i]/n - p); dev > 5*math.Sqrt(p*(1-p)/n)+1e-9 {
				t.Errorf("%s: token %d came with %.4f, its probability is %.4f", c.name, i, got[i]/n, p)
			}
		}
	}
}

func TestSeedsDecide(t *testing.T) {
	logits := make([]float32, 100)
	draw := func(seed uint64) (ids [20]int32) {
		s := NewSampler(Sampling{Temperature: 1, Seed: seed})
		for i := range ids {
			ids[i], _ = s.Sample(logits, nil)
		}
		return ids
	}
	first, again := draw(1), draw(1)
	if first != again {
		t.Error("one seed gives two sequences")
	}
	if first == draw(2) {
		t.Error("two seeds give one sequence")
	}
}

func TestSamplingIsValidated(t *testing.T) {
	for _, bad := range []Sampling{
		{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)}, {TopK: -1}, {TopP: 1.1}, {TopP: math.NaN()},
		{MinP: -0.1}, {RepeatPenalty: -2}, {RepeatLast: -1},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	if err := (Sampling{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1}).Validate(); err != nil {
		t.Error(err)
	}
}
