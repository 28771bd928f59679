package engine

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/engine/schedule"
	"github.com/greta-project/greta/graph"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/ops"
	"github.com/greta-project/greta/tensor"
)

// Choices by chance and under masks on the device: behind the logits of a batch's step come filter, where a row has
// filters that topk is no answer to, draw, whose noise is that of the host's sampler, and the topk of what it gives. So
// the host reads a token a row instead of a vocabulary. Log-probabilities are of the logits before all that.

// The names of what a step with draw has beside its other inputs.
const (
	logitsInput  = "choice.in"      // where these come from another program
	rateInput    = "choice.rate"    // of each row of logits: one over the temperature; 0: no noise
	keysInput    = "choice.keys"    // of each: its seed and position
	allowedInput = "choice.allowed" // of each: a bit a token
	mostInput    = "choice.most"    // of each: top-k, as filter has it
	sharesInput  = "choice.shares"  // of each: typical, top-p and min-p
	tokensInput  = "choice.tokens"  // of each: tokens whose logits change, −1: none; how, as adjust has it
	byInput      = "choice.by"
	plusInput    = "choice.plus"
)

// changeBuckets are the numbers of logits of a row that a step changes on the device. Where more may change the host
// chooses.
var changeBuckets = []int{64, 512, 4096}

// mostFiltered is the largest vocabulary that filters are left to the device for: 2^40 times that, the largest sum of
// masses, is far below 2^64.
const mostFiltered = 1 << 23

// drawn adds draw behind the logits of a graph, and adjust and filter before it where the step has them. It gives what
// comes of them.
func (e *Engine) drawn(g *graph.Graph, kind stepKind) (*graph.Value, error) {
	logits := g.Outputs[0]
	rows, vocabulary := logits.Shape[0], logits.Shape.Last()
	input := func(name string, t tensor.Type, shape ...int) *graph.Value {
		return g.AddValue(&graph.Value{Name: name, Kind: graph.Input, Type: t, Shape: shape})
	}
	from := logits
	add := func(op *graph.Op, in ...*graph.Value) error {
		y, err := e.behind(g, op, nil, []string{op.Name + ".logits"}, append([]*graph.Value{from}, in...)...)
		if err == nil {
			from = y[0]
		}
		return err
	}
	allowed := input(allowedInput, tensor.I32, rows, maskWords(vocabulary))
	if n := kind.changes; n > 0 {
		if err := add(ops.Adjust, input(tokensInput, tensor.I32, rows, n), input(byInput, logits.Type, rows, n),
			input(plusInput, logits.Type, rows, n)); err != nil {
			return nil, err
		}
	}
	if kind.filtered {
		if err := add(ops.Filter, input(mostInput, tensor.I32, rows), input(sharesInput, logits.Type, rows, 3),
			allowed); err != nil {
			return nil, err
		}
	}
	err := add(ops.Draw, input(rateInput, logits.Type, rows), input(keysInput, tensor.I32, rows, 4), allowed)
	return from, err
}

func maskWords(vocabulary int) int { return (vocabulary + 31) / 32 }

// drawing is how the token of a row of logits is chosen.
type drawing struct {
	rate    float32   // one over the temperature; 0: the device adds no noise
	key     [4]uint32 // of the noise
	most    int32     // filters as ops.Filter has them; 0: none
	shares  [3]float32
	changes []change // by penalties and biases
	whole   int      // of those rows whose logits come to the host, from 1 on, which it is; 0: none
	allowed []uint32 // bits of the tokens; nil: all
	err     error    // why there are no bits
}

// how is how a step's tokens are chosen.
type how struct {
	picks    int  // among so many that the device gives; 0: among all, by the host
	drawn    bool // with noise and masks
	filtered bool // with filters before the noise, each row with its own
	changes  int  // of logits of a row by penalties and biases before all that; 0: none
	logits   bool // the host chooses for some rows, from all of their logits
	tops     int  // so many of the most likely tokens have log-probabilities, and those chosen; 0: none
}

// kind is a kind of step that chooses tokens so.
func (h how) kind(k stepKind) stepKind {
	k.picks, k.drawn, k.filtered, k.changes, k.logits, k.tops = h.picks, h.drawn, h.filtered, h.changes, h.logits, h.tops
	return k
}

// byHost says whether the host chooses for a wanted row.
func (s *Scheduler) byHost(at int, h how) bool {
	return h.picks == 0 || h.logits && s.drawing[at].whole > 0
}

// how finds the way that serves all choices of a step: the device's, where it can choose for a row.
func (s *Scheduler) how(b *schedule.Batch) how {
	var h how
	picks := 0 // where the device filters
	for i := range b.Runs {
		r := &b.Runs[i]
		if !b.Rows[r.First+r.Rows-1].Want {
			continue
		}
		c := choiceOf(r.Seq)
		row := s.way(c, b, r)
		h = how{max(h.picks, row.picks), h.drawn || row.drawn, h.filtered || row.filtered, max(h.changes, row.changes),
			h.logits || row.picks == 0, max(h.tops, row.tops)}
		if s.engine.rate(&c.sampler.opt) > 0 {
			row.picks = min(row.picks, 1)
		}
		picks = max(picks, row.picks)
	}
	if h.picks == 0 {
		return how{}
	}
	if h.filtered {
		h.picks = picks
	}
	if h.picks > 1 { // few kinds of steps
		h.picks = s.engine.mostPicks(bucket(pickBuckets, h.picks))
	}
	if h.tops > 0 && !h.drawn { // one choice is that of the most likely too
		return h.shared()
	}
	return h
}

// shared has one choice of the device be what a token is chosen from and the most likely ones.
func (h how) shared() how {
	h.picks = max(h.picks, h.tops)
	h.tops = h.picks
	return h
}

// mostPicks is n, or what the device finds of the most likely at most.
func (e *Engine) mostPicks(n int) int {
	return min(n, e.running.Picks, e.first.Outputs[0].Shape.Last())
}

// guesses says whether rows before the last of a run are wanted.
func guesses(b *schedule.Batch, r *schedule.Run) bool {
	return r.Rows > 1 && b.Rows[r.First+r.Rows-2].Want
}

// way is how the device chooses as the request of a run wants it, the tokens behind guesses too; without picks it does
// not.
func (s *Scheduler) way(c *choice, b *schedule.Batch, r *schedule.Run) how {
	e, o := s.engine, c.sampler.opt
	if b.Rows[r.First].Known || c.mask != nil && guesses(b, r) {
		return how{} // what is known is asked for; masks behind guesses are known when those are looked at
	}
	h := how{drawn: c.mask != nil}
	if n := c.handle.request.Logprobs; n > 0 {
		if backends.Invariant(e.dev) && (c.handle.request.OfPrompt || c.mask != nil && s.guess) {
			return how{} // company decides which of its rows are the host's, whose last bits are others: there all are
		}
		if h.tops = e.tops(n); h.tops == 0 {
			return how{}
		}
	}
	if o.changes() {
		n := len(o.LogitBias)
		if o.penalises() {
			n += min(o.RepeatLast, len(r.Seq.Tokens())+r.Rows)
		}
		if h.changes = bucket(changeBuckets, n); h.changes > changeBuckets[len(changeBuckets)-1] {
			return how{}
		}
		o.RepeatPenalty, o.FrequencyPenalty, o.PresencePenalty, o.LogitBias = 0, 0, 0, nil // they have been applied
		h.drawn = true
	}
	switch k := e.picks(o); {
	case k > 0 && !(backends.Invariant(e.dev) && e.rate(&o) > 0): // there no other row's filters decide how it is drawn
		h.picks = k
		return h
	case e.picks(Sampling{}) == 0 || e.rate(&o) == 0:
		return how{}
	case o.filters() && e.first.Outputs[0].Shape.Last() > mostFiltered:
		return how{}
	}
	h.picks, h.drawn, h.filtered = 1, true, o.filters()
	return h
}

// tops is of how many likely tokens the device gives log-probabilities where those of n are wanted; 0: the host
// computes them.
func (e *Engine) tops(n int) int {
	tops := e.mostPicks(bucket(topBuckets, n))
	if n > topBuckets[len(topBuckets)-1] || tops < min(n, e.first.Outputs[0].Shape.Last()) {
		return 0
	}
	return tops
}

// rate is one over the temperature, by which the device draws; 0 where it does not: the likeliest token is wanted, or
// the temperature is such that float32 does not hold logits over it.
func (e *Engine) rate(o *Sampling) float32 {
	if o.Temperature < 1e-30 || o.Temperature > 1e30 {
		return 0
	}
	return float32(1 / o.Temperature)
}

// filter notes a choice's filters as a device has them.
func (d *drawing) filter(o *Sampling) {
	d.most = int32(min(o.TopK, math.MaxInt32))
	for i, p := range [3]float64{o.TypicalP, o.TopP, o.MinP} {
		if d.shares[i] = float32(p); p > 0 {
			d.shares[i] = max(d.shares[i], 1e-30) // 0 is no filter
		}
	}
}

// late says whether what the device needs for choosing takes the host long, which is then done while it computes the
// logits: masks and penalties.
func (s *Scheduler) late(b *schedule.Batch, h how) bool {
	if !h.drawn || h.logits || !s.parts {
		return false
	}
	for i := range b.Runs {
		r := &b.Runs[i]
		if c := choiceOf(r.Seq); b.Rows[r.First+r.Rows-1].Want && (c.mask != nil || c.sampler.opt.changes()) {
			return true
		}
	}
	return false
}

// drawLate is draw for the step under way.
func (s *Scheduler) drawLate() []drawing {
	s.draw(s.now.batch, s.now.how)
	return s.drawing
}

// draw says how the tokens of a step's wanted rows are chosen. Masks are made side by side.
func (s *Scheduler) draw(b *schedule.Batch, h how) {
	words := maskWords(s.engine.first.Outputs[0].Shape.Last())
	s.drawing, s.masked, s.changes = s.drawing[:0], s.masked[:0], s.changes[:0]
	whole, room := 0, takeRoom()
	defer room.leave()
	for i := range b.Runs {
		r := &b.Runs[i]
		c := choiceOf(r.Seq)
		past, o := len(r.Seq.Tokens()), &c.sampler.opt
		host := s.way(c, b, r).picks == 0
		for j := r.First; j < r.First+r.Rows; j++ {
			if !b.Rows[j].Want {
				continue
			}
			if host {
				whole++
				s.drawing = append(s.drawing, drawing{whole: whole})
				continue
			}
			d := drawing{key: ops.DrawKey(o.Seed, past)}
			if h.filtered || !o.filters() {
				d.rate = s.engine.rate(o)
			}
			if h.filtered && d.rate > 0 {
				d.filter(o)
			}
			if o.changes() {
				s.seenBy(r.Seq.Tokens(), b.Rows[j].Token, past, o.RepeatLast)
				from := len(s.changes)
				s.changes = c.sampler.adjustments(room, s.changes, s.engine.first.Outputs[0].Shape.Last(), s.seen,
					past-len(s.seen))
				d.changes = s.changes[from:len(s.changes):len(s.changes)]
			}
			past++
			if c.mask != nil {
				s.masked = append(s.masked, maskOf{len(s.drawing), c.mask})
			}
			s.drawing = append(s.drawing, d)
		}
	}
	s.masks = grown(s.masks, len(s.masked)*words)
	for i, m := range s.masked {
		s.drawing[m.at].allowed = s.masks[i*words : (i+1)*words : (i+1)*words]
	}
	s.hands.each(len(s.masked), s.maskRow)
}

// seenBy makes s.seen the tokens that penalties of the token at a position see: the last of a sequence, and behind a
// guess, which is the row's token, what the row before saw and that.
func (s *Scheduler) seenBy(tokens []int32, guess int32, position, last int) {
	if position == len(tokens) {
		s.seen = append(s.seen[:0], tokens[max(0, position-last):]...)
		return
	}
	s.seen = append(s.seen, guess)
	s.seen = slices.Delete(s.seen, 0, max(0, len(s.seen)-last))
}

// mask makes the i-th mask of a step.
func (s *Scheduler) mask(i int) {
	d := &s.drawing[s.masked[i].at]
	if d.err = s.masked[i].mask.Allowed(d.allowed); d.err != nil {
		clear(d.allowed)
	}
}

// maskOf is the mask of a wanted row.
type maskOf struct {
	at   int
	mask Mask
}

// writeDraws writes the inputs of draw, and of adjust and filter before it.
func (b *batch) writeDraws(st *Step, p *schedule.Batch, list []drawing) error {
	v := st.Graph.Input(allowedInput)
	rows, words := v.Shape[0], v.Shape[1]
	b.rates, b.keys, b.allowed = grown(b.rates, rows), grown(b.keys, 4*rows), grown(b.allowed, rows*words)
	b.most, b.shares = grown(b.most, rows), grown(b.shares, 3*rows)
	clear(b.rates)
	clear(b.keys)
	clear(b.most)
	clear(b.shares)
	n := st.changes
	b.adjusted, b.by, b.plus = grown(b.adjusted, n*rows), grown(b.by, n*rows), grown(b.plus, n*rows)
	for i := range b.adjusted {
		b.adjusted[i] = -1
	}
	masks := false
	for i := range list {
		masks = masks || list[i].allowed != nil
	}
	if masks || !st.allAllowed {
		b.allowed[0] = -1
		for n := 1; n < len(b.allowed); n *= 2 {
			copy(b.allowed[n:], b.allowed[:n])
		}
	}
	at := 0
	for i := range p.Rows {
		if !p.Rows[i].Want {
			continue
		}
		row := at
		if st.Rows == st.Tokens {
			row = i
		}
		d := &list[at]
		at++
		b.rates[row], b.most[row] = d.rate, d.most
		copy(b.shares[3*row:], d.shares[:])
		for j, c := range d.changes {
			b.adjusted[n*row+j], b.by[n*row+j], b.plus[n*row+j] = c.id, c.by, c.plus
		}
		for j, k := range d.key {
			b.keys[4*row+j] = int32(k)
		}
		copy(tensor.Bytes(b.allowed[row*words:(row+1)*words]), tensor.Bytes(d.allowed))
	}
	floats := func(name string, x []float32) error {
		return b.mem.stream.Write(st.step, st.offsets[st.Graph.Input(name)], tensor.Bytes(x))
	}
	err := errlist.Join(floats(rateInput, b.rates), st.writeInts(b.mem.stream, keysInput, 0, b.keys, 0, 0))
	if st.filtered {
		err = errlist.Join(err, floats(sharesInput, b.shares), st.writeInts(b.mem.stream, mostInput, 0, b.most, 0, 0))
	}
	if n > 0 {
		err = errlist.Join(err, floats(byInput, b.by), floats(plusInput, b.plus),
			st.writeInts(b.mem.stream, tokensInput, 0, b.adjusted, 0, 0))
	}
	if masks || !st.allAllowed {
		st.allAllowed = !masks
		err = errlist.Join(err, st.writeInts(b.mem.stream, allowedInput, 0, b.allowed, 0, 0))
	}
	return err
}

// drawnToken is the token of a wanted row that the device has masked and given noise.
func (s *Scheduler) drawnToken(c *choice, at, picks, position int) (int32, error) {
	d, values := &s.drawing[at], s.batch.logits[at*picks:(at+1)*picks]
	if d.err != nil {
		return 0, d.err
	}
	switch v := float64(values[0]); { // a NaN comes before all numbers
	case v != v, math.IsInf(v, 1):
		return 0, fmt.Errorf("a logit is %v", v)
	case math.IsInf(v, -1) && (d.allowed != nil || len(c.sampler.opt.LogitBias) > 0):
		return 0, errNothingAllowed
	case math.IsInf(v, -1):
		return 0, errors.New("none of the logits is a number")
	}
	if err := s.candidates(at, picks); err != nil {
		return 0, err
	}
	if d.rate > 0 {
		return s.picked[0].id, nil
	}
	return c.sampler.among(s.picked, position), nil
}

// candidates are what the device gave for a wanted row, without those that are not allowed.
func (s *Scheduler) candidates(at, picks int) error {
	s.picked = s.picked[:0]
	for i, v := range s.batch.logits[at*picks : (at+1)*picks] {
		id := s.batch.picked[at*picks+i]
		if id < 0 || int(id) >= s.engine.first.Outputs[0].Shape.Last() {
			return fmt.Errorf("the device chose token %d", id)
		}
		if !math.IsInf(float64(v), -1) {
			s.picked = append(s.picked, candidate{id, v})
		}
	}
	return nil
}

// thought gives a token that was chosen on the device its log-probability and those of the most likely, as the request
// wants it.
func (s *Scheduler) thought(c *choice, at int, h how, t *Token) error {
	n := c.handle.request.Logprobs
	if n == 0 {
		return nil
	}
	b := s.batch
	ids, logs := b.picked[at*h.picks:(at+1)*h.picks], b.logprobs[at*h.picks:(at+1)*h.picks]
	i := slices.Index(ids, t.ID)
	if i < 0 {
		return fmt.Errorf("token %d has no log-probability: it is none of %d", t.ID, ids)
	}
	t.Logprob = logs[i]
	if h.drawn {
		ids, logs = b.best[at*h.tops:(at+1)*h.tops], b.bestLogprobs[at*h.tops:(at+1)*h.tops]
	}
	n = min(n, len(ids))
	if i, ok := Finite(logs[:n]); !ok {
		return fmt.Errorf("the log-probability of token %d is %v", ids[i], logs[i])
	}
	t.Top = make([]TokenLogprob, n)
	for i := range t.Top {
		t.Top[i] = TokenLogprob{ids[i], logs[i]}
	}
	return nil
}
