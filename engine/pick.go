package engine

import (
	"fmt"
	"slices"

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
	k, logits := kind.picks, g.Outputs[0]
	if kind.drawn {
		if err := e.drawn(g, kind); err != nil {
			return nil, err
		}
	}
	n := &graph.Node{ID: len(g.Nodes), Op: ops.TopK, In: g.Outputs[:1:1], Attr: &ops.TopKAttr{K: k, Softmax: "none"},
		Float: e.dev.Info().Float, Name: "choice", Block: -1}
	results, err := n.Op.Infer(n)
	if err != nil {
		return nil, fmt.Errorf("choosing from %s: %w", g.Outputs[0], err)
	}
	for i, r := range results {
		n.Out = append(n.Out, g.AddValue(&graph.Value{Name: [...]string{"choice.logits", "choice.tokens"}[i], Type: r.Type,
			Shape: r.Shape, Def: n, Index: i}))
	}
	g.Nodes, g.Outputs = append(g.Nodes, n), slices.Clone(n.Out)
	if kind.logits {
		g.Outputs = append(g.Outputs, logits)
	}
	return g, g.Verify()
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
	p, t := st.Graph.Outputs[0], st.Graph.Outputs[1]
	k := p.Shape.Last()
	if cap(s.values) < k {
		s.values, s.numbers, s.picked = make([]float32, k), make([]int32, k), make([]candidate, k)
	}
	s.values, s.numbers, s.picked = s.values[:k], s.numbers[:k], s.picked[:k]
	for i, to := range [2][]byte{tensor.Bytes(s.values), tensor.Bytes(s.numbers)} {
		v := [2]*graph.Value{p, t}[i]
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
func (s *Session) choice(tokens []int32, k int, sampler *Sampler, history []int32) (int32, error) {
	s.enter()
	defer s.leave()
	st, err := s.stepOf(stepKind{Tokens: len(tokens), Rows: 1, picks: k}, nil)
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
		return sampler.among(s.picked, len(history)), nil
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
