package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/greta-project/greta/engine/draft"
	"github.com/greta-project/greta/internal/errlist"
)

// ModelDrafter guesses by a smaller model, whose session it has for itself. It chooses as the request does, with the
// same number for each position, so that where the two models agree about a token's share of the draws they choose
// the same one. It is for one sequence.
type ModelDrafter struct {
	session *Session
	sampler *Sampler
	cost    func(guesses int) float64
	pace    draft.Pace
	tokens  []int32 // in the session's caches
	history []int32
	each    time.Duration // that a guess takes
	step    time.Duration // that the large model's step takes
	given   time.Time     // the end of the last proposal
	err     error
}

// NewModelDrafter makes a drafter of a session, for requests of this sampling. The session's model
// must have the vocabulary of the one it guesses for. cost is what SchedulerOptions.Draft is given.
func NewModelDrafter(s *Session, o Sampling, cost func(guesses int) float64) *ModelDrafter {
	return &ModelDrafter{session: s, sampler: NewSampler(o), cost: cost}
}

// price is what a step with so many guesses takes with the making of them, as a multiple of one with none.
func (d *ModelDrafter) price(guesses int) float64 {
	p := d.cost(guesses)
	if d.each > 0 && d.step > 0 {
		p += float64(guesses) * float64(d.each) / float64(d.step)
	}
	return p
}

// Propose computes what the tokens have that the session has not, and continues them.
func (d *ModelDrafter) Propose(tokens, dst []int32, most int) []int32 {
	start := time.Now()
	if !d.given.IsZero() {
		if took := start.Sub(d.given); d.step == 0 {
			d.step = took
		} else {
			d.step += (took - d.step) / 8
		}
	}
	defer func() { d.given = time.Now() }()
	n := d.pace.Next(d.price, min(most, d.session.engine.opt.Context-len(tokens)))
	if d.err != nil || n <= 0 {
		return dst
	}
	same := 0
	for same < min(len(d.tokens), len(tokens)-1) && d.tokens[same] == tokens[same] {
		same++
	}
	if same, d.err = d.session.back(same); d.err != nil {
		return dst
	}
	d.tokens = d.tokens[:same]
	var logits []float32
	if logits, d.err = d.session.Prefill(context.Background(), tokens[same:]); d.err != nil {
		return dst
	}
	d.tokens = append(d.tokens, tokens[same:]...)
	if d.err = d.session.Keep(); d.err != nil { // where a recurrence goes back to behind a wrong guess
		return dst
	}
	d.history = append(d.history[:0], tokens...)
	first := time.Now()
	for i := range n {
		var t int32
		if t, d.err = d.sampler.Sample(logits, d.history); d.err != nil {
			return dst
		}
		dst = append(dst, t)
		if i+1 == n {
			break
		}
		if logits, d.err = d.session.Decode(t); d.err != nil {
			return dst
		}
		d.tokens, d.history = append(d.tokens, t), append(d.history, t)
	}
	if n > 1 {
		d.each = time.Since(first) / time.Duration(n-1)
	}
	return dst
}

// Verified adapts how many are guessed.
func (d *ModelDrafter) Verified(tried, accepted int) { d.pace.Verified(d.price, tried, accepted) }

// Err says what kept the drafter from guessing, from when on it guessed nothing.
func (d *ModelDrafter) Err() error {
	if d.err == nil {
		return nil
	}
	return fmt.Errorf("the model %s that guesses: %w", d.session.engine.opt.Model.Name(), d.err)
}

// ModelDrafts makes ModelDrafters for many sequences, each with a session of its own that serves another sequence when
// its own has ended.
type ModelDrafts struct {
	engine *Engine
	most   int

	mu   sync.Mutex
	free []*Session
	made int
	err  error // the first of a drafter
}

// NewModelDrafts makes drafters of a smaller model, for so many sequences at once; those beyond have no guesses.
func NewModelDrafts(e *Engine, most int) *ModelDrafts { return &ModelDrafts{engine: e, most: most} }

// Bytes is what the smaller model and its sessions take of the device, for SchedulerOptions.Beside.
func (d *ModelDrafts) Bytes() int64 {
	d.engine.mutex.Lock()
	defer d.engine.mutex.Unlock()
	each := d.engine.stepBytes
	for _, v := range d.engine.first.States {
		each += int64(v.Bytes())
	}
	return d.engine.loadedBytes() + int64(d.most)*each
}

// Draft is for SchedulerOptions.Draft.
func (d *ModelDrafts) Draft(o Sampling, cost func(guesses int) float64) Drafter {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s *Session
	switch n := len(d.free); {
	case d.err != nil:
		return nil
	case n > 0:
		s, d.free = d.free[n-1], d.free[:n-1]
	case d.made == d.most:
		return nil
	default:
		if s, d.err = d.engine.NewSession(); d.err != nil {
			return nil
		}
		d.made++
	}
	return &pooledDrafter{NewModelDrafter(s, o, cost), d}
}

// Err says what kept a drafter from guessing, from when on none does.
func (d *ModelDrafts) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}

// Close frees the sessions. The schedulers must be closed before.
func (d *ModelDrafts) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, s := range d.free {
		errs = append(errs, s.Close())
	}
	d.free, d.most, d.made = nil, 0, 0
	return errlist.Join(errs...)
}

// pooledDrafter gives its session back.
type pooledDrafter struct {
	*ModelDrafter
	pool *ModelDrafts
}

// Close gives the session to another sequence.
func (p *pooledDrafter) Close() error {
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if p.pool.err == nil {
		p.pool.err = p.Err()
	}
	p.session.Reset()
	p.pool.free = append(p.pool.free, p.session)
	return nil
}
