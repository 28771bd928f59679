package engine

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/ops"
)

// TestMass: exp(−d) to nine digits, falling, down to nothing.
func TestMass(t *testing.T) {
	const one = 1 << massBits
	if m := mass(0); m != one {
		t.Fatalf("the top token has the mass %d, not %d", m, uint64(one))
	}
	before := uint64(math.MaxUint64)
	for far := uint32(0); far < farthest; far += 1 + far>>20*997 {
		want := one * math.Exp2(-float64(far)/(1<<farBits))
		m := mass(far)
		if math.Abs(float64(m)-want) > 1+2e-9*want {
			t.Fatalf("%d: mass %d, not %g", far, m, want)
		}
		if m == 0 {
			t.Fatalf("%d: no mass", far)
		}
		if m > before {
			t.Fatalf("%d: mass %d, more than %d of a nearer token", far, m, before)
		}
		before = m
	}
	for _, c := range []struct {
		top, x float32
		far    uint32
		ok     bool
	}{
		{3, 3, 0, true}, {0, float32(-math.Ln2), 1<<farBits - 1, true}, {5, 5 - 30, 0, false},
		{1, float32(math.NaN()), 0, false}, {1, float32(math.Inf(-1)), 0, false},
		{math.MaxFloat32, -math.MaxFloat32, 0, false}, {2, 1, 24204406, true},
	} {
		far, ok := farOf(float64(c.top), c.x)
		if ok != c.ok || ok && max(far, c.far)-min(far, c.far) > 1 {
			t.Errorf("from %v to %v: %d, %v; want %d, %v", c.top, c.x, far, ok, c.far, c.ok)
		}
	}
}

// TestPlaces: a place is in the order of tokens, and has them.
func TestPlaces(t *testing.T) {
	negative := math.Float32frombits(1 << 31)
	order := []candidate{{7, float32(math.Inf(1))}, {0, 3.5}, {1, 3.5}, {9, 1e-45}, {2, 0}, {3, negative}, {4, 0},
		{0, -1e-45}, {0, -3}, {math.MaxInt32, -3}, {5, -math.MaxFloat32}, {1, float32(math.Inf(-1))}}
	for i, c := range order {
		key := placeOf(c.logit, c.id)
		if got := placed(key); got.id != c.id || got.logit != c.logit {
			t.Errorf("%v comes back as %v", c, got)
		}
		if i > 0 && placeOf(order[i-1].logit, order[i-1].id) >= key {
			t.Errorf("%v is not behind %v", c, order[i-1])
		}
	}
}

// TestReach compares with sorting.
func TestReach(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 9))
	for range 5000 {
		list := make([]item, 1+r.IntN(40))
		all := uint64(0)
		for i := range list {
			list[i] = item{uint64(i) * 3, uint64(r.IntN(5))}
			all += list[i].mass
		}
		switch r.IntN(3) {
		case 0:
			slices.Reverse(list)
		case 1:
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
		need := 1 + r.Uint64N(all+3)
		sorted := slices.Clone(list)
		slices.SortFunc(sorted, func(a, b item) int { return cmp.Compare(a.key, b.key) })
		want := len(sorted)
		for i, sum := 0, uint64(0); i < len(sorted); i++ {
			if sum += sorted[i].mass; sum >= need {
				want = i + 1
				break
			}
		}
		got := reach(list, need)
		front := slices.Clone(list[:got])
		slices.SortFunc(front, func(a, b item) int { return cmp.Compare(a.key, b.key) })
		if got != want || !slices.Equal(front, sorted[:want]) {
			t.Fatalf("need %d of %v: %v, not %v", need, sorted, front, sorted[:want])
		}
	}
}

func byLikelihood(a, b candidate) int {
	return cmp.Or(cmp.Compare(b.logit, a.logit), cmp.Compare(a.id, b.id))
}

// inOrder are the tokens of logits, the most likely first.
func inOrder(logits []float32) (order []candidate) {
	for i, v := range logits {
		if v == v {
			order = append(order, candidate{int32(i), v})
		}
	}
	slices.SortFunc(order, byLikelihood)
	return order
}

// sortedChoice is the sampler without its haste: all tokens in order, filter by filter, sums one by one.
func sortedChoice(o Sampling, logits []float32, position int) (id int32, left int) {
	order := inOrder(logits)
	if o.TopK > 0 {
		order = order[:min(len(order), o.TopK)]
	}
	masses := func() (list []uint64, sum uint64) {
		for _, c := range order {
			m := uint64(0)
			if far, ok := farOf(float64(order[0].logit), c.logit); ok {
				m = mass(far)
			}
			list, sum = append(list, m), sum+m
		}
		return list, sum
	}
	share := func(p float64, sum uint64) uint64 { return min(sum, max(1, uint64(math.Ceil(p*float64(sum))))) }
	if p := o.TypicalP; p > 0 && p < 1 {
		list, all := masses()
		if none := slices.Index(list, 0); none >= 0 {
			order, list = order[:none], list[:none]
		}
		top, mean := float64(order[0].logit), new(big.Int)
		fars := make([]int64, len(order))
		by := make([]int, len(order))
		for i, c := range order {
			far, _ := farOf(top, c.logit)
			fars[i], by[i] = int64(far), i
			mean.Add(mean, new(big.Int).Mul(new(big.Int).SetUint64(list[i]), big.NewInt(fars[i])))
		}
		middle := mean.Div(mean, new(big.Int).SetUint64(all)).Int64()
		apart := func(i int) int64 { return max(fars[i]-middle, middle-fars[i]) }
		slices.SortStableFunc(by, func(a, b int) int {
			return cmp.Or(cmp.Compare(apart(a), apart(b)), cmp.Compare(fars[a], fars[b]),
				cmp.Compare(order[a].id, order[b].id))
		})
		var kept []candidate
		for i, sum := 0, uint64(0); sum < share(p, all); i++ {
			kept = append(kept, order[by[i]])
			sum += list[by[i]]
		}
		slices.SortFunc(kept, byLikelihood)
		order = kept
	}
	if p := o.TopP; p > 0 && p < 1 {
		list, all := masses()
		for i, sum := 0, uint64(0); ; i++ {
			if sum += list[i]; sum >= share(p, all) {
				order = order[:i+1]
				break
			}
		}
	}
	if p := o.MinP; p > 0 {
		top := float64(order[0].logit)
		order = order[:slices.IndexFunc(append(slices.Clone(order), candidate{0, float32(math.Inf(-1))}),
			func(c candidate) bool { return math.Exp(float64(c.logit)-top) < p })]
	}
	key, best := ops.DrawKey(o.Seed, position), math.Inf(-1)
	id = order[0].id
	for _, c := range order {
		score := 1/o.Temperature*float64(c.logit) + ops.DrawNoise(key, int(c.id))
		if score > best || score == best && c.id < id {
			id, best = c.id, score
		}
	}
	return id, len(order)
}

// someLogits are rows of many kinds: flat, peaked, with equals, with tokens that are not allowed or are never drawn.
func someLogits(r *rand.Rand) []float32 {
	x := make([]float32, 1+r.IntN(1<<(1+r.IntN(11))))
	spread, shift := math.Exp(r.NormFloat64()*3), r.NormFloat64()*20
	for i := range x {
		x[i] = float32(shift + spread*r.NormFloat64())
	}
	switch r.IntN(7) {
	case 0: // few values
		n := 1 + r.IntN(6)
		for i := range x {
			x[i] = float32(r.IntN(n)) - 1
		}
	case 1: // as bf16 has them
		for i := range x {
			x[i] = math.Float32frombits(math.Float32bits(x[i]) &^ 0xffff)
		}
	case 2: // a few likely ones
		for range min(len(x), 5) {
			x[r.IntN(len(x))] += float32(10 * spread)
		}
	case 3: // around nothing
		for i := range x {
			x[i] = float32(r.NormFloat64() * 1e-38)
		}
	}
	for i := range x {
		switch none := r.IntN(40); {
		case none == 0 && len(x)%2 == 0:
			x[i] = float32(math.Inf(-1))
		case none < 20 && len(x)%3 == 0:
			x[i] = float32(math.NaN())
		}
	}
	if len(x)%5 == 0 { // one is allowed
		for i := range x {
			x[i] = float32(math.NaN())
		}
	}
	x[r.IntN(len(x))] = float32(shift)
	return x
}

// TestChoiceIsThatOfSorting: what is selected by bins is what sorting selects, bit for bit.
func TestChoiceIsThatOfSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	shares := []float64{0, 1e-12, 0.05, 0.3, 0.5, 0.9, 0.95, 0.999, 1 - 1e-12, 1}
	some := func() float64 { return shares[max(0, r.IntN(2*len(shares))-len(shares))] }
	narrow, rows := 0, 5000
	if testfiles.Exhaustive() {
		rows = 20000
	}
	for i := range rows {
		logits := someLogits(r)
		o := Sampling{Temperature: math.Exp(r.NormFloat64()), Seed: r.Uint64(), TopP: some(), TypicalP: some(), MinP: some()}
		if r.IntN(3) == 0 {
			o.TopK = 1 + r.IntN(1<<r.IntN(9))
		}
		position := r.IntN(1000)
		s, work := NewSampler(o), slices.Clone(logits)
		want, left := sortedChoice(o, logits, position)
		got, err := s.Sample(work, make([]int32, position))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("row %d of %d logits, %+v: token %d, by sorting %d of %d", i, len(logits), o, got, want, left)
		}
		if 1 < left && left < len(logits)/2 {
			narrow++
		}
		if chosen, err := s.Choose(work, make([]int32, position), nil, 3); err != nil || chosen.ID != want {
			t.Fatalf("row %d: with log-probabilities token %d, %v; without %d", i, chosen.ID, err, want)
		}
		if o.TopK == 0 {
			continue
		}
		best := inOrder(logits)
		if got := s.among(best[:min(len(best), o.TopK+r.IntN(9))], position); got != want {
			t.Fatalf("row %d: among the best %d, among all %d", i, got, want)
		}
	}
	if narrow < rows/10 {
		t.Errorf("only %d rows had a filter that left some of many", narrow)
	}
}

// TestManyInABin: rows whose tokens are so alike that a bin holds them all, down to those that are the same.
func TestManyInABin(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 9))
	for _, spread := range []float64{1e-2, 1e-4, 1e-6, 1e-8, 0} {
		logits := make([]float32, 20000)
		for i := range logits {
			logits[i] = float32(1 + spread*r.NormFloat64())
		}
		for _, o := range []Sampling{{TopP: 0.3}, {TopP: 0.9}, {TypicalP: 0.3}, {TypicalP: 0.9}, {TypicalP: 0.7, TopP: 0.1}} {
			o.Temperature, o.Seed = 0.1, 5
			positions := 5
			if !testfiles.Exhaustive() {
				positions = 1
			}
			for position := range positions {
				want, _ := sortedChoice(o, logits, position)
				if got, err := NewSampler(o).Sample(logits, make([]int32, position)); got != want || err != nil {
					t.Errorf("%+v, spread %g: %d, %v; by sorting %d", o, spread, got, err, want)
				}
			}
		}
	}
}

// TestNucleusOfReals: the nucleus is that of probabilities in float64, wherever p is further than their rounding from a
// sum.
func TestNucleusOfReals(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	m, compared := new(room), 0
	for range 3000 {
		logits := someLogits(r)
		top := logits[largest(logits)]
		p := r.Float64()
		order, all := inOrder(logits), 0.0
		for _, c := range order {
			all += math.Exp(float64(c.logit) - float64(top))
		}
		var want candidate
		near := false
		for i, sum := 0, 0.0; ; i++ {
			sum += math.Exp(float64(order[i].logit) - float64(top))
			near = near || math.Abs(sum-p*all) < 1e-7*all
			if sum >= p*all {
				want = order[i]
				break
			}
		}
		if near {
			continue
		}
		compared++
		m.of = nil
		if got := placed(m.nucleus(tokens{x: logits}, top, p)); got != want {
			t.Fatalf("%d logits, p %g: ends with %v, of reals with %v", len(logits), p, got, want)
		}
	}
	if compared < 2500 {
		t.Errorf("only %d of 3000 rows were compared", compared)
	}
}

// TestLeastOf: the least logit that min-p leaves.
func TestLeastOf(t *testing.T) {
	for _, top := range []float32{-30, -1, 0, 1e-40, 0.1, 3, 12, 1e30} {
		for _, p := range []float64{1e-300, 1e-9, 0.05, 0.5, 1} {
			v := leastOf(top, p)
			below := math.Nextafter32(v, float32(math.Inf(-1)))
			is := func(v float32) bool { return math.Exp(float64(v)-float64(top)) >= p }
			if !is(v) || is(below) {
				t.Errorf("top %g, p %g: %g is %v, %g is %v", top, p, v, is(v), below, is(below))
			}
		}
	}
}

// TestWords: a row's words are Philox's of position and quad, by the seed.
func TestWords(t *testing.T) {
	for _, seed := range []uint64{0, 1, 1 << 40, math.MaxUint64} {
		for _, position := range []int{0, 7, 1 << 33} {
			key := ops.DrawKey(seed, position)
			words := ops.NewDrawWords(key)
			for _, quad := range []uint32{0, 1, 2, 37983, 1 << 20} {
				a, b, c, d := words.Of(quad)
				want := ops.Philox([4]uint32{uint32(position), uint32(position >> 32), quad, 1},
					[2]uint32{uint32(seed), uint32(seed >> 32)})
				if got := [4]uint32{a, b, c, d}; got != want {
					t.Errorf("%s: %x, not %x", fmt.Sprint(seed, position, quad), got, want)
				}
			}
		}
	}
}
