package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestTrend(t *testing.T) {
	for _, c := range []struct {
		name    string
		samples []float64
		rise, p float64
	}{
		{"none", nil, 0, 1},
		{"one", []float64{3}, 0, 1},
		{"all alike", []float64{2, 2, 2, 2, 2, 2}, 0, 1},
		{"five that fall", []float64{5, 4.5, 4, 3.5, 3}, -0.5, 2.0 / 120}, // two of 5! orders
		{"four that rise", []float64{1, 2, 3, 4}, 3 / 2.5, 2.0 / 24},
		{"five, two of them changed", []float64{1, 2, 3, 5, 4}, 4.0 / 3, 10.0 / 120}, // 1 + 4 orders either way
		{"up and down", []float64{1, 3, 2, 4, 1, 3, 2, 4}, math.NaN(), 0.3},
	} {
		rise, p := Trend(c.samples)
		if math.IsNaN(c.rise) {
			if p < c.p {
				t.Errorf("%s: p %g", c.name, p)
			}
			continue
		}
		if math.Abs(rise-c.rise) > 1e-9 || math.Abs(p-c.p) > 1e-9 {
			t.Errorf("%s: rise %g, p %g; want %g, %g", c.name, rise, p, c.rise, c.p)
		}
	}
	// Of series without a trend about as many have a small p as that says.
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{6, 12, 30, 100} {
		found := 0
		for range 500 {
			x := make([]float64, n)
			for i := range x {
				x[i] = 1 + 0.02*rng.NormFloat64()
			}
			if _, p := Trend(x); p < 0.05 {
				found++
			}
		}
		if found < 5 || found > 40 {
			t.Errorf("%d samples: %d of 500 series without a trend have p < 0.05", n, found)
		}
	}
	falls := make([]float64, 12) // as a card's clocks rise
	for i := range falls {
		falls[i] = 15.3 - 1.6*float64(i)/11 + 0.05*rng.NormFloat64()
	}
	if rise, p := Trend(falls); p > 1e-5 || rise > -0.08 || rise < -0.14 {
		t.Errorf("15.3 to 13.7 ms: rise %g, p %g", rise, p)
	}
}
