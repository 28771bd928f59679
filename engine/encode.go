package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/models"
)

// Text is what an Encoder takes: tokens, and the rows of them that become its vector.
type Text struct {
	Tokens []int32
	Types  []int32 // which of two texts read as one a token belongs to; nil: all to the first
	// From and To are the rows whose mean is the text's vector: [From, To) of Tokens.
	From, To int
}

// Encoder runs a model whose results are vectors or scores of texts: several texts in each step, one pass over them,
// no caches. It is used by one goroutine at a time; several may share an engine.
type Encoder struct {
	session *Session
	width   int
	ints    []int32
}

// encoderSteps bounds the captured steps that an Encoder keeps: steps have few different sizes (see stepSize).
const encoderSteps = 24

// Encoder makes one. The engine's model must have a task.
func (e *Engine) Encoder() (*Encoder, error) {
	if e.opt.Model.Task() == "" {
		return nil, fmt.Errorf("%s gives the logits of a next token, no vectors of texts", e.opt.Model.Path())
	}
	if e.first.Input("pooled") == nil || len(e.first.Outputs[0].Shape) != 2 {
		return nil, fmt.Errorf("%s: a model with a task has an input pooled: i32[R, 2] and a result of R rows",
			e.opt.Model.Path())
	}
	s, err := e.newSession()
	if err != nil {
		return nil, err
	}
	s.most = encoderSteps
	return &Encoder{session: s, width: e.first.Outputs[0].Shape[1]}, nil
}

// Width is the number of values that a text becomes.
func (e *Encoder) Width() int { return e.width }

// Close frees the encoder's memory.
func (e *Encoder) Close() error { return e.session.Close() }

// stepSize is the size of the step that n tokens, or texts, are computed in: rows that nobody reads fill it, so that
// few different steps are captured. At most a third of them are idle.
func stepSize(n int) int {
	size := 4
	for size < n {
		if size += size / 2; size < n {
			size = size / 3 * 4
		}
	}
	return size
}

// Encode gives the vector of each text, in order. Texts of like length are computed together, at most
// Options.Chunk tokens in a step, or one text that is longer.
func (e *Encoder) Encode(ctx context.Context, texts []Text) ([][]float32, error) {
	vocabulary := e.session.engine.Vocabulary()
	order := make([]int, len(texts))
	for i, t := range texts {
		order[i] = i
		switch {
		case len(t.Tokens) == 0:
			return nil, fmt.Errorf("text %d has no tokens", i)
		case len(t.Tokens) > e.session.engine.opt.Context:
			return nil, &TooLong{len(t.Tokens), 0, e.session.engine.opt.Context}
		case t.From < 0 || t.From >= t.To || t.To > len(t.Tokens):
			return nil, fmt.Errorf("text %d: rows [%d, %d) of %d tokens", i, t.From, t.To, len(t.Tokens))
		case t.Types != nil && len(t.Types) != len(t.Tokens):
			return nil, fmt.Errorf("text %d: %d types of %d tokens", i, len(t.Types), len(t.Tokens))
		}
		for k, id := range t.Tokens {
			if id < 0 || int(id) >= vocabulary {
				return nil, fmt.Errorf("text %d: token %d is %d, the vocabulary has %d", i, k, id, vocabulary)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(texts[b].Tokens) - len(texts[a].Tokens) })
	out := make([][]float32, len(texts))
	for len(order) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, tokens := 0, 0
		for _, i := range order {
			if more := len(texts[i].Tokens); n > 0 && tokens+more > e.session.engine.opt.Chunk {
				break
			}
			tokens += len(texts[i].Tokens)
			n++
		}
		if err := e.step(texts, order[:n], tokens, out); err != nil {
			return nil, err
		}
		order = order[n:]
	}
	return out, nil
}

// step computes the texts of some numbers together.
func (e *Encoder) step(texts []Text, numbers []int, tokens int, out [][]float32) error {
	s := e.session
	s.enter()
	defer s.leave()
	size, rows := stepSize(tokens), stepSize(len(numbers))
	if len(numbers) == 1 {
		rows = 1
	}
	st, err := s.stepOf(stepKind{Tokens: size, Rows: rows}, nil)
	if err != nil {
		return err
	}
	if err := e.write(st, texts, numbers); err != nil {
		return err
	}
	if err := errlist.Join(st.submit(), s.wait(st)); err != nil {
		return err
	}
	if err := s.read(st); err != nil {
		return err
	}
	for r, i := range numbers {
		out[i] = slices.Clone(s.logits[r*e.width : (r+1)*e.width])
		if at, ok := Finite(out[i]); !ok {
			return fmt.Errorf("text %d: value %d is no number", i, at)
		}
	}
	return nil
}

// write fills in a step's inputs. Rows behind the last text's see themselves alone.
func (e *Encoder) write(st *Step, texts []Text, numbers []int) error {
	n, r := st.Tokens, st.Rows
	e.ints = slices.Grow(e.ints[:0], 5*n+2*r)[:5*n+2*r]
	clear(e.ints)
	ids, pos, types, span, pooled := e.ints[:n], e.ints[n:2*n], e.ints[2*n:3*n], e.ints[3*n:5*n], e.ints[5*n:]
	at := 0
	for row, i := range numbers {
		t := &texts[i]
		copy(ids[at:], t.Tokens)
		copy(types[at:], t.Types)
		for k := range t.Tokens {
			pos[at+k] = int32(k)
			span[2*(at+k)], span[2*(at+k)+1] = int32(at), int32(at+len(t.Tokens))
		}
		pooled[2*row], pooled[2*row+1] = int32(at+t.From), int32(at+t.To)
		at += len(t.Tokens)
	}
	for ; at < n; at++ {
		span[2*at], span[2*at+1] = int32(at), int32(at+1)
	}
	for row := len(numbers); row < r; row++ {
		pooled[2*row], pooled[2*row+1] = 0, 1
	}
	for _, in := range []struct {
		name   string
		values []int32
	}{{"tokens", ids}, {"pos", pos}, {"types", types}, {"span", span}, {"pooled", pooled}} {
		if err := st.writeInts(e.session.stream, in.name, 0, in.values, 0, 0); err != nil {
			return err
		}
	}
	return nil
}

// taskInputs are the inputs of models with a task, beside tokens and pos.
var taskInputs = []string{"types", "span", "pooled"}

// noTask refuses a sequence of a model that has none.
func (e *Engine) noTask() error {
	switch e.opt.Model.Task() {
	case models.Embed:
		return fmt.Errorf("%s gives vectors of texts, no next token: greta embed", e.opt.Model.Path())
	case models.Score:
		return fmt.Errorf("%s gives scores of texts, no next token: greta rerank", e.opt.Model.Path())
	}
	return nil
}
