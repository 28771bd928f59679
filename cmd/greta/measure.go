package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/greta-project/greta/backends"
	"github.com/greta-project/greta/bench/guard"
	"github.com/greta-project/greta/bench/model"
	"github.com/greta-project/greta/bench/record"
	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/internal/errlist"
	"github.com/greta-project/greta/tensor"
)

// Sizes of a measured run where the user names none: a 7B block with its
// checks takes a few seconds on two cores, and less than a minute without
// their vector units.
const (
	defaultPrefill = 128
	defaultDecode  = 32
	minDecode      = 8 // on slow machines
	maxRepeats     = 5
	repeatBudget   = 10 * time.Second
)

// sample is one repeat of a measured run.
type sample struct {
	prefill time.Duration
	steps   []time.Duration
	submit  []time.Duration // of each step, until it was submitted to a GPU; and
	host    []time.Duration // what was not waiting for one
	total   time.Duration
	hash    string // of all outputs
	early   string // of the outputs up to the first two decode steps

	sequence time.Duration // of the same steps without waiting between them, 0: not run
	strayed  int           // how many of their outputs were not to the bit those of steps one by one

	greedy time.Duration // of as many tokens that the device chose, 0: not run
	chosen []int32       // those
}

// warmDecode is the number of decode steps in the warm-up.
const warmDecode = 2

// once computes a prefill of p and n decode steps behind it.
func (r *runner) once(ctx context.Context, in *model.Input, p, n int) (*sample, error) {
	s := &sample{steps: make([]time.Duration, 0, n)}
	sum := sha256.New()
	var outs []float32 // of the decode steps, where they are run in a sequence too
	note := func(out []float32) {
		sum.Write(tensor.Bytes(out))
		if i, ok := engine.Finite(out); !ok {
			r.update(func() {
				r.report.Fail(fmt.Sprintf("value %d of the output at position %d is %v", i, r.session.Pos()-1, out[i]))
			})
		}
	}
	r.session.Reset()
	if p > 0 {
		start := time.Now()
		out, err := in.Run(ctx, r.session, 0, p)
		s.prefill = time.Since(start)
		if err != nil {
			return nil, err
		}
		note(out)
	}
	if n > 0 && (r.sequences(in) || r.chooses(in)) { // what follows is computed again from here
		if err := r.session.Keep(); err != nil {
			return nil, err
		}
	}
	for i := range n {
		if i == warmDecode {
			s.early = digest(sum)
		}
		var out []float32
		took, submit, host, err := r.session.Timed(func() (err error) {
			out, err = in.Run(ctx, r.session, p+i, p+i+1)
			return err
		})
		if err != nil {
			return nil, err
		}
		if host > 0 {
			s.submit, s.host = append(s.submit, submit), append(s.host, host)
		}
		s.steps = append(s.steps, took)
		s.total += took
		note(out)
		if r.sequences(in) {
			outs = append(outs, out...)
		}
	}
	s.hash = digest(sum)
	if n <= warmDecode {
		s.early = s.hash
	}
	if len(outs) > 0 {
		if err := r.sequence(ctx, in, p, outs, s); err != nil {
			return nil, err
		}
	}
	if n > 0 && r.chooses(in) {
		if err := r.greedy(ctx, in, p, n, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// chooses says whether tokens that the device chooses are timed too, as it does in a text: those of a model, where
// it chooses.
func (r *runner) chooses(in *model.Input) bool {
	info := r.engine.Device().Info()
	return in.Width == 0 && info.Queued && info.Picks > 0 && !r.flags.noCapture
}

// greedy generates n tokens behind p and the first of those that were decoded there.
func (r *runner) greedy(ctx context.Context, in *model.Input, p, n int, s *sample) error {
	if err := r.session.Rewind(p); err != nil {
		return err
	}
	g, err := r.session.Generate(ctx, in.Tokens[p:p+1], engine.Generation{Max: n})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	s.chosen, s.greedy = g.Tokens, g.First
	for _, d := range g.Steps {
		s.greedy += d
	}
	return nil
}

// strays counts the tokens, of those that the device chose behind p, that are not the most likely ones of steps one by
// one whose logits are read.
func (r *runner) strays(ctx context.Context, in *model.Input, p int, chosen []int32) (n int, err error) {
	if err := r.session.Rewind(p); err != nil {
		return 0, err
	}
	token := in.Tokens[p]
	for _, want := range chosen {
		logits, err := r.session.Decode(token)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return 0, err
		}
		if token, err = engine.NewSampler(engine.Sampling{}).Sample(logits, nil); err != nil {
			return 0, err
		}
		if token != want {
			n++
			token = want
		}
	}
	return n, nil
}

// sequences says whether decode steps are timed without waiting between them too: those of
// a block, whose inputs are all known, where the device does not compute on the host.
func (r *runner) sequences(in *model.Input) bool {
	return in.Width > 0 && r.engine.Device().Info().Queued && !r.flags.noCapture
}

// sequence computes the decode steps behind p again, without waiting between them, and
// compares them with the outputs of steps one by one.
func (r *runner) sequence(ctx context.Context, in *model.Input, p int, outs []float32, s *sample) error {
	n := len(s.steps)
	if err := r.session.Rewind(p); err != nil {
		return err
	}
	start := time.Now()
	err := r.session.BlockAll(ctx, in.X[p*in.Width:(p+n)*in.Width], func(i int, out []float32) error {
		if !bytes.Equal(tensor.Bytes(out), tensor.Bytes(outs[i*len(out):(i+1)*len(out)])) {
			s.strayed++
		}
		return nil
	})
	s.sequence = time.Since(start)
	return err
}

func digest(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// measure times prefill and decode on made up input, and checks the result.
// In one piece: each figure is of the state that the one before it left.
func (r *runner) measure(ctx context.Context) error {
	f := r.flags
	if f.prefill+f.gen == 0 {
		return usagef("--prefill 0 --gen 0 leaves nothing to measure")
	}
	in, err := model.NewInput(r.engine, f.prefill+f.gen, f.weightSeed)
	if err != nil {
		return usage(err)
	}
	warm, err := r.once(ctx, in, f.prefill, min(f.gen, warmDecode))
	if err != nil {
		return err
	}
	if step := warm.total / max(1, time.Duration(len(warm.steps))); !f.hasGen &&
		step*time.Duration(f.gen) > repeatBudget/2 {
		f.gen = max(minDecode, int(repeatBudget/2/step))
	}
	if r.sequences(in) { // captures what a sequence of so many steps takes
		if warm, err = r.once(ctx, in, f.prefill, f.gen); err != nil {
			return err
		}
	}
	if f.gen > 0 && r.chooses(in) {
		r.session.Reset()
		if err := r.session.Prepare(1, &engine.Sampling{}, true); err != nil {
			return err
		}
	}
	repeats, budget := f.repeat, time.Duration(0)
	if repeats == 0 {
		repeats, budget = maxRepeats, repeatBudget
	}
	var warmed, samples []*sample
	if r.engine.Device().Info().Queued {
		// a device of its own, whose clocks fell while weights were made and kernels compiled
		_, err := guard.WarmUp(ctx, func() (time.Duration, error) {
			start := time.Now()
			s, err := r.once(ctx, in, f.prefill, min(f.gen, warmDecode))
			warmed = append(warmed, s)
			return time.Since(start), err
		})
		if err != nil {
			return err
		}
	}
	watch := newWatch(r.engine.Device().Info())
	take := guard.Series{Least: repeats, Most: budget}
	prompts, rise, err := r.prompts(ctx, in, take)
	if err != nil {
		return err
	}
	fall, err := take.Take(ctx, func() error {
		s, err := r.once(ctx, in, f.prefill, f.gen)
		if err != nil {
			return err
		}
		samples = append(samples, s)
		r.noteSamples(prompts, samples)
		return r.limitsBetween()
	}, func() [][]float64 { return series(prompts, samples) }, func(n int) {
		warmed, samples = append(warmed, samples[:n]...), samples[n:]
	})
	if err != nil {
		return err
	}
	rise = cmp.Or(rise, fall)
	metrics := maps.Clone(watch.Metrics())
	if rise != 0 {
		if metrics == nil {
			metrics = map[string]float64{}
		}
		metrics[record.Trend] = rise
	}
	disturbed := record.Disturbance(metrics)
	r.update(func() {
		if r.report.Disturbed = disturbed; disturbed != "" && f.strict {
			r.report.Fail("--strict: " + disturbed)
		}
	})
	if err := r.limits(); err != nil {
		return err
	}
	same, strayed, outputs := true, warm.strayed, len(warm.steps)
	others := slices.Concat(warmed, samples)
	for _, s := range others {
		same = same && s.early == warm.early && (len(s.steps) < f.gen || s.hash == samples[0].hash)
		strayed += s.strayed
		outputs += len(s.steps)
	}
	for _, s := range prompts {
		same = same && s.hash == prompts[0].hash
	}
	r.addCheck(report.Check{Name: "repeats", OK: same, Note: fmt.Sprintf("%d runs bit-identical: %v",
		1+len(others)+len(prompts), same)})
	if r.sequences(in) && f.gen > 0 {
		r.addCheck(report.Check{Name: "sequence = steps", OK: strayed == 0,
			Note: fmt.Sprintf("%d of %d outputs bit-identical", outputs-strayed, outputs)})
	}
	if chosen := samples[0].chosen; len(chosen) > 0 {
		strays, err := r.strays(ctx, in, f.prefill, chosen)
		if err != nil {
			return err
		}
		for _, s := range others {
			for i, token := range s.chosen {
				if token != chosen[i] {
					strays++
				}
			}
		}
		r.addCheck(report.Check{Name: "greedy = steps", OK: strays == 0,
			Note: fmt.Sprintf("%d of %d tokens are the most likely of steps one by one", len(chosen)*len(samples)-strays,
				len(chosen)*len(samples))})
	}
	if err := r.profile(ctx, f.prefill); err != nil {
		return err
	}
	return r.verify(ctx, in)
}

// prompts times prefill alone, one behind the other as bench model does, on a device of its own: while a card decodes,
// the clocks recover that prefill brings down, and what it gives behind that is no rate of prompts. On others, whose
// samples have the times of both, and where nothing is decoded, there are none.
func (r *runner) prompts(ctx context.Context, in *model.Input, take guard.Series) (list []*sample, rise float64,
	err error) {
	if f := r.flags; f.prefill == 0 || f.gen == 0 || !r.engine.Device().Info().Queued {
		return nil, 0, nil
	}
	once := func() error {
		s, err := r.once(ctx, in, r.flags.prefill, 0)
		if err == nil {
			list = append(list, s)
		}
		return err
	}
	if _, err := guard.WarmUp(ctx, func() (time.Duration, error) {
		if err := once(); err != nil {
			return 0, err
		}
		return list[len(list)-1].prefill, nil
	}); err != nil {
		return nil, 0, err
	}
	list = nil
	rise, err = take.Take(ctx, once, func() [][]float64 { return series(nil, list) }, func(n int) { list = list[n:] })
	return list, rise, err
}

// series are the times of prefill and of decode, in order; of prefill those of prompts alone have no more to say.
func series(prompts, samples []*sample) [][]float64 {
	var prefill, decode []float64
	for _, s := range samples {
		prefill, decode = append(prefill, s.prefill.Seconds()), append(decode, s.total.Seconds())
	}
	if len(prompts) > 0 {
		return [][]float64{decode}
	}
	return [][]float64{prefill, decode}
}

// noteSamples reports what the repeats so far say; of prefill what prompts alone do, where there are some.
func (r *runner) noteSamples(prompts, samples []*sample) {
	f := r.flags
	var prefill, decode, sequence, greedy, steps, submit, host []time.Duration
	if len(prompts) == 0 {
		prompts = samples
	}
	for _, s := range prompts {
		if f.prefill > 0 {
			prefill = append(prefill, s.prefill)
		}
	}
	for _, s := range samples {
		if f.gen > 0 {
			decode = append(decode, s.total)
		}
		if s.sequence > 0 {
			sequence = append(sequence, s.sequence)
		}
		if s.greedy > 0 {
			greedy = append(greedy, s.greedy)
		}
		steps = append(steps, s.steps...)
		submit, host = append(submit, s.submit...), append(host, s.host...)
	}
	flops := 0.0
	if st, err := r.session.Step(max(1, min(f.prefill, f.chunk)), 1); err == nil && f.prefill > 0 {
		for _, n := range st.Graph.Nodes {
			if n.Op.Cost != nil {
				flops += n.Op.Cost(n, f.prefill).Flops / float64(st.Tokens)
			}
		}
	}
	r.update(func() {
		rep := &r.report
		rep.Prefill.SetPhase(fmt.Sprintf("pp%d", f.prefill), f.prefill, prefill)
		rep.Decode.SetPhase(fmt.Sprintf("tg%d", f.gen), f.gen, decode)
		if rep.Sequence = nil; len(sequence) > 0 {
			rep.Sequence = &report.Phase{}
			rep.Sequence.SetPhase(fmt.Sprintf("tg%d", f.gen), f.gen, sequence)
		}
		if rep.Greedy = nil; len(greedy) > 0 {
			rep.Greedy = &report.Phase{}
			rep.Greedy.SetPhase(fmt.Sprintf("tg%d", f.gen), f.gen, greedy)
		}
		rep.InterToken = report.NewTimes(steps)
		rep.SetHost(submit, host)
		if len(prefill) > 0 {
			ms := report.Median(report.Millis(prefill))
			rep.TTFTMS = &ms
		}
		r.setRoofs(flops)
		rep.OutputHash = samples[0].hash
		rep.ModelMemory, rep.Private = report.Memory() // the checks use memory of their own
	})
}

func (r *runner) addCheck(c report.Check) { r.update(func() { r.report.AddCheck(c) }) }

// rows are the positions that are compared with the reference.
const rows = 4

// maxRefElems bounds the weights of a model that the float64 reference computes
// in passing: a second or so for each hundred million.
const maxRefElems = 500e6

// closeExperts is at how many positions prefill is compared with decode at most where a router chooses experts: where
// two experts' logits are nearly the same, both are right, and take another one.
const closeExperts = 8

// verifyPrefill compares the logits behind a prompt of the measured length, and behind shorter ones where a router may
// have chosen otherwise, with those of a step behind all tokens but the last. It gives the first rows of a block.
func (r *runner) verifyPrefill(ctx context.Context, in *model.Input, limit float64) (early []float32, err error) {
	s, n := r.session, r.flags.prefill
	if n < 2 {
		return nil, nil
	}
	at := func(n int) (l2, worst float64, err error) {
		s.Reset()
		out, err := in.Run(ctx, s, 0, n)
		if err != nil {
			return 0, 0, err
		}
		width := in.RowWidth(out, n)
		if in.Width > 0 && early == nil {
			early = slices.Clone(out[:min(rows, n)*width])
		}
		whole := slices.Clone(out[len(out)-width:])
		s.Reset()
		if _, err := in.Run(ctx, s, 0, n-1); err != nil {
			return 0, 0, err
		}
		if out, err = in.Run(ctx, s, n-1, n); err != nil {
			return 0, 0, err
		}
		l2, worst = report.Compare(whole, out)
		return l2, worst, nil
	}
	c, err := comparePrefill(n, limit, r.engine.Routes(), at)
	if err == nil {
		r.addCheck(c)
	}
	return early, err
}

// comparePrefill is the check of prefill against decode behind n tokens. Where it fails and routes says that a router
// chooses, at gives the errors behind fewer tokens too, and one position within the limit is enough: kernels that are
// wrong are at all of them. Where none is, but they are nearer than engine.RoutedLimit, nothing was checked. What was
// seen is said.
func comparePrefill(n int, limit float64, routes bool, at func(n int) (l2, worst float64, err error)) (report.Check,
	error) {
	const name = "prefill = decode"
	l2, worst, err := at(n)
	c := report.Check{Name: name, OK: l2 <= limit, RelL2: &l2, MaxAbs: &worst, Tolerance: &limit,
		Note: fmt.Sprintf("position %d", n-1)}
	if err != nil || c.OK || !routes {
		return c, err
	}
	all, within := []float64{l2}, 0
	for len(all) < closeExperts && n-len(all) > 1 {
		m := n - len(all)
		l, w, err := at(m)
		if err != nil {
			return c, err
		}
		if all = append(all, l); l <= limit {
			if within++; within == 1 {
				l2, worst, c.OK, c.Note = l, w, true, fmt.Sprintf("position %d", m-1)
			}
		}
	}
	seen := fmt.Sprintf("%d of %d positions are within %.0e, position %d is off by %.2e", within, len(all), limit, n-1,
		all[0])
	switch slices.Sort(all); {
	case within > 0:
		c.Note += "; " + seen + ": close experts may be chosen otherwise"
	case all[len(all)/2] < engine.RoutedLimit:
		return report.Check{Name: name, Skipped: true, Note: "unchecked: " + seen + ", as where rounding decides which of " +
			"two close experts is chosen; greta check does it operator by operator"}, nil
	default:
		c.Note += "; " + seen
	}
	return c, nil
}

// verify checks what was measured: prefill against decode at the measured
// length, and both programs against the float64 reference at the first positions.
func (r *runner) verify(ctx context.Context, in *model.Input) error {
	f := r.flags
	limit := r.engine.Tolerance()
	compare := func(name, note string, got, want []float32) {
		l2, worst := report.Compare(got, want)
		r.addCheck(report.Check{Name: name, OK: l2 <= limit, RelL2: &l2, MaxAbs: &worst, Tolerance: &limit, Note: note})
	}
	s := r.session
	early, err := r.verifyPrefill(ctx, in, limit)
	if err != nil {
		return err
	}
	n := min(rows, f.prefill+f.gen)
	var single []float32
	s.Reset()
	for i := range n {
		out, err := in.Run(ctx, s, i, i+1)
		if err != nil {
			return err
		}
		single = append(single, out...)
	}
	if elems := r.weightElems(); elems > maxRefElems {
		r.addCheck(report.Check{Name: "reference", Skipped: true, Note: fmt.Sprintf("%.1f billion weights take too long "+
			"in float64; greta check does it", elems/1e9)})
		return nil
	}
	if r.engine.Device().Info().Backend == "ref" {
		return nil
	}
	want, err := r.reference(ctx, in, n)
	if memory := (*backends.OutOfMemory)(nil); errors.As(err, &memory) {
		r.addCheck(report.Check{Name: "reference", Skipped: true, Note: fmt.Sprintf("float64 needs %.2f GB of memory, and "+
			"%.2f GB may be used", float64(memory.Need)/1e9, float64(memory.Have)/1e9)})
		return nil
	}
	if err != nil {
		return fmt.Errorf("on the reference: %w", err)
	}
	compare("decode = float64", fmt.Sprintf("positions 0 to %d", n-1), single, want)
	if early != nil {
		compare("prefill = float64", fmt.Sprintf("positions 0 to %d of %d", min(rows, f.prefill)-1, f.prefill), early,
			want[:len(early)])
	}
	return nil
}

// reference computes the first n positions in float64: a row each.
func (r *runner) reference(ctx context.Context, in *model.Input, n int) (out []float32, err error) {
	opt := r.bundle.opt
	// What was measured is done: make room for the reference's weights.
	if err := errlist.Join(r.session.Close(), r.engine.Close()); err != nil {
		return nil, err
	}
	r.session = nil
	debug.FreeOSMemory()
	boundHeap()
	dev, err := openBackend("ref", deviceFlags{})
	if err != nil {
		return nil, err
	}
	opt.Device, opt.Context, opt.Progress = dev, max(n, 1), nil
	e, err := engine.New(ctx, opt)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	s, err := e.NewSession()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if in.Width > 0 {
		return in.Run(ctx, s, 0, n)
	}
	err = s.PrefillAll(ctx, in.Tokens[:n], func(_ int, logits []float32) error {
		out = append(out, logits...)
		return nil
	})
	return out, err
}
