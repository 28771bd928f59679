package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/greta-project/greta/ops"

	"gonum.org/v1/gonum/mathext"
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

// wanted is the distribution that options stand for, computed the plain way.
// In one piece: a step a rule, in the order in which the rules apply.
func wanted(o Sampling, logits []float32, recent []int32, allowed func(int) bool) []float64 {
	n := len(logits)
	x := make([]float64, n)
	for i, v := range logits {
		x[i] = float64(v)
	}
	last := o.RepeatLast
	if last == 0 {
		last = 64
	}
	count := map[int32]int{}
	for _, t := range recent[max(0, len(recent)-last):] {
		count[t]++
	}
	for t, c := range count {
		if p := o.RepeatPenalty; p != 0 && x[t] > 0 {
			x[t] /= p
		} else if p != 0 {
			x[t] *= p
		}
		x[t] -= float64(c)*o.FrequencyPenalty + o.PresencePenalty
	}
	for t, b := range o.LogitBias {
		x[t] += float64(b)
	}
	order := make([]int, 0, n)
	for i := range x {
		if allowed == nil || allowed(i) {
			order = append(order, i)
		}
	}
	sort.SliceStable(order, func(a, b int) bool { return x[order[a]] > x[order[b]] })
	if o.TopK > 0 && o.TopK < len(order) {
		order = order[:o.TopK]
	}
	softmax := func(t float64) []float64 {
		p, sum := make([]float64, len(order)), 0.0
		for i, id := range order {
			p[i] = math.Exp((x[id] - x[order[0]]) / t)
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	if o.TypicalP > 0 && o.TypicalP < 1 {
		p := softmax(1)
		h := 0.0
		for _, q := range p {
			h -= q * math.Log(q)
		}
		by := make([]int, len(p))
		for i := range by {
			by[i] = i
		}
		sort.SliceStable(by, func(a, b int) bool { return math.Abs(-math.Log(p[by[a]])-h) < math.Abs(-math.Log(p[by[b]])-h) })
		keep := map[int]bool{}
		for i, sum := 0, 0.0; i < len(by) && sum < o.TypicalP; i++ {
			keep[order[by[i]]] = true
			sum += p[by[i]]
		}
		order = slices.DeleteFunc(order, func(id int) bool { return !keep[id] })
	}
	if o.TopP > 0 && o.TopP < 1 {
		sum := 0.0
		for i, q := range softmax(1) {
			if sum += q; sum >= o.TopP {
				order = order[:i+1]
				break
			}
		}
	}
	for i, id := range order {
		if math.Exp(x[id]-x[order[0]]) < o.MinP {
			order = order[:i]
			break
		}
	}
	out := make([]float64, n)
	for i, q := range softmax(o.Temperature) {
		out[order[i]] = q
	}
	return out
}

// chiSquared says how likely counts so far from the distribution are by chance. A token of no
// probability that came is an error by itself. Rare tokens are counted together.
func chiSquared(t *testing.T, name string, got []int, p []float64) float64 {
	t.Helper()
	n := 0
	for _, c := range got {
		n += c
	}
	sum, cells := 0.0, 0
	restGot, restP := 0, 0.0
	cell := func(got int, p float64) {
		want := p * float64(n)
		sum += (float64(got) - want) * (float64(got) - want) / want
		cells++
	}
	for i, c := range got {
		switch {
		case p[i] == 0 && c > 0:
			t.Errorf("%s: token %d came %d times, it has no probability", name, i, c)
		case p[i]*float64(n) < 8:
			restGot, restP = restGot+c, restP+p[i]
		default:
			cell(c, p[i])
		}
	}
	if restP*float64(n) >= 8 {
		cell(restGot, restP)
	}
	if cells < 2 {
		return 1
	}
	return mathext.GammaIncRegComp(float64(cells-1)/2, sum/2) // of chi-squared
}

// samplings are option sets that use each option alone and all together.
var samplings = map[string]Sampling{
	"all":       {Temperature: 1},
	"cool":      {Temperature: 0.5},
	"hot":       {Temperature: 3},
	"top-k":     {Temperature: 1, TopK: 7},
	"top-p":     {Temperature: 1, TopP: 0.7},
	"min-p":     {Temperature: 1, MinP: 0.2},
	"typical":   {Temperature: 1, TypicalP: 0.6},
	"repeat":    {Temperature: 1, RepeatPenalty: 1.7},
	"frequency": {Temperature: 1, FrequencyPenalty: 0.4},
	"presence":  {Temperature: 1, PresencePenalty: -0.8, RepeatLast: 3},
	"bias":      {Temperature: 1, LogitBias: map[int32]float32{0: 3, 5: -2, 7: float32(math.Inf(-1))}},
	"together": {Temperature: 0.8, TopK: 30, TypicalP: 0.95, TopP: 0.9, MinP: 0.02, RepeatPenalty: 1.2,
		FrequencyPenalty: 0.1,
		PresencePenalty:  0.2, LogitBias: map[int32]float32{1: 1}},
}

// TestDrawsFollowProbabilities draws at many positions and compares with the distribution by
// chi-squared. α is 0.001 divided by the number of tests (Bonferroni): were the draws right, and the seeds others,
// one run in a thousand would fail.
func TestDrawsFollowProbabilities(t *testing.T) {
	const n, alpha = 20000, 0.001
	logits := make([]float32, 50)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range logits {
		logits[i] = float32(r.NormFloat64() * 2)
	}
	bits := []uint32{0xfffff0f5, 0x0001ffff}
	masks := map[string][]uint32{"free": nil, "masked": bits}
	for name, o := range samplings {
		for kind, mask := range masks {
			o.Seed = 7
			s := NewSampler(o)
			got := make([]int, len(logits))
			work := make([]float32, len(logits))
			for i := range n {
				copy(work, logits)
				id, err := s.Masked(work, withLength(64+i), mask)
				if err != nil {
					t.Fatal(err)
				}
				got[id]++
			}
			var allowed func(int) bool
			if mask != nil {
				allowed = func(i int) bool { return mask[i/32]>>(i%32)&1 == 1 }
			}
			p := wanted(o, logits, withLength(64), allowed)
			if bias, ok := o.LogitBias[7]; ok && math.IsInf(float64(bias), -1) && p[7] != 0 {
				t.Fatal("the test's own distribution is wrong")
			}
			if q := chiSquared(t, name+" "+kind, got, p); q < alpha/float64(2*len(samplings)) {
				t.Errorf("%s, %s: so far from the distribution once in %.3g", name, kind, 1/q)
			}
		}
	}
}

// withLength is a past of n tokens of which the last 64 are always the same.
func withLength(n int) []int32 {
	if len(longPast) < n {
		longPast = make([]int32, 1<<16)
	}
	p := longPast[:n]
	for i := range min(n, 64) {
		p[n-1-i] = int32([]int{3, 3, 9, 14, 20}[i%5])
	}
	return p
}

var longPast []int32

func TestSeedsAndPositionsDecide(t *testing.T) {
	logits := make([]float32, 100)
	past := make([]int32, 20)
	draw := func(seed uint64, order []int) (ids [20]int32) {
		s := NewSampler(Sampling{Temperature: 1, Seed: seed})
		for _, i := range order {
			ids[i], _ = s.Sample(logits, past[:i])
		}
		return ids
	}
	order := make([]int, 20)
	for i := range order {
		order[i] = i
	}
	first := draw(1, order)
	slices.Reverse(order)
	if first != draw(1, order) {
		t.Error("a token depends on when it is drawn")
	}
	if first == draw(2, order) {
		t.Error("two seeds give one sequence")
	}
	a, b := Sampling{Seed: 1}.Choice(0), Sampling{Seed: 1}.Choice(1)
	if a.Seed != 1 || b.Seed == 1 || b.Seed == (Sampling{Seed: 1}).Choice(2).Seed ||
		b.Seed == (Sampling{Seed: 2}).Choice(1).Seed {
		t.Error("choices share seeds")
	}
}

// TestPhilox has the known answers of the generator's authors (Random123, kat_vectors).
func TestPhilox(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{1<<32 - 1, 1<<32 - 1, 1<<32 - 1, 1<<32 - 1}, [2]uint32{1<<32 - 1, 1<<32 - 1},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := ops.Philox(c.counter, c.key); got != c.want {
			t.Errorf("%x: %x, not %x", c.counter, got, c.want)
		}
	}
}

// TestLogprobs: what the model thought, before any option.
func TestLogprobs(t *testing.T) {
	logits := []float32{1, 3, 2, 3, -1}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v))
	}
	s := NewSampler(Sampling{LogitBias: map[int32]float32{4: 100}, RepeatPenalty: 2})
	got, err := s.Choose(slices.Clone(logits), []int32{1}, nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	ids := []int32{}
	for _, c := range append(slices.Clone(got.Top), got.TokenLogprob) {
		ids = append(ids, c.ID)
		if want := float64(logits[c.ID]) - math.Log(sum); math.Abs(float64(c.Logprob)-want) > 1e-6 {
			t.Errorf("token %d has %v, not %v", c.ID, c.Logprob, want)
		}
	}
	if !slices.Equal(ids, []int32{1, 3, 2, 4}) {
		t.Errorf("the best three and the chosen are %v", ids)
	}
	if got, err := s.Choose(slices.Clone(logits), nil, []uint32{1 << 2}, 0); err != nil || got.ID != 2 ||
		len(got.Top) != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNothingAllowed(t *testing.T) {
	for _, allowed := range [][]uint32{{0}, {}, {8}} {
		if id, err := NewSampler(Sampling{Temperature: 1}).Masked([]float32{1, 2, 3}, nil, allowed); err == nil {
			t.Errorf("mask %b let %d through", allowed, id)
		}
	}
}

// TestNoAllocationAToken, whatever the options.
func TestNoAllocationAToken(t *testing.T) {
	logits, work := make([]float32, 1000), make([]float32, 1000)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range logits {
		logits[i] = float32(r.NormFloat64())
	}
	mask := make([]uint32, 32)
	for i := range mask {
		mask[i] = 0x55555555
	}
	past := make([]int32, 100)
	for name, o := range samplings {
		s := NewSampler(o)
		if n := testing.AllocsPerRun(50, func() {
			copy(work, logits)
			if _, err := s.Choose(work, past, mask, 5); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: a token allocates %v times", name, n)
		}
	}
}

// TestAmongIsSample: drawing from the k best that a device gives is drawing from all.
func TestAmongIsSample(t *testing.T) {
	logits := make([]float32, 300)
	r := rand.New(rand.NewPCG(5, 6))
	for i := range logits {
		logits[i] = float32(r.IntN(40)) / 8 // with equals
	}
	o := Sampling{Temperature: 0.9, TopK: 20, TopP: 0.9, TypicalP: 0.9, MinP: 0.01, Seed: 3}
	order := make([]candidate, len(logits))
	for i, v := range logits {
		order[i] = candidate{int32(i), v}
	}
	sort.SliceStable(order, func(a, b int) bool { return order[a].logit > order[b].logit })
	a, b := NewSampler(o), NewSampler(o)
	past := make([]int32, 1000)
	for i := range past {
		want, err := a.Sample(logits, past[:i])
		if err != nil {
			t.Fatal(err)
		}
		if got := b.among(order[:20], i); got != want {
			t.Fatalf("position %d: %d from the best, %d from all", i, got, want)
		}
	}
}

func TestSamplingIsValidated(t *testing.T) {
	for _, bad := range []Sampling{
		{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)}, {TopK: -1}, {TopP: 1.1}, {TopP: math.NaN()},
		{MinP: -0.1}, {RepeatPenalty: -2}, {RepeatLast: -1}, {TypicalP: 2}, {FrequencyPenalty: math.Inf(1)},
		{PresencePenalty: math.NaN()},
		{LogitBias: map[int32]float32{1: float32(math.Inf(1))}}, {LogitBias: map[int32]float32{-1: 1}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
	if err := (Sampling{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, RepeatPenalty: 1.1}).Validate(); err != nil {
		t.Error(err)
	}
}

// TestGreatest: the first of the largest, and no answer where a logit is no finite number.
func TestGreatest(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		x    []float32
		want int32
		ok   bool
	}{
		{nil, 0, false}, {[]float32{-3}, 0, true}, {[]float32{-3, -2, -2, -5}, 1, true},
		{[]float32{0, math.MaxFloat32, 1}, 1, true}, {[]float32{1, nan}, 0, false}, {[]float32{nan, 1}, 0, false},
		{[]float32{1, inf}, 0, false}, {[]float32{1, -inf}, 0, false}, {[]float32{-inf, 1}, 0, false},
		{[]float32{-math.MaxFloat32, -math.MaxFloat32}, 0, true},
	} {
		at, ok := greatest(c.x)
		if ok != c.ok || ok && at != c.want {
			t.Errorf("greatest(%v) = %d, %v; want %d, %v", c.x, at, ok, c.want, c.ok)
		}
	}
}

// TestHardlyAnyTemperature: where one over it is no number any more the most likely token is chosen.
func TestHardlyAnyTemperature(t *testing.T) {
	for _, o := range []Sampling{{}, {TopP: 0.9}, {TopK: 2}, {TypicalP: 0.99}, {MinP: 0.01}} {
		for _, o.Temperature = range []float64{5e-324, 1e-310, 1e-300, 1e-30} {
			for _, logits := range [][]float32{{-1, 0}, {-3, -2, -4}, {4, 5}, {0, 0.5, 0, 0, 0, 1}} {
				if got, want := sampleOnce(t, o, logits), largest(logits); got != want {
					t.Errorf("%+v, %v: token %d, not %d", o, logits, got, want)
				}
			}
		}
	}
}
