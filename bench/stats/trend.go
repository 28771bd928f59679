package stats

import (
	"math"
	"slices"
)

// exactTrend is the number of samples up to which Trend counts orders.
const exactTrend = 40

// Trend says by how much samples rise from the first to the last, as a share of their median, and how likely chance
// alone would order them so or more: by the test of Mann and Kendall, on both sides, and the slope of Theil and Sen.
// Of fewer than four samples no order is unlikely.
func Trend(samples []float64) (rise, p float64) {
	n := len(samples)
	s, tied := 0, false
	var slopes []float64
	for j := range samples {
		for i := range j {
			switch d := samples[j] - samples[i]; {
			case d > 0:
				s++
			case d < 0:
				s--
			default:
				tied = true
			}
			slopes = append(slopes, (samples[j]-samples[i])/float64(j-i))
		}
	}
	if n < 2 {
		return 0, 1
	}
	if m := median(samples); m != 0 {
		rise = median(slopes) * float64(n-1) / m
	}
	if !tied && n <= exactTrend {
		return rise, orders(n, s)
	}
	counts := map[float64]int{}
	for _, x := range samples {
		counts[x]++
	}
	of := func(n int) float64 { return float64(n) * float64(n-1) * float64(2*n+5) / 18 }
	variance := of(n)
	for _, c := range counts {
		variance -= of(c)
	}
	if s == 0 || variance <= 0 {
		return rise, 1
	}
	return rise, math.Erfc((math.Abs(float64(s)) - 1) / math.Sqrt(2*variance))
}

// orders is the share of the orders of n different samples whose rises less falls are s or more on either side.
func orders(n, s int) float64 {
	if s == 0 {
		return 1
	}
	count := []float64{1} // shares of orders by their number of falls
	for k := 2; k <= n; k++ {
		next := make([]float64, len(count)+k-1)
		for falls, c := range count {
			for more := range k {
				next[falls+more] += c / float64(k)
			}
		}
		count = next
	}
	pairs := n * (n - 1) / 2
	sum := 0.0
	for falls, c := range count {
		if pairs-2*falls >= max(s, -s) {
			sum += c
		}
	}
	return min(1, 2*sum)
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
