package guard

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"
)

// TestSeries takes samples whose times fall, as a card's whose clocks rise: those with a trend are warm-up, and where
// it does not end it is told.
func TestSeries(t *testing.T) {
	steps := []float64{1, 1.004, 0.998, 1.002, 0.996, 1.001, 0.999, 1.003} // no trend
	for _, c := range []struct {
		name  string
		time  func(i int) float64
		trend bool
		most  int // samples that are taken
		below float64
	}{
		{"steady", func(i int) float64 { return steps[i%8] }, false, 8, 1.01},
		{"falls at first", func(i int) float64 { return steps[i%8] + 0.1*max(0, 1-float64(i)/8) }, false, 24, 1.03},
		{"falls all the time", func(i int) float64 { return math.Pow(0.97, float64(i)) }, true, 40, 1},
		{"falls by a hundredth", func(i int) float64 { return 1 - 0.001*float64(i) }, false, 8, 1},
	} {
		taken := 0
		var kept []float64
		trend, err := Series{Least: 8}.Take(t.Context(), func() error {
			kept = append(kept, c.time(taken))
			taken++
			return nil
		}, func() [][]float64 { return [][]float64{kept} }, func(n int) { kept = kept[n:] })
		if err != nil || (trend != 0) != c.trend || taken > c.most || len(kept) != 8 {
			t.Errorf("%s: trend %g after %d samples, of which %d are kept, %v", c.name, trend, taken, len(kept), err)
		}
		for _, x := range kept {
			if x > c.below {
				t.Errorf("%s: %v is kept", c.name, kept)
				break
			}
		}
	}
	broken := errors.New("lost")
	if _, err := (Series{Least: 2}).Take(t.Context(), func() error { return broken }, nil, nil); !errors.Is(err, broken) {
		t.Errorf("a sample that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (Series{Least: 2}).Take(ctx, func() error { return nil }, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	n := 0
	_, err := Series{Least: 5, Most: time.Nanosecond}.Take(t.Context(), func() error {
		n++
		return nil
	}, func() [][]float64 { return nil }, func(int) {})
	if err != nil || n != 1 {
		t.Errorf("no time: %d samples, %v", n, err)
	}
}

// TestRaise: a roof that a result passes is measured again.
func TestRaise(t *testing.T) {
	r := good()
	r.Samples, r.Bytes, r.Flops = []float64{1e-3}, 30e6, 0 // 30 GB/s
	r.Roofs.MeasuredReadGBs = 12
	rates := []float64{10, 20, 31, 99}
	if err := Raise(r, func() (float64, float64, error) {
		gbs := rates[0]
		rates = rates[1:]
		return gbs, 0, nil
	}); err != nil || r.Roofs.MeasuredReadGBs != 31 || len(rates) != 1 {
		t.Errorf("%v, the roof is %g and %v were not asked for", err, r.Roofs.MeasuredReadGBs, rates)
	}
}
