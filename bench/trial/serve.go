package trial

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/op"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/graph/custom"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// request is what a child is asked, message a line of its answer.
type (
	request struct {
		File     string `json:"file"`
		Kernel   string `json:"kernel"`
		LaunchMS int64  `json:"launch_ms"`
		Cases    []wire `json:"cases"`
	}
	message struct {
		Stage   string   `json:"stage,omitempty"`
		LimitMS int64    `json:"limit_ms,omitempty"` // of the stage
		Device  *device  `json:"device,omitempty"`
		Done    bool     `json:"done,omitempty"`
		Error   string   `json:"error,omitempty"`
		Refused bool     `json:"refused,omitempty"`
		Results []Result `json:"results,omitempty"`
	}
	// wire is a case on its way to another process.
	wire struct {
		Op    string          `json:"op"`
		Float string          `json:"float"`
		Attr  json.RawMessage `json:"attr,omitempty"`
		In    []*wireValue    `json:"in"`
		First int             `json:"first"`
		Name  string          `json:"name"`
	}
	wireValue struct {
		Name  string     `json:"name"`
		Kind  graph.Kind `json:"kind"`
		Type  string     `json:"type"`
		Shape []int      `json:"shape"`
	}
)

// device is what must be equal for two processes to have opened the same.
type device struct{ Backend, Name, Level, Driver string }

func identity(i backends.Info) device { return device{i.Backend, i.Name, i.Level, i.Driver} }

func wireOf(c *op.Case) (w wire, err error) {
	n := c.Node
	w = wire{Op: n.Op.Name, Float: n.Float.String(), First: c.First, Name: n.Out[0].Name}
	if n.Attr != nil {
		if w.Attr, err = json.Marshal(n.Attr); err != nil {
			return w, fmt.Errorf("%v: %w", n, err)
		}
	}
	for _, v := range n.In {
		if v == nil {
			w.In = append(w.In, nil)
			continue
		}
		w.In = append(w.In, &wireValue{v.Name, v.Kind, v.Type.String(), v.Shape})
	}
	return w, nil
}

func (w wire) node() (*graph.Node, error) {
	o := ops.Table.Lookup(w.Op)
	if o == nil {
		return nil, fmt.Errorf("unknown operator %q", w.Op)
	}
	n := &graph.Node{Op: o, Name: w.Op, Block: -1}
	n.Float, _ = tensor.ParseType(w.Float)
	if o.Attr != nil {
		n.Attr = o.Attr()
		if err := json.Unmarshal(w.Attr, n.Attr); err != nil {
			return nil, err
		}
	}
	for _, x := range w.In {
		if x == nil {
			n.In = append(n.In, nil)
			continue
		}
		t, ok := tensor.ParseType(x.Type)
		if !ok {
			return nil, fmt.Errorf("unknown type %q", x.Type)
		}
		n.In = append(n.In, &graph.Value{Name: x.Name, Kind: x.Kind, Type: t, Shape: x.Shape})
	}
	return n, infer(n)
}

// infer makes a node's results.
func infer(n *graph.Node) error {
	results, err := n.Op.Infer(n)
	if err != nil {
		return err
	}
	n.Out = nil
	for i, r := range results {
		n.Out = append(n.Out, &graph.Value{Name: fmt.Sprintf("out%d", i), Type: r.Type, Shape: r.Shape, Def: n, Index: i})
	}
	return nil
}

// caseOf makes a case of a node whose operands lie without gaps.
func caseOf(n *graph.Node, first int) *op.Case {
	return op.FromShape(engine.Shape{Node: n, Strides: make([]int, len(n.In))}, first)
}

// Serve is the child's side of a trial: it reads what is asked and writes lines of JSON. open opens the device that the
// parent has.
func Serve(ctx context.Context, in io.Reader, out io.Writer, open func() (backends.Device, error)) error {
	e := json.NewEncoder(out)
	results, err := answer(ctx, in, e, open)
	m := message{Done: true, Results: results}
	if err != nil {
		var wrong *op.Refusal
		m.Error, m.Refused = err.Error(), errors.As(err, &wrong)
	}
	return e.Encode(m)
}

func answer(ctx context.Context, in io.Reader, e *json.Encoder, open func() (backends.Device, error)) (_ []Result,
	err error) {
	var r request
	if err := json.NewDecoder(in).Decode(&r); err != nil {
		return nil, err
	}
	stage := func(s string, limit time.Duration) { e.Encode(message{Stage: s, LimitMS: limit.Milliseconds()}) }
	kernels, err := models.LoadKernels(r.File)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(kernels, func(k *custom.Kernel) bool { return k.Name == r.Kernel })
	if i < 0 {
		return nil, fmt.Errorf("%s has no kernel %s any more", r.File, r.Kernel)
	}
	var cases []*op.Case
	for _, w := range r.Cases {
		n, err := w.node()
		if err != nil {
			return nil, err
		}
		cases = append(cases, caseOf(n, w.First))
	}
	stage("opening the device", childLimit)
	dev, err := open()
	if err != nil {
		return nil, err
	}
	id := identity(dev.Info())
	if err := e.Encode(message{Device: &id}); err != nil {
		return nil, err
	}
	results, err := serve(ctx, dev, kernels[i], cases, stage, time.Duration(r.LaunchMS)*time.Millisecond)
	var wrong *op.Refusal
	if errors.As(err, &wrong) { // the device may not be fit to be closed
		return nil, err
	}
	stage("closing the device", closeLimit)
	return results, errlist.Join(err, dev.Close())
}

// mostFlops bounds cases that are compared with float64; the device's own kernel, which is tested,
// stands in for others.
const mostFlops = 2e8

// serve tries a kernel on a device.
func serve(ctx context.Context, dev backends.Device, k *custom.Kernel, cases []*op.Case,
	stage func(string, time.Duration), launch time.Duration) ([]Result, error) {
	maker := backends.CustomKernelsOf(dev)
	small, refs, err := checks(ctx, k, cases, stage)
	if err != nil {
		return nil, err
	}
	results, widest := make([]Result, len(cases)), 0
	for n, c := range small {
		if c.Node.Out[0].Bytes() > small[widest].Node.Out[0].Bytes() {
			widest = n
		}
	}
	var failed failures
	checked := 0
	for _, constants := range k.Variants() {
		i, err := k.Instance(constants)
		if err != nil {
			return nil, err
		}
		what := k.Name
		if text := i.ConstantsText(); text != "" {
			what += " " + text
		}
		wrong := func(c *op.Case, err error) error {
			var r *op.Refusal
			if errors.As(err, &r) {
				return &op.Refusal{What: fmt.Sprintf("%s, at %s: %s", what, caseText(c), r.What)}
			}
			return fmt.Errorf("%s, at %s: %w", what, caseText(c), err)
		}
		compiles := true
		for n, c := range small {
			stage("compiling "+what, childLimit)
			own := *c
			if own.Kernel, err = maker.CustomKernel(c.Node, i, true); err != nil {
				if n > 0 {
					return nil, wrong(c, err)
				}
				failed.add(i, err) // this variant is not for this device
				compiles = false
				break
			}
			stage(fmt.Sprintf("launching %s at %s", what, caseText(c)), launch)
			if err := op.Verify(dev, &own, refs[n], n == widest); err != nil {
				return nil, wrong(c, err)
			}
		}
		if !compiles {
			continue
		}
		checked++
		for n, c := range cases {
			if err := timed(ctx, dev, maker, i, c, &results[n], what, stage, launch); err != nil {
				return nil, wrong(c, err)
			}
			results[n].Shapes = len(small) + 1
		}
	}
	if checked == 0 {
		return nil, failed.err()
	}
	return results, nil
}

// failures are the errors of combinations of constants, each said once.
type failures []*failure

type failure struct {
	key   string // what is the same whatever the constants
	first error
	also  []string // constants of further ones
}

func (f *failures) add(i *custom.Instance, err error) {
	key := strings.ReplaceAll(err.Error(), i.Hash, "")
	var c *custom.CompileError
	if errors.As(err, &c) {
		key = c.Said
	}
	for _, o := range *f {
		if o.key == key {
			o.also = append(o.also, i.ConstantsText())
			return
		}
	}
	*f = append(*f, &failure{key: key, first: err})
}

func (f failures) err() error {
	var all []error
	for _, o := range f {
		switch n := len(o.also); {
		case n == 0:
			all = append(all, o.first)
		case n == 1:
			all = append(all, fmt.Errorf("%w\n(so with %s)", o.first, o.also[0]))
		default:
			all = append(all, fmt.Errorf("%w\n(so with %s and %d more)", o.first, o.also[0], n-1))
		}
	}
	return errlist.Join(all...)
}

// timed checks a kernel at the sizes of the model and times it beside the device's own.
func timed(ctx context.Context, dev backends.Device, maker backends.CustomKernels, i *custom.Instance, c *op.Case,
	r *Result, what string, stage func(string, time.Duration), launch time.Duration) error {
	stage(fmt.Sprintf("greta's own kernel at %s", caseText(c)), childLimit)
	_, lacks := dev.Kernel(c.Node)
	var ref *op.Reference
	var err error
	if c.Flops() <= mostFlops || lacks != nil {
		ref, err = op.NewReference(ctx, c)
	} else {
		ref, err = op.ByDevice(dev, c)
	}
	if err != nil {
		return err
	}
	if lacks == nil && r.OwnUS == 0 {
		t, err := op.Time(ctx, dev, c, ref)
		if err != nil {
			return err
		}
		r.OwnUS = float64(t.Nanoseconds()) / 1e3
	}
	stage("compiling "+what, childLimit)
	own := *c
	if own.Kernel, err = maker.CustomKernel(c.Node, i, true); err != nil {
		return err
	}
	limit := launch + time.Duration(100*r.OwnUS*1e3)
	stage(fmt.Sprintf("launching %s at %s", what, caseText(c)), limit)
	if err := op.Verify(dev, &own, ref, false); err != nil {
		return err
	}
	if own.Kernel, err = maker.CustomKernel(c.Node, i, false); err != nil {
		return err
	}
	stage(fmt.Sprintf("timing %s at %s", what, caseText(c)), 20*limit)
	t, err := op.Time(ctx, dev, &own, ref)
	if err != nil {
		return err
	}
	if us := float64(t.Nanoseconds()) / 1e3; r.TimeUS == 0 || us < r.TimeUS {
		r.TimeUS, r.Constants = us, i.Constants
	}
	return nil
}

func caseText(c *op.Case) string { return c.Node.Op.Name + " " + sizesText(c.Node, true) }

// checks are the shapes at which a kernel is compared with float64, and what is wanted there.
func checks(ctx context.Context, k *custom.Kernel, cases []*op.Case, stage func(string, time.Duration)) (
	small []*op.Case, refs []*op.Reference, err error) {
	seen := map[string]bool{}
	for _, c := range cases {
		for _, n := range variations(c.Node) {
			key := shapes(n) + n.AttrText()
			v := caseOf(n, 0)
			if seen[key] || k.Takes(n) != "" || !v.Fits() || v.Flops() > mostFlops {
				continue
			}
			seen[key] = true
			stage("computing what is wanted at "+caseText(v), childLimit)
			ref, err := op.NewReference(ctx, v)
			if err != nil {
				continue // sizes that the operator's reference refuses
			}
			small, refs = append(small, v), append(refs, ref)
		}
	}
	if len(small) == 0 {
		return nil, nil, fmt.Errorf("%v: there is no shape at which it can be checked (when: %s)", k,
			cmp.Or(cases[0].Name(), "none"))
	}
	return small, refs, nil
}
