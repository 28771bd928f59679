package guard

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

// Series is how samples are taken, by greta run and by greta bench model: times with a trend, such as those of a card
// whose clocks still rise, are no samples of one thing. The earlier half is then warm-up, and as many are taken again.
type Series struct {
	Least int           // samples
	Time  time.Duration // that they take together at least
	Most  time.Duration // after which no more are begun, 0: none; the first is always taken
	Fixed bool          // all count: a trend is only told
}

// Limits of a series with a trend.
const (
	trendChance = 0.05             // orders as unlikely as this are a trend
	trendLeast  = 0.03             // of so much of the median
	trendRounds = 4                // times that a half is taken again at most
	trendTime   = 10 * time.Second // or the time of the series, after which none is
)

// Take calls once, which takes a sample, until there are enough. values gives the series of times that are measured,
// the latest last, and drop forgets the first n samples of all. What is left may have a trend still: then its rise is
// given, negative for one that falls, as a share of the median; else 0.
func (s Series) Take(ctx context.Context, once func() error, values func() [][]float64, drop func(n int)) (float64,
	error) {
	begin, n := time.Now(), 0
	fill := func(again bool) error {
		for start := time.Now(); n < s.Least || !again && time.Since(start) < s.Time; n++ {
			if err := ctx.Err(); err != nil {
				return err
			}
			if used := time.Since(begin); s.Most > 0 && !again && n > 0 && used/time.Duration(n)*time.Duration(n+1) > s.Most {
				return nil
			}
			if err := once(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill(false); err != nil {
		return 0, err
	}
	first := time.Since(begin)
	s.Least = n
	for round := 0; ; round++ {
		rise := trend(values())
		if rise == 0 || s.Fixed || round == trendRounds || time.Since(begin) > first+max(first, trendTime) {
			return rise, nil
		}
		half := (n + 1) / 2
		drop(half)
		n -= half
		if err := fill(true); err != nil {
			return 0, err
		}
	}
}

// trend is the largest rise or fall of several series, 0 where none has one.
func trend(series [][]float64) (most float64) {
	for _, x := range series {
		if rise, p := stats.Trend(x); p < trendChance && math.Abs(rise) >= trendLeast && math.Abs(rise) > math.Abs(most) {
			most = rise
		}
	}
	return most
}

// spread is the share of a measured roof up to which a result may lie above it: what two measurements of one thing
// differ by.
const spread = 1.02

// Limits are what a device measures of itself (backends.Limits): GB/s of reading and 10⁹ operations a second, and
// what the fastest pieces of both would make.
type Limits struct{ ReadGBs, BestReadGBs, GFlops, BestGFlops float64 }

// raiseTries is how often Raise measures limits again.
const raiseTries = 5

// Raise measures a device's limits again, raiseTries times at most, while a result is faster than the measured roofs
// that it has: nothing is, so that something held their measurement up. The fastest counts, and of the last one the
// fastest pieces. A result that stays above is refused. written of its bytes are not read: where they are more than a
// few, ReadGate is what is refused.
func Raise(r *record.Result, written float64, measure func() (Limits, error)) error {
	median := stats.Summarize(r.Samples).Median
	above := func() (share float64, binds string) {
		least, binds := r.Roofs.Least(r.Bytes, r.Flops, true)
		return least / median, binds
	}
	if !(median > 0) {
		return nil
	}
	for try := range raiseTries {
		if share, _ := above(); share <= spread {
			return nil
		}
		l, err := measure()
		if err != nil {
			return err
		}
		if try == raiseTries-1 {
			l.ReadGBs, l.GFlops = max(l.ReadGBs, l.BestReadGBs), max(l.GFlops, l.BestGFlops)
		}
		r.Roofs.Raise(l.ReadGBs, l.GFlops)
	}
	share, binds := above()
	most := spread
	if binds == "memory" && written > 0.05*r.Bytes {
		most = ReadGate
	}
	if share > most && (r.Verdict == "" || r.Verdict == record.OK) {
		r.Verdict = record.Refused
		r.Reason = fmt.Sprintf("%.0f %% of the device's own %s, measured %d times beside it: more than the roof, so that "+
			"one of the two figures is wrong; try again on a quiet machine", 100*share, measuredWhat[binds], raiseTries+1)
	}
	return nil
}

// measuredWhat says what a roof is that a device measures of itself, by what binds.
var measuredWhat = map[string]string{"memory": "reading of the same bytes", "compute": "arithmetic"}
