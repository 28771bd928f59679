package model

import (
	"context"
	"fmt"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/graph"
)

// Input is what a model is measured on: activations for a block, tokens for a model.
type Input struct {
	X      []float32 // rows of Width; nil for a model
	Width  int       // 0 for a model
	Tokens []int32   // nil for a block
}

// NewInput makes n rows or tokens of a seed, the same every time. It is an error where the model has
// neither as its input.
func NewInput(e *engine.Engine, n int, seed uint64) (*Input, error) {
	if e.IsBlock() {
		v := e.Decode().Input("x")
		if v == nil || len(v.Shape) != 2 {
			return nil, fmt.Errorf("%s has neither tokens nor rows x as its input: it cannot be measured alone",
				e.Options().Model.Name())
		}
		return &Input{X: engine.Activations(n*v.Shape[1], seed+1), Width: v.Shape[1]}, nil
	}
	in := &Input{Tokens: make([]int32, n)}
	for i, a := range engine.Activations(n, seed+1) {
		in.Tokens[i] = int32((float64(a) + 1) / 2 * float64(e.Vocabulary()))
	}
	return in, nil
}

// Run computes positions [from, to) as one prefill, or as one decode step where
// that is one. The result is overwritten by the next call.
func (in *Input) Run(ctx context.Context, s *engine.Session, from, to int) ([]float32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch {
	case in.Width > 0:
		return s.Block(in.X[from*in.Width : to*in.Width])
	case to == from+1:
		return s.Decode(in.Tokens[from])
	}
	return s.Prefill(ctx, in.Tokens[from:to])
}

// singles computes the first n positions one by one: a row each.
func (in *Input) singles(ctx context.Context, s *engine.Session, n int) ([]float32, error) {
	var all []float32
	s.Reset()
	for i := range n {
		out, err := in.Run(ctx, s, i, i+1)
		if err != nil {
			return nil, err
		}
		all = append(all, out...)
	}
	return all, nil
}

// RowWidth is the size of one position's result in that of n positions: a block gives all of them, which
// need not be as wide as its input, a model the last one's.
func (in *Input) RowWidth(out []float32, n int) int {
	if in.Width > 0 {
		return len(out) / n
	}
	return len(out)
}

// TypeName names what an engine's weights are in: the mix that was asked for, or the type of most of their bytes.
func TypeName(e *engine.Engine) string {
	if name := e.Options().MixName; name != "" {
		return name
	}
	return mainType(e.Decode())
}

func mainType(g *graph.Graph) string {
	bytes := map[string]int{}
	best := ""
	for _, v := range g.Weights {
		name := v.Type.String()
		if bytes[name] += v.Bytes(); bytes[name] > bytes[best] {
			best = name
		}
	}
	return best
}
