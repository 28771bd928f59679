package report

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mathext"
)

// minP95 and minP99 are the numbers of samples below which a percentile says nothing: those in
// which one lies beyond it.
const minP95, minP99 = 20, 100

// Percentile gives quantile p in [0, 1] of sorted samples by linear
// interpolation between the two nearest (Hyndman and Fan's type 7); NaN
// without samples.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Median of samples in any order; NaN without samples.
func Median(samples []float64) float64 {
	return Percentile(slices.Sorted(slices.Values(samples)), 0.5)
}

// Interval gives the bounds of a 95 % confidence interval of the median by
// order statistics: it assumes no distribution. Fewer than six samples cannot
// give 95 %; then it is their range, and sure is false.
func Interval(samples []float64) (low, high float64, sure bool) {
	s := slices.Sorted(slices.Values(samples))
	n := len(s)
	if n == 0 {
		return math.NaN(), math.NaN(), false
	}
	// The k-th smallest and k-th largest enclose the median with probability
	// 1 - 2·P(Binomial(n, ½) < k).
	k := 0
	for k < n/2 && 2*mathext.RegIncBeta(float64(n-k), float64(k+1), 0.5) <= 0.05 {
		k++
	}
	if k == 0 {
		return s[0], s[n-1], false
	}
	return s[k-1], s[n-k], true
}

// Times are percentiles of durations, in milliseconds where a key does not name its unit.
type Times struct {
	N   int      `json:"n"`
	P50 *float64 `json:"p50"`
	P95 *float64 `json:"p95"` // null below 20 samples
	P99 *float64 `json:"p99"` // null below 100 samples
}

// NewTimes computes the percentiles of samples.
func NewTimes(samples []time.Duration) Times {
	return newTimes(Millis(samples))
}

// newTimes sorts the samples.
func newTimes(samples []float64) Times {
	t := Times{N: len(samples)}
	if t.N == 0 {
		return t
	}
	slices.Sort(samples)
	at := func(p float64) *float64 { v := Percentile(samples, p); return &v }
	t.P50 = at(0.5)
	if t.N >= minP95 {
		t.P95 = at(0.95)
	}
	if t.N >= minP99 {
		t.P99 = at(0.99)
	}
	return t
}

// SetHost notes what the host did for each decode step: until it was submitted, and
// in all but waiting for the device. Nothing is noted without steps.
func (r *Report) SetHost(submit, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	micros := func(d []time.Duration) *Times {
		us := Millis(d)
		for i := range us {
			us[i] *= 1e3
		}
		t := newTimes(us)
		return &t
	}
	r.SubmitUS, r.HostUS = micros(submit), micros(all)
}

// Millis gives durations as milliseconds.
func Millis(d []time.Duration) []float64 {
	ms := make([]float64, len(d))
	for i, v := range d {
		ms[i] = MS(v)
	}
	return ms
}

// MS is a duration in milliseconds.
func MS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
