//go:build linux && (amd64 || arm64) && !nogpu

package vulkan

import (
	"fmt"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
)

// The eager mode: the dispatches of a captured program, in the program's order, each
// recorded, submitted and waited for by itself. What it shares with a replay is the
// plan only, so that the two must give the same bits: where they do not, a barrier is
// missing or a recording is wrong.

// eager is a program that is run dispatch by dispatch.
type eager struct{ *executable }

// Eager plans a program as Capture does.
func (d *Device) Eager(p *backends.Program) (backends.Executable, error) {
	e, err := d.plan(p, false)
	if err != nil {
		return nil, err
	}
	return eager{e}, nil
}

// Submit runs the program to its end.
func (e eager) Submit() error {
	e.d.returned += e.returns
	if err := e.crossing(e.enter); err != nil {
		return err
	}
	for i := range e.program.Launches {
		for j := e.first[i]; j < e.first[i+1]; j++ {
			if err := e.alone(&e.dispatches[j]); err != nil {
				return fmt.Errorf("%v: %w", e.program.Launches[i].Node, err)
			}
		}
		if err := e.status(); err != nil {
			return err
		}
	}
	return e.crossing(e.leave)
}

// crossing runs the copies between the two sides of Step memory.
func (e eager) crossing(record func(*recorder)) error {
	if len(e.ins)+len(e.outs) == 0 {
		return nil
	}
	return e.d.once("step "+e.program.Name, func(r *recorder) {
		r.barrier(shaderStage|transferStage, shaderStage|transferStage)
		record(r)
		r.barrier(transferStage, shaderStage|hostStage)
	})
}

// alone runs one dispatch.
func (e eager) alone(x *dispatch) error {
	pool, err := e.d.descriptorPool([]dispatch{*x})
	if err != nil {
		return err
	}
	defer e.d.c.DestroyDescriptorPool(e.d.handle, pool, nil)
	var recorded error
	err = e.d.once(x.kernel, func(r *recorder) {
		r.pool = pool
		r.barrier(shaderStage|transferStage, shaderStage)
		recorded = r.dispatch(x)
		r.barrier(shaderStage, shaderStage|transferStage|hostStage)
	})
	return errlist.Join(recorded, err)
}

// Wait returns at once: Submit has waited.
func (e eager) Wait() error { return nil }

// Profile refuses: times of dispatches that are waited for say nothing of a step.
func (e eager) Profile() ([]time.Duration, error) {
	return nil, backends.ErrEager
}

// Explain refuses likewise.
func (e eager) Explain(time.Duration) (*backends.Explanation, error) { return nil, backends.ErrEager }

var _ backends.Eager = (*Device)(nil)
