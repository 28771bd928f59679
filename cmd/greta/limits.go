package main

import (
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/report"
)

// Times that measuring a machine's limits may take.
const (
	limitsBudget  = 250 * time.Millisecond
	betweenBudget = 100 * time.Millisecond
)

// limitsMeter gives what measures the machine's limits for about a time, keeping the fastest; nil where it cannot tell.
func (r *runner) limitsMeter() (func(budget time.Duration) (backends.Limits, error), error) {
	measure := backends.LimitsOf(r.engine.Device())
	if measure == nil || r.flags.noLimits {
		return nil, nil
	}
	st, err := r.session.Step(1, 1)
	if err != nil {
		return nil, err
	}
	return func(budget time.Duration) (backends.Limits, error) {
		l, err := measure(st.Program, budget)
		r.readGBs, r.gflops = max(r.readGBs, l.ReadGBs), max(r.gflops, l.GFlops)
		l.ReadGBs, l.GFlops = r.readGBs, r.gflops
		return l, err
	}, nil
}

// limitsBetween measures the limits between two samples: the memory that neighbours of a machine leave it changes in
// seconds, and a roof of another moment is none.
func (r *runner) limitsBetween() error {
	measure, err := r.limitsMeter()
	if err == nil && measure != nil {
		_, err = measure(betweenBudget)
	}
	return err
}

// limits measures what the machine can do at most, where it can tell, next to
// the run whose rates are compared with it.
func (r *runner) limits() error {
	measure, err := r.limitsMeter()
	if err != nil || measure == nil {
		return err
	}
	err = raiseLimits(&r.report, r.update, r.cacheBytes(), func() (backends.Limits, error) {
		return measure(limitsBudget)
	})
	if l := r.report.Decode.Limit; l != nil { // the profile's roofs are the same
		r.readGBs = max(r.readGBs, l.Rate)
	}
	if l := r.report.Prefill.Limit; l != nil {
		r.gflops = max(r.gflops, l.Rate)
	}
	return err
}

// cacheBytes is what a decoded token reads of the caches, the tokens' mean.
func (r *runner) cacheBytes() (caches float64) {
	from := r.flags.prefill
	if len(r.prompt) > 0 {
		from = len(r.prompt)
	}
	for i := range r.flags.gen {
		caches += r.engine.CacheBytes(min(from+i+1, r.engine.Options().Context)) / float64(r.flags.gen)
	}
	return caches
}

// limitTries is how often limits are measured at most.
const limitTries = 6

// raiseLimits measures the machine's limits, and again where a phase was faster: something held the measurement up,
// since nothing is faster than its roof. The fastest counts, and of the last one the fastest pieces. A phase that stays
// above fails the report. A decode reads caches bytes a token beside the weights. The report is changed in update only,
// so that it can be printed meanwhile.
func raiseLimits(rep *report.Report, update func(func()), caches float64,
	measure func() (backends.Limits, error)) error {
	var read, peak float64
	above := true
	for try := 0; above && try < limitTries; try++ {
		l, err := measure()
		if err != nil {
			return err
		}
		read, peak = max(read, l.ReadGBs), max(peak, l.GFlops)
		if try == limitTries-1 {
			read, peak = max(read, l.BestReadGBs), max(peak, l.BestGFlops) // no less than what the machine can do
		}
		above = false
		update(func() {
			rep.Decode.SetReadLimit(l.WeightBytes+caches, read)
			rep.Prefill.SetPeakLimit(l.Arithmetic, peak)
			above = rep.Decode.AboveLimit() != nil || rep.Prefill.AboveLimit() != nil
		})
	}
	update(func() {
		for _, p := range []*report.Phase{&rep.Prefill, &rep.Decode} {
			if err := p.AboveLimit(); err != nil {
				rep.Fail(err.Error())
			}
		}
	})
	return nil
}
