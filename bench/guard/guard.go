// Package guard holds the rules that keep a measurement honest: one benchmark at
// a time on a device, nothing faster than the device can be, no time without a
// check, no fallback that passes for the real thing.
package guard

import (
	"fmt"
	"math"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

// PeakGate is the share of a modelled peak above which a figure is refused as
// an error of measurement.
const PeakGate = 1.05

// FarFromCache is how many times the last-level cache a working set must hold
// to be called memory's.
const FarFromCache = 4

// Finish sets a result's verdict. Runners call it for every result when all
// else is filled in, and count only what is OK afterwards:
//
//   - Skipped stays, and must have a reason; a kernel of another backend than the
//     one asked for (Backend, see Fallback) has been skipped by then;
//   - without a check, or with one beyond its limit, it is Failed;
//   - without samples, or with one that is no positive time, it is Failed;
//   - Cold with a working set below four times the last-level cache is Failed;
//   - faster than 105 % of a modelled roof is Refused, or where that of memory is unknown than
//     105 % of what nothing on the device passes.
//
// A verdict that is Failed or Refused already stays.
func Finish(r *record.Result) {
	if r.Verdict == "" {
		r.Verdict = record.OK
	}
	if r.Verdict == record.OK {
		r.Verdict, r.Reason = judge(r)
	}
	if r.Verdict != record.OK && r.Reason == "" {
		r.Reason = "no reason was given"
	}
}

func judge(r *record.Result) (record.Verdict, string) {
	c := r.Check
	switch {
	case c.Against == "":
		return record.Failed, "the result was compared with nothing: a time without a check says nothing"
	case math.IsNaN(c.RelL2) || math.IsInf(c.RelL2, 0) || math.IsNaN(c.MaxAbs) || math.IsInf(c.MaxAbs, 0):
		return record.Failed, fmt.Sprintf("the output is not finite: relative L2 %v, max abs %v against %s", c.RelL2,
			c.MaxAbs, c.Against)
	case !(c.RelL2 <= c.Limit):
		return record.Failed, fmt.Sprintf("the result is wrong: relative L2 %.2e against %s, at most %.0e is right (max "+
			"abs %.2e)", c.RelL2, c.Against, c.Limit, c.MaxAbs)
	case len(r.Samples) == 0:
		return record.Failed, "nothing was timed"
	case r.Clock != record.DeviceClock && r.Clock != record.HostClock:
		return record.Failed, fmt.Sprintf("the clock is %q: whose time it is, device or host, must be said", r.Clock)
	case r.Cache != "" && r.Cache != record.Warm && r.Cache != record.Cold:
		return record.Failed, fmt.Sprintf("the cache is %q, warm or cold is expected", r.Cache)
	case len(r.Host) > 0 && len(r.Host) != len(r.Samples):
		return record.Failed, fmt.Sprintf("%d samples by the host's clock for %d by the device's", len(r.Host),
			len(r.Samples))
	}
	for i, s := range r.Samples {
		if !(s > 0) || math.IsInf(s, 0) {
			return record.Failed, fmt.Sprintf("sample %d of %d is %v s: the clock is too coarse, or was not started", i+1,
				len(r.Samples), s)
		}
	}
	for name, v := range r.Metrics {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return record.Failed, fmt.Sprintf("the metric %s is %v", name, v)
		}
	}
	if llc := r.Roofs.LastCache; r.Cache == record.Cold && r.WorkingSet > 0 && llc > 0 && r.WorkingSet < FarFromCache*llc {
		return record.Failed, fmt.Sprintf("called cold with a working set of %.3g MB: memory is measured from %d times "+
			"the last-level cache on, %.3g MB",
			r.WorkingSet/1e6, FarFromCache, FarFromCache*llc/1e6)
	}
	if why := Peak(r); why != "" {
		return record.Refused, why
	}
	return record.OK, ""
}

// Peak says why a result is faster than its device can be, "" where it is not:
// its median is held against the modelled roofs, where they are known.
func Peak(r *record.Result) string {
	median := stats.Summarize(r.Samples).Median
	if !(median > 0) {
		return ""
	}
	what, gbs := "memory", r.Roofs.ReadGBs
	if gbs == 0 {
		what, gbs = "first-level caches", r.Roofs.MostGBs
	}
	for _, roof := range []struct {
		what, unit string
		work, most float64
	}{
		{what, "GB/s", r.Bytes, gbs},
		{"arithmetic", "GFLOP/s", r.Flops, r.Roofs.GFlops},
	} {
		rate := roof.work / median / 1e9
		if roof.most > 0 && rate > PeakGate*roof.most {
			return fmt.Sprintf("%.4g %s is %.0f %% of the modelled peak of the device's %s, %.4g %s: a measuring error. "+
				"Was the work left out by the compiler, not waited for, or counted more often than done?",
				rate, roof.unit, 100*rate/roof.most, roof.what, roof.most, roof.unit)
		}
	}
	return ""
}

// ReadGate is how many times the rate of reading alone a result that is not warm may
// reach on a device whose memory has no modelled peak. Reading was measured in the same
// run, as its fastest piece on one core times the cores. It is more than one since a
// result's bytes are also those that it writes, which some processors send beside what
// they read, on links half as wide.
const ReadGate = 1.5

// Reading refuses a result that moves more than ReadGate times the bytes of a loop that
// reads the same memory and does nothing else. best is that loop's highest rate, in GB/s
// (0: unknown), and again measures it anew: it is asked before a result is refused.
func Reading(r *record.Result, best float64, again func() (float64, error)) error {
	if r.Cache == record.Warm || r.Roofs.ReadGBs > 0 || !(best > 0) || len(r.Samples) == 0 ||
		r.Verdict != "" && r.Verdict != record.OK {
		return nil
	}
	rate := r.Bytes / stats.Summarize(r.Samples).Median / 1e9
	defer func() { // for who gets the result without the device
		if r.Metrics == nil {
			r.Metrics = map[string]float64{}
		}
		r.Metrics[ReadLoop] = best
	}()
	for tries := 0; rate > ReadGate*best; tries++ {
		if tries == 3 {
			r.Verdict = record.Refused
			r.Reason = fmt.Sprintf("%.4g GB/s from memory is %.1f times what a loop that only reads the same bytes reaches "+
				"at best, %.4g GB/s; %g times is the limit: "+
				"a measuring error. Was the work left out, not waited for, or counted more often than done?", rate, rate/best, best,
				ReadGate)
			return nil
		}
		more, err := again()
		if err != nil {
			return err
		}
		best = max(best, more)
	}
	return nil
}

// Skip makes a result one of a path that is not there.
func Skip(r *record.Result, format string, args ...any) {
	r.Verdict, r.Reason = record.Skipped, fmt.Sprintf(format, args...)
}

// Fallback skips a result whose kernel ran on another backend than the one that
// was asked for: its time is that of another device. It says whether that was so.
func Fallback(r *record.Result, asked string) bool {
	if r.Backend == "" || r.Backend == asked {
		return false
	}
	Skip(r, "%s has no kernel for this, it ran on %s: that is no figure of %s", asked, r.Backend, asked)
	return true
}
