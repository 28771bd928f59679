package engine

import (
	"fmt"

	"github.com/greta-project/greta/internal/errlist"
)

// DryRun captures steps of a model on a device as a run would, with weights
// that are allocated but not loaded: the device sees every kernel and program. It
// is for devices that only note what they are asked for. tokens are the sizes
// of the steps; those beyond the context are left out. Nothing else uses the device meanwhile.
func DryRun(opt Options, tokens ...int) (err error) {
	opt.fill()
	if opt.Context <= 0 {
		return fmt.Errorf("a context of %d positions is not possible", opt.Context)
	}
	e := bare(opt)
	e.running = opt.Device.Info().Running
	if e.first, _, err = e.firstGraph(); err != nil {
		return err
	}
	e.empty, e.open = true, true
	defer func() { err = errlist.Join(err, e.Close()) }()
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	for _, n := range tokens {
		if n > opt.Context {
			continue
		}
		if _, err := s.Step(n, 1); err != nil {
			return fmt.Errorf("a step of %d tokens: %w", n, err)
		}
		if picks := e.picks(Sampling{}); picks > 0 { // the choice on the device, of the likeliest and by chance
			for _, h := range []how{{}, {drawn: true}, {drawn: true, filtered: true, changes: changeBuckets[0], tops: picks}} {
				h.picks = picks
				if _, err := s.stepOf(h.kind(stepKind{Tokens: n, Rows: 1}), nil); err != nil {
					return fmt.Errorf("a step of %d tokens with a choice: %w", n, err)
				}
			}
		}
	}
	return nil
}
