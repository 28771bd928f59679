package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Choosing on the device: a step whose last launch is a topk of the logits, so that
// the host reads k candidates, four bytes each and four for their number, instead of
// a vocabulary of logits.

// picks is how many of the most likely tokens a choice needs, 0 where it must see
// all logits, or where the device would rather send them.
func (e *Engine) picks(o Sampling) int {
	k := 1
	if o.Temperature > 0 {
		k = o.TopK
	}
	out := e.first.Outputs[0]
	if o.changes() || k == 0 || k > e.running.Picks || e.IsBlock() || out.Type != tensor.F32 || k > out.Shape.Last() {
		return 0
	}
	return k
}

// alone is how the tokens of a single sequence are chosen, with the log-probabilities of so many likely ones: where the
// device does not give what that needs by the host.
func (e *Engine) alone(o Sampling, logprobs int) how {
	h := how{picks: e.picks(o)}
	if h.picks == 0 || logprobs == 0 {
		return h
	}
	if h.tops = e.tops(logprobs); h.tops == 0 {
		return how{}
	}
	return h.shared()
}

// pickGraph is the graph of a step that gives the k largest logits of each row,
// values and tokens, in place of all, or before all.
func (e *Engine) pickGraph(kind stepKind, in *poolSize) (*graph.Graph, error) {
	g, err := e.choiceOf(kind), error(nil)
	if kind.part != choosing {
		g, err = e.graph(kind.Tokens, kind.Rows, in)
	}
	if err != nil {
		return nil, err
	}
	logits, from := g.Outputs[0], g.Outputs[0]
	if kind.drawn {
		if from, err = e.drawn(g, kind); err != nil {
			return nil, err
		}
	}
	choice, err := e.mostLikely(g, from, kind.picks, "choice")
	if err != nil {
		return nil, err
	}
	g.Outputs = choice
	if kind.tops > 0 {
		if err := e.thoughts(g, kind, logits); err != nil {
			return nil, err
		}
	}
	if kind.logits {
		g.Outputs = append(g.Outputs, logits)
	}
	return g, g.Verify()
}

// thoughts adds the log-probabilities of the tokens that are chosen from to the outputs, and the most likely tokens
// with theirs where those are others.
func (e *Engine) thoughts(g *graph.Graph, kind stepKind, logits *graph.Value) error {
	of := func(tokens *graph.Value, name string) error {
		y, err := e.behind(g, ops.Logprob, nil, []string{name}, logits, tokens)
		g.Outputs = append(g.Outputs, y...)
		return err
	}
	if err := of(g.Outputs[1], "logprobs.choice"); err != nil || !kind.drawn {
		return err
	}
	best, err := e.mostLikely(g, logits, kind.tops, "best")
	if err != nil {
		return err
	}
	g.Outputs = append(g.Outputs, best[1])
	return of(best[1], "logprobs.best")
}

// mostLikely adds the choice of the k largest of each row of logits, and gives them and their tokens.
func (e *Engine) mostLikely(g *graph.Graph, logits *graph.Value, k int, name string) ([]*graph.Value, error) {
	attr := &ops.TopKAttr{K: k, Softmax: "none"}
	return e.behind(g, ops.TopK, attr, []string{name + ".logits", name + ".tokens"}, logits)
}

// behind adds an operator behind the logits of a graph, and gives its results, which have names: of the node, a dot,
// what it is.
func (e *Engine) behind(g *graph.Graph, op *graph.Op, attr any, names []string, in ...*graph.Value) ([]*graph.Value,
	error) {
	name, _, _ := strings.Cut(names[0], ".")
	n := &graph.Node{ID: len(g.Nodes), Op: op, Attr: attr, Float: e.dev.Info().Float, Name: name, Block: -1, In: in}
	results, err := op.Infer(n)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", op.Name, in[0], err)
	}
	for i, r := range results {
		n.Out = append(n.Out, g.AddValue(&graph.Value{Name: names[i], Type: r.Type, Shape: r.Shape, Def: n, Index: i}))
	}
	g.Nodes = append(g.Nodes, n)
	return slices.Clone(n.Out), nil
}

// choiceOf is a graph of logits alone, behind which comes how they are chosen from.
func (e *Engine) choiceOf(kind stepKind) *graph.Graph {
	out := e.first.Outputs[0]
	g := &graph.Graph{Name: e.first.Name + " choice"}
	g.Outputs = []*graph.Value{g.AddValue(&graph.Value{Name: logitsInput, Kind: graph.Input, Type: out.Type,
		Shape: tensor.Shape{kind.Rows, out.Shape.Last()}})}
	return g
}

// readPicks brings the candidates of the last row of a step, of a chain of them if it is one, to the host. The row is
// that of position pos.
func (s *Session) readPicks(st *Step, link, pos int) error {
	k := st.Graph.Outputs[0].Shape.Last()
	if cap(s.values) < k {
		s.values, s.numbers, s.picked, s.logprobs = make([]float32, k), make([]int32, k), make([]candidate, k),
			make([]float32, k)
	}
	s.values, s.numbers, s.picked, s.logprobs = s.values[:k], s.numbers[:k], s.picked[:k], s.logprobs[:k]
	for i, to := range [3][]byte{tensor.Bytes(s.values), tensor.Bytes(s.numbers), tensor.Bytes(s.logprobs)} {
		if i == 2 && st.tops == 0 {
			break
		}
		v := st.Graph.Outputs[i]
		off, _, err := st.output(v)
		if err != nil {
			return err
		}
		off += link * apart(st.locs[v.ID].root)
		if err := s.stream.Read(st.step, off+v.Bytes()-len(to), to); err != nil {
			return err
		}
	}
	width := s.engine.first.Outputs[0].Shape.Last()
	for i, v := range s.values {
		if s.numbers[i] < 0 || int(s.numbers[i]) >= width {
			return fmt.Errorf("the device chose token %d of %d", s.numbers[i], width)
		}
		s.picked[i] = candidate{s.numbers[i], v}
	}
	if _, ok := Finite(s.values); !ok {
		return fmt.Errorf("logit %d behind position %d is %v", s.numbers[0], pos, s.values)
	}
	return nil
}

// choice computes a token and chooses the next one, on the device where it does that.
func (s *Session) choice(tokens []int32, h how, sampler *Sampler, history []int32) (int32, error) {
	s.enter()
	defer s.leave()
	st, err := s.stepOf(h.kind(stepKind{Tokens: len(tokens), Rows: 1}), nil)
	if err != nil {
		return 0, err
	}
	if err := s.single(st, tokens); err != nil {
		return 0, err
	}
	return s.chosen(st, sampler, history)
}

// chosen reads what the last step gives and draws a token.
func (s *Session) chosen(st *Step, sampler *Sampler, history []int32) (int32, error) {
	if st.picks > 0 {
		if err := s.readPicks(st, 0, s.pos-1); err != nil {
			return 0, err
		}
		id := sampler.among(s.picked, len(history))
		if sampler.logs > 0 {
			sampler.log = append(sampler.log, s.thought(id, sampler.logs))
		}
		return id, nil
	}
	if err := s.read(st); err != nil {
		return 0, err
	}
	if i, ok := Finite(s.logits); !ok {
		return 0, fmt.Errorf("logit %d behind position %d is %v", i, s.pos-1, s.logits[i])
	}
	if sampler.logs == 0 {
		return sampler.Sample(s.logits, history)
	}
	c, err := sampler.Choose(s.logits, history, nil, sampler.logs)
	if err == nil {
		c.Top = slices.Clone(c.Top)
		sampler.log = append(sampler.log, c)
	}
	return c.ID, err
}

// thought is what the last step gives of a token that was chosen among its picks, and of the likeliest.
func (s *Session) thought(id int32, top int) Chosen {
	c := Chosen{Top: make([]TokenLogprob, min(top, len(s.picked)))}
	for i, p := range s.picked {
		one := TokenLogprob{p.id, s.logprobs[i]}
		if i < len(c.Top) {
			c.Top[i] = one
		}
		if p.id == id {
			c.TokenLogprob = one
		}
	}
	return c
}
