package guard

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/greta-project/greta/bench/record"
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

// TestRaise: a roof that a result passes is measured again; what stays above it is refused, unless it writes and
// lies above by no more than writing explains.
func TestRaise(t *testing.T) {
	for _, c := range []struct {
		name    string
		rates   []float64 // as they are measured; the last one stays
		pieces  float64   // times that, its fastest ones
		written float64
		roof    float64
		asked   int
		verdict record.Verdict
	}{
		{"raised", []float64{10, 20, 31, 99}, 1, 0, 31, 3, ""},
		{"within the spread", []float64{29.5}, 1, 0, 29.5, 1, ""},
		{"held up, but for some pieces", []float64{9, 9, 9, 9, 25}, 2, 0, 50, 5, ""},
		{"above", []float64{29}, 1, 0, 29, 5, record.Refused},
		{"written", []float64{22}, 1, 10e6, 22, 5, ""},
		{"more than is written", []float64{19}, 1, 10e6, 19, 5, record.Refused},
	} {
		r := good()
		r.Samples, r.Bytes, r.Flops, r.Verdict = []float64{1e-3}, 30e6, 0, "" // 30 GB/s
		r.Roofs.MeasuredReadGBs = 12
		asked := 0
		err := Raise(r, c.written, func() (Limits, error) {
			asked++
			rate := c.rates[min(asked, len(c.rates))-1]
			return Limits{ReadGBs: rate, BestReadGBs: c.pieces * rate}, nil
		})
		if err != nil || r.Roofs.MeasuredReadGBs != c.roof || asked != c.asked || r.Verdict != c.verdict ||
			(r.Verdict == record.Refused) != strings.Contains(r.Reason, "more than the roof") {
			t.Errorf("%s: %v, the roof is %g, asked %d times, %q: %s", c.name, err, r.Roofs.MeasuredReadGBs, asked, r.Verdict,
				r.Reason)
		}
	}
}
