// Package model measures whole models and single blocks: prefill and decode at a
// depth of the caches, in the manner of llama-bench; the time to the first token
// and between tokens; and where the time of a step goes. What is measured is
// checked in the same run.
package model

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/format"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/bench/stats"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// Options say what to measure.
type Options struct {
	Engine    engine.Options // with the device, and a context that holds Need
	Name      string         // of the model, in results
	Reference func() (backends.Device, error)
	Prompts   []int // tokens of prefill; one test each
	Gens      []int // tokens of decode; one test each
	Depths    []int // positions in the caches before; every test at each
	Parallel  []int // sequences at once, of RunBatches
	Shared    int   // tokens with which all of their prompts begin
	Rows      int   // most tokens of a step of RunBatches
	Capture   []int // rows of steps that RunBatches captures first
	// Arrivals is how many requests come a second on average, of RunBatches; 0: all at once, step by step
	Arrivals    float64
	Repetitions int
	MinTime     time.Duration // of a test's repetitions together, at least
	NoWarmUp    bool          // the first repetition counts, captures and all
	Roofs       record.Roofs
	// Peaks gives the modelled roofs of a device that has others for each type of weights; nil: Roofs
	// says all.
	Peaks func(weights ...tensor.Type) record.Roofs
	Say   func(format string, args ...any)
	Emit  func(record.Result) // told of each result when it is there
	// Corrupt, if set, is given the device's results before they are checked. Tests
	// plant mistakes by it.
	Corrupt func(out []float32)
}

// Need is the number of positions that the caches must hold.
func (o *Options) Need() int {
	if len(o.Parallel) > 0 {
		return maxOf(o.Depths) + maxOf(o.Prompts) + maxOf(o.Gens) + 1
	}
	return maxOf(o.Depths) + max(maxOf(o.Prompts), maxOf(o.Gens)) + 1
}

func maxOf(list []int) int {
	if len(list) == 0 {
		return 0
	}
	return slices.Max(list)
}

// Run measures a model. First the reference computes some positions in float64,
// then the device runs, compares with them, and is timed.
func Run(ctx context.Context, o Options) error {
	r := &runner{o: &o}
	return r.run(ctx)
}

// runner is one model on one device.
type runner struct {
	o       *Options
	e       *engine.Engine
	s       *engine.Session
	in      *Input
	want    []float32 // of the reference, rows of positions 0, 1, …
	rows    int
	refuse  func(*engine.Engine) error // says why a model is not measured, before anything is computed; may be nil
	limit   float64
	base    record.Check // of the first positions
	weights float64      // bytes
	params  float64
	fp8     bool // products of prefill round activations to 8-bit floats
	// bytes that products read of a step's weights, less those of the weights as stored
	packed float64
	again  func(time.Duration) (backends.Limits, error) // measures the device's limits once more, nil where it cannot
	raised time.Time                                    // when they were last
	asked  bool                                         // for the device's limits
	best   float64                                      // GB/s of the fastest piece of the weights, read alone
	read   func() (float64, error)                      // that measured anew; nil where it is not known
}

// checkedRows is the number of positions that are compared with the reference,
// one for a model whose float64 takes long: half a minute for each ten billion weights.
const checkedRows, bigModel = 4, 500e6

// begin makes the input, counts the weights, and computes what later results are compared with.
func (r *runner) begin(ctx context.Context) (err error) {
	if r.in, err = NewInput(r.e, r.o.Need(), r.o.Engine.Seed); err != nil {
		return err
	}
	for _, v := range r.e.Decode().Weights {
		r.weights += float64(v.Bytes())
		r.params += float64(v.Shape.Elems())
	}
	r.limit = r.e.Tolerance()
	r.base, err = r.first(ctx)
	return err
}

func (r *runner) run(ctx context.Context) (err error) {
	if err := r.reference(ctx); err != nil {
		return err
	}
	if r.e, err = engine.New(ctx, r.o.Engine); err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, r.e.Close()) }()
	if _, on := backends.OptedIn(r.o.Engine.Device); on {
		err := r.e.CheckOptIn()
		if r.fp8 = err == nil; r.fp8 {
			r.o.Roofs.GFlops = r.o.Engine.Device.Info().GFlops
		} else if r.o.Engine.Notify != nil {
			r.o.Engine.Notify(r.o.Name + ": " + err.Error())
		}
	}
	if r.s, err = r.e.NewSession(); err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, r.s.Close()) }()
	if err := r.begin(ctx); err != nil {
		return err
	}
	for _, d := range r.o.Depths {
		for _, p := range r.o.Prompts {
			if err := r.test(ctx, fmt.Sprintf("pp%d", p), p, 0, d); err != nil {
				return err
			}
		}
		for _, n := range r.o.Gens {
			if err := r.test(ctx, fmt.Sprintf("tg%d", n), 0, n, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// reference computes the first positions in float64, before the device's weights
// take their memory.
func (r *runner) reference(ctx context.Context) (err error) {
	dev, err := r.o.Reference()
	if err != nil {
		return err
	}
	defer func() { err = errlist.Join(err, dev.Close()) }()
	opt := r.o.Engine
	opt.TypesOf, opt.Device, opt.Progress, opt.Notify = opt.Device, dev, nil, nil
	opt.Context = min(opt.Context, checkedRows, r.o.Need()) // there is input for so many
	e, err := engine.New(ctx, opt)
	if err != nil {
		return fmt.Errorf("on the reference: %w", err)
	}
	defer func() { err = errlist.Join(err, e.Close()) }()
	if r.refuse != nil {
		if err := r.refuse(e); err != nil {
			return err
		}
	}
	elems := 0.0
	for _, v := range e.Decode().Weights {
		elems += float64(v.Shape.Elems())
	}
	if r.rows = opt.Context; elems > bigModel {
		r.rows = 1
	}
	r.o.Say("%s: %d positions in float64", r.o.Name, r.rows)
	s, err := e.NewSession()
	if err != nil {
		return fmt.Errorf("on the reference: %w", err)
	}
	defer func() { err = errlist.Join(err, s.Close()) }()
	in, err := NewInput(e, r.rows, opt.Seed)
	if err != nil {
		return err
	}
	r.want, err = in.singles(ctx, s, r.rows)
	return err
}

// first compares decode and prefill of the first positions with the reference.
func (r *runner) first(ctx context.Context) (record.Check, error) {
	single, err := r.in.singles(ctx, r.s, r.rows)
	if err != nil {
		return record.Check{}, err
	}
	if r.o.Corrupt != nil {
		r.o.Corrupt(single)
	}
	c := record.Check{Against: "float64", Limit: r.limit}
	c.RelL2, c.MaxAbs = report.Compare(single, r.want)
	r.s.Reset()
	together, err := r.in.Run(ctx, r.s, 0, r.rows)
	if err != nil {
		return c, err
	}
	// A block gives all rows, a model the last one.
	worst(&c, together, r.want[len(r.want)-len(together):])
	return c, nil
}

// worst takes the larger errors.
func worst(c *record.Check, got, want []float32) {
	l2, abs := report.Compare(got, want)
	c.RelL2, c.MaxAbs = max(c.RelL2, l2), max(c.MaxAbs, abs)
}

// test measures prefill of p tokens, or decode of n, at a depth.
func (r *runner) test(ctx context.Context, name string, p, n, depth int) error {
	if p+n == 0 {
		return nil
	}
	r.o.Say("%s: %s @ d%d", r.o.Name, name, depth)
	t := &test{runner: r, p: p, n: n, depth: depth, check: r.base}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	if err := r.limits(); err != nil {
		return err
	}
	var err error
	t.trend, err = guard.Series{Least: r.o.Repetitions, Time: r.o.MinTime, Fixed: r.o.NoWarmUp}.Take(ctx,
		func() error { return cmp.Or(t.repeat(ctx), r.raise()) }, func() [][]float64 { return [][]float64{t.times} }, t.drop)
	if err != nil {
		return err
	}
	res := r.result(name, t)
	if err := t.where(ctx, &res); err != nil {
		return err
	}
	if r.read != nil {
		if err := guard.Reading(&res, r.best, r.read); err != nil {
			return err
		}
	}
	if r.again != nil {
		if err := guard.Raise(&res, 0, func() (guard.Limits, error) {
			l, err := r.again(limitsBudget)
			r.best = max(r.best, l.BestReadGBs)
			return guard.Limits{ReadGBs: l.ReadGBs, BestReadGBs: l.BestReadGBs, GFlops: l.GFlops,
				BestGFlops: l.BestGFlops}, err
		}); err != nil {
			return err
		}
		r.o.Roofs.Raise(res.Roofs.MeasuredReadGBs, res.Roofs.MeasuredGFlops)
	}
	guard.Finish(&res)
	r.o.Emit(res)
	if n == 0 {
		return nil
	}
	token := r.result(name+format.TokenSuffix, t)
	token.Samples = t.between
	token.Metrics[format.Tokens] = 1
	token.Bytes, token.Flops = res.Bytes/float64(n), res.Flops/float64(n)
	token.Verdict, token.Reason = res.Verdict, res.Reason
	if res.Verdict == record.OK {
		guard.Finish(&token)
	}
	r.o.Emit(token)
	return nil
}

// Times in which a device measures its own limits.
const (
	limitsBudget  = 250 * time.Millisecond
	betweenBudget = 60 * time.Millisecond
	betweenLeast  = 10 * betweenBudget // from one to the next: it is little beside the samples
)

// raise measures the limits of memory again behind a sample: the memory that neighbours of a machine leave it changes
// in seconds, and a roof of another moment is none.
func (r *runner) raise() error {
	if r.again == nil || time.Since(r.raised) < betweenLeast {
		return nil
	}
	l, err := r.again(betweenBudget)
	r.raised = time.Now()
	r.best = max(r.best, l.BestReadGBs)
	r.o.Roofs.Raise(l.ReadGBs, l.GFlops)
	return err
}

// limits asks a device that can measure its roofs for them, once for a model.
func (r *runner) limits() error {
	limits := backends.LimitsOf(r.e.Device())
	if limits == nil || r.asked {
		return nil
	}
	r.asked = true
	if r.o.Peaks != nil {
		var types []tensor.Type
		for _, v := range r.e.Decode().Weights {
			types = append(types, v.Type)
		}
		x := r.o.Peaks(types...)
		r.o.Roofs.GFlops, r.o.Roofs.MostGBs = x.GFlops, x.MostGBs
	}
	st, err := r.s.Step(1, 1)
	if err != nil {
		return err
	}
	measure := func(budget time.Duration) (backends.Limits, error) { return limits(st.Program, budget) }
	l, err := measure(limitsBudget)
	if err != nil {
		return err
	}
	if packed := l.WeightBytes - float64(r.e.WeightBytes()); l.WeightBytes > 0 {
		r.packed = packed
	}
	if l.ReadGBs > 0 && r.weights > r.o.Roofs.LastCache { // weights in a cache are no measure of memory
		r.o.Roofs.MeasuredReadGBs = l.ReadGBs
		r.best = l.BestReadGBs
		r.read = func() (float64, error) {
			l, err := measure(limitsBudget)
			return l.BestReadGBs, err
		}
		r.again, r.raised = measure, time.Now()
	}
	if l.GFlops > 0 {
		r.o.Roofs.MeasuredGFlops = l.GFlops
	}
	return nil
}

func (r *runner) result(name string, t *test) record.Result {
	info, opt := r.e.Device().Info(), r.e.Options()
	res := record.Result{
		Bench: "model/" + name, Clock: record.HostClock, Backend: info.Backend, Samples: t.times, Roofs: r.o.Roofs,
		Check: t.check,
		Params: map[string]string{"model": r.o.Name, "type": TypeName(r.e), "kv": opt.KV.String(),
			"depth": strconv.Itoa(t.depth)},
		Metrics: map[string]float64{
			format.Tokens: float64(t.p + t.n), format.ModelBytes: r.weights, format.ModelParams: r.params,
			format.Positions: float64(t.p),
			format.Generated: float64(t.n), format.Depth: float64(t.depth), format.Chunk: float64(opt.Chunk),
		},
	}
	if info.Backend == "cpu" {
		res.Params["threads"] = strconv.Itoa(info.Threads)
	}
	if opt.Chunk != engine.DefaultChunk {
		res.Params["chunk"] = strconv.Itoa(opt.Chunk)
	}
	if r.fp8 {
		res.Params["fp8"] = "on" // another accuracy: not to be compared with results without
	}
	if t.different {
		res.Verdict, res.Reason = record.Failed, "repetitions gave different results"
	}
	res.Bytes, res.Flops = t.bytes+float64(t.loads)*r.packed, t.flops
	if t.trend != 0 {
		res.Metrics[record.Trend] = t.trend
	}
	if len(t.first) > 0 {
		res.Metrics[format.FirstToken] = stats.Summarize(t.first).Median
	}
	return res
}

// test is one test under way.
type test struct {
	*runner
	p, n, depth int
	check       record.Check
	times       []float64 // of repetitions, seconds
	between     []float64 // between tokens
	first       []float64 // to the first token
	trend       float64   // of times
	hash        [32]byte  // of the logits behind a repetition
	hashed      bool
	different   bool
	bytes       float64 // that a repetition reads: weights for each step, caches
	loads       int     // how often it reads the weights
	flops       float64
}

// prepare fills the caches to the depth, compares prefill with decode at the
// test's last position, counts the work, and warms up.
func (t *test) prepare(ctx context.Context) error {
	t.s.Reset()
	if t.depth > 0 {
		if _, err := t.in.Run(ctx, t.s, 0, t.depth); err != nil {
			return err
		}
	}
	if err := t.s.Keep(); err != nil {
		return err
	}
	if t.p > 1 {
		out, err := t.in.Run(ctx, t.s, t.depth, t.depth+t.p)
		if err != nil {
			return err
		}
		width := t.in.RowWidth(out, t.p)
		whole := slices.Clone(out[len(out)-width:])
		if err := t.before(ctx); err != nil {
			return err
		}
		single, err := t.in.Run(ctx, t.s, t.depth+t.p-1, t.depth+t.p)
		if err != nil {
			return err
		}
		worst(&t.check, whole, single)
	}
	if err := t.count(); err != nil {
		return err
	}
	if t.o.NoWarmUp {
		return nil
	}
	once := func() (time.Duration, error) {
		if err := t.repeat(ctx); err != nil {
			return 0, err
		}
		return time.Duration(t.times[len(t.times)-1] * float64(time.Second)), nil
	}
	var err error
	if t.e.Device().Info().Queued { // a device of its own, whose clocks fell while it waited
		_, err = guard.WarmUp(ctx, once)
	} else {
		_, err = once()
	}
	t.times, t.between, t.first = nil, nil, nil
	return err
}

// drop forgets the first n repetitions.
func (t *test) drop(n int) {
	all := len(t.times)
	for _, list := range []*[]float64{&t.times, &t.between, &t.first} {
		*list = (*list)[len(*list)/all*n:]
	}
}

// before goes back before the last token of the prompt. A recurrence cannot: it computes the others again.
func (t *test) before(ctx context.Context) error {
	if t.e.Rewinds() {
		return t.s.Rewind(t.depth + t.p - 1)
	}
	if err := t.s.Rewind(t.depth); err != nil {
		return err
	}
	_, err := t.in.Run(ctx, t.s, t.depth, t.depth+t.p-1)
	return err
}

// count adds up what a repetition must do: the weights that each step reads, the
// caches, and the arithmetic.
func (t *test) count() error {
	add := func(tokens, first int) error {
		st, err := t.s.Step(tokens, 1)
		if err != nil {
			return err
		}
		for _, n := range st.Graph.Nodes {
			if n.Op.Cost == nil {
				continue
			}
			if n.Op.Name == "attention" {
				t.bytes += n.Op.Cost(n, first+tokens).Read
			}
			// The tokens of a step see half of its positions on average.
			t.flops += n.Op.Cost(n, first+(tokens+1)/2).Flops
		}
		t.bytes += float64(t.e.WeightBytes())
		t.loads++
		return nil
	}
	for at := 0; at < t.p; {
		n := min(t.p-at, t.e.Options().Chunk)
		if err := add(n, t.depth+at); err != nil {
			return err
		}
		at += n
	}
	for i := range t.n {
		if err := add(1, t.depth+i); err != nil {
			return err
		}
	}
	return nil
}

// repeat runs the test once. The logits of one more token, which is not timed,
// must come out the same behind every repetition.
func (t *test) repeat(ctx context.Context) error {
	if err := t.s.Rewind(t.depth); err != nil {
		return err
	}
	var took time.Duration
	switch {
	case t.in.Width > 0:
		for _, part := range t.parts() {
			start := time.Now()
			if _, err := t.in.Run(ctx, t.s, part[0], part[1]); err != nil {
				return err
			}
			d := time.Since(start)
			took += d
			if t.n > 0 {
				t.between = append(t.between, d.Seconds())
			}
		}
	default:
		prompt, most := t.in.Tokens[t.depth:t.depth+t.p], 1
		if t.n > 0 {
			prompt, most = t.in.Tokens[t.depth:t.depth+1], t.n
		}
		g, err := t.s.Generate(ctx, prompt, engine.Generation{Max: most})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if len(g.Tokens) != most {
			return fmt.Errorf("%d tokens came of the %d that were asked for: %s", len(g.Tokens), most, g.Stop)
		}
		took = g.Prefill
		if t.n > 0 {
			took = g.First
			t.between = append(t.between, g.First.Seconds())
		} else {
			t.first = append(t.first, g.First.Seconds())
		}
		for _, d := range g.Steps {
			took += d
			t.between = append(t.between, d.Seconds())
		}
	}
	t.times = append(t.times, took.Seconds())
	at := t.s.Pos()
	out, err := t.in.Run(ctx, t.s, at, at+1)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(tensor.Bytes(out))
	if t.hashed && hash != t.hash {
		t.different = true
	}
	t.hash, t.hashed = hash, true
	return nil
}

// parts are the positions of a block's runs: the prompt in chunks, or each token.
func (t *test) parts() [][2]int {
	var all [][2]int
	step, total := t.e.Options().Chunk, t.p
	if t.n > 0 {
		step, total = 1, t.n
	}
	for at := 0; at < total; at += step {
		all = append(all, [2]int{t.depth + at, t.depth + min(total, at+step)})
	}
	return all
}

// steps is how often a step is timed as a whole, explainBudget about how long it takes to say where its time goes.
const (
	steps         = 5
	explainBudget = 4 * time.Second
)

// where finds out where the time of a step goes: its kernels, per block and outside of
// blocks, against the step as a whole from the host.
func (t *test) where(ctx context.Context, res *record.Result) error {
	tokens := 1
	if t.p > 0 {
		tokens = min(t.p, t.e.Options().Chunk)
	}
	var whole []float64
	for range steps {
		if err := t.s.Rewind(t.depth); err != nil {
			return err
		}
		start := time.Now()
		if _, err := t.in.Run(ctx, t.s, t.depth, t.depth+tokens); err != nil {
			return err
		}
		whole = append(whole, time.Since(start).Seconds())
	}
	st, err := t.s.Step(tokens, 1)
	if err != nil {
		return err
	}
	x, err := st.Explain(explainBudget) // of the same inputs, which are still there
	if err != nil {
		return err
	}
	block, out, blocks := 0.0, 0.0, map[int]bool{}
	for i := range x.Parts {
		p := &x.Parts[i]
		d := x.Took(p).Seconds()
		if b := st.Program.Launches[p.Launches[0]].Node.Block; b >= 0 {
			block += d
			blocks[b] = true
		} else {
			out += d
		}
	}
	res.Metrics[format.Launches] = float64(len(st.Program.Launches))
	res.Metrics[format.KernelSum] = block + out
	res.Metrics[format.StepTime] = stats.Summarize(whole).Median
	if out > 0 {
		res.Metrics[format.OutsideTime] = out
	}
	if len(blocks) > 0 {
		res.Metrics[format.BlockTime] = block / float64(len(blocks))
	}
	return nil
}
