package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"greta/backends"
	"greta/graph"
)

// Step is the captured program of one number of tokens, bound to a session's memory.
type Step struct {
	Tokens  int // S: tokens in the step
	Rows    int // R: rows of logits
	picks   int // the most likely tokens that it gives instead of logits; 0: logits
	Graph   *graph.Graph
	Program *backends.Program

	step    backends.Buffer // inputs and outputs
	offsets map[*graph.Value]int
	exec    backends.Executable
	stream  backends.Stream // runs the launches one by one, where exec is nil
	nodes   []int           // node of each launch
	locs    locations
	ints    []int32 // for positions
}

// newStep lowers, plans and captures a step for the session.
func (s *Session) newStep(tokens, rows, picks int) (*Step, error) {
	e := s.engine
	e.capture.Lock()
	defer e.capture.Unlock()
	g := e.first
	var err error
	switch {
	case picks > 0:
		g, err = e.pickGraph(tokens, rows, picks)
	case tokens != 1 || rows != 1:
		g, err = e.Graph(tokens, rows)
	}
	if err != nil {
		return nil, err
	}
	sel, err := e.selectKernels(g)
	if err != nil {
		return nil, err
	}
	// A step of another kind than those that New loads for, with logits of many rows
	// for one, may want layouts of its own.
	if err := e.load(context.Background(), e.jobs(g, sel)); err != nil {
		return nil, err
	}
	p := planMemory(g, sel, e.dev.Info().Window)
	if err := s.growArena(p.arena); err != nil {
		return nil, err
	}
	st := &Step{Tokens: tokens, Rows: rows, picks: picks, Graph: g, offsets: map[*graph.Value]int{}, locs: p.locs}
	size := 0
	reserve := func(v *graph.Value) {
		if root := p.locs[v.ID].root; root.Kind == graph.Input || root.Kind == graph.Computed {
			if _, ok := st.offsets[root]; !ok {
				st.offsets[root] = size
				size += roundUp(root.Bytes())
			}
		}
	}
	for _, v := range g.Inputs {
		reserve(v)
	}
	for _, v := range g.Outputs {
		reserve(v)
	}
	if st.step, err = e.dev.Alloc(max(size, align), backends.Step); err != nil {
		return nil, err
	}
	b := binder{s: s, st: st, p: p, slots: map[*graph.Value]int{}}
	for _, sl := range p.slots {
		b.slots[sl.value] = sl.offset
	}
	if st.Program, err = b.program(g, sel); err == nil {
		dev, plans := e.dev.(backends.Eager)
		switch {
		case !e.opt.Eager:
			st.exec, err = e.dev.Capture(st.Program)
		case plans:
			st.exec, err = dev.Eager(st.Program)
		default:
			st.stream, err = e.dev.Stream()
		}
	}
	if err != nil {
		return nil, errors.Join(err, st.step.Free())
	}
	return st, nil
}

// binder finds the memory of every operand.
type binder struct {
	s     *Session
	st    *Step
	p     *plan
	slots map[*graph.Value]int
}

func (b *binder) program(g *graph.Graph, sel selection) (*backends.Program, error) {
	prog := &backends.Program{Name: fmt.Sprintf("%s S=%d", g.Name, b.st.Tokens)}
	for i, n := range g.Nodes {
		if sel[i] == nil {
			continue
		}
		l := backends.Launch{Node: n, Kernel: sel[i], In: make([]backends.Operand, len(n.In)), Out: make([]backends.Operand, len(n.Out))}
		var err error
		for j, v := range n.In {
			if v == nil {
				continue
			}
			if l.In[j], err = b.operand(v, sel[i].Packing(j)); err != nil {
				return nil, fmt.Errorf("%v: %w", n, err)
			}
		}
		for j, v := range n.Out {
			if l.Out[j], err = b.operand(v, nil); err != nil {
				return nil, fmt.Errorf("%v: %w", n, err)
			}
		}
		if off := b.p.scratch[i]; off >= 0 {
			size := sel[i].Scratch()
			l.Scratch = backends.Operand{Buffer: b.s.arena, Offset: off, Stride: 1, Shape: []int{size}}
		}
		prog.Launches = append(prog.Launches, l)
		b.st.nodes = append(b.st.nodes, i)
	}
	return prog, nil
}

func (b *binder) operand(v *graph.Value, p *backends.Packing) (backends.Operand, error) {
	loc := b.p.locs[v.ID]
	o := backends.Operand{Offset: loc.offset, Stride: loc.stride, Type: v.Type, Shape: v.Shape}
	switch loc.root.Kind {
	case graph.Weight:
		key := weightKey{name: loc.root.Name}
		if p != nil {
			key.packing = p.ID
		}
		w := b.s.engine.weights[key]
		if w == nil {
			return o, fmt.Errorf("weight %s is not loaded in the layout %q", key.name, key.packing)
		}
		o.Buffer, o.Packing = w.buffer, key.packing
	case graph.State:
		o.Buffer = b.s.states[loc.root.Name]
		if o.Buffer == nil {
			return o, fmt.Errorf("state %s has no memory", loc.root.Name)
		}
	default:
		if off, ok := b.st.offsets[loc.root]; ok {
			o.Buffer = b.st.step
			o.Offset += off
			break
		}
		off, ok := b.slots[loc.root]
		if !ok {
			return o, fmt.Errorf("%s has no place in the arena", loc.root)
		}
		o.Buffer = b.s.arena
		o.Offset += off
	}
	return o, nil
}

// submit starts the step; without capture it runs the launches to their end.
func (st *Step) submit() error {
	if st.exec != nil {
		return st.exec.Submit()
	}
	for i := range st.Program.Launches {
		if err := st.stream.Launch(&st.Program.Launches[i]); err != nil {
			return fmt.Errorf("%v: %w", st.Program.Launches[i].Node, err)
		}
	}
	return nil
}

// wait waits for the end of the step.
func (st *Step) wait() error {
	if st.exec != nil {
		return st.exec.Wait()
	}
	return nil
}

// Profile runs the step once and gives the time of each launch of Program.
func (st *Step) Profile() ([]time.Duration, error) {
	if st.exec == nil {
		return nil, fmt.Errorf("a step that runs eagerly has no profile; capture it")
	}
	return st.exec.Profile()
}

func (st *Step) close() error {
	var errs []error
	if st.exec != nil {
		errs = append(errs, st.exec.Close())
	}
	if st.stream != nil {
		errs = append(errs, st.stream.Close())
	}
	if st.step != nil {
		errs = append(errs, st.step.Free())
	}
	return errors.Join(errs...)
}

// programText prints a program: each launch with its kernel, operands and layouts,
// without addresses, so that it can be compared.
func programText(g *graph.Graph, sel selection, p *plan) string {
	var b strings.Builder
	launches := 0
	for i := range g.Nodes {
		if sel[i] != nil {
			launches++
		}
	}
	fmt.Fprintf(&b, "program %s: %d launches, arena %d bytes\n", g.Name, launches, p.arena)
	k := 0
	for i, n := range g.Nodes {
		if sel[i] == nil {
			continue
		}
		fmt.Fprintf(&b, "%4d %-28s %s", k, sel[i].Name(), n.Text())
		for j, v := range n.In {
			if v != nil {
				if pk := sel[i].Packing(j); pk != nil {
					fmt.Fprintf(&b, " [%s: %s]", v.Name, pk.ID)
				}
			}
		}
		b.WriteByte('\n')
		k++
	}
	return b.String()
}
