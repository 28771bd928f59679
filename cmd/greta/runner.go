package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/model"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/internal/mapped"
	"github.com/greta-project/greta/models"
)

// grace is how long an interrupted run may take to end by itself. A chunk of
// prefill can take longer; then the report is made of what is known.
const grace = 500 * time.Millisecond

// runner is one run. The work is done by one goroutine; what the report is
// made of is guarded, so that another can report when the first is stuck in a step.
type runner struct {
	app   *app
	flags *runFlags
	files *outputs

	bundle  *bundle
	engine  *engine.Engine
	session *engine.Session
	prompt  []int32

	readGBs, gflops float64 // what limits measured, 0: nothing

	roofs *backends.Roofs // the device's modelled ones, once they were asked for

	mu     sync.Mutex
	report report.Report
	stamps []stamp   // of each token
	start  time.Time // of the generation
	closed bool      // reported: the work may say nothing more
}

func newRunner(a *app, f *runFlags, files *outputs) *runner {
	r := &runner{app: a, flags: f, files: files}
	r.report = report.Report{
		Version: version(), Status: report.OK, Backend: f.backend, KV: f.kv, Mode: "generate",
		PromptTokens: []int32{}, GeneratedTokens: []int32{}, Checks: []report.Check{},
	}
	r.report.Prefill.SamplesMS, r.report.Decode.SamplesMS = []float64{}, []float64{}
	if f.measured() {
		r.report.Mode = "measure"
	} else {
		o := f.sampling
		r.report.Sampling = &report.Sampling{Temperature: o.Temperature, TopK: o.TopK, TypicalP: o.TypicalP,
			TopP: o.TopP, MinP: o.MinP, RepeatPenalty: o.RepeatPenalty, RepeatLast: o.RepeatLast,
			FrequencyPenalty: o.FrequencyPenalty,
			PresencePenalty:  o.PresencePenalty, LogitBias: f.bias, Seed: o.Seed}
	}
	return r
}

// update changes the report. After the report has been printed it does nothing.
func (r *runner) update(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		f()
	}
}

// aside runs work on a goroutine of its own and hands on what it returns, or what it
// panicked with. A mapped file that shrinks while it is read is an error, not a crash.
func aside(ctx context.Context, work func(context.Context) error) <-chan error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				if os.Getenv("GRETA_PANIC") != "" {
					debug.PrintStack()
				}
				done <- fmt.Errorf("internal error: %v; please report it (GRETA_PANIC=1 prints where)", p)
			}
		}()
		mapped.Watch()
		defer mapped.Recover()
		done <- work(ctx)
	}()
	return done
}

// supervised says that a verb leaves long work when it is interrupted, and reports.
var supervised atomic.Bool

// supervise runs work until its end, or a little longer than until ctx ends,
// and reports.
func (r *runner) supervise(ctx context.Context, work func(context.Context) error) error {
	supervised.Store(true)
	done := aside(ctx, work)
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		select {
		case err = <-done:
		case <-time.After(grace):
			err = ctx.Err()
		}
	}
	return r.finish(err)
}

// finish prints the report, writes it as JSON, and gives the run's error.
func (r *runner) finish(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	rep := &r.report
	code := exitCode(err)
	switch {
	case code == exitInterrupted:
		rep.Status, rep.Reason = report.Interrupted, ""
		rep.StopReason = string(engine.StopInterrupted)
		err = nil
	case code != 0:
		rep.Fail(err.Error())
	case rep.Status == report.Interrupted:
		code = exitInterrupted
	case rep.Status == report.Failed:
		code = exitFailed
		if slices.ContainsFunc(rep.Checks, func(c report.Check) bool { return !c.OK && !c.Skipped }) {
			code = exitMismatch
		}
	}
	r.completeTimes()
	peak, private := report.Memory()
	if rep.PeakMemory = peak; rep.ModelMemory == 0 {
		rep.ModelMemory, rep.Private = peak, private
	}
	if len(rep.GeneratedTokens) > 0 && rep.OutputHash == "" {
		rep.OutputHash = report.HashIDs(rep.GeneratedTokens)
	}
	if e := r.writeJSON(); e != nil && !closedPipe(e) {
		rep.Fail("--json: " + e.Error())
		err, code = errlist.Join(err, fmt.Errorf("--json %s: %w", r.flags.json, e)), max(code, exitFailed)
	}
	// Bad input has one clear line and no report: nothing ran.
	if code == exitUsage || code == exitNoDevice || code == exitMemory {
		return &exitError{code: code, err: err}
	}
	fmt.Fprint(r.app.err, rep.Summary())
	if code == 0 {
		return nil
	}
	if err == nil {
		err = errors.New(rep.Reason)
	}
	return &exitError{code: code, err: err, reported: true}
}

// completeTimes fills the times of a generation that did not come to its end
// from the moments at which tokens came.
func (r *runner) completeTimes() {
	rep := &r.report
	if len(r.stamps) == 0 || rep.TTFTMS != nil {
		return
	}
	first := r.stamps[0].at.Sub(r.start)
	r.setTimes(first, first, between(r.stamps))
}

// stamp is when a token came, and how many behind it the device had computed in one program with it.
type stamp struct {
	at    time.Time
	ready int
}

// between gives the times of the steps behind the first token. Of a program of several steps each
// has its share of the time that the program took.
func between(stamps []stamp) []time.Duration {
	steps := make([]time.Duration, 0, len(stamps))
	var share time.Duration
	for i := 1; i < len(stamps); i++ {
		took := stamps[i].at.Sub(stamps[i-1].at)
		if stamps[i-1].ready > 0 { // it was there with the one before
			steps = append(steps, share+took)
			continue
		}
		share = took / time.Duration(stamps[i].ready+1)
		steps = append(steps, share)
	}
	return steps
}

func (r *runner) writeJSON() error {
	if r.flags.json == "-" {
		return r.report.JSON(r.app.out)
	}
	if r.files.json == nil {
		return nil
	}
	err := r.report.JSON(r.files.json)
	if c, ok := r.files.json.(io.Closer); ok {
		if e := c.Close(); err == nil { // which says again what could not be written
			err = e
		}
	}
	return err
}

// load makes the engine and notes how long that took.
func (r *runner) load(ctx context.Context) (*engine.Engine, error) {
	start := time.Now()
	e, err := r.app.load(ctx, r.bundle)
	r.update(func() { r.report.LoadMS = report.MS(time.Since(start)) })
	return e, err
}

// describe fills in what is known before loading.
func (r *runner) describe() {
	b, info := r.bundle, r.bundle.device.Info()
	path, format := b.sourceName()
	r.update(func() {
		rep := &r.report
		rep.Model, rep.Source, rep.Format = b.file.Name(), path, format
		rep.Backend, rep.Device, rep.Level, rep.Driver, rep.Threads = info.Backend, info.Name, info.Level, info.Driver,
			info.Threads
		for _, d := range b.paths {
			rep.Paths = append(rep.Paths, report.Path{Path: d.Path, On: d.On, Health: d.Health, Reason: d.Reason})
		}
		rep.KV, rep.Seed = b.opt.KV.String(), b.opt.Seed
	})
}

// describeLoaded fills in what the engine knows.
func (r *runner) describeLoaded() {
	e := r.engine
	kind := "model"
	if e.IsBlock() {
		kind = "block"
	}
	dtype := model.TypeName(e)
	r.update(func() {
		rep := &r.report
		rep.Kind, rep.DType = kind, dtype
		rep.Context, rep.WeightBytes, rep.Stored = e.Options().Context, e.WeightBytes(), e.Stored()
	})
}

// noteUnread warns of tensors that the model file has no use for: biases or
// layers that it does not know make the results wrong, and nothing else shows it.
func (r *runner) noteUnread() {
	if r.bundle.source == nil {
		return
	}
	left := slices.DeleteFunc(models.Unused(r.engine.Decode(), r.bundle.source), models.Harmless)
	if len(left) == 0 {
		return
	}
	more, shown := "", min(3, len(left))
	if r.flags.verbose {
		shown = len(left)
	}
	if n := len(left) - shown; n > 0 {
		more = fmt.Sprintf(" and %d more, %d in all (--verbose lists them)", n, len(left))
	}
	fmt.Fprintf(r.app.err, "greta: %s does not read every tensor of %s: %s%s\n", r.bundle.file.Path(), r.report.Source,
		strings.Join(left[:shown], ", "), more)
}

// sayMore prints what --verbose asks for.
func (r *runner) sayMore() error {
	if !r.flags.verbose {
		return nil
	}
	start := time.Now()
	st, err := r.session.Step(1, 1)
	if err != nil {
		return err
	}
	if ignored := models.Ignored(r.bundle.source); len(ignored) > 0 {
		fmt.Fprintf(r.app.err, "ignored   what config.json says under %s: its class does not read it\n",
			strings.Join(ignored, ", "))
	}
	fmt.Fprintf(r.app.err, "file      %s\nholds     %s\nopening   %s\nloading   %s\n"+
		"step      %d launches for one token, made ready in %.0f ms\n", r.bundle.file.Path(), r.engine.LoadText(),
		r.bundle.times, loadTimesText(r.engine.LoadTimes()), len(st.Program.Launches), report.MS(time.Since(start)))
	return nil
}

// setTimes fills in the rates and latencies of one generation. The caller
// holds the lock, or is alone.
func (r *runner) setTimes(prefill, first time.Duration, steps []time.Duration) {
	rep := &r.report
	rep.Prefill.SetPhase(fmt.Sprintf("pp%d", len(r.prompt)), len(r.prompt), []time.Duration{prefill})
	if first > 0 {
		ms := report.MS(first)
		rep.TTFTMS = &ms
	}
	var total time.Duration
	for _, d := range steps {
		total += d
	}
	if len(steps) > 0 {
		rep.Decode.SetPhase(fmt.Sprintf("tg%d", len(steps)), len(steps), []time.Duration{total})
	}
	rep.InterToken = report.NewTimes(steps)
	r.setRoofs(0)
}

// setRoofs adds bytes, operations and fractions of the roofs to the rates.
func (r *runner) setRoofs(prefillFlops float64) {
	rep := &r.report
	if r.roofs == nil && r.bundle != nil && r.bundle.device != nil {
		r.roofs = &backends.Roofs{}
		r.roofs.ReadGBs, r.roofs.GFlops = roofs(r.bundle.device)
	}
	var gbs, gflops float64
	if r.roofs != nil {
		gbs, gflops = r.roofs.ReadGBs, r.roofs.GFlops
	}
	caches := 0.0
	if r.engine != nil {
		caches = r.cacheBytes()
	}
	errs := []error{rep.Prefill.SetRoof(0, 0, prefillFlops, 0, gflops)}
	for _, p := range []*report.Phase{&rep.Decode, rep.Sequence, rep.Greedy} {
		if p != nil {
			errs = append(errs, p.SetRoof(float64(rep.WeightBytes), caches, 0, gbs, 0))
		}
	}
	for _, err := range errs {
		if err != nil {
			rep.Fail(err.Error())
		}
	}
}
