package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// checkSingles is how many single steps at most are run three times.
const checkSingles = 10

// whole compares whole steps: prefill against decode, and replay against replay and
// against eager, of a prompt at once and of single tokens behind one.
func (r *CheckReport) whole(ctx context.Context, e *Engine, input feed) error {
	n := input.len()
	singles := min(n-1, checkSingles)
	type pass struct{ first, picks int } // tokens of the first step; what single steps choose among
	passes := []pass{{n, 0}}
	if singles > 0 {
		passes = append(passes, pass{n - singles, 0})
		if k := e.picks(Sampling{}); k > 0 {
			passes = append(passes, pass{n - singles, k})
		}
	}
	r.RepeatOK, r.ReplayOK = true, true
	var whole []float32
	for i, p := range passes {
		replay, err := e.outputs(ctx, input, p.first, p.picks, false)
		if err != nil {
			return err
		}
		again, err := e.outputs(ctx, input, p.first, p.picks, false)
		if err != nil {
			return err
		}
		eager, err := e.outputs(ctx, input, p.first, p.picks, true)
		if err != nil {
			return err
		}
		if i == 0 {
			whole = replay[0].last
		}
		if at := replay.differs(again); at >= 0 && r.RepeatOK {
			r.RepeatOK, r.RepeatAt = false, replay[at].name()
		}
		if at := replay.differs(eager); at >= 0 && r.ReplayOK {
			r.ReplayOK, r.ReplayAt = false, replay[at].name()
		}
	}
	single, err := e.outputs(ctx, input, 1, 0, false)
	if err != nil {
		return err
	}
	r.Prefill = OpError{Step: "prefill against decode", Name: e.first.Outputs[0].Name, Block: -1}
	r.Prefill.RelL2, r.Prefill.MaxAbs = Errors(widen(whole), widen(single[n-1].last))
	r.PrefillLimit = r.Limit
	if limit := e.rounded(HalfLimit, 0); limit > 0 && limit < F8Limit { // which decode does not meet
		// Prefill and decode round apart from each other, and each may be that far from the reference.
		r.PrefillLimit *= 2
		if e.Routes() {
			r.PrefillLimit = max(r.PrefillLimit, RoutedLimit)
		}
	}
	r.PrefillOK = r.Prefill.RelL2 <= r.PrefillLimit
	return nil
}

// stepOutput is what a step gave: all bits of its outputs, and the first output's
// part that belongs to the last token, where it is no choice.
type stepOutput struct {
	tokens, pos, picks int
	bits               []byte
	last               []float32
}

func (o *stepOutput) name() string {
	kind := "prefill"
	switch {
	case o.picks > 0:
		kind = "decode with the choice of a token"
	case o.pos > 0:
		kind = "decode"
	}
	return fmt.Sprintf("%s S=%d at position %d", kind, o.tokens, o.pos)
}

type stepOutputs []stepOutput

// differs is the first step whose bits are not those of the same step in b, -1 if none.
func (a stepOutputs) differs(b stepOutputs) int {
	for i := range a {
		if !bytes.Equal(a[i].bits, b[i].bits) {
			return i
		}
	}
	return -1
}

// outputs runs a step of the first tokens of a feed, then one of each other token, in
// a session of its own, and gives what each gave. Single steps choose among so many candidates.
func (e *Engine) outputs(ctx context.Context, input feed, first, picks int, eager bool) (all stepOutputs, err error) {
	old := e.opt.Eager
	e.opt.Eager = eager
	defer func() { e.opt.Eager = old }()
	s, err := e.NewSession()
	if err != nil {
		return nil, err
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	for from, to := 0, first; from < input.len(); from, to = to, to+1 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		k := 0
		if from > 0 {
			k = picks
		}
		st, err := s.feed(input.slice(from, to), k)
		if err != nil {
			return nil, err
		}
		o := stepOutput{tokens: to - from, pos: from, picks: k}
		if o.bits, err = s.outputBits(st); err != nil {
			return nil, err
		}
		if k == 0 {
			if err := s.read(st); err != nil {
				return nil, err
			}
			o.last = slices.Clone(s.logits[len(s.logits)-e.lastRow(len(s.logits), o.tokens):])
		}
		all = append(all, o)
	}
	return all, nil
}

// outputBits reads all outputs of a step as the device has them.
func (s *Session) outputBits(st *Step) ([]byte, error) {
	var all []byte
	for _, v := range st.Graph.Outputs {
		off, stride, err := st.output(v)
		if err != nil {
			return nil, err
		}
		to := tensor.New(tensor.U8, v.Bytes()).Data
		if err := s.readRows(st, to, off, stride, rowBytes(v)); err != nil {
			return nil, err
		}
		all = append(all, to...)
	}
	return all, nil
}

// lastRow is the size of the part of an output that belongs to its last
// token: all of a model's logits, one row of a block's activations.
func (e *Engine) lastRow(n, step int) int {
	if e.IsBlock() {
		return n / step
	}
	return n
}

// feed runs one step on tokens or activations to its end.
func (s *Session) feed(f feed, picks int) (*Step, error) {
	st, err := s.stepOf(stepKind{Tokens: f.len(), Rows: 1, picks: picks}, nil)
	if err != nil {
		return nil, err
	}
	if f.tokens == nil {
		err = s.writeActivations(st, f.x)
	} else {
		err = s.check(f.tokens)
	}
	if err != nil {
		return nil, err
	}
	if err := s.begin(st, f.tokens); err != nil {
		return nil, err
	}
	return st, s.settle()
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
