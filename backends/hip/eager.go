package hip

import (
	"slices"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// The eager mode: the launches of a program one by one, each waited for. Of what a captured program joins only that is
// joined which has other bits than its launches alone, so that the two must give the same: where they do not, launches
// were joined wrongly, or do not wait for each other.

// eager is a program that is run launch by launch.
type eager struct{ *executable }

// Eager prepares a program to be run so (backends.Eager).
func (dev *Device) Eager(p *backends.Program) (backends.Executable, error) {
	e, programs, err := dev.plan(p, true)
	if err != nil {
		return nil, err
	}
	if err := dev.prepare(programs); err != nil {
		return nil, errlist.Join(err, e.Close())
	}
	return eager{e}, nil
}

// Submit runs the program to its end.
func (e eager) Submit() error {
	dev := e.dev
	defer dev.enter()()
	for _, b := range e.steps {
		if b.side == nil {
			return errFreed
		}
	}
	if err := directly(e.steps); err != nil {
		return err
	}
	for _, b := range slices.Concat(e.levels...) {
		if err := errlist.Join(b.run(dev), dev.wait()); err != nil {
			return named(err, b.what)
		}
		if err := dev.fault(e.program); err != nil {
			return err
		}
	}
	return nil
}

// Wait returns at once: Submit has waited.
func (e eager) Wait() error { return nil }

// Profile refuses: times of launches that are waited for say nothing of a step.
func (e eager) Profile() ([]time.Duration, error) { return nil, backends.ErrEager }

// Explain refuses likewise.
func (e eager) Explain(time.Duration) (*backends.Explanation, error) { return nil, backends.ErrEager }

var _ backends.Eager = (*Device)(nil)
