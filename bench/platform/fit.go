package platform

import (
	"errors"
	"math"

	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
)

func median(x []float64) float64 { return stats.Summarize(x).Median }

// leastStart and mostRate stand for a start, in seconds, and a rate, in bytes a second, where the times leave nothing
// for the one, or do not grow with the volume.
const leastStart, mostRate = 1e-12, 1e18

// fitStart fits times t, in seconds, of moving volumes v, in bytes, by
// t = a + v/b, which is T = V/(a + V/b) for the rate T = v/t: a is in seconds, b
// in bytes a second. It minimises the squares of relative errors, so that the
// short times count as much as the long ones; spread is their root mean square. The error says that there are
// fewer than three sizes, or that they are one, or that a time is 0.
func fitStart(v, t []float64) (a, b, spread float64, err error) {
	if len(v) < 3 || len(v) != len(t) {
		return 0, 0, 0, errors.New("a fit of two parameters needs three sizes at least")
	}
	// The error a/t + c*v/t - 1, c = 1/b, is linear in both: sums of products give the least squares.
	var pp, pq, qq, p1, q1 float64
	for i := range v {
		p, q := 1/t[i], v[i]/t[i]
		pp, pq, qq, p1, q1 = pp+p*p, pq+p*q, qq+q*q, p1+p, q1+q
	}
	det := pp*qq - pq*pq
	a, c := (p1*qq-q1*pq)/det, (q1*pp-p1*pq)/det
	if !(det > 1e-12*pp*qq) || math.IsInf(det, 0) {
		return 0, 0, 0, errors.New("a fit of two parameters needs sizes that differ, and times")
	}
	switch {
	case a < leastStart:
		a, c = leastStart, q1/qq
	case c < 1/mostRate:
		a, c = p1/pp, 1/mostRate
	}
	sum := 0.0
	for i := range v {
		e := (a+c*v[i])/t[i] - 1
		sum += e * e
	}
	return a, 1 / c, math.Sqrt(sum / float64(len(v))), nil
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
