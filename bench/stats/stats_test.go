package stats

import (
	"math"
	"slices"
	"testing"
)

func TestSummarize(t *testing.T) {
	in := []float64{5, 1, 4, 2, 3, 6, 9, 8, 7}
	given := slices.Clone(in)
	s := Summarize(in)
	if !slices.Equal(in, given) {
		t.Error("the samples were changed")
	}
	// Of nine, the second and the eighth enclose the median with 1 - 2·10/512 = 96 %.
	want := Summary{N: 9, Median: 5, Lo: 2, Hi: 8, Sure: true, Mean: 5, Stddev: math.Sqrt(60. / 8), Min: 1, Max: 9}
	s.Stddev, want.Stddev = math.Round(1e9*s.Stddev), math.Round(1e9*want.Stddev)
	s.Mean = math.Round(1e9*s.Mean) / 1e9
	if s != want {
		t.Errorf("%+v, expected %+v", s, want)
	}
	few := Summarize([]float64{3, 1, 2})
	if few.Sure || few.Lo != 1 || few.Hi != 3 || few.Median != 2 {
		t.Errorf("three samples give %+v: a range, and not sure, is expected", few)
	}
	if one := Summarize([]float64{2}); one.Stddev != 0 || one.Median != 2 || one.Lo != 2 {
		t.Errorf("one sample gives %+v", one)
	}
	if none := Summarize(nil); none != (Summary{}) {
		t.Errorf("no samples give %+v", none)
	}
}

// TestIntervalCovers draws from a skewed distribution: the interval must hold
// the true median in 95 of 100 cases, not much less.
func TestIntervalCovers(t *testing.T) {
	const trials = 2000
	seed, held := uint64(1), 0
	draw := func() float64 { // exponential: its median is ln 2
		seed = seed*6364136223846793005 + 1442695040888963407
		return -math.Log((float64(seed>>11) + 0.5) / (1 << 53))
	}
	for range trials {
		samples := make([]float64, 15)
		for i := range samples {
			samples[i] = draw()
		}
		if s := Summarize(samples); s.Lo <= math.Ln2 && math.Ln2 <= s.Hi {
			held++
		}
	}
	if held < trials*94/100 {
		t.Errorf("the interval held the median in %d of %d cases", held, trials)
	}
}

func TestPercentilesRefuseSmallN(t *testing.T) {
	samples := make([]float64, 1000)
	for i := range samples {
		samples[i] = float64(1000 - i)
	}
	for _, c := range []struct {
		q    float64
		need int
		want float64 // of the smallest number that is let through
	}{{0.99, 100, 0}, {0.95, 20, 0}, {0.05, 20, 0}, {0.5, 2, 0}, {0.999, 1000, 999.001}} {
		if _, err := Percentile(samples[:c.need-1], c.q); err == nil {
			t.Errorf("percentile %g of %d samples was given", c.q, c.need-1)
		}
		got, err := Percentile(samples[:c.need], c.q)
		if err != nil {
			t.Errorf("percentile %g of %d samples: %v", c.q, c.need, err)
		}
		if c.want != 0 && math.Abs(got-c.want) > 1e-9 {
			t.Errorf("percentile %g is %v, expected %v", c.q, got, c.want)
		}
	}
	for _, q := range []float64{0, 1, -1, 95, math.NaN()} {
		if _, err := Percentile(samples, q); err == nil {
			t.Errorf("percentile %g was given", q)
		}
	}
	if got, _ := Percentile([]float64{1, 2, 3, 4}, 0.5); got != 2.5 {
		t.Errorf("the median of 1 to 4 is %g", got)
	}
}
