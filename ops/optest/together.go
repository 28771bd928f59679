package optest

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// Together runs cases as the launches of one captured program, so that a device
// compiles what they need at once: each between guard bands, results poisoned
// before, compared with float64, and replayed to the same bits. rel is the relative
// L2 error that is let through where it is wider than a case's own; the limit of
// single elements is widened as much. stage is told what is under way. The error names the first case that is wrong.
func Together(dev backends.Device, cases []Case, rel float64, stage func(string)) (err error) {
	r, err := newRig(dev)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, r.close()) }()
	stage("placing")
	program, trials, err := r.program(cases)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for i := range trials {
		wg.Go(func() { trials[i].want, trials[i].err = trials[i].p.Reference() })
	}
	stage("compiling")
	e, err := dev.Capture(program)
	wg.Wait()
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, e.Close()) }()
	first := make([][]byte, 0, len(trials))
	for pass := range 2 {
		stage([]string{"running", "replaying"}[pass])
		for _, t := range trials {
			for _, o := range t.out {
				if err := r.reset(o); err != nil {
					return err
				}
			}
		}
		if err := errlist.Join(e.Submit(), e.Wait()); err != nil {
			return err
		}
		seen := 0
		for i, t := range trials {
			for j, o := range t.out {
				data, err := r.dense(o)
				if err == nil && pass == 0 {
					first = append(first, data)
					err = t.check(cases[i], j, data, rel, slack(dev.Info().Float))
				} else if err == nil && !bytes.Equal(data, first[seen]) {
					err = fmt.Errorf("result %d of the replay differs from the first run", j)
				}
				if err == nil {
					err = r.unchanged(o, true)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", cases[i].Name, err)
				}
				seen++
			}
		}
	}
	return nil
}

// DryRun captures cases as Together does, and runs nothing: for devices that
// only note what they are asked for.
func DryRun(dev backends.Device, cases []Case) (err error) {
	r, err := newRig(dev)
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, r.close()) }()
	program, _, err := r.program(cases)
	if err != nil {
		return err
	}
	e, err := dev.Capture(program)
	if err != nil {
		return err
	}
	return e.Close()
}

// program places the operands of cases and gives their launches.
func (r *rig) program(cases []Case) (*backends.Program, []trial, error) {
	trials := make([]trial, len(cases))
	program := &backends.Program{Name: "trial"}
	for i, c := range cases {
		t := &trials[i]
		var err error
		if t.p, err = c.Prepare(r.dev.Info().Float); err != nil {
			return nil, nil, err
		}
		k, err := r.dev.Kernel(t.p.Node)
		if err != nil {
			return nil, nil, err
		}
		l, _, out, err := r.launch(t.p, k)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		t.out = out
		program.Launches = append(program.Launches, *l)
	}
	return program, trials, nil
}

// trial is a case under way.
type trial struct {
	p    *Prepared
	out  []*placed
	want []tensor.Tensor
	err  error // of the reference
}

func (t *trial) check(c Case, result int, data []byte, rel, wide float64) error {
	if t.err != nil {
		return fmt.Errorf("reference: %w", t.err)
	}
	o := t.out[result]
	got, err := Decode(o.Type, o.Shape, data)
	if err != nil {
		return err
	}
	wide *= max(1, rel/c.Rel)
	return compare(got, t.want[result], c.Rel*wide, c.Abs*wide)
}
