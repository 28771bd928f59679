package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/greta-project/greta/engine"
	"github.com/greta-project/greta/engine/report"
	"github.com/greta-project/greta/tokenizer"
)

// continueText runs a prompt: its logits and likelihood where they are asked
// for, then the continuation, then a profile.
func (r *runner) continueText(ctx context.Context) error {
	if r.flags.logits != "" || r.flags.nll {
		if err := r.score(ctx); err != nil {
			return err
		}
		r.session.Reset()
	}
	var err error
	switch {
	case r.flags.gen > 0:
		err = r.generate(ctx)
	case r.report.Mode == "generate":
		err = r.prefillOnly(ctx)
	}
	if err != nil || r.report.Status != report.OK {
		return err
	}
	return r.profile(ctx, len(r.prompt))
}

// prefillOnly computes a prompt and nothing behind it.
func (r *runner) prefillOnly(ctx context.Context) error {
	if err := r.capture(nil, false); err != nil {
		return err
	}
	start := time.Now()
	logits, err := r.session.Prefill(ctx, r.prompt)
	took := time.Since(start)
	if err != nil {
		return err
	}
	r.update(func() {
		r.setTimes(took, 0, nil)
		r.report.OutputHash = report.HashFloats(logits)
		if i, ok := engine.Finite(logits); !ok {
			r.report.Fail(fmt.Sprintf("logit %d behind the prompt is %v", i, logits[i]))
		}
	})
	return nil
}

// capture prepares the steps of the prompt, and of a continuation where it is
// sampled, so that their first use is not slower.
func (r *runner) capture(sampling *engine.Sampling, more bool) error {
	start := time.Now()
	if err := r.session.Prepare(len(r.prompt), sampling, more); err != nil {
		return err
	}
	r.update(func() { r.report.LoadMS += report.MS(time.Since(start)) })
	return nil
}

// generate continues the prompt and streams what comes.
func (r *runner) generate(ctx context.Context) error {
	t := r.bundle.tokenizer
	out := r.app.out
	if r.flags.json == "-" {
		out = io.Discard
	}
	w := newTextWriter(out, t, r.prompt, r.flags.stops)
	opt := engine.Generation{Max: r.flags.gen, Sampling: r.flags.sampling, Logprobs: r.flags.logprobs}
	if t != nil && !r.flags.ignoreEOS {
		opt.End = t.IsEnd
	}
	opt.Emit = func(id int32) bool {
		now := time.Now()
		shown, goOn := w.token(id)
		r.update(func() {
			r.stamps = append(r.stamps, stamp{now, r.session.Ready()})
			r.report.GeneratedTokens = append(r.report.GeneratedTokens, id)
			r.report.Text += shown
		})
		return goOn
	}
	sampling := &opt.Sampling
	if opt.Logprobs > 0 {
		sampling = nil // they need all logits
	}
	run := r.session.Generate
	if r.flags.scheduled() {
		run = func(ctx context.Context, _ []int32, g engine.Generation) (*engine.Generated, error) {
			return r.scheduledText(ctx, g)
		}
	} else if err := r.capture(sampling, true); err != nil {
		return err
	}
	r.update(func() { r.start = time.Now() })
	g, err := run(ctx, r.prompt, opt)
	tail := w.end()
	r.update(func() {
		r.report.Text += tail
		if g.Prefill > 0 && (err == nil || len(g.Tokens) > 0) && len(g.Tokens) > 0 {
			r.setTimes(g.Prefill, g.First, g.Steps)
		}
		r.report.SetHost(g.Submit, g.Host)
		r.report.StopReason, r.report.Logprobs = string(g.Stop), g.Logprobs
		if g.Stop == engine.StopInterrupted {
			r.report.Status = report.Interrupted
		}
	})
	if err == nil {
		err = w.err
	}
	return err
}

// textWriter shows tokens as text: it decodes, holds back what may become a
// stop string, and writes the rest at once. Without a tokenizer it writes ids.
type textWriter struct {
	w     io.Writer
	dec   *tokenizer.Decoder
	stop  *tokenizer.Stopper
	first bool
	ended bool // a stop string came
	err   error
}

func newTextWriter(w io.Writer, t *tokenizer.Tokenizer, prompt []int32, stops []string) *textWriter {
	tw := &textWriter{w: w, stop: tokenizer.NewStopper(stops), first: true}
	if t != nil {
		tw.dec = t.NewDecoder()
		for _, id := range prompt {
			tw.dec.Write(id) // so that the continuation's spaces are right
		}
	}
	return tw
}

// token writes one token. It gives the text that was shown, and false where
// the text ends here.
func (t *textWriter) token(id int32) (shown string, goOn bool) {
	if t.dec == nil {
		text := strconv.Itoa(int(id))
		if !t.first {
			text = " " + text
		}
		t.first = false
		t.write(text)
		return "", t.err == nil
	}
	shown, hit := t.stop.Push(t.dec.Write(id))
	t.ended = hit != ""
	t.write(shown)
	return shown, t.err == nil && !t.ended
}

// end writes what was held back, and a newline.
func (t *textWriter) end() (shown string) {
	if t.dec != nil && !t.ended {
		var hit string
		shown, hit = t.stop.Push(t.dec.Flush())
		t.ended = hit != ""
		shown += t.stop.Flush()
	}
	t.write(shown + "\n")
	return shown
}

func (t *textWriter) write(s string) {
	if t.err == nil && s != "" {
		if _, err := io.WriteString(t.w, s); err != nil {
			t.err = fmt.Errorf("standard output: %w", err)
		}
	}
}
