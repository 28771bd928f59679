package main

import (
	"fmt"
	"time"

	"greta/backends"
)

// limitsBudget is the time that measuring a machine's limits may take.
const limitsBudget = 250 * time.Millisecond

// limits measures what the machine can do at most, where it can tell, next to
// the run whose rates are compared with it.
func (r *runner) limits() error {
	dev, ok := r.engine.Device().(backends.Limiter)
	if !ok || r.flags.noLimits {
		return nil
	}
	st, err := r.session.Step(1, 1)
	if err != nil {
		return err
	}
	l, err := dev.Limits(st.Program, limitsBudget)
	if err != nil {
		return fmt.Errorf("measuring the machine's limits: %w", err)
	}
	r.readGBs, r.gflops = l.ReadGBs, l.GFlops
	caches := 0.0 // of the tokens' mean
	for i := range r.flags.gen {
		caches += r.engine.CacheBytes(r.flags.prefill+i+1) / float64(r.flags.gen)
	}
	r.update(func() {
		r.report.Decode.SetReadLimit(l.WeightBytes+caches, l.ReadGBs)
		r.report.Prefill.SetPeakLimit(l.Arithmetic, l.GFlops)
	})
	return nil
}
