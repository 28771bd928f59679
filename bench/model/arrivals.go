package model

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/errlist"
)

// A load: requests that come at random, as many a second on average, whether those before have ended or not.

// load is what one load was, seconds.
type load struct {
	first   []float64 // from the arrival to the first token, of each request
	between []float64 // between two tokens of a request
	took    float64   // from the first arrival to the last token
	rows    float64   // a step
}

// requests is how many come: enough for a 95th percentile.
func (r *batchRunner) requests() int { return max(20, 8*r.o.Repetitions) }

// arrivals measures a test under a load.
func (r *batchRunner) arrivals(ctx context.Context, s *engine.Scheduler, t batchTest, check record.Check) error {
	if !r.o.NoWarmUp {
		if _, err := r.repeat(ctx, s, t); err != nil {
			return err
		}
	}
	r.salt++
	x, err := r.load(ctx, s, t)
	if err != nil {
		return err
	}
	if err := r.limits(); err != nil {
		return err
	}
	res := r.loadResult(t, x, check)
	guard.Finish(&res)
	r.o.Emit(res)
	return nil
}

// load lets the requests come.
func (r *batchRunner) load(ctx context.Context, s *engine.Scheduler, t batchTest) (*load, error) {
	rng := rand.New(rand.NewPCG(r.o.Engine.Seed, uint64(t.b)))
	var (
		wait   sync.WaitGroup
		mu     sync.Mutex
		x      = &load{}
		failed []error
	)
	before, start := s.Stats(), time.Now()
	at := start
	for i := range r.requests() {
		if i > 0 {
			at = at.Add(time.Duration(rng.ExpFloat64() / r.o.Arrivals * float64(time.Second)))
		}
		select {
		case <-ctx.Done():
			wait.Wait()
			return nil, ctx.Err()
		case <-time.After(time.Until(at)):
		}
		came := time.Now()
		h, err := s.Add(ctx, engine.Request{Prompt: r.prompt(i, t.depth+t.p), Max: t.n, Salt: strconv.Itoa(r.salt)})
		if err != nil {
			wait.Wait()
			return nil, err
		}
		wait.Go(func() {
			last := time.Time{}
			for tok, err := range h.Tokens() {
				mu.Lock()
				switch {
				case err != nil:
					failed = append(failed, err)
				case last.IsZero():
					x.first = append(x.first, tok.At.Sub(came).Seconds())
				default:
					x.between = append(x.between, tok.At.Sub(last).Seconds())
				}
				x.took = max(x.took, tok.At.Sub(start).Seconds())
				mu.Unlock()
				last = tok.At
			}
		})
	}
	wait.Wait()
	after := s.Stats()
	x.rows = float64(after.Rows-before.Rows) / float64(max(1, after.Steps-before.Steps))
	return x, errlist.Join(failed...)
}

func (r *batchRunner) loadResult(t batchTest, x *load, check record.Check) record.Result {
	info, opt := r.e.Device().Info(), r.e.Options()
	n := float64(r.requests())
	res := record.Result{
		Bench: fmt.Sprintf("model/load pp%d tg%d", t.p, t.n), Clock: record.HostClock, Backend: info.Backend, Check: check,
		Params: map[string]string{"model": r.o.Name, "type": TypeName(r.e), "kv": opt.KV.String(),
			"depth": strconv.Itoa(t.depth), "b": strconv.Itoa(t.b),
			"arrivals": strconv.FormatFloat(r.o.Arrivals, 'g', -1, 64)},
		Metrics: map[string]float64{
			format.Positions: float64(t.p), format.Generated: float64(t.n), format.Depth: float64(t.depth),
			format.Sequences: float64(t.b), format.Arrivals: r.o.Arrivals, format.Requests: n,
			format.LoadTime: x.took, format.StepRows: x.rows, format.FirstMedian: stats.Summarize(x.first).Median,
			format.BetweenMedian: stats.Summarize(x.between).Median,
		},
		Samples: x.first,
	}
	for name, list := range map[string][]float64{format.FirstP95: x.first, format.BetweenP95: x.between} {
		if p, err := stats.Percentile(list, .95); err == nil {
			res.Metrics[name] = p
		}
	}
	if info.Backend == "cpu" {
		res.Params["threads"] = strconv.Itoa(info.Threads)
	}
	return res
}
