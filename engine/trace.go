package engine

import (
	"context"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
)

// Traced is a node of a model's step that is run by itself.
type Traced struct {
	Graph *graph.Graph
	Node  *graph.Node
	Done  bool // it has been run: its results can be read; before, its operands
	l     *backends.Launch
	s     backends.Stream
}

// In reads operand k, row by row in float64; nil where it is left out. Only before the node is run: it may lie where a
// result will.
func (t Traced) In(k int) ([]float64, error) {
	if t.Done || k >= len(t.l.In) || t.l.In[k].Buffer == nil {
		return nil, nil
	}
	return readOperand(t.s, &t.l.In[k])
}

// Out reads result k, row by row in float64; nil before the node is run.
func (t Traced) Out(k int) ([]float64, error) {
	if !t.Done {
		return nil, nil
	}
	return readOperand(t.s, &t.l.Out[k])
}

// Trace runs tokens as one step, node by node, as the model file's equations say, nothing fused. visit is called before
// and after each node, in order; its error ends the run. Nothing else uses the device meanwhile.
func Trace(ctx context.Context, opt Options, tokens []int32, visit func(Traced) error) (err error) {
	opt.NoFuse, opt.Eager = true, true
	if len(tokens) > opt.Context {
		return &TooLong{Tokens: len(tokens), Context: opt.Context}
	}
	opt.Chunk = max(opt.Chunk, len(tokens))
	e, err := New(ctx, opt)
	if err != nil {
		return err
	}
	defer e.Close()
	s, err := e.NewSession()
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	_, err = s.oneByOne(ctx, tokens, func(st *Step, l *backends.Launch, done bool) error {
		return visit(Traced{Graph: st.Graph, Node: l.Node, Done: done, l: l, s: s.stream})
	})
	return err
}

// MadeUp gives n token ids below a vocabulary's size, the same for a seed everywhere; none is below 3, where
// vocabularies have what pads, begins and ends.
func MadeUp(n, vocabulary int, seed uint64) []int32 {
	tokens := make([]int32, n)
	low := min(3, max(0, vocabulary-1))
	for i := range tokens {
		tokens[i] = int32(low + int(splitmix(&seed)%uint64(max(1, vocabulary-low))))
	}
	return tokens
}
