package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
)

// Step is the captured program of one number of tokens, bound to a session's memory; or
// of several steps of that kind behind each other.
type Step struct {
	stepKind
	Graph   *graph.Graph
	Program *backends.Program

	step    backends.Buffer // inputs and outputs
	offsets map[*graph.Value]int
	between *graph.Value    // lies in the session's memory between; nil: none
	held    backends.Buffer // activations and results of a step that holds them; nil: they lie in step
	heldAt  map[*graph.Value]int
	exec    backends.Executable
	stream  backends.Stream     // runs the launches one by one, where exec is nil
	mutex   *backends.FairMutex // of the device
	nodes   []int               // node of each launch
	locs    locations
	ints    []int32 // for positions

	ran        bool // at least once
	allAllowed bool // the input of allowed tokens holds ones alone
}

// stepKind is what tells one captured step from another.
type stepKind struct {
	Tokens int // S: tokens in the step
	Rows   int // R: rows of logits
	picks  int // the most likely tokens that it gives instead of logits; 0: logits
	// drawn says that the tokens to pick among are masked, and have noise: see drawn.go.
	drawn bool
	// filtered says that they are filtered before they get noise.
	filtered bool
	// changes is how many logits of a row penalties and biases change at most, before all that.
	changes int
	// logits says that all logits of rows can be read too, which the host chooses from where the device does not.
	logits bool
	// tops is of how many of the most likely tokens there are log-probabilities, and of those picked; 0: of none. Without
	// draw it is picks, whose they are.
	tops int
	// part is which of a step's programs it is, where that has two.
	part part
	// chain is how many steps it is behind each other, of these tokens and rows each; 0: one. With a pick the token
	// of each is that which the one before gives.
	chain int
	// adapted is a batch's step with the products of adapters: one without serves rows that have none.
	adapted bool
	// onDevice says that activations come from memory of the device, and results stay there: see shared.go.
	onDevice bool
}

// part is what of a step a program computes.
type part uint8

const (
	whole    part = iota
	forward       // up to the logits, which stay in the session's memory between
	choosing      // from there on
)

// positions is the number of positions that the step computes.
func (k stepKind) positions() int { return k.Tokens * max(k.chain, 1) }

// lowered gives the graph of a step of a session, or with a pool of a batch, and its kernels.
func (e *Engine) lowered(kind stepKind, pool *poolSize) (g *graph.Graph, sel selection, err error) {
	g = e.first
	if kind.adapted {
		adapted := *pool
		adapted.adapted, pool = true, &adapted
	}
	switch {
	case kind.picks > 0: // of choosing alone too
		g, err = e.pickGraph(kind, pool)
	case pool != nil:
		g, err = e.graph(kind.Tokens, kind.Rows, pool)
	case kind.Tokens != 1 || kind.Rows != 1:
		g, err = e.Graph(kind.Tokens, kind.Rows)
	}
	if err == nil {
		sel, err = e.selectKernels(g)
	}
	return g, sel, err
}

// newStep lowers, plans and captures a step for the session.
func (s *Session) newStep(kind stepKind) (*Step, error) {
	e := s.engine
	g, sel, err := e.lowered(kind, s.pool)
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
	between, err := s.passed(kind, g, p)
	if err != nil {
		return nil, err
	}
	st := &Step{stepKind: kind, Graph: g, between: between, offsets: map[*graph.Value]int{},
		heldAt: map[*graph.Value]int{}, locs: p.locs, mutex: e.mutex}
	size, held := st.reserve()
	if st.step, err = e.dev.Alloc(max(size, align), backends.Step); err != nil {
		return nil, err
	}
	if held > 0 {
		if st.held, err = e.dev.Alloc(held, backends.Arena); err != nil {
			return nil, errlist.Join(err, st.step.Free())
		}
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
		st.exec, st.stream = nil, nil
		return nil, errlist.Join(err, st.close())
	}
	if n, ok := st.exec.(backends.Noter); ok && n.Note() != "" && !e.noted[n.Note()] {
		e.noted[n.Note()] = true
		e.notify(n.Note())
	}
	return st, nil
}

// passed is the value that one part of a step leaves for the other, for which it sees to memory; nil for a whole one.
func (s *Session) passed(kind stepKind, g *graph.Graph, p *plan) (*graph.Value, error) {
	var v *graph.Value
	switch kind.part {
	case forward:
		v = g.Outputs[0]
	case choosing:
		v = g.Input(logitsInput)
	default:
		return nil, nil
	}
	if p.locs[v.ID] != own(v) {
		return nil, fmt.Errorf("%s lie in other values' memory: no part of a step can leave them", v)
	}
	return v, s.grow(&s.between, max(kind.Rows, s.wanted)*rowBytes(v))
}

// reserve gives inputs and outputs their places in step memory, and in that of a step on the device: the bytes of both.
func (st *Step) reserve() (size, held int) {
	for _, v := range slices.Concat(st.Graph.Inputs, st.Graph.Outputs) {
		root := st.locs[v.ID].root
		if root.Kind != graph.Input && root.Kind != graph.Computed || root == st.between {
			continue
		}
		at, end := st.offsets, &size
		if st.onDevice && root.Type.IsFloat() {
			at, end = st.heldAt, &held
		}
		if _, ok := at[root]; !ok {
			at[root] = *end
			*end += max(st.chain, 1) * apart(root) // of all steps together: one copy brings them
		}
	}
	return size, held
}

// apart is how far an input or output of a step lies from that of the next of a chain, bytes.
func apart(v *graph.Value) int { return roundUp(v.Bytes()) }

// binder finds the memory of every operand.
type binder struct {
	s     *Session
	st    *Step
	p     *plan
	slots map[*graph.Value]int
	link  int // which step of a chain
}

func (b *binder) program(g *graph.Graph, sel selection) (*backends.Program, error) {
	prog := &backends.Program{Name: fmt.Sprintf("%s S=%d", g.Name, b.st.Tokens)}
	if b.st.chain > 0 {
		prog.Name, prog.Steps = fmt.Sprintf("%s, %d times", prog.Name, b.st.chain), b.st.chain
	}
	for b.link = range max(b.st.chain, 1) {
		if err := b.launches(prog, g, sel); err != nil {
			return nil, err
		}
	}
	return prog, nil
}

// launches adds those of a step to a program.
func (b *binder) launches(prog *backends.Program, g *graph.Graph, sel selection) error {
	for i, n := range g.Nodes {
		if sel[i] == nil {
			continue
		}
		node := n
		if backends.CustomOf(sel[i]) != nil {
			node = backends.CustomNode(n)
		}
		l := backends.Launch{Node: node, Kernel: sel[i], In: make([]backends.Operand, len(n.In)),
			Out: make([]backends.Operand, len(n.Out))}
		var err error
		for j, v := range n.In {
			if v == nil {
				continue
			}
			if l.In[j], err = b.operand(v, sel[i].Packing(j)); err != nil {
				return fmt.Errorf("%v: %w", n, err)
			}
		}
		for j, v := range n.Out {
			if l.Out[j], err = b.operand(v, nil); err != nil {
				return fmt.Errorf("%v: %w", n, err)
			}
		}
		if off := b.p.scratch[i]; off >= 0 {
			size := sel[i].Traits().Scratch
			l.Scratch = backends.Operand{Buffer: b.s.arena, Offset: off, Stride: 1, Shape: []int{size}}
		}
		prog.Launches = append(prog.Launches, l)
		b.st.nodes = append(b.st.nodes, i)
	}
	return nil
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
		root, link := loc.root, b.link
		if root == b.st.between {
			o.Buffer = b.s.between
			break
		}
		if b.st.picks > 0 && link > 0 && root == b.st.Graph.Input("tokens") {
			root, link = b.p.locs[b.st.Graph.Outputs[1].ID].root, link-1
		}
		if off, ok := b.st.offsets[root]; ok {
			o.Buffer = b.st.step
			o.Offset += off + link*apart(root)
			break
		}
		if off, ok := b.st.heldAt[root]; ok {
			o.Buffer = b.st.held
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
	st.mutex.Lock()
	defer st.mutex.Unlock()
	return st.exec.Profile()
}

// Explain says where the time of a step goes, from its inputs as they lie in the memory for steps to its
// results there. It takes about the time given.
func (st *Step) Explain(budget time.Duration) (*backends.Explanation, error) {
	if st.exec == nil {
		return nil, fmt.Errorf("a step that runs eagerly has no profile; capture it")
	}
	st.mutex.Lock()
	defer st.mutex.Unlock()
	if x, ok := st.exec.(backends.Explainer); ok {
		return x.Explain(budget)
	}
	return st.alone(budget)
}

// explained is how often a step is timed at most.
const explained = 9

// alone explains a step of a device that is the host by its launches one by one.
func (st *Step) alone(budget time.Duration) (*backends.Explanation, error) {
	runs := make([][]time.Duration, len(st.Program.Launches))
	for n, begin := 0, time.Now(); n < explained && (n == 0 || time.Since(begin) < budget); n++ {
		times, err := st.exec.Profile()
		if err != nil {
			return nil, err
		}
		if len(times) != len(runs) {
			return nil, fmt.Errorf("%d times were measured for the %d launches of %s", len(times), len(runs), st.Program.Name)
		}
		for i, d := range times {
			runs[i] = append(runs[i], d)
		}
	}
	out := &backends.Explanation{}
	for i, r := range runs {
		out.Parts = append(out.Parts, backends.Part{Launches: []int{i}, Alone: backends.Median(r)})
	}
	return out, nil
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
	if st.held != nil {
		errs = append(errs, st.held.Free())
	}
	return errlist.Join(errs...)
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
