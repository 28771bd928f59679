package optest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// tester is what of *testing.T is used here. Package testing itself would come into every program that checks its
// fast paths by these cases.
type tester[T any] interface {
	Helper()
	Error(args ...any)
	Run(name string, f func(T)) bool
}

// Run tries every case on a device. A case for which the device has no kernel fails, unless it is known to have none.
func Run[T tester[T]](t T, dev backends.Device) { RunCases(t, dev, Cases()) }

// RunCases tries some of the cases as Run tries all.
func RunCases[T tester[T]](t T, dev backends.Device, cases []Case) {
	for _, c := range cases {
		if Known(dev.Info().Backend, c.Name) {
			continue
		}
		t.Run(c.Name, func(t T) {
			report(t, Check(dev, c))
		})
	}
}

// Lacking names the cases for which one device has a kernel and dev has none.
func Lacking(dev, than backends.Device) ([]string, error) {
	var names []string
	for _, c := range Cases() {
		n, err := c.Bare(dev.Info().Float)
		if err != nil {
			return nil, err
		}
		if _, err := than.Kernel(n); err != nil {
			continue
		}
		if _, err := dev.Kernel(n); err != nil {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

func report[T tester[T]](t T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Check runs one case and says what is wrong: a result beyond the case's
// limits, a byte written outside of the results, a replay that differs from the first
// launch, a fused operator that differs from its body on the same device. A fused operator
// without a kernel is run as its body. Its error is a *backends.Unsupported where the
// device has no kernel for that either.
func Check(dev backends.Device, c Case) error { return check(dev, c, true) }

// Once runs one case as Check does, but launches it once only: no replay, no body.
func Once(dev backends.Device, c Case) error { return check(dev, c, false) }

// check runs a case on a device: in one piece, from buffers through each way of launching to the
// comparison.
func check(dev backends.Device, c Case, whole bool) error {
	p, err := c.Prepare(dev.Info().Float)
	if err != nil {
		return err
	}
	want, err := p.Reference()
	if err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	wide := slack(dev.Info().Float)
	rel, abs := c.Rel*wide, c.Abs*wide
	if r := tolerance(dev, p.Node); r > 0 {
		rel, abs = max(rel, r), max(abs, 5*r)
	}
	k, err := dev.Kernel(p.Node)
	var lacks *backends.Unsupported
	if errors.As(err, &lacks) && p.Node.Op.Body != "" {
		return checkBody(dev, p, want, rel, abs)
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
	first := make([][]byte, len(out))
	eager := func() error { return r.stream.Launch(l) }
	replay := func() error {
		e, err := dev.Capture(&backends.Program{Name: c.Name, Launches: []backends.Launch{*l}})
		if err != nil {
			return err
		}
		return errlist.Join(e.Submit(), e.Wait(), e.Close())
	}
	passes := []func() error{eager, replay}
	if !whole {
		passes = passes[:1]
	}
	for pass, run := range passes {
		for _, o := range out {
			if err := r.reset(o); err != nil {
				return err
			}
		}
		if err := run(); err != nil {
			return err
		}
		for i, o := range out {
			data, err := r.dense(o)
			if err != nil {
				return err
			}
			if pass == 1 {
				if !bytes.Equal(data, first[i]) {
					return fmt.Errorf("result %d of the replay differs from the first launch", i)
				}
				continue
			}
			first[i] = data
			got, err := Decode(o.Type, o.Shape, data)
			if err != nil {
				return err
			}
			if err := compare(got, want[i], rel, abs); err != nil {
				return fmt.Errorf("result %d: %w", i, err)
			}
			if err := r.unchanged(o, true); err != nil {
				return err
			}
		}
		for i, o := range in {
			if o == nil || i == 0 && p.Node.Op.Kind == graph.Update {
				continue
			}
			if err := r.unchanged(o, false); err != nil {
				return fmt.Errorf("operand %d: %w", i, err)
			}
		}
	}
	if p.Node.Op.Kind == graph.Update {
		if err := otherRows(p, want[0], first[0]); err != nil {
			return err
		}
	}
	if p.Node.Op.Body != "" && whole {
		fused := make([]tensor.Tensor, len(out))
		for i, v := range p.Node.Out {
			if fused[i], err = Decode(v.Type, v.Shape, first[i]); err != nil {
				return err
			}
		}
		err := checkBody(dev, p, fused, 2*c.Rel*wide, 2*c.Abs*wide) // both may be off
		if errors.As(err, &lacks) {
			return nil // then there is nothing on this device to compare with
		}
		return err
	}
	return nil
}

// Results launches the node on a device and gives its results.
func (p *Prepared) Results(dev backends.Device) ([]tensor.Tensor, error) {
	k, err := dev.Kernel(p.Node)
	if err != nil {
		return nil, err
	}
	r, err := newRig(dev)
	if err != nil {
		return nil, err
	}
	defer r.close()
	l, _, out, err := r.launch(p, k)
	if err != nil {
		return nil, err
	}
	if err := r.stream.Launch(l); err != nil {
		return nil, err
	}
	var results []tensor.Tensor
	for _, o := range out {
		data, err := r.dense(o)
		if err != nil {
			return nil, err
		}
		results = append(results, tensor.Tensor{Type: o.Type, Shape: o.Shape, Data: data})
	}
	return results, nil
}

// tolerance is that of a node's kernel, or the largest of its body's where the device has none for the node.
func tolerance(dev backends.Device, n *graph.Node) float64 {
	if k, err := dev.Kernel(n); err == nil {
		return k.Traits().Tolerance
	}
	if n.Op.Body == "" {
		return 0
	}
	g, err := n.Expand(ops.Table)
	if err != nil {
		return 0
	}
	given := slices.DeleteFunc(slices.Clone(n.In), func(v *graph.Value) bool { return v == nil })
	for i, v := range g.Values[:len(given)] { // operands come first
		if given[i].Kind == graph.Weight {
			v.Kind = graph.Weight
		}
	}
	most := 0.0
	for _, n := range g.Nodes {
		most = max(most, tolerance(dev, n))
	}
	return most
}

// launch places a case's operands and results.
func (r *rig) launch(p *Prepared, k backends.Kernel) (l *backends.Launch, in, out []*placed, err error) {
	l = &backends.Launch{Node: p.Node, Kernel: k}
	for i, o := range p.In {
		var at *placed
		switch {
		case o.Data == nil:
		case o.Value.Kind == graph.Weight && k.Packing(i) != nil:
			at, err = r.pack(k.Packing(i), o.Value.Type, o.Value.Shape, o.Data)
		default:
			at, err = r.place(o.Value.Type, o.Value.Shape, o.Gap, o.Data, use(o.Value))
		}
		if err != nil {
			return nil, nil, nil, err
		}
		in = append(in, at)
		l.In = append(l.In, operandOf(at))
	}
	for i, v := range p.Node.Out {
		var at *placed
		if i == 0 && p.Node.Op.Kind == graph.Update {
			at = in[0]
		} else if at, err = r.place(v.Type, v.Shape, 0, nil, backends.Arena); err != nil {
			return nil, nil, nil, err
		}
		out = append(out, at)
		l.Out = append(l.Out, operandOf(at))
	}
	if n := k.Traits().Scratch; n > 0 {
		at, err := r.place(tensor.U8, tensor.Shape{n}, 0, nil, backends.Arena)
		if err != nil {
			return nil, nil, nil, err
		}
		l.Scratch = at.Operand
	}
	return l, in, out, nil
}

func operandOf(p *placed) backends.Operand {
	if p == nil {
		return backends.Operand{}
	}
	return p.Operand
}

// otherRows says whether an update changed a row that its reference leaves alone.
func otherRows(p *Prepared, want tensor.Tensor, got []byte) error {
	v := p.In[0].Value
	before, err := Decode(v.Type, v.Shape, p.In[0].Data)
	if err != nil {
		return err
	}
	n := v.Shape[1:].Elems()
	size := v.Type.RowBytes(n)
	for r := range v.Shape[0] {
		if bytes.Equal(before.Data[8*n*r:8*n*(r+1)], want.Data[8*n*r:8*n*(r+1)]) &&
			!bytes.Equal(p.In[0].Data[size*r:size*(r+1)], got[size*r:size*(r+1)]) {
			return fmt.Errorf("row %d of %s was changed, no position names it", r, v)
		}
	}
	return nil
}

// checkBody runs a fused node's body on a device, kernel by kernel, and compares the
// results with the fused kernel's or the reference's.
func checkBody(dev backends.Device, p *Prepared, want []tensor.Tensor, rel, abs float64) error {
	g, err := p.Node.Expand(ops.Table)
	if err != nil {
		return err
	}
	data := map[*graph.Value][]byte{}
	given := 0
	for _, v := range g.Values {
		if v.Kind == graph.Computed {
			continue
		}
		for p.In[given].Data == nil {
			given++
		}
		if from := p.In[given].Value; from.Kind == graph.Weight {
			v.Kind = graph.Weight
		}
		data[v] = p.In[given].Data
		given++
	}
	results, err := runGraph(dev, g, data)
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	for i := range p.Node.Out {
		if err := compare(results[i], want[i], rel, abs); err != nil {
			return fmt.Errorf("body, result %d: %w", i, err)
		}
	}
	return nil
}
