package model

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/backends/cpu"
	"github.com/greta-project/greta/backends/ref"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/internal/testfiles"
	"github.com/greta-project/greta/models"
	"github.com/greta-project/greta/weights/open"
)

func options(t *testing.T, results *[]record.Result) Options {
	t.Helper()
	f, err := models.Builtin("llama2_block")
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.New(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return Options{
		Engine: engine.Options{Model: f, Device: dev, Context: 64, Set: map[string]string{"D": "64", "H": "4", "F": "96"}},
		Name:   "tiny", Reference: func() (backends.Device, error) { return ref.New(), nil },
		Prompts: []int{7}, Gens: []int{5}, Depths: []int{0}, Repetitions: 3,
		Say: func(string, ...any) {}, Emit: func(r record.Result) { *results = append(*results, r) },
	}
}

// realModel is options with a model that has tokens and logits.
func realModel(t *testing.T, results *[]record.Result) Options {
	t.Helper()
	o := options(t, results)
	src, err := open.Open(testfiles.Repo(t, "testdata", "tolstoy-2.7m"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	if o.Engine.Model, err = models.Match(src); err != nil {
		t.Fatal(err)
	}
	o.Engine.Source, o.Engine.Set = src, nil
	return o
}

func byName(t *testing.T, results []record.Result) map[string]*record.Result {
	t.Helper()
	all := map[string]*record.Result{}
	for i := range results {
		r := &results[i]
		all[strings.TrimPrefix(r.Bench, "model/")+" @ "+r.Params["depth"]] = r
		if r.Verdict != record.OK {
			t.Errorf("%s: %s %s", r.Name(), r.Verdict, r.Reason)
		}
	}
	return all
}

func TestBlock(t *testing.T) {
	var results []record.Result
	o := options(t, &results)
	o.Depths = []int{0, 9}
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	all := byName(t, results)
	if len(results) != 6 || len(all) != 6 {
		t.Fatalf("%d results: %v", len(results), all)
	}
	pp, tg, token := all["pp7 @ 0"], all["tg5 @ 9"], all["tg5/token @ 9"]
	if len(pp.Samples) != 3 || len(tg.Samples) != 3 || len(token.Samples) != 15 {
		t.Errorf("%d, %d and %d samples", len(pp.Samples), len(tg.Samples), len(token.Samples))
	}
	if pp.Metrics[format.Tokens] != 7 || tg.Metrics[format.Tokens] != 5 || tg.Metrics[format.Depth] != 9 ||
		pp.Params["threads"] != "2" || pp.Params["type"] != "f16" {
		t.Errorf("%+v %+v", pp, tg)
	}
	if pp.Check.Against != "float64" || pp.Check.RelL2 <= 0 || pp.Check.RelL2 > pp.Check.Limit {
		t.Errorf("check: %+v", pp.Check)
	}
	for _, r := range []*record.Result{pp, tg} {
		if r.Metrics[format.StepTime] <= 0 || r.Metrics[format.KernelSum] <= 0 || r.Metrics[format.BlockTime] <= 0 ||
			r.Bytes <= 0 || r.Flops <= 0 {
			t.Errorf("%s: %+v", r.Bench, r)
		}
	}
	// Two operations for each weight and token at least.
	if least := 2 * 7 * pp.Metrics[format.ModelParams] * 0.9; pp.Flops < least || pp.Flops > 2*least {
		t.Errorf("%g flops, %g at least", pp.Flops, least)
	}
	if tg.Bytes < 5*tg.Metrics[format.ModelBytes]*0.9 || all["tg5 @ 0"].Bytes >= tg.Bytes {
		t.Errorf("decode reads %g bytes, %g without depth, of weights of %g", tg.Bytes, all["tg5 @ 0"].Bytes,
			tg.Metrics[format.ModelBytes])
	}
}

func TestModel(t *testing.T) {
	var results []record.Result
	o := realModel(t, &results)
	o.Prompts, o.Gens, o.Depths = []int{1, 19}, []int{6}, []int{3}
	o.Engine.Chunk = 8
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	all := byName(t, results)
	pp, tg := all["pp19 @ 3"], all["tg6 @ 3"]
	if all["pp1 @ 3"] == nil || pp == nil || tg == nil || len(all["tg6/token @ 3"].Samples) != 18 {
		t.Fatalf("%v", all)
	}
	if first := pp.Metrics[format.FirstToken]; first < slices.Min(pp.Samples)/10 || first <= 0 ||
		tg.Metrics[format.FirstToken] != 0 {
		t.Errorf("first token after %g s, prefill takes %v", first, pp.Samples)
	}
	if pp.Params["chunk"] != "8" || pp.Metrics[format.Chunk] != 8 {
		t.Errorf("%v", pp.Params)
	}
	sum := 0.0
	for _, x := range all["tg6/token @ 3"].Samples {
		sum += x
	}
	total := 0.0
	for _, x := range tg.Samples {
		total += x
	}
	if math.Abs(sum-total) > 1e-9 {
		t.Errorf("tokens take %g s together, the tests %g", sum, total)
	}
	if tg.Metrics[format.OutsideTime] <= 0 {
		t.Error("the logits are outside of blocks and take no time")
	}
}

func TestRepetitionsAndTime(t *testing.T) {
	var results []record.Result
	o := options(t, &results)
	o.Gens, o.Repetitions, o.NoWarmUp = nil, 1, true
	if err := Run(t.Context(), o); err != nil || len(results) != 1 || len(results[0].Samples) != 1 {
		t.Fatalf("%+v, %v", results, err)
	}
	results = nil
	o.MinTime = 20 * time.Millisecond
	start := time.Now()
	if err := Run(t.Context(), o); err != nil || len(results[0].Samples) < 2 || time.Since(start) < o.MinTime {
		t.Errorf("%d samples, %v", len(results[0].Samples), err)
	}
}

// watched is a device that says when a program is started, and may pass for one that works by itself.
type watched struct {
	backends.Device
	queued bool
	submit func()
}

type watchedProgram struct {
	backends.Executable
	submit func()
}

func (d *watched) Info() backends.Info {
	i := d.Device.Info()
	i.Queued = i.Queued || d.queued
	return i
}

func (d *watched) Capture(p *backends.Program) (backends.Executable, error) {
	e, err := d.Device.Capture(p)
	return &watchedProgram{e, d.submit}, err
}

func (e *watchedProgram) Submit() error {
	e.submit()
	return e.Executable.Submit()
}

// TestWarmUp: without a warm-up the device computes one repetition less.
func TestWarmUp(t *testing.T) {
	count := func(none bool) int {
		var results []record.Result
		o := options(t, &results)
		started := 0
		o.Engine.Device = &watched{Device: o.Engine.Device, submit: func() { started++ }}
		o.NoWarmUp, o.Gens = none, nil
		if err := Run(t.Context(), o); err != nil || len(results[0].Samples) != 3 {
			t.Fatalf("%+v, %v", results, err)
		}
		return started
	}
	// A repetition is a prefill and the token behind it, which is compared.
	if with, without := count(false), count(true); with != without+2 {
		t.Errorf("%d programs with a warm-up, %d without", with, without)
	}
}

// TestClocks: no sample is of the time in which a card's clocks rise, unless that is asked for.
func TestClocks(t *testing.T) {
	const slow = 100 * time.Millisecond
	for _, none := range []bool{false, true} {
		var results []record.Result
		o := options(t, &results)
		left := 0 // programs until the clocks are up
		o.Engine.Device = &watched{o.Engine.Device, true, func() {
			if left > 0 {
				left--
				time.Sleep(slow)
			}
		}}
		o.NoWarmUp, o.Gens = none, nil
		o.Say = func(string, ...any) { left = 10 } // a test begins
		if err := Run(t.Context(), o); err != nil || len(results[0].Samples) != 3 {
			t.Fatalf("%+v, %v", results, err)
		}
		if s := results[0].Samples; (slices.Max(s) < slow.Seconds()) == none {
			t.Errorf("samples of %v s, without a warm-up: %v", s, none)
		}
	}
}

// limited is a device that says what its limits are.
type limited struct{ backends.Device }

func (limited) Limits(*backends.Program, time.Duration) (backends.Limits, error) {
	return backends.Limits{ReadGBs: 50, GFlops: 70}, nil
}

func TestMeasuredLimits(t *testing.T) {
	for _, cache := range []float64{100, 1e9} {
		var results []record.Result
		o := options(t, &results)
		o.Engine.Device, o.Roofs.LastCache = limited{o.Engine.Device}, cache
		if err := Run(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		want := record.Roofs{MeasuredReadGBs: 50, MeasuredGFlops: 70, LastCache: cache}
		if cache == 1e9 { // then the weights lie in it
			want.MeasuredReadGBs = 0
		}
		if results[0].Roofs != want {
			t.Errorf("%+v, want %+v", results[0].Roofs, want)
		}
	}
}

func TestWrongResultFails(t *testing.T) {
	var results []record.Result
	o := options(t, &results)
	o.Corrupt = func(out []float32) { out[70] += 1 }
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Verdict != record.Failed || r.Reason == "" {
			t.Errorf("%s: %s %s", r.Name(), r.Verdict, r.Reason)
		}
	}
	if len(results) == 0 {
		t.Error("no results")
	}
}

// TestPeakGate plants a device whose modelled peak is far below what it does.
func TestPeakGate(t *testing.T) {
	var results []record.Result
	o := options(t, &results)
	o.Roofs.GFlops = 1e-6
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Verdict != record.Refused {
			t.Errorf("%s: %s", r.Name(), r.Verdict)
		}
	}
}

func TestInterrupted(t *testing.T) {
	var results []record.Result
	o := options(t, &results)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	o.Prompts = []int{3, 4, 5}
	o.Emit = func(r record.Result) {
		results = append(results, r)
		stop()
	}
	if err := Run(ctx, o); !errors.Is(err, context.Canceled) || len(results) != 1 || results[0].Verdict != record.OK {
		t.Errorf("%+v, %v", results, err)
	}
}

func TestNeed(t *testing.T) {
	o := Options{Prompts: []int{5, 9}, Gens: []int{3}, Depths: []int{0, 20}}
	if n := o.Need(); n != 30 {
		t.Errorf("%d positions are needed, 20 + 9 and one more are expected", n)
	}
}
