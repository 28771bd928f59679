package optest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/tensor"
)

// RunLate tries every case with a vector of f32 among its weights with CheckLate, with few the first of each operator.
func RunLate[T tester[T]](t T, dev backends.Device, few bool) {
	tried := map[string]bool{}
	for _, c := range Cases() {
		if few && tried[c.Operator()] {
			continue
		}
		n, err := c.Bare(dev.Info().Float)
		if err == nil && !slices.ContainsFunc(n.In, vector) {
			continue
		}
		tried[c.Operator()] = true
		t.Run(c.Name, func(t T) { report(t, CheckLate(dev, c)) })
	}
}

// vector says whether a value is a small weight, as norms' and biases are.
func vector(v *graph.Value) bool {
	return v != nil && v.Kind == graph.Weight && v.Type == tensor.F32 && len(v.Shape) == 1
}

// CheckLate runs a case whose small operands a graph computes in each step: its program is captured before they
// are written. A kernel that reads them when it is bound keeps what lay there then, which is NaN.
func CheckLate(dev backends.Device, c Case) error {
	p, err := c.Prepare(dev.Info().Float)
	if err != nil {
		return err
	}
	want, err := p.Reference()
	if err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	for _, v := range p.Node.In {
		if v != nil && v.Kind == graph.Weight && v.Type == tensor.F32 {
			v.Kind = graph.Computed
		}
	}
	k, err := dev.Kernel(p.Node)
	var lacks *backends.Unsupported
	if errors.As(err, &lacks) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := newRig(dev)
	if err != nil {
		return err
	}
	defer r.close()
	l, in, out, err := r.launch(p, k)
	if err != nil {
		return err
	}
	if err := r.late(p, l, in); err != nil {
		return err
	}
	wide, loose := slack(dev.Info().Float), tolerance(dev, p.Node)
	for i, o := range out {
		data, err := r.dense(o)
		if err != nil {
			return err
		}
		got, err := Decode(o.Type, o.Shape, data)
		if err != nil {
			return err
		}
		if err := compare(got, want[i], max(c.Rel*wide, loose), max(c.Abs*wide, 5*loose)); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
	}
	return nil
}

// late captures a launch before its operands are written, and runs it behind that.
func (r *rig) late(p *Prepared, l *backends.Launch, in []*placed) error {
	changing := func(i int) bool { return in[i] != nil && p.In[i].Value.Kind != graph.Weight }
	for i, o := range in {
		if !changing(i) {
			continue
		}
		empty := make([]byte, len(o.image))
		for j := range empty {
			empty[j] = poison
		}
		if err := r.stream.Write(o.Buffer, 0, empty); err != nil {
			return err
		}
	}
	e, err := r.dev.Capture(&backends.Program{Name: "late", Launches: []backends.Launch{*l}})
	if err != nil {
		return err
	}
	for i, o := range in {
		if changing(i) {
			if err := r.reset(o); err != nil {
				return err
			}
		}
	}
	return errors.Join(e.Submit(), e.Wait(), e.Close())
}
