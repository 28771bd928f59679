package model

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
)

// Many sequences at once, in the manner of llama-batched-bench: the prompts of B sequences, then tokens of all of them,
// step by step, through engine.Scheduler.

// RunBatches measures Prompts and Gens at each of Depths with Parallel sequences.
func RunBatches(ctx context.Context, o Options) error {
	r := &batchRunner{runner: runner{o: &o}}
	return r.run(ctx)
}

type batchRunner struct {
	runner
	salt int // of repetitions: none knows another's prompts
}

// checkedTop is how many of the best tokens are compared, checkedSeqs how many sequences.
const checkedTop, checkedSeqs = 8, 4

func (r *batchRunner) run(ctx context.Context) (err error) {
	r.refuse = func(e *engine.Engine) error {
		if e.IsBlock() {
			return fmt.Errorf("%s is a block: many sequences are for models", r.o.Name)
		}
		return nil
	}
	if err := r.reference(ctx); err != nil {
		return err
	}
	if r.e, err = engine.New(ctx, r.o.Engine); err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, r.e.Close()) }()
	if r.s, err = r.e.NewSession(); err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, r.s.Close()) }()
	if err := r.begin(ctx); err != nil {
		return err
	}
	for _, d := range r.o.Depths {
		for _, p := range r.o.Prompts {
			for _, n := range r.o.Gens {
				for _, b := range r.o.Parallel {
					if err := r.test(ctx, batchTest{p: p, n: n, depth: d, b: b}); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// batchTest is one line of the table.
type batchTest struct {
	p, n, depth, b int
	lead           int // tokens that a sequence may have before all have one
}

// page is how many positions a page of the caches has.
const page = 32

// batchTimes are those of one repetition, seconds, and what its steps were.
type batchTimes struct{ prompt, gen, rows, host, write, submit, wait, read float64 }

func (r *batchRunner) test(ctx context.Context, t batchTest) (err error) {
	r.o.Say("%s: %d sequences, %d + %d tokens @ d%d", r.o.Name, t.b, t.p, t.n, t.depth)
	rows := max(r.o.Rows, 2*t.b)
	// Steps in which the first sequences answer already while the last pages of others' prompts are computed.
	if t.n > 0 {
		room := r.e.Options().Context - t.depth - t.p - t.n - 1
		t.lead = max(0, min(min(t.depth+t.p, page)*t.b/(rows-t.b)+2, room))
	}
	each := (t.depth + t.p + t.n + t.lead + 1 + page) / page * page
	s, err := engine.NewScheduler(r.e, engine.SchedulerOptions{
		Tokens: (t.b + 1) * each, Page: page, Sequences: t.b, Rows: rows, Queue: max(4*t.b, r.requests()),
		Capture: r.o.Capture,
	})
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	check := r.base
	if err := r.compare(ctx, s, t, &check); err != nil {
		return err
	}
	if r.o.Arrivals > 0 {
		return r.arrivals(ctx, s, t, check)
	}
	if !r.o.NoWarmUp {
		if _, err := r.repeat(ctx, s, t); err != nil {
			return err
		}
	}
	var all []batchTimes
	for begin := time.Now(); len(all) < r.o.Repetitions || time.Since(begin) < r.o.MinTime; {
		x, err := r.repeat(ctx, s, t)
		if err != nil {
			return err
		}
		all = append(all, x)
	}
	if err := r.limits(); err != nil {
		return err
	}
	res := r.batchResult(t, all, check)
	guard.Finish(&res)
	r.o.Emit(res)
	return nil
}

// prompt gives the tokens of sequence i: the first Shared are those of all.
func (r *batchRunner) prompt(i, n int) []int32 {
	v := int32(r.e.Vocabulary())
	tokens := slices.Clone(r.in.Tokens[:n])
	for k := min(r.o.Shared, n); k < n; k++ {
		tokens[k] = (tokens[k] + int32(7*i+k%3*i)) % v
	}
	return tokens
}

// all answers the prompts of all sequences. reading is told of each token.
func (r *batchRunner) all(ctx context.Context, s *engine.Scheduler, t batchTest, n, most, logprobs int,
	reading func(seq int, tok engine.Token)) error {
	var wait sync.WaitGroup
	failed := make([]error, t.b)
	for i := range t.b {
		h, err := s.Add(ctx, engine.Request{Prompt: r.prompt(i, n), Max: most, Logprobs: logprobs,
			Salt: strconv.Itoa(r.salt)})
		if err != nil {
			return err
		}
		wait.Go(func() {
			for tok, err := range h.Tokens() {
				if failed[i] = err; err == nil && reading != nil {
					reading(i, tok)
				}
			}
		})
	}
	wait.Wait()
	return errlist.Join(failed...)
}

// repeat runs a test once. Prompts are computed alone first; then they are known but for their last page, and tokens
// are counted from when all sequences have their first until one has its last.
func (r *batchRunner) repeat(ctx context.Context, s *engine.Scheduler, t batchTest) (x batchTimes, err error) {
	r.salt++
	if t.depth > 0 {
		if err := r.all(ctx, s, t, t.depth, 1, 0, nil); err != nil {
			return x, err
		}
	}
	start := time.Now()
	if err := r.all(ctx, s, t, t.depth+t.p, 1, 0, nil); err != nil {
		return x, err
	}
	x.prompt = time.Since(start).Seconds()
	before := s.Stats()
	times := make([][]time.Time, t.b) // of each sequence's tokens
	err = r.all(ctx, s, t, t.depth+t.p, t.n+t.lead+1, 0, func(seq int, tok engine.Token) {
		times[seq] = append(times[seq], tok.At)
	})
	if err != nil {
		return x, err
	}
	after := s.Stats()
	from, to := together(times)
	counted, steps := 0, map[time.Time]bool{}
	for _, list := range times {
		for _, at := range list {
			if at.After(from) && !at.After(to) {
				counted++
				steps[at] = true
			}
		}
	}
	if counted > 0 {
		x.gen = to.Sub(from).Seconds() / float64(counted) * float64(t.b*t.n)
		x.rows = float64(counted) / float64(len(steps))
	}
	step := func(d time.Duration) float64 { return d.Seconds() / float64(max(1, after.Steps-before.Steps)) }
	x.host = step(after.Host - before.Host)
	x.write, x.submit = step(after.Parts.Write-before.Parts.Write), step(after.Parts.Submit-before.Parts.Submit)
	x.wait, x.read = step(after.Parts.Wait-before.Parts.Wait), step(after.Parts.Read-before.Parts.Read)
	return x, nil
}

// together is the time in which all sequences answered: from when the last had its first token until one had its last.
// Where there is none, as when requests came in slower than others were answered, it ends with the last token of all.
func together(times [][]time.Time) (from, to time.Time) {
	var end time.Time
	for _, list := range times {
		first, last := list[0], list[len(list)-1]
		if first.After(from) {
			from = first
		}
		if to.IsZero() || last.Before(to) {
			to = last
		}
		if last.After(end) {
			end = last
		}
	}
	if !to.After(from) {
		return from, end
	}
	return from, to
}

// compare compares the best tokens of some sequences, behind tokens that were computed together, with those that
// each has alone.
func (r *batchRunner) compare(ctx context.Context, s *engine.Scheduler, t batchTest, check *record.Check) error {
	r.salt++
	type last struct {
		tokens []int32
		top    []engine.TokenLogprob
	}
	seqs := make([]last, t.b)
	err := r.all(ctx, s, t, t.depth+t.p, min(3, t.n+1), checkedTop, func(seq int, tok engine.Token) {
		seqs[seq].tokens, seqs[seq].top = append(seqs[seq].tokens, tok.ID), tok.Top
	})
	if err != nil {
		return err
	}
	for i := range min(t.b, checkedSeqs) {
		q := &seqs[i]
		tokens := append(r.prompt(i, t.depth+t.p), q.tokens[:len(q.tokens)-1]...)
		r.s.Reset()
		logits, err := r.s.Prefill(ctx, tokens)
		if err != nil {
			return err
		}
		sum := 0.0
		for _, v := range logits {
			sum += math.Exp(float64(v))
		}
		var got, want []float32
		for _, top := range q.top {
			got = append(got, top.Logprob)
			want = append(want, logits[top.ID]-float32(math.Log(sum)))
		}
		worst(check, got, want)
	}
	return nil
}

func (r *batchRunner) batchResult(t batchTest, all []batchTimes, check record.Check) record.Result {
	info, opt := r.e.Device().Info(), r.e.Options()
	median := func(of func(*batchTimes) float64) float64 {
		var list []float64
		for i := range all {
			list = append(list, of(&all[i]))
		}
		return stats.Summarize(list).Median
	}
	prompt := median(func(x *batchTimes) float64 { return x.prompt })
	gen := median(func(x *batchTimes) float64 { return x.gen })
	res := record.Result{
		Bench: fmt.Sprintf("model/batch pp%d tg%d", t.p, t.n), Clock: record.HostClock, Backend: info.Backend, Check: check,
		Params: map[string]string{"model": r.o.Name, "type": TypeName(r.e), "kv": opt.KV.String(),
			"depth": strconv.Itoa(t.depth), "b": strconv.Itoa(t.b)},
		Metrics: map[string]float64{
			format.Positions: float64(t.p), format.Generated: float64(t.n), format.Depth: float64(t.depth),
			format.Sequences: float64(t.b), format.PromptTime: prompt, format.GenTime: gen,
			format.StepRows:   median(func(x *batchTimes) float64 { return x.rows }),
			format.HostStep:   median(func(x *batchTimes) float64 { return x.host }),
			format.WriteStep:  median(func(x *batchTimes) float64 { return x.write }),
			format.SubmitStep: median(func(x *batchTimes) float64 { return x.submit }),
			format.WaitStep:   median(func(x *batchTimes) float64 { return x.wait }),
			format.ReadStep:   median(func(x *batchTimes) float64 { return x.read }),
		},
	}
	if info.Backend == "cpu" {
		res.Params["threads"] = strconv.Itoa(info.Threads)
	}
	if backends.Invariant(r.e.Device()) {
		res.Params["invariant"] = "on"
	}
	if r.o.Shared > 0 {
		res.Params["shared"] = strconv.Itoa(r.o.Shared)
	}
	for i := range all {
		res.Samples = append(res.Samples, all[i].prompt+all[i].gen)
	}
	rate := max(r.o.Roofs.MeasuredReadGBs, r.o.Roofs.ReadGBs)
	if t.n > 0 && rate > 0 {
		seen := t.depth + t.p + t.n/2
		step := (float64(r.e.WeightBytes()) + float64(t.b)*r.e.CacheBytes(seen)) / (rate * 1e9)
		res.Metrics[format.FloorShare] = step * float64(t.n) / gen
	}
	return res
}
