package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/npy"
)

// score computes the logits of every position of the prompt: to a file, and
// to the likelihood of the prompt itself.
func (r *runner) score(ctx context.Context) (err error) {
	if r.flags.nll && len(r.prompt) < 2 {
		return usagef("--nll needs at least two tokens: each is scored by those before it")
	}
	var file *bufio.Writer
	var matrix *npy.Writer
	if r.files.logits != nil {
		defer func() {
			if matrix != nil {
				err = errlist.Join(err, matrix.Close(), file.Flush())
			}
			err = errlist.Join(err, r.files.logits.Close())
			if err != nil && !errors.Is(err, context.Canceled) {
				err = fmt.Errorf("--logits %s: %w", r.flags.logits, err)
			}
		}()
	}
	nll, bad := 0.0, ""
	start := time.Now()
	err = r.session.PrefillAll(ctx, r.prompt, func(i int, logits []float32) error {
		if j, ok := engine.Finite(logits); !ok && bad == "" {
			bad = fmt.Sprintf("logit %d at position %d is %v", j, i, logits[j])
		}
		if i+1 < len(r.prompt) && int(r.prompt[i+1]) < len(logits) {
			nll -= logSoftmax(logits, int(r.prompt[i+1]))
		}
		if r.files.logits == nil {
			return nil
		}
		if matrix == nil {
			file = bufio.NewWriterSize(r.files.logits, 1<<18)
			var err error
			if matrix, err = npy.NewWriter(seekable{file, r.files.logits}, len(r.prompt), len(logits)); err != nil {
				return err
			}
		}
		return matrix.Row(logits)
	})
	took := time.Since(start)
	r.update(func() {
		if bad != "" {
			r.report.Fail(bad)
		}
		if err != nil {
			return
		}
		if r.flags.gen == 0 {
			r.report.Mode = "score"
			r.setTimes(took, 0, nil)
		}
		if r.flags.nll {
			mean := nll / float64(len(r.prompt)-1)
			r.report.NLL = &mean
		}
	})
	return err
}

// seekable is a buffered file that can go back to correct its header.
type seekable struct {
	*bufio.Writer
	file interface {
		Seek(int64, int) (int64, error)
	}
}

func (s seekable) Write(p []byte) (int, error) { return s.Writer.Write(p) }

func (s seekable) Seek(offset int64, whence int) (int64, error) {
	if err := s.Flush(); err != nil {
		return 0, err
	}
	return s.file.Seek(offset, whence)
}

// logSoftmax is ln(exp(x[i]) / Σ exp(x)), in float64.
func logSoftmax(x []float32, i int) float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - top)
	}
	return float64(x[i]) - top - math.Log(sum)
}

// profileBudget is about how long the profile of a step takes at most; tests make it shorter.
var profileBudget = 6 * time.Second

// profile says where the time of a step of prefill and of one of decode goes.
func (r *runner) profile(ctx context.Context, prompt int) error {
	if !r.flags.profile && r.files.trace == nil {
		return nil
	}
	p := min(prompt, r.flags.chunk, r.engine.Options().Context-1)
	gbs, gflops := r.readGBs, r.gflops
	if r.flags.profile && gbs == 0 {
		gbs, gflops = roofs(r.engine.Device())
	}
	var profiles []*report.Profile
	r.session.Reset()
	for _, n := range []int{p, 1} {
		if n < 1 {
			continue
		}
		step, err := r.stepTime(ctx, n)
		if err != nil {
			return err
		}
		st, err := r.session.Step(n, 1)
		if err != nil {
			return err
		}
		x, err := st.Explain(profileBudget)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		prof, err := report.NewProfile(r.engine.Device(), st.Program, st.Graph.Outputs, x, step, r.session.Pos())
		if err != nil {
			return err
		}
		prof.ReadGBs, prof.GFlops = gbs, gflops
		profiles = append(profiles, prof)
	}
	if r.flags.profile {
		for _, p := range profiles {
			fmt.Fprintf(r.app.err, "%s\n", p.Text())
		}
	}
	if r.files.trace == nil {
		return nil
	}
	if err := errlist.Join(report.Trace(r.files.trace, profiles...), r.files.trace.Close()); err != nil {
		return fmt.Errorf("--trace %s: %w", r.flags.trace, err)
	}
	return nil
}

// stepTime computes n tokens or activations: those of the prompt where it has them, made up ones
// behind it. It gives how long that takes from the host and back, a median.
func (r *runner) stepTime(ctx context.Context, n int) (time.Duration, error) {
	from := r.session.Pos()
	tokens := make([]int32, n)
	for i := range tokens {
		if from+i < len(r.prompt) {
			tokens[i] = r.prompt[from+i]
		}
	}
	run := func() error {
		_, err := r.session.Prefill(ctx, tokens)
		return err
	}
	if r.engine.IsBlock() {
		x := engine.Activations(n*r.engine.Decode().Input("x").Shape[1], r.flags.weightSeed+1)
		run = func() error {
			_, err := r.session.Block(x)
			return err
		}
	}
	if err := r.session.Keep(); err != nil {
		return 0, err
	}
	if err := run(); err != nil { // captures the step
		return 0, err
	}
	var times []float64
	took := func(begin time.Time, least int, d time.Duration) bool {
		return len(times) >= least && time.Since(begin) >= d
	}
	for begin := time.Now(); !took(begin, 9, 50*time.Millisecond) && !took(begin, 1, profileBudget/3); {
		if err := r.session.Rewind(from); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(start)))
	}
	return time.Duration(stats.Summarize(times).Median), nil
}
