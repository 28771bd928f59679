package main

import (
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/report"
)

// TestLimitsAreMeasuredAgain: a share above what a roof's spread explains has the roof measured again; where it stays
// above, the run is not OK and says so.
func TestLimitsAreMeasuredAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		rates []float64 // of the read loop, as they are measured; the last one stays
		share float64
		asked int
		ok    bool
	}{
		{"below", []float64{12}, 10. / 12, 1, true},
		{"a disturbed first loop", []float64{5, 8, 11}, 10. / 11, 3, true},
		{"a later loop that is slower is no roof", []float64{9.5, 5, 10}, 1, 3, true},
		{"within the spread", []float64{9.85}, 10 / 9.85, 1, true},
		{"always above", []float64{5, 4, 4, 4, 9, 4}, 10. / 9, limitTries, false},
		{"held up, but for some pieces", []float64{5, 4, 4, 4, 5, 6}, 10. / 12, limitTries, true},
	} {
		rep := report.Report{Status: report.OK}
		rep.Decode.SetPhase("tg1", 1, []time.Duration{time.Second})
		asked := 0
		err := raiseLimits(&rep, func(change func()) { change() }, 10e9, func() (backends.Limits, error) {
			rate := c.rates[min(asked, len(c.rates)-1)]
			asked++
			return backends.Limits{ReadGBs: rate, BestReadGBs: 2 * rate, GFlops: 1, Arithmetic: "multiply-adds"}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := rep.Decode.Limit.Fraction; got < c.share*0.999 || got > c.share*1.001 || asked != c.asked {
			t.Errorf("%s: a share of %.3f after %d measurements, not %.3f after %d", c.name, got, asked, c.share, c.asked)
		}
		if ok := rep.Status == report.OK; ok != c.ok {
			t.Errorf("%s: status %s", c.name, rep.Status)
		}
		if text := rep.Summary(); !c.ok && !strings.Contains(text, "more than the roof") {
			t.Errorf("%s: the summary does not say it:\n%s", c.name, text)
		}
	}
}
