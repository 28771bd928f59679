// Package stats says what samples of a time amount to: the median with its 95 %
// interval, and percentiles where there are samples enough for them.
package stats

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Confidence is the level of all intervals.
const Confidence = 0.95

// Summary is what is printed of samples. Its unit is theirs.
type Summary struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	// Lo and Hi enclose the median with 95 % confidence, by order statistics:
	// no distribution is assumed. Fewer than six samples cannot give that; then
	// they are the range, and Sure is false.
	Lo     float64 `json:"lo"`
	Hi     float64 `json:"hi"`
	Sure   bool    `json:"sure"`
	Mean   float64 `json:"mean"`
	Stddev float64 `json:"stddev"` // of the sample (n-1); 0 for one
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize describes samples in any order, which it leaves as they are. All
// figures are 0 without samples.
func Summarize(samples []float64) Summary {
	n := len(samples)
	if n == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	s := Summary{N: n, Min: sorted[0], Max: sorted[n-1]}
	for _, x := range sorted {
		s.Mean += x / float64(n)
	}
	if n > 1 {
		sum := 0.0
		for _, x := range sorted {
			sum += (x - s.Mean) * (x - s.Mean)
		}
		s.Stddev = math.Sqrt(sum / float64(n-1))
	}
	m := benchmath.AssumeNothing.Summary(benchmath.NewSample(sorted, &benchmath.DefaultThresholds), Confidence)
	s.Median, s.Lo, s.Hi, s.Sure = m.Center, m.Lo, m.Hi, true
	if math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		s.Lo, s.Hi, s.Sure = s.Min, s.Max, false
	}
	return s
}

// Need is the number of samples from which on quantile q, between 0 and 1, is
// more than a guess at the extremes: one sample at least must be expected
// beyond it. That is 100 for the 99th percentile and 20 for the 95th.
func Need(q float64) int { return int(math.Ceil(1/min(q, 1-q) - 1e-9)) }

// Percentile gives quantile q of samples in any order, 0.95 for the 95th
// percentile, by linear interpolation between neighbours (Hyndman and Fan's
// type 7). It refuses fewer samples than Need says. Samples are times:
// percentiles of a throughput are not what they seem, since its slow end is
// the low one.
func Percentile(samples []float64, q float64) (float64, error) {
	if !(q > 0 && q < 1) {
		return 0, fmt.Errorf("percentile %g: it must lie between 0 and 1, as 0.95 does", q)
	}
	if n := len(samples); n < Need(q) {
		return 0, fmt.Errorf("the %gth percentile needs %d samples at least, there are %d", math.Round(1e6*q)/1e4, Need(q), n)
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i >= len(sorted)-1 {
		return sorted[len(sorted)-1], nil
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i]), nil
}
