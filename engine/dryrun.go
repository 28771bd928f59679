package engine

import (
	"context"
	"fmt"

	"github.com/greta-project/greta/backends"
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

// precompile has a device that compiles kernels begin with those of the steps that capture captures, so that their
// first use need not wait as long: where Options.Precompile says so, or where the device had to compile something
// already. Close ends it.
func (e *Engine) precompile(capture func(ctx context.Context, opt Options) error) {
	dev, ok := e.dev.(backends.Precompiler)
	if !ok || e.opt.Eager || !e.opt.Precompile && dev.Compiled() == 0 {
		return
	}
	opt := e.opt
	opt.Custom, opt.Notify, opt.Progress, opt.Precompile = nil, nil, nil, false
	ctx, stop := context.WithCancel(context.Background())
	captured, err := dev.Precompile(ctx, func(null backends.Device) {
		opt.Device = null
		_ = capture(ctx, opt) // what is wrong with a step is told by who takes it
	})
	if err != nil {
		stop()
		return
	}
	e.ahead = append(e.ahead, func() {
		stop()
		<-captured
	})
}

// dryRunBatches is DryRun of a scheduler's steps: of all numbers of rows, few of them and all wanted. The adapters are
// those of an engine with these options, whose source has them.
func dryRunBatches(ctx context.Context, opt Options, adapters *adapterSet, o SchedulerOptions, size poolSize) (
	err error) {
	e := bare(opt)
	e.adapters, e.running, e.queued = adapters, opt.Device.Info().Running, true
	if e.first, _, err = e.firstGraph(); err != nil {
		return err
	}
	e.rows, e.empty, e.open = e.hasRows(), true, true
	defer func() { err = errlist.Join(err, e.Close()) }()
	b, err := e.newBatch(size, 0, o.Rows, o.wanted())
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, b.close()) }()
	for _, n := range upTo(e.rowBuckets(), o.Rows) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := b.capture([]int{min(n, o.Rows)}, o.Sequences, o.Rows); err != nil {
			return err
		}
	}
	return nil
}
