package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// Session is one sequence: its caches, its position, and the captured steps
// that work on them. It is used by one goroutine at a time. Several sessions of a device may be
// used at once, and take turns step by step: methods that users call take the device's turn (see
// enter) and give it back before they call the user, and those that they call rely on it.
type Session struct {
	engine  *Engine
	states  map[string]backends.Buffer
	arena   backends.Buffer
	between backends.Buffer // logits that one part of a step leaves for the other, for as many rows as are
	wanted  int             // at most
	steps   []*Step         // most recently used first
	most    int             // steps that are kept at most
	pool    *poolSize       // where the caches are pages of several sequences
	stream  backends.Stream
	pos     int       // of the next token; move and take alone write it
	logits  []float32 // of the last step
	one     [1]int32  // the token of a decode step
	out     []byte    // the last step's output as the device has it

	flying    *Step         // submitted and not waited for
	submitted time.Time     // when the last submission returned
	waited    time.Duration // in all, for steps to end
	values    []float32     // of the tokens that the device chose,
	numbers   []int32       // the tokens,
	picked    []candidate   // and both
	logprobs  []float32     // theirs
	pending   pending       // tokens that it chose and that were not given yet
	kept      keptState     // of recurrences
}

// NewSession allocates caches and captures the step of one token.
func (e *Engine) NewSession() (*Session, error) {
	if err := e.noTask(); err != nil {
		return nil, err
	}
	return e.newSession()
}

func (e *Engine) newSession() (*Session, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	s := &Session{engine: e, states: map[string]backends.Buffer{}, most: maxSteps}
	var err error
	if s.stream, err = e.dev.Stream(); err != nil {
		return nil, err
	}
	for _, v := range e.first.States {
		if s.states[v.Name], err = e.dev.Alloc(v.Bytes(), backends.States); err != nil {
			delete(s.states, v.Name)
			return nil, errlist.Join(fmt.Errorf("state %s: %w", v, err), s.close())
		}
	}
	if _, err := s.stepOf(stepKind{Tokens: 1, Rows: 1}, nil); err != nil {
		return nil, errlist.Join(err, s.close())
	}
	return s, nil
}

var errClosed = errors.New("the session is closed")

// enter takes the device's turn. To wait for it is to wait for the device.
func (s *Session) enter() {
	if s.engine.mutex.TryLock() {
		return
	}
	start := time.Now()
	s.engine.mutex.Lock()
	s.waited += time.Since(start)
}

// leave gives the turn back.
func (s *Session) leave() { s.engine.mutex.Unlock() }

// inTurn does what wants the device's turn.
func (s *Session) inTurn(work func() error) error {
	s.enter()
	defer s.leave()
	return work()
}

// outside calls the user, who may use other sessions meanwhile. Where a step is under way the
// device runs theirs behind it.
func (s *Session) outside(call func() error) error {
	s.leave()
	defer s.enter()
	return call()
}

// pass lets others have their turn, once, if they wait for it.
func (s *Session) pass() error {
	if !s.engine.mutex.Wanted() {
		return nil
	}
	err := s.settle()
	s.leave()
	s.enter()
	return err
}

// Pos is the number of tokens in the caches.
func (s *Session) Pos() int { return s.pos }

// Left is the number of tokens that the caches still take.
func (s *Session) Left() int { return s.engine.opt.Context - s.pos }

// Reset forgets the sequence. Cache rows are overwritten before they are read again.
func (s *Session) Reset() {
	s.move(0)
	s.kept.pos, s.kept.before = 0, 0
}

// move sets the position. Tokens that were computed behind another one are void.
func (s *Session) move(pos int) {
	if pos != s.pos {
		s.pos = pos
		s.pending.drop()
	}
}

// growArena makes the arena at least that large. Steps captured on a smaller
// one are dropped, since a captured program keeps its addresses.
func (s *Session) growArena(bytes int) error { return s.grow(&s.arena, bytes) }

// grow is growArena for one of the session's buffers.
func (s *Session) grow(b *backends.Buffer, bytes int) error {
	bytes = max(bytes, align)
	if *b != nil && (*b).Size() >= bytes {
		return nil
	}
	if err := s.settle(); err != nil {
		return err
	}
	for _, st := range s.steps {
		if err := st.close(); err != nil {
			return err
		}
	}
	s.steps = nil
	if *b != nil {
		if err := (*b).Free(); err != nil {
			return err
		}
		*b = nil
	}
	got, err := s.engine.dev.Alloc(bytes, backends.Arena)
	if err == nil {
		*b = got
	}
	return err
}

// Step gives the captured step of that many tokens and rows of logits,
// capturing it at first use.
func (s *Session) Step(tokens, rows int) (*Step, error) {
	s.enter()
	defer s.leave()
	return s.stepOf(stepKind{Tokens: tokens, Rows: rows}, nil)
}

// stepOf gives a step other than one that is under way, whose inputs may not be
// written yet: two of the same size take turns then.
func (s *Session) stepOf(kind stepKind, busy *Step) (*Step, error) {
	switch {
	case s.stream == nil:
		return nil, errClosed
	case !s.engine.open:
		return nil, errors.New("the engine is closed, and with it the weights")
	}
	for i, st := range s.steps {
		if st.stepKind == kind && st != busy {
			copy(s.steps[1:i+1], s.steps[:i])
			s.steps[0] = st
			return st, nil
		}
	}
	st, err := s.newStep(kind)
	if err != nil {
		return nil, err
	}
	s.steps = slices.Insert(s.steps, 0, st)
	if last := len(s.steps) - 1; last >= s.most {
		st := s.steps[last]
		s.steps = s.steps[:last]
		return s.steps[0], st.close()
	}
	return st, nil
}

// Prepare captures the steps that a prompt of so many tokens takes, and those of the
// tokens behind it if more, so that their first use is not slower. A nil sampling
// asks for logits. Where several tokens may be computed at once (see Generate) it runs
// a step twice to see how many.
func (s *Session) Prepare(prompt int, sampling *Sampling, more bool) error {
	s.enter()
	defer s.leave()
	h, chunk := how{}, s.engine.opt.Chunk
	if sampling != nil {
		h = s.engine.alone(*sampling, 0)
	}
	full := (prompt - 1) / chunk // chunks before the last one, which may be shorter
	var busy *Step
	for range min(full, 2) {
		st, err := s.stepOf(stepKind{Tokens: chunk, Rows: 1}, busy)
		if err != nil {
			return err
		}
		if s.engine.queued {
			busy = st
		}
	}
	if prompt > 0 {
		if _, err := s.stepOf(h.kind(stepKind{Tokens: prompt - full*chunk, Rows: 1}), busy); err != nil {
			return err
		}
	}
	if !more {
		return nil
	}
	if s.chains(h) {
		return s.preparePending()
	}
	_, err := s.stepOf(h.kind(stepKind{Tokens: 1, Rows: 1}), nil)
	return err
}

// TooLong says that a sequence does not fit the caches.
type TooLong struct{ Tokens, Pos, Context int }

func (t *TooLong) Error() string {
	return fmt.Sprintf("%d tokens behind %d do not fit a context of %d; give a larger --context", t.Tokens, t.Pos,
		t.Context)
}

// check refuses what no step could compute.
func (s *Session) check(tokens []int32) error {
	if len(tokens) == 0 {
		return fmt.Errorf("no tokens to compute")
	}
	if len(tokens) > s.Left() {
		return &TooLong{len(tokens), s.pos, s.engine.opt.Context}
	}
	if s.engine.IsBlock() {
		return fmt.Errorf("%s is a block: it takes activations, not tokens", s.engine.opt.Model.Name())
	}
	if v := s.engine.Vocabulary(); v > 0 {
		for i, t := range tokens {
			if t < 0 || int(t) >= v {
				return fmt.Errorf("token %d is %d, the vocabulary has %d", i, t, v)
			}
		}
	}
	return nil
}

// Vocabulary is the number of tokens of the embedding table, 0 for a block.
func (e *Engine) Vocabulary() int {
	for _, n := range e.first.Nodes {
		if n.Op.Name == "embed" {
			return n.In[1].Shape[0]
		}
	}
	return 0
}

// Prefill computes tokens in chunks and gives the logits behind the last
// one. The slice is overwritten by the next call.
func (s *Session) Prefill(ctx context.Context, tokens []int32) ([]float32, error) {
	s.enter()
	defer s.leave()
	st, err := s.prefill(ctx, tokens, how{})
	if err != nil {
		return nil, err
	}
	return s.logits, s.read(st)
}

// prefill computes tokens and gives the last step, whose output can be read. While
// the device computes a chunk the next one is captured, filled in and submitted, unless
// other sessions wait for their turn.
func (s *Session) prefill(ctx context.Context, tokens []int32, h how) (*Step, error) {
	if err := s.check(tokens); err != nil {
		return nil, err
	}
	var last *Step
	for len(tokens) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, errlist.Join(err, s.settle())
		}
		kind := stepKind{Tokens: min(len(tokens), s.engine.opt.Chunk), Rows: 1}
		n := kind.Tokens
		if n == len(tokens) {
			kind = h.kind(kind)
		}
		st, err := s.stepOf(kind, s.flying)
		if err == nil {
			err = s.begin(st, tokens[:n])
		}
		if err != nil {
			return nil, errlist.Join(err, s.settle())
		}
		if last, tokens = st, tokens[n:]; len(tokens) > 0 {
			if err := s.pass(); err != nil {
				return nil, err
			}
		}
	}
	return last, s.settle()
}

// begin fills in a step's inputs and submits it behind the one that is under way,
// which it then waits for. Where the device runs one at a time, it waits for both.
func (s *Session) begin(st *Step, tokens []int32) error {
	before := s.flying
	err := s.submit(st, tokens)
	if before != nil && err == nil {
		if err = s.wait(before); err != nil { // what stands behind it is worth nothing
			at := s.pos - before.positions() - st.positions()
			err = errlist.Join(err, s.settle())
			s.move(at)
		}
	}
	if err != nil || !s.engine.queued {
		err = errlist.Join(err, s.settle())
	}
	return err
}

// submit fills in a step's inputs and submits it; then it is the one under way.
func (s *Session) submit(st *Step, tokens []int32) error {
	if err := s.engine.ownKeys; err != nil && (s.pos > 0 || st.chain > 1) {
		return err
	}
	err := s.writeTokens(st, tokens)
	if err == nil {
		err = s.writePositions(st)
	}
	if err == nil {
		err = st.submit()
	}
	s.pending.drop() // caches are written
	s.submitted = time.Now()
	if err == nil {
		s.flying = st
		s.move(s.pos + st.positions())
		s.kept.before = s.pos - st.Tokens
	}
	return err
}

func (s *Session) wait(st *Step) error {
	start := time.Now()
	err := st.wait()
	s.waited += time.Since(start)
	return err
}

// settle waits for the step that is under way.
func (s *Session) settle() error {
	st := s.flying
	if st == nil {
		return nil
	}
	s.flying = nil
	if err := s.wait(st); err != nil {
		s.move(s.pos - st.positions())
		return err
	}
	return nil
}

// PrefillAll computes tokens and hands the logits of each position to row, in order.
func (s *Session) PrefillAll(ctx context.Context, tokens []int32, row func(i int, logits []float32) error) error {
	if err := s.check(tokens); err != nil {
		return err
	}
	if !s.engine.rows { // the model file gives one row of logits a step
		return s.DecodeAll(ctx, tokens, row)
	}
	chunk := s.engine.opt.Chunk
	if v := s.engine.first.Outputs[0].Shape.Last(); v > 0 {
		chunk = max(1, min(chunk, 32<<20/v)) // keep the logits under 128 MB
	}
	for done := 0; done < len(tokens); {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(len(tokens)-done, chunk)
		if err := s.inTurn(func() error { return s.tokens(tokens[done:done+n], n) }); err != nil {
			return err
		}
		width := len(s.logits) / n
		for i := range n {
			if err := row(done+i, s.logits[i*width:(i+1)*width]); err != nil {
				return err
			}
		}
		done += n
	}
	return nil
}

// Decode computes one token and gives the logits behind it. It allocates
// nothing. The slice is overwritten by the next call.
func (s *Session) Decode(token int32) ([]float32, error) {
	if s.Left() < 1 {
		return nil, &TooLong{1, s.pos, s.engine.opt.Context}
	}
	if v := len(s.logits); v > 0 && (token < 0 || int(token) >= v) {
		return nil, fmt.Errorf("token %d is outside the vocabulary of %d", token, v)
	}
	s.enter()
	defer s.leave()
	s.one[0] = token
	if err := s.tokens(s.one[:], 1); err != nil {
		return nil, err
	}
	return s.logits, nil
}

func (s *Session) tokens(tokens []int32, rows int) error {
	st, err := s.stepOf(stepKind{Tokens: len(tokens), Rows: rows}, nil)
	if err != nil {
		return err
	}
	if err := s.begin(st, tokens); err != nil {
		return err
	}
	if err := s.settle(); err != nil {
		return err
	}
	return s.read(st)
}

// Block runs a block on activations x, rows of the model's width, at the
// positions that follow. It gives the block's output.
func (s *Session) Block(x []float32) ([]float32, error) {
	_, n, err := s.blockRows(x)
	if err != nil {
		return nil, err
	}
	s.enter()
	defer s.leave()
	st, err := s.stepOf(stepKind{Tokens: n, Rows: 1}, nil)
	if err != nil {
		return nil, err
	}
	if err := s.writeActivations(st, x); err != nil {
		return nil, err
	}
	if err := s.begin(st, nil); err != nil {
		return nil, err
	}
	if err := s.settle(); err != nil {
		return nil, err
	}
	return s.logits, s.read(st)
}

// blockRows gives the width and number of a block's rows x, and refuses what no step
// could compute.
func (s *Session) blockRows(x []float32) (width, n int, err error) {
	in := s.engine.first.Input("x")
	if in == nil || len(in.Shape) != 2 {
		return 0, 0, fmt.Errorf("%s has no input x of rows", s.engine.opt.Model.Name())
	}
	width = in.Shape[1]
	n = len(x) / width
	if n*width != len(x) || n == 0 {
		return 0, 0, fmt.Errorf("%d activations are no rows of %d", len(x), width)
	}
	if n > s.Left() {
		return 0, 0, &TooLong{n, s.pos, s.engine.opt.Context}
	}
	return width, n, nil
}

// writeActivations writes the rows of a step, or of all steps of a chain.
func (s *Session) writeActivations(st *Step, x []float32) error {
	for _, v := range st.Graph.Inputs { // x, and the stream r, which begins as it
		if v.Type.IsFloat() {
			if err := s.writeActivation(st, v, x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Session) writeActivation(st *Step, v *graph.Value, x []float32) error {
	var bytes []byte
	switch v.Type {
	case tensor.F32:
		bytes = tensor.Bytes(x)
	case tensor.F64:
		bytes = tensor.Bytes(widen(x))
	default:
		return fmt.Errorf("the input %s cannot be written from float32", v)
	}
	for i, n := 0, v.Bytes(); i*n < len(bytes); i++ {
		if err := s.stream.Write(st.step, st.offsets[v]+i*apart(v), bytes[i*n:(i+1)*n]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) writeTokens(st *Step, tokens []int32) error {
	n := st.Tokens
	for i := range len(tokens) / n {
		if err := st.writeInts(s.stream, "tokens", i, tokens[i*n:(i+1)*n], 0, 0); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) writePositions(st *Step) error {
	for i := range max(st.chain, 1) {
		if err := st.writeInts(s.stream, "pos", i, nil, s.pos+i*st.Tokens, st.Tokens); err != nil {
			return err
		}
		if err := st.writeInts(s.stream, "last", i, nil, st.Tokens-st.Rows, st.Rows); err != nil {
			return err
		}
	}
	return nil
}

// writeInts writes an input of integers of one step of a chain, if the graph has it:
// the values given, or n counted from the first.
func (st *Step) writeInts(stream backends.Stream, name string, link int, values []int32, first, n int) error {
	v := st.Graph.Input(name)
	if v == nil {
		return nil
	}
	if values == nil {
		if cap(st.ints) < n {
			st.ints = make([]int32, n)
		}
		values = st.ints[:n]
		for i := range values {
			values[i] = int32(first + i)
		}
	}
	if len(values) != v.Shape.Elems() {
		return fmt.Errorf("input %s takes %d values, not %d", v, v.Shape.Elems(), len(values))
	}
	return stream.Write(st.step, st.offsets[v]+link*apart(v), tensor.Bytes(values))
}

// read brings the first output to the host as float32.
func (s *Session) read(st *Step) error { return s.readLink(st, 0) }

// readLink is read of one step of a chain.
func (s *Session) readLink(st *Step, link int) error {
	v := st.Graph.Outputs[0]
	off, stride, err := st.output(v)
	if err != nil {
		return err
	}
	off += link * apart(st.locs[v.ID].root)
	n := v.Shape.Elems()
	if cap(s.logits) < n {
		s.logits = make([]float32, n)
	}
	s.logits = s.logits[:n]
	return s.readFrom(st, v, s.logits, off, stride)
}

// readFrom brings rows of an output that lie at an offset, stride bytes apart, to the host as float32.
func (s *Session) readFrom(st *Step, v *graph.Value, to []float32, off, stride int) error {
	n := len(to)
	if v.Type == tensor.F32 {
		return s.readRows(st, tensor.Bytes(to), off, stride, rowBytes(v))
	}
	if v.Type != tensor.F64 {
		return fmt.Errorf("output %s cannot be read as f32", v)
	}
	if cap(s.out) < 8*n {
		s.out = tensor.New(tensor.F64, n).Data
	}
	s.out = s.out[:8*n]
	if err := s.readRows(st, s.out, off, stride, rowBytes(v)); err != nil {
		return err
	}
	for i, x := range tensor.View[float64](s.out) {
		to[i] = float32(x)
	}
	return nil
}

// readRows reads rows of width bytes that lie stride bytes apart.
func (s *Session) readRows(st *Step, to []byte, off, stride, width int) error {
	if stride == width || len(to) <= width {
		return s.stream.Read(st.step, off, to)
	}
	for ; len(to) > 0; to, off = to[width:], off+stride {
		if err := s.stream.Read(st.step, off, to[:width]); err != nil {
			return err
		}
	}
	return nil
}

// output finds where an output lies in step memory, and how far its rows are apart.
func (st *Step) output(v *graph.Value) (off, stride int, err error) {
	loc := st.locs[v.ID]
	off, ok := st.offsets[loc.root]
	if !ok {
		return 0, 0, fmt.Errorf("output %s is not in step memory", v)
	}
	return off + loc.offset, loc.stride, nil
}

// Close frees the session's memory.
func (s *Session) Close() error {
	s.enter()
	defer s.leave()
	return s.close()
}

func (s *Session) close() error {
	errs := []error{s.settle()}
	s.pending.drop()
	for _, st := range s.steps {
		errs = append(errs, st.close())
	}
	for _, states := range []map[string]backends.Buffer{s.states, s.kept.states} {
		for _, b := range states {
			errs = append(errs, b.Free())
		}
	}
	s.kept = keptState{}
	for _, b := range []backends.Buffer{s.arena, s.between} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	if s.stream != nil {
		errs = append(errs, s.stream.Close())
	}
	s.steps, s.states, s.arena, s.between, s.stream = nil, nil, nil, nil, nil
	return errlist.Join(errs...)
}

// Finite says whether all values are numbers, and where the first is not.
func Finite(x []float32) (int, bool) {
	const exponent = 0x7f800000 // all ones in infinities and NaNs alone
	for i, v := range x {
		if math.Float32bits(v)&exponent == exponent {
			return i, false
		}
	}
	return -1, true
}
