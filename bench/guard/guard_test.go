package guard

import (
	"math"
	"strings"
	"testing"

	"github.com/greta-project/greta/bench/record"
)

// good is a result that every rule lets through: 100 GB/s of 200, 1 TFLOP/s of 2.
func good() *record.Result {
	return &record.Result{
		Bench: "op/linear", Clock: record.DeviceClock, Samples: []float64{1e-3, 1.1e-3, 0.9e-3},
		Bytes: 1e8, Flops: 1e9,
		Roofs: record.Roofs{ReadGBs: 200, GFlops: 2000, LastCache: 1 << 20},
		Check: record.Check{Against: "float64", RelL2: 1e-6, Limit: 1e-4},
	}
}

// TestRules plants one offence each in a result that is right otherwise.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*record.Result)
		verdict record.Verdict
		reason  string // part of it
	}{
		{"nothing wrong", func(*record.Result) {}, record.OK, ""},
		{"ten times the memory's peak", func(r *record.Result) {
			r.Bytes *= 20
		}, record.Refused, "1000 % of the modelled peak of the device's memory"},
		{"ten times the peak of arithmetic", func(r *record.Result) { r.Flops *= 20 }, record.Refused, "GFLOP/s"},
		{"one launch timed, a thousand counted", func(r *record.Result) {
			for i := range r.Samples {
				r.Samples[i] /= 1000
			}
		}, record.Refused, "measuring error"},
		{"just over the gate", func(r *record.Result) { r.Bytes = 2.11e8 }, record.Refused, "106 %"},
		{"just under the gate", func(r *record.Result) { r.Bytes = 2.09e8 }, record.OK, ""},
		{"a roof that nobody knows", func(r *record.Result) { r.Bytes *= 20; r.Roofs.ReadGBs = 0 }, record.OK, ""},
		{"no check", func(r *record.Result) { r.Check = record.Check{} }, record.Failed, "without a check"},
		{"a wrong result", func(r *record.Result) { r.Check.RelL2 = 2e-4 }, record.Failed, "relative L2 2.00e-04"},
		{"a limit that was forgotten", func(r *record.Result) { r.Check.Limit = 0 }, record.Failed, "wrong"},
		{"an output of NaN", func(r *record.Result) { r.Check.RelL2 = math.NaN() }, record.Failed, "not finite"},
		{"an infinite output", func(r *record.Result) { r.Check.MaxAbs = math.Inf(1) }, record.Failed, "not finite"},
		{"no samples", func(r *record.Result) { r.Samples = nil }, record.Failed, "nothing was timed"},
		{"a clock that stood still", func(r *record.Result) { r.Samples[1] = 0 }, record.Failed, "sample 2 of 3"},
		{"a clock that ran backwards", func(r *record.Result) { r.Samples[0] = -1 }, record.Failed, "sample 1 of 3"},
		{"nobody's clock", func(r *record.Result) { r.Clock = "" }, record.Failed, "device or host"},
		{"fewer samples by the host", func(r *record.Result) { r.Host = []float64{1} }, record.Failed, "host's clock"},
		{"a metric that is no number", func(r *record.Result) {
			r.Metrics = map[string]float64{"cycles": math.NaN()}
		}, record.Failed, "cycles"},
		{"cold in a cache", func(r *record.Result) {
			r.Cache, r.WorkingSet = record.Cold, 2<<20
		}, record.Failed, "last-level cache"},
		{"warm in a cache", func(r *record.Result) { r.Cache, r.WorkingSet = record.Warm, 2<<20 }, record.OK, ""},
		{"cold in memory", func(r *record.Result) { r.Cache, r.WorkingSet = record.Cold, 4<<20 }, record.OK, ""},
		{"a cache of no known kind", func(r *record.Result) { r.Cache = "hot" }, record.Failed, "warm or cold"},
		{"not there", func(r *record.Result) { Skip(r, "no kernel for %s", "q2_K") }, record.Skipped, "no kernel for q2_K"},
		{"skipped without a reason", func(r *record.Result) { r.Verdict = record.Skipped }, record.Skipped, "no reason"},
		{"failed before", func(r *record.Result) { r.Verdict, r.Reason = record.Failed, "fault" }, record.Failed, "fault"},
	} {
		r := good()
		c.change(r)
		Finish(r)
		if r.Verdict != c.verdict || !strings.Contains(r.Reason, c.reason) || (r.Reason == "") != (c.verdict == record.OK) {
			t.Errorf("%s: %s %q, expected %s with %q", c.name, r.Verdict, r.Reason, c.verdict, c.reason)
		}
		verdict, reason := r.Verdict, r.Reason
		if Finish(r); r.Verdict != verdict || r.Reason != reason {
			t.Errorf("%s: a second look says %s %q after %s %q", c.name, r.Verdict, r.Reason, verdict, reason)
		}
	}
}

// TestFallbackIsSkipped: what ran on the CPU is no figure of the GPU.
func TestFallbackIsSkipped(t *testing.T) {
	r := good()
	r.Backend = "cpu"
	if !Fallback(r, "vulkan") {
		t.Fatal("a kernel of the CPU passed for one of vulkan")
	}
	Finish(r)
	if r.Verdict != record.Skipped || !strings.Contains(r.Reason, "ran on cpu") {
		t.Errorf("%s %q", r.Verdict, r.Reason)
	}
	r = good()
	if r.Backend = "cpu"; Fallback(r, "cpu") || r.Verdict != "" {
		t.Error("the CPU's own kernel was skipped on the CPU")
	}
	if r.Backend = ""; Fallback(r, "hip") {
		t.Error("a result of the run's own backend was skipped")
	}
}

// TestReading: what is faster than reading alone allows is refused, after that was measured
// again; what the second look explains is not.
func TestReading(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*record.Result)
		best    float64
		again   float64
		verdict record.Verdict
		asked   int
	}{
		{"half of it", func(*record.Result) {}, 200, 0, record.OK, 0},
		{"reads and writes at once", func(*record.Result) {}, 71, 0, record.OK, 0},
		{"more than both", func(*record.Result) {}, 62, 62, record.Refused, 3},
		{"ten times", func(*record.Result) {}, 10, 10, record.Refused, 3},
		{"the loop was disturbed", func(*record.Result) {}, 10, 90, record.OK, 1},
		{"warm", func(r *record.Result) { r.Cache = record.Warm }, 10, 10, record.OK, 0},
		{"a modelled roof", func(r *record.Result) { r.Roofs.ReadGBs = 200 }, 10, 10, record.OK, 0},
		{"unknown", func(*record.Result) {}, 0, 10, record.OK, 0},
	} {
		r := good()
		r.Roofs = record.Roofs{}
		c.change(r)
		asked := 0
		if err := Reading(r, c.best, func() (float64, error) { asked++; return c.again, nil }); err != nil {
			t.Fatal(err)
		}
		Finish(r)
		if r.Verdict != c.verdict || asked != c.asked {
			t.Errorf("%s: %s %q, asked %d times; %s and %d are expected", c.name, r.Verdict, r.Reason, asked, c.verdict, c.asked)
		}
	}
}
