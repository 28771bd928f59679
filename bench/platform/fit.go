package platform

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/optimize"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

func median(x []float64) float64 { return stats.Summarize(x).Median }

// fitStart fits times t, in seconds, of moving volumes v, in bytes, by
// t = a + v/b, which is T = V/(a + V/b) for the rate T = v/t: a is in seconds, b
// in bytes a second. It minimises the squares of relative errors, so that the
// short times count as much as the long ones; spread is their root mean square.
func fitStart(v, t []float64) (a, b, spread float64, err error) {
	if len(v) < 3 || len(v) != len(t) {
		return 0, 0, 0, errors.New("a fit of two parameters needs three sizes at least")
	}
	// Both parameters are positive: their logarithms are free.
	loss := func(x []float64) float64 {
		sum := 0.0
		for i := range v {
			e := (math.Exp(x[0])+v[i]/math.Exp(x[1]))/t[i] - 1
			sum += e * e
		}
		return sum
	}
	last := len(v) - 1
	start := []float64{math.Log(t[0]), math.Log(v[last] / t[last])}
	r, err := optimize.Minimize(optimize.Problem{Func: loss}, start, &optimize.Settings{MajorIterations: 2000},
		&optimize.NelderMead{})
	if err != nil {
		return 0, 0, 0, err
	}
	return math.Exp(r.X[0]), math.Exp(r.X[1]), math.Sqrt(r.F / float64(len(v))), nil
}

// emitFit gives the fit of a sweep as a result of its own. Its sample is a; its check
// is how well the formula describes the times.
func (s *session) emitFit(part string, volumes, times []float64) error {
	if len(volumes) < 3 {
		return nil
	}
	a, b, spread, err := fitStart(volumes, times)
	if err != nil {
		return s.skip(part+"/fit", nil, "the times could not be fitted: %v", err)
	}
	r := &record.Result{Bench: s.name(part + "/fit"), Clock: record.DeviceClock, Samples: []float64{a},
		Check: record.Check{Against: "the times fitted", RelL2: spread, Limit: 1},
		Metrics: map[string]float64{"fit_a_ns": a * 1e9, "fit_b_GBs": b / 1e9, "fit_error": spread,
			"sizes": float64(len(volumes))}}
	if s.backend == "cpu" {
		r.Clock = record.HostClock
	}
	return s.emit(r)
}
